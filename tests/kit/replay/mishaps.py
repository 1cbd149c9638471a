"""The mishaps of a conversation played over Telegram: scripted failures of calls, and restarts of the bot."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kit.replay.fake_telegram import FakeTelegram

BUBBLE_SECONDS = 8.0
GLANCE_SECONDS = 0.03
_OFTEN = ((16, 1), (40, 2))
"""Pairs of a number of messages and an interval: in a replay of at most that number, a mishap happens at
every message of that interval.

In longer replays, at every fifth message.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mishap:
    """A kind of mishap; `steps` are the calls that fail, each with the fault."""

    name: str
    steps: Sequence[tuple[str, dict[str, Any]]]


MISHAPS = (
    Mishap(name="429 for a message", steps=[("sendMessage", {"status": 429, "retry_after": 1})]),
    Mishap(name="429 for an edit", steps=[("editMessageText", {"status": 429, "retry_after": 1})]),
    Mishap(
        name="lost acknowledgement of an answer",
        # without a bubble, the answer itself is lost
        steps=[
            ("sendMessage", {"status": 429, "retry_after": 2}),
            ("sendMessage", {"reset": "after"}),
        ],
    ),
    Mishap(name="reset before an edit", steps=[("editMessageText", {"reset": "before"})]),
    Mishap(name="reset after an edit", steps=[("editMessageText", {"reset": "after"})]),
    # a short answer has no bubble: it is sent in one piece, and may be missing altogether
    Mishap(name="reset before a bubble", steps=[("sendMessage", {"reset": "before"})]),
    Mishap(name="lost acknowledgement of a bubble", steps=[("sendMessage", {"reset": "after"})]),
    Mishap(
        name="reset before an answer and before its notice",
        steps=[("sendMessage", {"reset": "before"}), ("sendMessage", {"reset": "before"})],
    ),
    Mishap(
        name="resets of polls",
        steps=[("getUpdates", {"reset": "before"}), ("getUpdates", {"reset": "after"})],
    ),
)


class Mishaps:
    """The mishaps of a whole replay; each conversation calls them before and after a message."""

    def __init__(self, telegram: FakeTelegram, folder: Path, *, messages: int) -> None:
        self._telegram = telegram
        self._pid_file = folder / "bot.pid"
        self._every = next((every for most, every in _OFTEN if messages <= most), 5)
        self._restarts = [("terminate", messages // 3), ("kill", 2 * messages // 3)]
        self._said = 0
        self._next = 0
        self.restarts = 0
        self.planned: Counter[str] = Counter()

    async def before(self, chat: int) -> None:
        """Plan the next mishap for this chat, if it is time for one."""
        if self._said % self._every or self._restart_is_near():
            return
        mishap = MISHAPS[self._next % len(MISHAPS)]
        self._next += 1
        self.planned[mishap.name] += 1
        rules = [{"match": _match(method, chat), "action": action} for method, action in mishap.steps]
        await self._telegram.control("script", rules=rules, more=True)

    async def after(self, chat: int, message: int) -> int | None:
        """Restart the bot, twice in a replay, in the middle of an answer.

        Return the id of a message that a killed bot may not know it has sent; None without one.
        """
        self._said += 1
        if not self._restarts or self._said <= self._restarts[0][1]:
            return None
        how, _ = self._restarts.pop(0)
        shown = await self._bubble(chat, message)
        number = signal.SIGTERM if how == "terminate" else signal.SIGKILL
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(self._pid_file.read_text()), number)
            self.restarts += 1
        return shown if how == "kill" else None

    async def used(self) -> dict[str, int]:
        """Return the number of calls that met each fault."""
        found: Counter[str] = Counter()
        for rule in await self._telegram.control("rules"):
            action = rule["action"]
            kind = "429" if "status" in action else f"reset {action['reset']}"
            found[f"{kind} {rule['match']['method']}"] += rule["used"]
        return dict(sorted(found.items()))

    def _restart_is_near(self) -> bool:
        return bool(self._restarts) and self._said == self._restarts[0][1]

    async def _bubble(self, chat: int, message: int) -> int | None:
        """Wait for the bot's first message after `message`, which shows that an answer is being written.

        Return its id; None if none appears.
        """
        until = asyncio.get_running_loop().time() + BUBBLE_SECONDS
        while (shown := await self._newest(chat)) <= message:
            if asyncio.get_running_loop().time() > until:
                return None
            await asyncio.sleep(GLANCE_SECONDS)
        return shown

    async def _newest(self, chat: int) -> int:
        """Return the id of the last message that the bot has sent to this chat; 0 if there is none."""
        calls = await self._telegram.calls("sendMessage", chat=chat)
        return max((int((call["result"] or {}).get("message_id", 0)) for call in calls[-3:]), default=0)


def _match(method: str, chat: int) -> dict[str, Any]:
    """Return the match of a rule for a call; polls belong to no chat."""
    return {"method": method} if method == "getUpdates" else {"method": method, "chat": chat}
