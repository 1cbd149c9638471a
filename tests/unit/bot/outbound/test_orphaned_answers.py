"""Answers of a bot: what its last holder left is looked for at once, and notices delay no answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from bot.telegram.outbound import delivery
from bot.telegram.outbound.delivery import TelegramTurnDispatcher
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.core.session.turns import Emit
from shared.core.values.errors import StorageUnavailable
from shared.services.turns import turn_dispatcher as everywhere

CHAT = ChatRow(
    address_id=5, bot_id=42, chat_id=7, thread_id=0, contact_id=2, session_id=3,
    session_public_id=UUID(int=4), title="", settings={}, unreachable=False,
)  # fmt: skip


class Traces:
    """A conversation and a delivery with nothing to do."""

    def __init__(self) -> None:
        self.looks: list[list[str]] = []
        self.brought: list[list[int]] = []
        self.answers = 0

    async def list_unanswered(self, channel: str, *, accounts: Sequence[str] | None = None) -> list[int]:
        self.looks.append(list(accounts or ()))
        return []

    async def check_leases(self) -> None:
        pass

    async def answer(self, _session_id: int, _emit: Emit) -> None:
        self.answers += 1

    def open_reply(self, _chat: ChatRow) -> Traces:
        return self

    async def close(self) -> None:
        pass

    async def resume_unfinished(self, accounts: Sequence[int]) -> int:
        self.brought.append(list(accounts))
        return 0


async def comes(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.01)


async def test_newly_held_bot_is_checked_before_the_next_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivery, "RECOVERY_SECONDS", 3_600.0)
    monkeypatch.setattr(everywhere, "ORPHAN_POLL_SECONDS", 3_600.0)
    traces, held = Traces(), list[int]()
    nothing = cast("Any", traces)
    answers = TelegramTurnDispatcher(
        nothing, nothing, nothing, guests=nothing, open_guest_sink=nothing, secretary=nothing,
        list_held_bots=lambda: held, on_idle=nothing,
    )  # fmt: skip
    answers.start()
    try:
        await asyncio.sleep(0.2)
        assert (traces.looks, traces.brought) == ([], [])
        held.append(42)
        answers.on_bot_serving()
        await comes(lambda: bool(traces.looks and traces.brought))
        assert (traces.looks, traces.brought) == ([["42"]], [[42]])
    finally:
        await answers.close()


async def test_next_answer_waits_for_no_notice_of_the_last_one() -> None:
    traces, gate, calls = Traces(), asyncio.Event(), 0

    async def notify(_chat: ChatRow) -> None:
        nonlocal calls
        calls += 1
        await gate.wait()
        if calls == 2:
            raise StorageUnavailable("away")

    nothing = cast("Any", traces)
    answers = TelegramTurnDispatcher(
        nothing, nothing, nothing, guests=nothing, open_guest_sink=nothing, secretary=nothing,
        list_held_bots=list, on_idle=notify,
    )  # fmt: skip
    try:
        with capture_logs() as logs:
            for count in (1, 2, 3):
                answers.dispatch(CHAT)
                await comes(lambda count=count: traces.answers == count)  # type: ignore[misc]
                await comes(lambda: not answers._answers._running)
            assert calls == 1, "notices of one session are sent one after the other"
            gate.set()
            await comes(lambda: any(one["event"] == "idle_notice_failed" for one in logs))
        assert calls == 2
    finally:
        await answers.close()
