"""The tests' strict fake of Telegram as a process, with a small client for it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from types import TracebackType
from typing import Any, Self

from aiohttp import ClientError, ClientSession, ClientTimeout

from tests.kit.replay.system import ROOT, NoReplayTarget

START_SECONDS = 20.0
STOP_SECONDS = 5.0
CONTROL_SECONDS = 60.0
_MODULE = "tests.kit.fakes.bot_api"


class FakeTelegramRefused(Exception):
    """The fake cannot do that: there is no such person, button or rule."""


class FakeTelegram:
    """The fake Telegram; used as `async with FakeTelegram() as telegram`.

    People act through it; bots reach it at `base_url`.
    """

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._http: ClientSession | None = None
        self._control_url = ""
        self.base_url = ""
        self.token = ""

    @property
    def bot_id(self) -> int:
        return int(self.token.partition(":")[0])

    def settings(self) -> dict[str, str]:
        """Return the settings that make a system use this Telegram, with access for everybody."""
        return {
            "TELEGRAM_BOT_TOKEN": self.token,
            "EVERTALK_TELEGRAM_API_URL": self.base_url,
            "EVERTALK_TELEGRAM_ACCESS": "open",
            "EVERTALK_TELEGRAM_MODE": "polling",
        }

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", _MODULE, "--parent-pid", str(os.getpid()),
            cwd=ROOT, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        try:
            told = await self._first_line(self._process)
        except BaseException:
            await self._stop()
            raise
        self.base_url, self.token = str(told["base_url"]), str(told["token"])
        self._control_url = f"http://127.0.0.1:{told['control_port']}/control"
        self._http = ClientSession(timeout=ClientTimeout(total=CONTROL_SECONDS))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    # -- people -----------------------------------------------------------------------------------------

    async def add_person(self, number: int, first_name: str, *, language: str = "en") -> None:
        await self.act("add_person", person=number, first_name=first_name, language_code=language)

    async def say(self, person: int, text: str) -> int:
        """Let a person send a text to the bot, and return the id of the message."""
        return int((await self.act("say", person=person, text=text))["message_id"])

    async def tap(self, person: int, label: str, message_id: int) -> None:
        await self.act("tap", person=person, label=label, message_id=message_id)

    async def screen(self, chat: int, *, after: int = -1, wait: float = 0.0) -> dict[str, Any]:
        """Return the chat as its person sees it: at once, or when its version is above `after`."""
        found: dict[str, Any] = await self.control("screen", chat=chat, after=after, wait=wait)
        return found

    async def calls(self, method: str, *, chat: int | None = None, since: int = 0) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await self.control("calls", method=method, chat=chat, since=since)
        return found

    async def act(self, name: str, **wish: Any) -> Any:
        return await self.control(f"act/{name}", **wish)

    async def control(self, what: str, **wish: Any) -> Any:
        """Call a control of the fake, and return its answer.

        Raises FakeTelegramRefused if the fake refuses.
        """
        assert self._http is not None
        async with self._http.post(f"{self._control_url}/{what}", json=wish) as response:
            found = await response.json()
            if response.status != 200:
                raise FakeTelegramRefused(str(found.get("error", response.status)))
            return found

    # -- the process ------------------------------------------------------------------------------------

    async def _first_line(self, process: asyncio.subprocess.Process) -> dict[str, Any]:
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_SECONDS):
                line = await process.stdout.readline()
            found: dict[str, Any] = json.loads(line)
        except (TimeoutError, ValueError):
            raise NoReplayTarget(
                "the stand-in for Telegram does not start",
                advice=f"`{sys.executable} -m {_MODULE}` in {ROOT} says why.",
            ) from None
        return found

    async def _stop(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.close()
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


__all__ = ["ClientError", "FakeTelegram", "FakeTelegramRefused"]
