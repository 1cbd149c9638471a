"""Telegram bots of this deployment: the one of TELEGRAM_BOT_TOKEN, those of the bots file, and those of
EVERTALK_TELEGRAM_BOTS, whose tokens are settings, too.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import SecretStr

from shared.config.fields.kinds import (
    TelegramAccess,
    TelegramAudience,
    TelegramMode,
    parse_chat_ids,
    parse_json,
    read_secrets,
    validate_bot_token,
)
from shared.config.secret_files import find_secret
from shared.config.settings import BadSettings, Settings, SettingsProblem, load_environment

FIRST_TOKEN = "TELEGRAM_BOT_TOKEN"  # noqa: S105 - the name of a variable
"""Environment variable with the token of the first bot."""
DEFAULT_AGENT = "default"
"""Name of the agent that answers where no other is chosen."""
MOST_BOTS = 50
"""Most bots in the bots file, and most in the setting."""
_FILE, _SETTING = "EVERTALK_TELEGRAM_BOTS_FILE", "EVERTALK_TELEGRAM_BOTS"
_KEYS = ("token_env", "agent", "audience", "access", "allowed")


@dataclass(frozen=True, slots=True, kw_only=True)
class BotConfig:
    """Operator's settings of one Telegram bot; `allowed` are ids of people and groups."""

    token: SecretStr
    token_name: str
    """Environment variable that holds the token; it names the bot until Telegram has returned its user
    name.
    """
    agent: str
    audience: TelegramAudience
    access: TelegramAccess
    allowed: frozenset[int]
    mode: TelegramMode

    @property
    def bot_id(self) -> int:
        """Id of the bot, which is the part of its token before the colon."""
        return int(self.token.get_secret_value().partition(":")[0])

    @property
    def lease_name(self) -> str:
        """Name of the lease; only the process that holds it polls the bot and sends for it."""
        return f"telegram:{self.bot_id}"


def load_bots(settings: Settings, environ: Mapping[str, str] | None = None) -> tuple[BotConfig, ...]:
    """Return all configured bots: that of the first token, of the bots file, and of the setting; empty
    without Telegram.

    `environ` holds the tokens of the bots in the file; None means the environment and the `.env` file. Raises
    BadSettings with every problem at once.
    """
    problems: list[SettingsProblem] = []
    bots: list[BotConfig] = []
    if settings.telegram_bot_token is not None:
        bots.append(_first_bot(settings, settings.telegram_bot_token))
    for number, entry in enumerate(_entries(settings, problems), start=1):
        try:
            bots.append(_bot(entry, settings, load_environment() if environ is None else environ))
        except ValueError as error:
            problems.append(_problem(settings, f"entry {number}: {error}"))
    bots += _load_stored_bots(settings, problems)
    problems += _doubles(settings, bots)
    if problems:
        raise BadSettings(tuple(problems))
    return tuple(bots)


def check_stored_bots(settings: Settings) -> None:
    """Check the bots of EVERTALK_TELEGRAM_BOTS and their tokens; return nothing. Raises BadSettings with
    every problem.
    """
    problems: list[SettingsProblem] = []
    _load_stored_bots(settings, problems)
    if problems:
        raise BadSettings(tuple(problems))


def _load_stored_bots(settings: Settings, problems: list[SettingsProblem]) -> list[BotConfig]:
    """Return the stored bots, and append what is wrong to `problems`.

    Their tokens come from EVERTALK_TELEGRAM_TOKENS alone.
    """
    bots, tokens = [], read_secrets(settings.telegram_tokens)
    for number, entry in enumerate(parse_json(settings.telegram_bots or "[]"), start=1):
        try:
            bots.append(_bot(entry, settings, tokens, missing="has no token in EVERTALK_TELEGRAM_TOKENS"))
        except ValueError as error:
            problems.append(SettingsProblem(name=_SETTING, value="", reason=f"entry {number}: {error}"))
    if len(bots) > MOST_BOTS:
        problems.append(SettingsProblem(name=_SETTING, value="", reason=f"{MOST_BOTS} bots are the most"))
    return bots


def find_remarks(bots: tuple[BotConfig, ...], settings: Settings) -> tuple[str, ...]:
    """Return warnings for the operator about who may talk with the bots, each a sentence; empty for none."""
    return tuple(remark for bot in bots for remark in _remarks(bot, settings))


