"""Who answers in a process: one answer per session at a time, none forgotten, the heart beating."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from shared.core.session.turns import Emit, ReplyEvent, RunEnded
from shared.core.values.errors import StorageUnavailable
from shared.services.turns import turn_dispatcher
from shared.services.turns.turn_dispatcher import OpenReplySink, TurnDispatcher


class Talk:
    """A conversation whose answers take as long as the test wants."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.held_up: dict[int, asyncio.Event] = {}
        self.errors: list[Exception] = []
        self.due: list[int] = []
        self.asked: list[tuple[str, Sequence[str] | None]] = []
        self.beats = 0

    async def answer(self, session_id: int, emit: Emit) -> None:
        self.begun.append(session_id)
        if session_id in self.due:
            self.due.remove(session_id)
        if (gate := self.held_up.get(session_id)) is not None:
            await gate.wait()
        if self.errors:
            raise self.errors.pop()
        await emit(RunEnded(turn=1, state="answered"))

    async def list_unanswered(self, channel: str, *, accounts: Sequence[str] | None = None) -> list[int]:
        self.asked.append((channel, accounts))
        return list(self.due)

    async def check_leases(self) -> None:
        self.beats += 1


class Shown:
    """A screen that remembers."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def __call__(self, event: ReplyEvent) -> None:
        self.events.append(type(event).__name__)

    async def mark_idle(self) -> None:
        self.events.append("answered")

    async def close(self) -> None:
        self.events.append("closed")


class House:
    """A process that answers; `screens` are those that were opened."""

    def __init__(self) -> None:
        self.talk = Talk()
        self.screens: list[Shown] = []
        self.accounts: list[str] | None = None
        self.answering = TurnDispatcher(
            self.talk, channel="here", orphan=self._orphan, accounts=lambda: self.accounts
        )

    def screen(self) -> Shown:
        self.screens.append(Shown())
        return self.screens[-1]

    def answer(self, session_id: int) -> None:
        self.answering.dispatch(session_id, self.screen)

    async def _orphan(self, session_id: int) -> OpenReplySink | None:
        return self.screen if session_id < 100 else None


@pytest.fixture
async def dispatching() -> AsyncIterator[House]:
    made = House()
    yield made
    await made.answering.close(drain_seconds=1.0)


async def comes(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.01)


async def test_several_calls_while_it_answers_are_one_more(dispatching: House) -> None:
    gate = dispatching.talk.held_up[7] = asyncio.Event()
    for _ in range(5):
        dispatching.answer(7)
        await asyncio.sleep(0)
    dispatching.answer(8)
    await comes(lambda: dispatching.talk.begun == [7, 8])
    gate.set()
    await comes(lambda: dispatching.screens[0].events[-1:] == ["closed"])
    assert dispatching.talk.begun == [7, 8, 7]
    assert dispatching.screens[0].events == ["RunEnded", "RunEnded", "answered", "closed"]
    assert dispatching.screens[1].events == ["RunEnded", "answered", "closed"]


async def test_an_answer_that_fails_is_found_again_as_an_orphan(dispatching: House) -> None:
    dispatching.talk.errors = [StorageUnavailable("away")]
    dispatching.talk.due = [7, 100]
    dispatching.answer(7)
    await comes(lambda: bool(dispatching.screens) and dispatching.screens[0].events == ["closed"])
    dispatching.talk.due.append(7)
    dispatching.answering.start()
    await comes(lambda: dispatching.talk.begun == [7, 7])
    assert dispatching.talk.asked[0] == ("here", None)


async def test_a_turn_that_is_announced_is_looked_for_before_the_next_round(
    dispatching: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_dispatcher, "ORPHAN_POLL_SECONDS", 3_600.0)
    dispatching.answering.start()
    dispatching.talk.due = [7]
    dispatching.answering.wake()
    await comes(lambda: dispatching.talk.begun == [7])


async def test_what_the_dead_left_is_looked_for_before_the_first_round(
    dispatching: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_dispatcher, "ORPHAN_POLL_SECONDS", 3_600.0)
    dispatching.talk.due = [7]
    dispatching.answering.start()
    await comes(lambda: dispatching.talk.begun == [7])
    assert len(dispatching.talk.asked) == 1


async def test_many_announcements_are_a_few_looks(dispatching: House) -> None:
    dispatching.answering.start()
    for _ in range(1_000):
        dispatching.answering.wake()
        await asyncio.sleep(0)
    await comes(lambda: len(dispatching.talk.asked) > 1)
    assert len(dispatching.talk.asked) < 100


async def test_who_serves_no_account_looks_for_no_orphans(dispatching: House) -> None:
    dispatching.accounts = []
    dispatching.answering.start()
    await comes(lambda: dispatching.talk.beats > 1)
    assert dispatching.talk.asked == []
    dispatching.accounts = ["a"]
    await comes(lambda: dispatching.talk.asked == [("here", ["a"])])


async def test_the_heart_beats_until_the_last_answer_is_stored(dispatching: House) -> None:
    gate = dispatching.talk.held_up[7] = asyncio.Event()
    dispatching.answering.start()
    dispatching.answer(7)
    await comes(lambda: dispatching.talk.begun == [7])
    dispatching.answering.stop_accepting()
    dispatching.answer(8)
    closing = asyncio.create_task(dispatching.answering.close(drain_seconds=20.0))
    beats = dispatching.talk.beats
    await comes(lambda: dispatching.talk.beats > beats)
    gate.set()
    await closing
    assert dispatching.talk.begun == [7]
    assert dispatching.screens[0].events == ["RunEnded", "closed"]
    beats = dispatching.talk.beats
    await asyncio.sleep(1.2)
    assert dispatching.talk.beats == beats
