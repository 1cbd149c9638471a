"""One-time codes of an authenticator app (RFC 6238), and recovery codes for a lost phone.

Codes are computed here: a second use of a code is refused by its time step, which pyotp does not return.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable
from urllib.parse import quote, urlencode

STEP_SECONDS = 30
"""Seconds for which a code is shown."""
DIGITS = 6
"""Digits of a code."""
KEY_BYTES = 20
"""Bytes of the secret key that app and server share."""
SLACK_STEPS = 1
"""Time steps by which a phone's clock may be off, in either direction."""
RECOVERY_CODES = 10
"""Recovery codes that an operator gets at a time."""
RECOVERY_BYTES = 10
"""Random bytes of a recovery code."""
_CODE = re.compile(rf"\d{{{DIGITS}}}")


def code_at(key: bytes, step: int, *, digits: int = DIGITS) -> str:
    """Return the code of a time step as a string of `digits` digits (HOTP, RFC 4226)."""
    mac = hmac.digest(key, step.to_bytes(8, "big"), hashlib.sha1)
    at = mac[-1] & 15
    number = int.from_bytes(mac[at : at + 4], "big") & 0x7FFF_FFFF
    return str(number % 10**digits).zfill(digits)


def step_of(seconds: float) -> int:
    """Return the number of the 30-second time step that contains a Unix time."""
    return int(seconds) // STEP_SECONDS


def matching_step(key: bytes, typed: str, *, seconds: float, after: int) -> int | None:
    """Return the time step to which a typed code belongs; None if it is wrong or was used.

    `seconds` is the present Unix time; the steps just before and after are accepted, too. `after` is the last
    step used; its codes and earlier ones are refused. Blanks and hyphens in `typed` are ignored.
    """
    code = typed.translate(_SPACES)
    if not _CODE.fullmatch(code):
        return None
    now, found = step_of(seconds), None
    for step in range(now - SLACK_STEPS, now + SLACK_STEPS + 1):
        # All are compared, so that the time taken reveals nothing.
        if hmac.compare_digest(code_at(key, step).encode(), code.encode()) and step > after:
            found = step
    return found


def format_key(key: bytes) -> str:
    """Return the key in base32, in groups of four characters, as people type it into an app."""
    return _groups(base64.b32encode(key).decode().rstrip("="))


def app_address(key: bytes, *, name: str, issuer: str) -> str:
    """Return the `otpauth:` address that authenticator apps read from a link or a QR code; it holds the
    key.
    """
    asked = {"secret": base64.b32encode(key).decode().rstrip("="), "issuer": issuer}
    return f"otpauth://totp/{quote(issuer)}:{quote(name)}?{urlencode(asked, quote_via=quote)}"


def format_recovery_codes(drawn: Iterable[bytes]) -> tuple[str, ...]:
    """Return one recovery code for each text of random bytes: base32 in lower case, in groups of four."""
    return tuple(_groups(base64.b32encode(one).decode().lower()) for one in drawn)


def recovery_digest(typed: str) -> bytes:
    """Return the SHA-256 hash of a recovery code, by which it is stored, ignoring case, blanks and hyphens.

    Its 80 random bits make one hash enough.
    """
    bare = typed.translate(_SPACES).lower()[:100]
    return hashlib.sha256(f"evertalk.recovery:{bare}".encode("utf-8", "replace")).digest()


def _groups(text: str) -> str:
    return " ".join(text[at : at + 4] for at in range(0, len(text), 4))


_SPACES = {ord(one): None for one in " -\u00a0\t"}
