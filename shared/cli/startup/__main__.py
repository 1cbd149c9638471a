"""`python -m shared.cli.startup`: performs the steps of a start that standard input asks for, a line each."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from shared.cli.startup.assistant import CannotStart
from shared.cli.startup.steps import announce_bots, greet, migrate_with_backup
from shared.config.bots import load_bots
from shared.config.settings import BadSettings, load_settings
from shared.core.values.errors import StorageUnavailable

_CORRECT_THEM = "Correct these settings, and start again."


async def _answer_requests() -> None:
    asked = asyncio.current_task()
    assert asked is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.cancel)
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            _write("done", late=await _perform(json.loads(line)))
        except (CannotStart, StorageUnavailable) as error:
            _write("refusal", message=str(error), advice=error.advice)
        except BadSettings as error:
            _write("refusal", message="; ".join(map(str, error.problems)), advice=_CORRECT_THEM)


async def _perform(request: Mapping[str, Any]) -> list[int]:
    """Perform a step; return the ids of bots that have not reached Telegram."""
    if environment := request.get("environment"):
        os.environ.clear()
        os.environ.update(environment)
    settings = load_settings()
    if request["step"] == "migrate":
        await migrate_with_backup(settings, request["database_url"], say=_say)
        return []
    bots = load_bots(settings)
    if request["step"] == "greet":
        late = await greet(settings, bots, seconds=request["seconds"], say=_say)
    else:
        wanted = [bot for bot in bots if bot.bot_id in request["bots"]]
        late = await announce_bots(settings, wanted, say=_say)
    return [bot.bot_id for bot in late]


def _say(text: str) -> None:
    _write("line", text=text)


def _write(kind: str, **more: object) -> None:
    print(json.dumps({"kind": kind, **more}), flush=True)


def main() -> None:
    """Perform the requested steps until standard input ends; each answer is a line of JSON on standard
    output.
    """
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        asyncio.run(_answer_requests())
    except asyncio.CancelledError:
        sys.exit(0)


if __name__ == "__main__":
    main()
