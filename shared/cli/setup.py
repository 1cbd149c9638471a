"""`evertalk setup`: asks for the few things that matter and writes `.env`, leaving the rest as it was."""

from __future__ import annotations

import asyncio
import getpass
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path

from dotenv import dotenv_values
from pydantic import SecretStr

from shared.adapters.models.model_lists import (
    KNOWN,
    KeyRefused,
    ModelListUnavailable,
    find_local_servers,
    list_models,
)
from shared.adapters.models.openai_provider import OPENAI_URL
from shared.adapters.telegram_probe import BotProbe, TelegramUnreachable, TokenRefused, probe_bot
from shared.config.fields.kinds import parse_chat_ids, validate_bot_token
from shared.config.fields.telegram import TELEGRAM_API_URL
from shared.config.settings import BadSettings, default_env_file, load_settings

_LINE = re.compile(r"^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=")
_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+,=-]*")
_ANTHROPIC_KEY = "sk-ant-"
_ADDRESSES = {"sk-or-": "https://openrouter.ai/api/v1", "gsk_": "https://api.groq.com/openai/v1"}
"""API addresses by the beginning of a key."""
_LOCAL_URLS = frozenset(server.base_url for server in KNOWN)
_NO_PROVIDER = dict.fromkeys(
    ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL", "EVERTALK_MODEL"), ""
)
_SHOWN = 8

Ask = Callable[[str], str]
"""Function that shows a question and returns the typed answer."""


def run_setup(ask: Ask = input, ask_secret: Ask = getpass.getpass) -> int:
    """Ask for the few settings that matter and write them to `.env`; return exit status 0.

    Status 1 means that the person gave up, and nothing was changed; 2 that there is no file to write to, or
    that the written settings contradict each other.
    """
    path = default_env_file()
    if path is None:
        print("EVERTALK_ENV_FILE is empty: there is no file to write to.", file=sys.stderr)
        return 2
    known = {name: value for name, value in _read_env_file(path).items() if value}
    print(f"Enter keeps what stands in [brackets]. Answers go to {path}, which only you can read.\n")
    try:
        answers = _questions(known, ask, ask_secret)
    except (EOFError, KeyboardInterrupt):
        print("\nNothing was changed.")
        return 1
    before = path.read_text() if path.is_file() else None
    write_private(path, merge_settings(before or "", answers))
    try:
        load_settings(path)
    except BadSettings as error:
        for problem in error.problems:
            print(f"evertalk: {problem}", file=sys.stderr)
        return 2
    print(f"\nWritten to {path}. Start with: ./evertalk up")
    return 0


def _questions(known: Mapping[str, str], ask: Ask, ask_secret: Ask) -> dict[str, str]:
    answers = _ask_for_model(known, ask, ask_secret)
    profile = known.get("EVERTALK_PROFILE", "personal")
    answers["EVERTALK_PROFILE"] = _ask_until_valid(
        ask,
        f"Who will talk to it: you and people you know (personal), or anyone (public)? [{profile}] ",
        profile,
        _one_of("personal", "public"),
    )
    url = known.get("EVERTALK_PUBLIC_URL", "")
    answers["EVERTALK_PUBLIC_URL"] = _ask_until_valid(
        ask,
        f"Public address, such as https://chat.example.org, if it has one [{url or 'none'}] ",
        url,
        _address,
    )
    cap = known.get("EVERTALK_CAP_TOTAL_PER_DAY_USD", "5.00")
    answers["EVERTALK_CAP_TOTAL_PER_DAY_USD"] = _ask_until_valid(
        ask, f"How many US dollars a day may it spend at most? [{cap}] ", cap, _dollars
    )
    return {**answers, **_ask_for_telegram(known, ask, ask_secret, profile=answers["EVERTALK_PROFILE"])}


def _ask_for_model(known: Mapping[str, str], ask: Ask, ask_secret: Ask) -> dict[str, str]:
    has_key = bool({"ANTHROPIC_API_KEY", "OPENAI_API_KEY"} & known.keys())
    hint = "the one that is set" if has_key else "none: the offline demo answers"
    while True:
        key = ask_secret(f"Provider key, not shown while you type [{hint}] ").strip()
        if key.startswith(_ANTHROPIC_KEY):
            return _use_anthropic(known, key)
        if not key:
            return {} if has_key else _ask_for_local_model(ask)
        try:
            return _ask_for_provider(known, ask, key)
        except KeyRefused as error:
            print(f"  No: {error}.")