def _remarks(bot: BotConfig, settings: Settings) -> Iterator[str]:
    if bot.access == "open" and settings.profile == "personal":
        yield (
            f"Anyone who finds the bot of {bot.token_name} may talk with it and spend up to "
            f"${settings.cap_total_per_day_usd:.2f} a day. EVERTALK_PROFILE=public caps each person; "
            "EVERTALK_TELEGRAM_ACCESS=pairing lets you choose who may."
        )
    if bot.access == "allowlist" and not bot.allowed:
        yield (
            f"Nobody may talk with the bot of {bot.token_name} but its owners: the list is empty. "
            "EVERTALK_TELEGRAM_ALLOWED names people and groups by number."
        )


def _first_bot(settings: Settings, token: SecretStr) -> BotConfig:
    return BotConfig(
        token=token,
        token_name=FIRST_TOKEN,
        agent=settings.telegram_agent,
        audience=settings.telegram_default_audience,
        access=settings.telegram_access,
        allowed=frozenset(settings.telegram_allowed),
        mode=settings.telegram_mode,
    )


def _entries(settings: Settings, problems: list[SettingsProblem]) -> list[Any]:
    if settings.telegram_bots_file is None:
        return []
    try:
        told = json.loads(settings.telegram_bots_file.read_text())
    except (OSError, ValueError) as error:
        problems.append(_problem(settings, f"cannot be read as JSON: {error}"))
        return []
    if not isinstance(told, list) or len(told) > MOST_BOTS:
        problems.append(_problem(settings, f"must be a list of at most {MOST_BOTS} bots, each a JSON object"))
        return []
    return told


def _bot(
    entry: Any,
    settings: Settings,
    environ: Mapping[str, str],
    *,
    missing: str = "is set neither in the environment nor in .env",
) -> BotConfig:
    if not isinstance(entry, dict):
        raise ValueError("is not a JSON object")
    for key in entry:
        if key not in _KEYS:
            raise ValueError(_unknown_key(key))
    name = _word(entry, "token_env", "")
    return BotConfig(
        token=_token(name, environ, missing),
        token_name=name,
        agent=_word(entry, "agent", DEFAULT_AGENT),
        audience=_one_of(entry, "audience", TelegramAudience, settings.telegram_default_audience),
        access=_one_of(entry, "access", TelegramAccess, settings.telegram_access),
        allowed=frozenset(_chat_ids(entry, settings)),
        mode=settings.telegram_mode,
    )


def _token(name: str, environ: Mapping[str, str], missing: str) -> SecretStr:
    if not name:
        raise ValueError("token_env is missing: it names the variable that holds the bot's token")
    if ":" in name:
        raise ValueError("token_env must name a variable; the token itself does not belong into this file")
    try:
        if (token := find_secret(environ, name)) is not None:
            return validate_bot_token(SecretStr(token.strip()))
    except ValueError as error:
        raise ValueError(f"{name} {error}") from None
    raise ValueError(f"token_env: {name} {'is empty' if name in environ else missing}")


def _unknown_key(key: str) -> str:
    if key == "token":
        return "tokens do not belong into this file; token_env names the variable that holds it"
    nearest = difflib.get_close_matches(key, _KEYS, 1)
    return f"{key} is unknown{f'; did you mean {nearest[0]}?' if nearest else ''}"


def _word(entry: Mapping[str, Any], key: str, default: str) -> str:
    word = entry.get(key, default)
    if not isinstance(word, str):
        raise ValueError(f"{key} must be text")
    return word.strip()


def _one_of(entry: Mapping[str, Any], key: str, kind: Any, default: Any) -> Any:
    word = entry.get(key, default)
    if word not in get_args(kind):
        raise ValueError(f"{key} must be one of {', '.join(get_args(kind))}")
    return word


def _chat_ids(entry: Mapping[str, Any], settings: Settings) -> tuple[int, ...]:
    if "allowed" not in entry:
        return settings.telegram_allowed
    if not isinstance(entry["allowed"], list):
        raise ValueError("allowed must be a list of numbers")
    try:
        return parse_chat_ids(entry["allowed"])
    except ValueError as error:
        raise ValueError(f"allowed: {error}") from None


def _doubles(settings: Settings, bots: Sequence[BotConfig]) -> Iterator[SettingsProblem]:
    seen: dict[int, str] = {}
    for bot in bots:
        if bot.bot_id in seen:
            first, again = seen[bot.bot_id], bot.token_name
            yield _problem(settings, f"{first} and {again} hold the token of the same bot; keep one of them")
        seen.setdefault(bot.bot_id, bot.token_name)


def _problem(settings: Settings, reason: str) -> SettingsProblem:
    return SettingsProblem(name=_FILE, value=str(settings.telegram_bots_file), reason=reason)
