"""A bot that is held from now on: what its last holder left is looked for at once, and once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from bot.telegram.outbound import delivery
from bot.telegram.outbound.delivery import TelegramTurnDispatcher
from shared.services.turns import turn_dispatcher as everywhere


class Traces:
    """A conversation and a delivery with nothing to do."""

    def __init__(self) -> None:
        self.looks: list[list[str]] = []
        self.brought: list[list[int]] = []

    async def list_unanswered(self, channel: str, *, accounts: Sequence[str] | None = None) -> list[int]:
        self.looks.append(list(accounts or ()))
        return []

    async def check_leases(self) -> None:
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
