"""Talks until a compaction is due."""

from __future__ import annotations

from tests.kit.app_driver import Visit

FILLER = "Then we talked about the weather, the garden and the long way home along the river. " * 18


async def talk(guest: Visit, turns: int, *, first: int = 0, upkeep: bool = False) -> None:
    for number in range(first, first + turns):
        await guest.ask(f"Message {number}. {FILLER}")
        if upkeep:
            await guest.run_due_jobs()


async def until_due(guest: Visit) -> int:
    """Talks until a compaction is due; how many turns that took."""
    for number in range(20):
        await talk(guest, 1, first=number)
        if await guest.one("SELECT count(*) FROM jobs WHERE kind = 'compact' AND state = 'due'"):
            return number + 1
    raise AssertionError("nothing became due")