def _use_anthropic(known: Mapping[str, str], key: str) -> dict[str, str]:
    """Another provider, or a local model chosen earlier, makes room for it."""
    another = known.keys() & {"OPENAI_API_KEY", "OPENAI_BASE_URL"}
    makes_room = another or known.get("ANTHROPIC_BASE_URL") in _LOCAL_URLS
    return {**(_NO_PROVIDER if makes_room else {}), "ANTHROPIC_API_KEY": key}


def _ask_for_provider(known: Mapping[str, str], ask: Ask, key: str) -> dict[str, str]:
    """Ask for the provider of a key that does not reveal it. Raises KeyRefused."""
    usual = next((url for start, url in _ADDRESSES.items() if key.startswith(start)), OPENAI_URL)
    question = f"Address of its API, if that is as OpenAI's, or anthropic [{usual}] "
    url = _ask_until_valid(ask, question, usual, _anthropic_or_address)
    if url == "anthropic":
        return _use_anthropic(known, key)
    try:
        models = asyncio.run(list_models(url, key))
    except ModelListUnavailable as error:
        print(f"  It could not be checked: {error}. It is kept; ./evertalk doctor looks again.")
        models = ()
    model = _ask_for_name(ask, known.get("EVERTALK_MODEL", ""), models)
    address = "" if url == OPENAI_URL else url
    return {**_NO_PROVIDER, "OPENAI_API_KEY": key, "OPENAI_BASE_URL": address, "EVERTALK_MODEL": model}


def _ask_for_name(ask: Ask, before: str, models: Sequence[str]) -> str:
    if models:
        more = f" and {len(models) - _SHOWN} more" if len(models) > _SHOWN else ""
        print(f"  It has {', '.join(models[:_SHOWN])}{more}.")
    usual = before if before in models or not models else models[0]

    def served(name: str) -> str:
        if not name:
            raise ValueError("Please write the name of a model, as its provider writes it.")
        if models and name not in models:
            raise ValueError(f"It has no {name}.")
        return name

    return _ask_until_valid(ask, f"Which model answers? [{usual or 'none yet'}] ", usual, served)


def _ask_for_local_model(ask: Ask) -> dict[str, str]:
    for server in asyncio.run(find_local_servers()):
        model, *others = server.models
        beside = f" with {model}{f' and {len(others)} more' if others else ''}"
        answer = ask(f"{server.name} runs on this machine{beside}. Use {model}? [Y/n] ")
        if answer.strip().lower() in ("", "y", "yes"):
            variable = "ANTHROPIC_BASE_URL" if server.wire == "messages" else "OPENAI_BASE_URL"
            return {**_NO_PROVIDER, variable: server.base_url, "EVERTALK_MODEL": model}
    return {}


def _ask_for_telegram(known: Mapping[str, str], ask: Ask, ask_secret: Ask, *, profile: str) -> dict[str, str]:
    has_token = "TELEGRAM_BOT_TOKEN" in known
    api_url = {**known, **os.environ}.get("EVERTALK_TELEGRAM_API_URL") or TELEGRAM_API_URL
    print("Telegram: write /newbot to @BotFather in Telegram and paste the token that it gives you.")
    hint = 'the one that is set; "none" takes it away' if has_token else "none: no Telegram"
    token = _ask_until_valid(
        ask_secret,
        f"Bot token, not shown while you type [{hint}] ",
        "",
        lambda text: _bot_token(text, api_url),
    )
    if token == "none" or not (token or has_token):  # noqa: S105 - a word that people type
        return {"TELEGRAM_BOT_TOKEN": ""} if has_token else {}
    answers = {"TELEGRAM_BOT_TOKEN": token} if token else {}
    return {**answers, **_ask_for_access(known, ask, profile=profile)}


