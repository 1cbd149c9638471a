"""Runs `./evertalk demo telegram`: a fake Telegram, a separate installation, and one person in the
terminal.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import NoReturn

from aiohttp import ClientError

from shared.adapters.embedded import EmbeddedServerFailed
from shared.config.settings import Settings
from tests.kit.demo.keyboard import LineReader
from tests.kit.demo.paper import ChatPrinter
from tests.kit.demo.talk import DemoConversation
from tests.kit.replay.fake_telegram import FakeTelegram
from tests.kit.replay.system import NoReplayTarget, TemporaryInstallation

EXIT_CANNOT = 2
PERSON = 1_001
BOT_SECONDS = 60.0
LOOK_SECONDS = 0.1
_WELCOME = (
    "You talk with @{name} as if in Telegram. #1 presses button 1, /help asks the bot, /year types a year of "
    "conversation for you, /quit ends."
)


def main(arguments: Sequence[str], settings: Settings) -> int:
    """Run the demo; return 0 when the person has quit, 2 if it cannot be started."""
    wish = _parse(arguments)
    try:
        asyncio.run(_demo(settings, language=wish.language))
    except (NoReplayTarget, EmbeddedServerFailed) as error:
        return _failed(f"{error}. {error.advice}")
    except (ClientError, TimeoutError, OSError) as error:
        return _failed(f"the stand-in for Telegram has gone ({type(error).__name__}). Start the demo again.")
    except KeyboardInterrupt:
        sys.stderr.write("\n")
    return 0


async def _demo(settings: Settings, *, language: str) -> None:
    sys.stderr.write("Starting a stand-in for Telegram and a system of its own …\n")
    async with (
        FakeTelegram() as telegram,
        TemporaryInstallation(settings, window=None, more=telegram.settings()),
    ):
        await _bot_listens(telegram)
        await telegram.add_person(PERSON, "Ada", language=language)
        paper = ChatPrinter(sys.stdout)
        me = (await telegram.control("bot"))["me"]
        paper.note(_WELCOME.format(name=me["username"]))
        await DemoConversation(telegram, PERSON, paper, LineReader.of_terminal()).run()


async def _bot_listens(telegram: FakeTelegram) -> None:
    """Wait until the bot polls; `up` is ready with the web process, and the bot some seconds later."""
    until = asyncio.get_running_loop().time() + BOT_SECONDS
    while "getUpdates" not in await telegram.control("counts"):
        if asyncio.get_running_loop().time() > until:
            raise NoReplayTarget(
                "the bot does not come up", advice="`./evertalk doctor` tells what is missing."
            )
        await asyncio.sleep(LOOK_SECONDS)


def _failed(words: str) -> int:
    sys.stderr.write(f"evertalk demo: {words}\n")
    return EXIT_CANNOT


class _DemoParser(argparse.ArgumentParser):
    """Parser that reports an error in one line instead of printing the usage."""

    def error(self, message: str) -> NoReturn:
        sys.exit(_failed(f"{message}. ./evertalk demo --help shows what can be said."))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _DemoParser(
        prog="evertalk demo", description="Talk with the bot in the terminal, as if in Telegram."
    )
    parser.add_argument("channel", choices=("telegram",))
    parser.add_argument(
        "--language", choices=("en", "de"), default="en", help="language of the person's Telegram app"
    )
    return parser.parse_args(arguments)
