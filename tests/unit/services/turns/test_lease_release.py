"""A process that is unsure of what it has claimed lets go of it with its next beat, by one statement."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import pytest

from shared.adapters.postgres.db import leases
from shared.adapters.postgres.turns import turn_sql
from shared.core.session.turns import Caps, ReplyEvent
from shared.core.values.errors import LeaseLost, StorageUnavailable
from shared.runtime import ignore_crash_point
from shared.services.turns import session_service
from shared.services.turns.agent_loop import ClaimPrices
from shared.services.turns.session_service import SessionService

WORKER = 7


class Turns:
    """A store that loses the reply of each claim; `asked` are the sessions of each statement that lets go."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.before: Callable[[], Awaitable[None]] | None = None
        self.claiming: asyncio.Event | None = None
        self.leased: set[int] = set()
        self.remembers = True

    async def claim(self, session_id: int, **_: Any) -> None:
        if self.claiming is not None:
            await self.claiming.wait()
        raise StorageUnavailable("the reply is lost")

    async def load_held_turns(self, worker_id: int) -> dict[int, bool]:
        assert worker_id == WORKER
        return dict.fromkeys(self.leased, False)

    def clear_view_cache(self) -> None:
        self.remembers = False

    async def renew_allowance(self, **_: Any) -> None:
        """Nothing costs anything here."""

    async def list_unanswered(self, channel: str, **_: Any) -> list[int]:
        return [5]

    async def release_turns(self, session_ids: Collection[int], *, worker_id: int) -> None:
        assert worker_id == WORKER
        self.asked.append(sorted(session_ids))
        if self.before is not None:
            await self.before()


@dataclass
class Heart:
    last_beat: float = 0.0
    is_lost: bool = False
    lag_seconds: float = 0.0
    timeline: str = "00000001"


class Prices:
    async def load_prices(self) -> ClaimPrices:
        return ClaimPrices(micro_per_input_token=0.0, micro_output=0.0)


@dataclass
class Broken:
    error: Exception = field(default_factory=lambda: ValueError("a time that does not exist"))

    async def start_due(self, channel: str, **_: Any) -> None:
        raise self.error


class House:
    def __init__(self, **more: Any) -> None:
        self.turns = Turns()
        self.heart = Heart()
        parts: dict[str, Any] = {
            "agent_loop": Prices(),
            "counter": None,
            "doorbell": None,
            "turns": self.turns,
            "edits": None,
            **more,
        }
        self.conversation = SessionService(
            channel="web", worker_id=WORKER, heartbeat=self.heart, crash_point=ignore_crash_point,
            caps=Caps(total=None, person=None, visitor=None, session=None), **parts,
        )  # fmt: skip

    async def loses(self, *session_ids: int) -> None:
        for session_id in session_ids:
            with pytest.raises(StorageUnavailable):
                await self.conversation.answer(session_id, self.nobody)

    async def beats(self) -> list[list[int]]:
        """What this one beat let go of."""
        known = len(self.turns.asked)
        await self.conversation.check_leases()
        return self.turns.asked[known:]

    async def nobody(self, event: ReplyEvent) -> None:
        raise AssertionError(event)


async def test_however_many_they_are_one_statement_lets_go_of_them() -> None:
    house = House()
    assert await house.beats() == []
    await house.loses(*range(1, 101))
    assert await house.beats() == [list(range(1, 101))]
    assert await house.beats() == []


@pytest.mark.parametrize("trouble", [StorageUnavailable("too slow"), asyncio.CancelledError()])
async def test_when_the_statement_fails_none_of_them_is_forgotten(trouble: BaseException) -> None:
    house = House()
    await house.loses(1, 2, 3)

    async def fails() -> None:
        raise trouble

    house.turns.before = fails
    with pytest.raises(type(trouble)):
        await house.beats()
    house.turns.before = None
    await house.loses(4)
    assert await house.beats() == [[1, 2, 3, 4]]
    assert await house.beats() == []


@pytest.mark.parametrize("fails", [False, True])
async def test_lease_unsure_again_meanwhile_waits_for_next_beat(fails: bool) -> None:
    house = House()
    await house.loses(1, 2)

    async def meanwhile() -> None:
        await house.loses(2, 3)
        if fails:
            raise StorageUnavailable("too slow")

    house.turns.before = meanwhile
    if fails:
        with pytest.raises(StorageUnavailable):
            await house.beats()
    else:
        assert await house.beats() == [[1, 2]]
    house.turns.before = None
    assert await house.beats() == [[1, 2, 3] if fails else [2, 3]]
    assert await house.beats() == []


async def test_what_is_being_claimed_again_is_left_alone_until_that_has_ended() -> None:
    house = House()
    await house.loses(1, 2)
    house.turns.claiming = asyncio.Event()
    again = asyncio.ensure_future(house.conversation.answer(2, house.nobody))
    await asyncio.sleep(0)
    assert await house.beats() == [[1]]
    assert await house.beats() == []
    house.turns.claiming.set()
    with pytest.raises(StorageUnavailable):
        await again
    assert await house.beats() == [[2]]


async def test_unknown_own_lease_is_released_when_it_lasts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after a failover to a standby that was behind: the claim is there, and its answer is lost."""
    house, now = House(), [100.0]
    monkeypatch.setattr("shared.services.turns.session_service.time.monotonic", lambda: now[0])
    house.turns.leased = {5}
    for _ in range(2):
        assert await house.beats() == [], "a commit whose reply is under way is no lost turn"
        now[0] += 1.0
    assert await house.beats() == [[5]]
    house.turns.leased = set()
    assert await house.beats() == []


async def test_what_is_ours_for_a_moment_again_and_again_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house, now = House(), [100.0]
    monkeypatch.setattr("shared.services.turns.session_service.time.monotonic", lambda: now[0])
    for beat in range(6):
        house.turns.leased = {5} if beat % 2 else set()
        assert await house.beats() == []
        now[0] += 1.0


async def test_behind_another_server_nothing_is_known_but_what_was_asked_of_it() -> None:
    house = House()
    assert await house.beats() == []
    house.turns.leased, house.heart.timeline = {5, 6}, "00000002"
    assert await house.beats() == [[5, 6]]
    assert not house.turns.remembers


async def test_process_unknown_to_the_database_starts_over() -> None:
    house = House()
    house.heart.is_lost = True
    with pytest.raises(LeaseLost):
        await house.beats()


def test_numbers_of_turns_agree_with_those_of_the_database() -> None:
    assert session_service.LEASE_SECONDS == leases.LEASE_SECONDS
    longest = max(session_service.LONGEST_WAIT_SECONDS, session_service.LONGEST_BUSY_SECONDS)
    assert longest + 1 == turn_sql.LONGEST_WAIT_SECONDS


async def test_failing_reminders_hide_no_due_turn() -> None:
    """One row that cannot be handled would else leave the whole channel without answers."""
    house = House(reminders=Broken())
    assert await house.conversation.list_unanswered("web") == [5]
    house = House(reminders=Broken(StorageUnavailable("away")))
    with pytest.raises(StorageUnavailable):
        await house.conversation.list_unanswered("web")
