"""Removal of keys, tokens and passwords from texts that are stored outside the log or summarised."""

from __future__ import annotations

import re

REDACTED = "[secret removed]"
"""Text that replaces a secret."""

_WHOLE = re.compile(
    r"""
    -----BEGIN[ A-Z]*PRIVATE[ ]KEY[ A-Z]*-----.*?(?:-----END[ A-Z]*PRIVATE[ ]KEY[ A-Z]*-----|\Z)  # PEM, PGP
    | \bAGE-SECRET-KEY-1[A-Z0-9]{20,}
    | \b(?:sk|pk|rk)[-_](?:ant|live|test|proj|or)[-_][\w-]{10,}  # provider and payment keys
    | \bsk-[A-Za-z0-9]{20,}
    | \bgh[pousr]_[A-Za-z0-9]{20,} | \bgithub_pat_\w{20,} | \bglpat-[\w-]{16,}
    | \bxox[abeprs]-[\w-]{10,} | \bxapp-\d-[\w-]{10,}
    | \bhooks\.slack\.com/services/[\w/]{20,} | \bdiscord(?:app)?\.com/api/webhooks/\d+/[\w-]{20,}
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b
    | \bAIza[\w-]{30,} | \bya29\.[\w-]{20,} | \bGOCSPX-[\w-]{20,}
    | \b(?:npm|hf|gsk|whsec|glsa|ntn)_[A-Za-z0-9]{20,} | \bpypi-[\w-]{30,}
    | \b(?:xai|pplx)-[A-Za-z0-9]{20,} | \bdop_v1_[a-f0-9]{40,} | \bshp(?:at|ca|pa|ss)_[a-fA-F0-9]{20,}
    | \bSG\.[\w-]{16,}\.[\w-]{16,}
    | \bAccountKey=[A-Za-z0-9+/=]{40,}
    | \beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}  # JSON web token
    | \b\d{8,10}:[A-Za-z0-9_-]{35}\b  # Telegram bot token
    """,
    re.VERBOSE | re.DOTALL,
)
_IN_URL = re.compile(
    r"(?P<keep>\b[a-z][a-z0-9+.-]{0,30}://[^\s:/@]*:)(?P<secret>[^\s/@]++)(?=@)", re.IGNORECASE
)
_BEARER = re.compile(r"(?P<keep>\bBearer\s+)(?P<secret>[\w.~+/=-]{16,})", re.IGNORECASE)
_NAMED = re.compile(
    r"""(?P<keep>(?<![^\W\d_])(?:pass(?:word|wd|phrase|code)|passwort|kennwort|contraseña|mot[ ]de[ ]passe
        |senha|密码|пароль|api[ _-]?key|(?:secret[ _-]?)?access[ _-]?key|secret(?:[ _-]?key)?
        |client[ _-]?secret|auth[ _-]?token|access[ _-]?token|token)\b["']?
        \s*(?:[:：=]|\bis\b|\bist\b|\bes\b|\best\b|это|是)\s*["']?)
        (?P<secret>(?=[^\s"']{0,200}[\d!@#$%^&*_~+-])[^\s"',;]{6,})""",
    re.IGNORECASE | re.VERBOSE,
)
_CARD_GROUPS = re.compile(
    r"[2-6](?:\d{12,15}|\d{18}|\d{3}([ -])\d{4}\1\d{4}\1\d{1,4}(?:\1\d{3})?|\d{3}([ -])\d{6}\2\d{4,5})"
)
_CARD = re.compile(r"(?<![\w.-])(?:\d[ -]?){12,18}\d(?![\w-])")


_BEGINNINGS = {
    "-": ("-----BEGIN", "sk-", "pk-", "rk-", "glpat-", "xox", "xapp-", "AGE-SECRET", "GOCSPX-", "pypi-",
          "xai-", "pplx-"),
    "_": ("sk_", "pk_", "rk_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "npm_", "hf_", "gsk_",
          "whsec_", "glsa_", "ntn_", "dop_v1_", "shp"),
    ".": ("eyJ", "hooks.slack.com", "ya29.", "SG."),
    "/": ("/api/webhooks/",),
    "=": ("AccountKey=",),
    "A": ("AKIA", "ASIA", "AIza"),
}  # fmt: skip
"""Beginnings of secrets, by a character that each contains; most texts lack most of these characters."""
_MANY_DIGITS = re.compile(r"\d(?:[ -]?\d){7}")
_NAMES = ("pass", "key", "secret", "token", "пароль", "kennwort", "contraseña", "senha", "密码")


def redact(text: str) -> str:
    """Return the text with every recognisable secret replaced by `REDACTED`.

    Secrets are keys and tokens of known services, private keys, passwords after a name or in a URL, and
    numbers of payment cards. Costly patterns run only if a cheap test finds a reason.
    """
    digits = _MANY_DIGITS.search(text) is not None
    if digits or any(mark in text and _holds_one(text, words) for mark, words in _BEGINNINGS.items()):
        text = _WHOLE.sub(REDACTED, text)
    lower = text.casefold()
    for pattern, needed in ((_IN_URL, ("://",)), (_BEARER, ("bearer",)), (_NAMED, _NAMES)):
        if _holds_one(lower, needed):
            text = pattern.sub(lambda found: f"{found['keep']}{REDACTED}", text)
    if not digits:
        return text
    return _CARD.sub(lambda found: REDACTED if _is_card(found[0]) else found[0], text)


def _holds_one(text: str, words: tuple[str, ...]) -> bool:
    for word in words:  # noqa: SIM110  a generator costs more than what it looks for
        if word in text:
            return True
    return False


def holds_secret(text: str) -> bool:
    """Return whether a text contains a recognisable secret."""
    return redact(text) != text


def _is_card(number: str) -> bool:
    """Return whether a number is a payment card's, by its groups, length and check digit (Luhn)."""
    if _CARD_GROUPS.fullmatch(number) is None:
        return False
    digits = [int(char) for char in number if char.isdigit()]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
    return len(set(digits)) > 1 and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