def _bot_token(text: str, api_url: str) -> str:
    """Checked with Telegram; raises ValueError for what cannot be a token, or not one that Telegram knows."""
    if text in ("", "none"):
        return text
    try:
        token = validate_bot_token(SecretStr(text))
    except ValueError as error:
        raise ValueError(f"It {error}.") from None
    try:
        seen = asyncio.run(probe_bot(token, api_url=api_url))
    except TokenRefused as error:
        raise ValueError(f"No: {error}.") from None
    except TelegramUnreachable as error:
        print(f"  It could not be checked: {error}. It is kept; ./evertalk doctor looks again.")
        return text
    print(f"  {_describe_bot(seen)}")
    return text


def _describe_bot(seen: BotProbe) -> str:
    groups = "reads everything" if seen.reads_all_group_messages else "reads only what is meant for it"
    return f"This is @{seen.username} ({seen.name}); in groups it {groups}."


def _ask_for_access(known: Mapping[str, str], ask: Ask, *, profile: str) -> dict[str, str]:
    access = known.get("EVERTALK_TELEGRAM_ACCESS", "pairing")
    answer = _ask_until_valid(
        ask,
        "Who may write to the bot: whom you approve (pairing), whom you list (allowlist), or anyone (open)? "
        f"[{access}] ",
        access,
        _one_of("pairing", "allowlist", "open"),
    )
    if answer == "open" and profile == "personal":
        print("  Mind that anyone who finds the bot may then spend your money, up to the daily cap.")
    if answer != "allowlist":
        return {"EVERTALK_TELEGRAM_ACCESS": answer}
    listed = known.get("EVERTALK_TELEGRAM_ALLOWED", "")
    question = f"Telegram numbers of people and groups, with commas [{listed or 'none yet'}] "
    return {
        "EVERTALK_TELEGRAM_ACCESS": answer,
        "EVERTALK_TELEGRAM_ALLOWED": _ask_until_valid(ask, question, listed, _numbers),
    }


def _anthropic_or_address(text: str) -> str:
    return text if text == "anthropic" else _address(text).removesuffix("/")


def _numbers(text: str) -> str:
    try:
        return ",".join(map(str, parse_chat_ids(text.replace(",", " ").split())))
    except ValueError as error:
        raise ValueError(f"{error}. @userinfobot tells a person's number.") from None


def _ask_until_valid(ask: Ask, question: str, default: str, check: Callable[[str], str]) -> str:
    """Ask until the answer is valid; `check` raises ValueError with a sentence for the person."""
    while True:
        try:
            return check(ask(question).strip() or default)
        except ValueError as error:
            print(f"  {error}")


def _one_of(*words: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if text not in words:
            raise ValueError(f"Please answer {' or '.join(words)}.")
        return text

    return check


def _address(text: str) -> str:
    if text in ("", "none"):
        return ""
    if not re.match(r"https?://", text):
        raise ValueError(f"An address begins with https:// (or http://), such as https://{text.lstrip('/')}.")
    if not re.fullmatch(r"https?://[^\s/]+(/\S*)?", text):
        raise ValueError("An address has the name of a machine after the slashes, and no spaces.")
    return text.rstrip("/")


def _dollars(text: str) -> str:
    try:
        amount = Decimal(text.removeprefix("$"))
    except InvalidOperation:
        raise ValueError("Please write an amount with a dot, such as 5 or 2.50.") from None
    if not amount.is_finite() or amount < 0:
        raise ValueError("The amount must be 0 or more.")
    return f"{amount:.2f}"


def merge_settings(before: str, answers: Mapping[str, str]) -> str:
    """Return the text of a settings file with the answers in place of former values; all other lines stay.

    An empty answer removes its line.
    """
    lines, done = [], set()
    for line in before.splitlines():
        match = _LINE.match(line)
        name = match[1] if match else ""
        if name in answers:
            if name not in done and answers[name]:
                lines.append(f"{name}={_quote(answers[name])}")
            done.add(name)
        else:
            lines.append(line)
    lines += [f"{name}={_quote(value)}" for name, value in answers.items() if value and name not in done]
    return "\n".join(lines) + "\n"


def write_private(path: Path, text: str) -> None:
    """Write a text file that only this account can read, replacing the former one as a whole."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600)
    fresh.write_text(text)
    fresh.replace(path)


def _quote(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _read_env_file(path: Path) -> dict[str, str | None]:
    return dict(dotenv_values(path, interpolate=False)) if path.is_file() else {}
