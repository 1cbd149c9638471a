"""`evertalk setup`: asks for the few things that matter and writes `.env`, leaving the rest as it was."""

from __future__ import annotations

import asyncio
import getpass
import os
import re
import sys
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path

from dotenv import dotenv_values

from shared.adapters.models.ollama import OLLAMA_URL
from shared.offers import ollama_models
from shared.settings import BadSettings, default_env_file, load_settings

_LINE = re.compile(r"^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=")
_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+,=-]*")

Ask = Callable[[str], str]


def run_setup(ask: Ask = input, ask_secret: Ask = getpass.getpass) -> int:
    path = default_env_file()
    if path is None:
        print("EVERTALK_ENV_FILE is empty: there is no file to write to.", file=sys.stderr)
        return 2
    known = {name: value for name, value in _written(path).items() if value}
    print(f"Enter keeps what stands in [brackets]. Answers go to {path}, which only you can read.\n")
    try:
        answers = _questions(known, ask, ask_secret)
    except (EOFError, KeyboardInterrupt):
        print("\nNothing was changed.")
        return 1
    before = path.read_text() if path.is_file() else None
    write_private(path, merged(before or "", answers))
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
    answers["EVERTALK_PROFILE"] = _until_good(
        ask,
        f"Who will talk to it: you and people you know (personal), or anyone (public)? [{profile}] ",
        profile,
        lambda text: text if text in ("personal", "public") else None,
    )
    url = known.get("EVERTALK_PUBLIC_URL", "")
    answers["EVERTALK_PUBLIC_URL"] = _until_good(
        ask,
        f"Public address, such as https://chat.example.org, if it has one [{url or 'none'}] ",
        url,
        _address,
    )
    cap = known.get("EVERTALK_CAP_TOTAL_PER_DAY_USD", "5.00")
    answers["EVERTALK_CAP_TOTAL_PER_DAY_USD"] = _until_good(
        ask, f"How many US dollars a day may it spend at most? [{cap}] ", cap, _dollars
    )
    return answers


def _ask_for_model(known: Mapping[str, str], ask: Ask, ask_secret: Ask) -> dict[str, str]:
    has_key = "ANTHROPIC_API_KEY" in known
    hint = "the one that is set" if has_key else "none: the offline demo answers"
    key = ask_secret(f"Provider key, not shown while you type [{hint}] ").strip()
    if key and known.get("ANTHROPIC_BASE_URL") == OLLAMA_URL:
        # The key is for the provider; a local model chosen earlier makes room for it.
        return {"ANTHROPIC_API_KEY": key, "ANTHROPIC_BASE_URL": "", "EVERTALK_MODEL": ""}
    if key:
        return {"ANTHROPIC_API_KEY": key}
    if has_key or not (models := asyncio.run(ollama_models())):
        return {}
    answer = ask(f"Ollama runs on this machine with {', '.join(models)}. Use {models[0]}? [Y/n] ")
    if answer.strip().lower() in ("", "y", "yes"):
        return {"ANTHROPIC_BASE_URL": OLLAMA_URL, "EVERTALK_MODEL": models[0]}
    return {}


def _until_good(ask: Ask, question: str, default: str, check: Callable[[str], str | None]) -> str:
    while True:
        answer = ask(question).strip() or default
        good = check(answer)
        if good is not None:
            return good
        print("  That cannot be used; please try again.")


def _address(text: str) -> str | None:
    if text in ("", "none"):
        return ""
    return text.rstrip("/") if re.fullmatch(r"https?://[^\s/]+(/\S*)?", text) else None


def _dollars(text: str) -> str | None:
    try:
        amount = Decimal(text.removeprefix("$"))
    except InvalidOperation:
        return None
    return f"{amount:.2f}" if amount.is_finite() and amount >= 0 else None


def merged(before: str, answers: Mapping[str, str]) -> str:
    """The file with our lines replaced in place; comments and everything unknown stay as they were."""
    lines, done = [], set()
    for line in before.splitlines():
        match = _LINE.match(line)
        name = match[1] if match else ""
        if name in answers:
            if name not in done and answers[name]:
                lines.append(f"{name}={_quoted(answers[name])}")
            done.add(name)
        else:
            lines.append(line)
    lines += [f"{name}={_quoted(value)}" for name, value in answers.items() if value and name not in done]
    return "\n".join(lines) + "\n"


def write_private(path: Path, text: str) -> None:
    """Never, not even for a moment, readable by others; never half written."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600)
    fresh.write_text(text)
    fresh.replace(path)


def _quoted(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _written(path: Path) -> dict[str, str | None]:
    return dict(dotenv_values(path, interpolate=False)) if path.is_file() else {}
