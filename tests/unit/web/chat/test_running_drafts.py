"""The text of a running answer stays that of its turn, whatever other processes still say."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from shared.core.session.turns import Delta, Emit, RunEnded, RunStarted
from tests.unit.web.chat.paged_processes import SESSION, Bus, Log, WebProcess, until
from web.protocol import wire
from web.server.hub import Replies, Subscriber


class StalledAnswerer:
    """Service that writes the beginning of an answer, then finds that another process has its lease."""

    async def answer(self, session_id: int, emit: Emit) -> None:
        await emit(RunStarted(turn=8, attempt=1))
        await emit(Delta(turn=8, attempt=1, offset=0, text="Half"))

    async def list_unanswered(self, channel: str, *, accounts: Sequence[str] | None = None) -> list[int]:
        return []

    async def check_leases(self) -> None: ...


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
async def process(log: Log) -> AsyncIterator[WebProcess]:
    process = WebProcess(Bus(), log)
    yield process
    await process.tasks.drain(0.0)


@pytest.fixture
async def subscriber(process: WebProcess) -> Subscriber:
    return await process.open_page()


def _begin_answer(process: WebProcess) -> None:
    process.hub.handle_event(SESSION, RunStarted(turn=8, attempt=2))
    process.hub.handle_event(SESSION, Delta(turn=8, attempt=2, offset=0, text="Hello "))


def _continue_answer(process: WebProcess) -> tuple[int, str, bool] | None:
    """Write the rest of the answer, and return turn and text of the draft, and whether it is whole."""
    process.hub.handle_event(SESSION, Delta(turn=8, attempt=2, offset=6, text="there."))
    return _describe_draft(process)


def _describe_draft(process: WebProcess) -> tuple[int, str, bool] | None:
    draft = process.hub.draft(SESSION)
    return None if draft is None else (draft.turn, draft.text, draft.whole)


async def test_answer_of_a_lost_lease_is_not_shown_as_running(process: WebProcess) -> None:
    replies = Replies(StalledAnswerer(), process.hub)
    replies.answer(SESSION)
    await replies.close(drain_seconds=20)
    assert process.hub.draft(SESSION) is None


async def test_text_of_the_process_that_took_over_survives_the_lost_lease(
    process: WebProcess, subscriber: Subscriber
) -> None:
    taken_over = wire.stream(turn=8, attempt=2, text="Whole")

    class TakenOver(StalledAnswerer):
        async def answer(self, session_id: int, emit: Emit) -> None:
            await super().answer(session_id, emit)
            await process.hear(taken_over)

    replies = Replies(TakenOver(), process.hub)
    replies.answer(SESSION)
    await replies.close(drain_seconds=20)
    assert _describe_draft(process) == (8, "Whole", True)


@pytest.mark.parametrize(
    ("turn", "state"), [(7, "answered"), (7, "stopped"), (7, "failed"), (7, "waiting"), (8, "waiting")]
)
async def test_late_end_of_another_process_keeps_the_running_text(
    process: WebProcess, subscriber: Subscriber, turn: int, state: Any
) -> None:
    _begin_answer(process)
    await process.hear(wire.run_ended(RunEnded(turn=turn, state=state)))
    assert _continue_answer(process) == (8, "Hello there.", True)


@pytest.mark.parametrize("turn", [8, 9])
async def test_end_of_a_turn_in_another_process_ends_its_text_here(
    process: WebProcess, subscriber: Subscriber, turn: int
) -> None:
    _begin_answer(process)
    await process.hear(wire.run_ended(RunEnded(turn=turn, state="answered")))
    assert process.hub.draft(SESSION) is None


@pytest.mark.parametrize(
    "frame",
    [
        wire.delta(turn=7, attempt=3, offset=4, text="late"),
        wire.delta(turn=8, attempt=1, offset=4, text="late"),
        wire.stream(turn=7, attempt=3, text="late"),
        wire.stream(turn=8, attempt=1, text="late"),
    ],
    ids=lambda frame: f"{frame['t']} of turn {frame['turn']}",
)
async def test_late_text_of_another_process_keeps_the_running_text(
    process: WebProcess, subscriber: Subscriber, frame: wire.Frame
) -> None:
    _begin_answer(process)
    await process.hear(frame)
    await process.hub.leave(SESSION, subscriber)
    assert _describe_draft(process) == (8, "Hello ", True)
    assert _continue_answer(process) == (8, "Hello there.", True)


async def test_late_text_of_this_process_keeps_the_running_text_of_another(
    process: WebProcess, subscriber: Subscriber
) -> None:
    await process.hear(wire.stream(turn=8, attempt=2, text="Hello "))
    process.hub.handle_event(SESSION, Delta(turn=7, attempt=1, offset=0, text="late"))
    process.hub.handle_event(SESSION, Delta(turn=8, attempt=1, offset=0, text="late"))
    await process.hear(wire.delta(turn=8, attempt=2, offset=6, text="there."))
    assert _describe_draft(process) == (8, "Hello there.", True)
    await until(lambda: bool(process.page.frames) and process.page.frames[-1].get("text") == "there.")
    assert "late" not in str(process.page.frames)


async def test_text_over_the_bound_is_not_shown_before_missing_events(
    process: WebProcess, subscriber: Subscriber, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("web.server.hub.LATER_FRAMES", 2)
    log.store()
    pieces = [wire.delta(turn=8, attempt=1, offset=number, text=str(number)) for number in range(3)]
    await process.hear({"event_seq": 1}, *pieces)
    await until(lambda: len(process.page.frames) == 4)
    assert [frame["t"] for frame in process.page.frames] == ["welcome", "pin", "delta", "delta"]
    assert _describe_draft(process) == (8, "012", True)
