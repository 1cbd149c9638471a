"""Simulated promotions, by night a thousand: the store goes back by some commits, and no turn is stuck."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from shared.core.session.turns import Accepted, AnswerStored, Caps, Claim, Inbound, Outcome, ReplyEvent
from shared.core.values.errors import LeaseLost, StorageUnavailable
from shared.runtime import ignore_crash_point
from shared.services.turns import session_service as module
from shared.services.turns.agent_loop import ClaimPrices
from shared.services.turns.session_service import SessionService
from shared.services.turns.turn_attempt import TurnResult
from shared.services.turns.turn_dispatcher import OpenReplySink, TurnDispatcher
from tests.kit.night import by_night

PROMOTIONS = by_night(1_000, else_=200)
SESSIONS = (1, 2, 3)
TALK_SECONDS = 6.0
REST_SECONDS = 15.0
LOST_REPLIES = 0.03
OUTCOME = Outcome(state="answered", blocks=(), tokens=0, screen={})


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Of a session, as far as leases go."""

    next_turn: int = 1
    answered: int = 0
    epoch: int = 0
    leased_by: int | None = None
    stored: tuple[str, ...] = ()
    """The messages, of which each is a turn."""

    @property
    def is_due(self) -> bool:
        return self.answered < self.next_turn - 1 and self.leased_by is None


@dataclass(slots=True)
class Server:
    """Every commit makes another state; a promotion goes back by some of them, as a standby would."""

    chance: Random
    states: list[dict[int, Row]] = field(default_factory=lambda: [{one: Row() for one in SESSIONS}])
    timeline: int = 1
    answers: int = 0

    @property
    def rows(self) -> dict[int, Row]:
        return self.states[-1]

    def commit(self, session_id: int, **changes: Any) -> Row:
        row = replace(self.rows[session_id], **changes)
        self.states.append({**self.rows, session_id: row})
        return row

    def promote(self) -> int:
        """How many commits nobody has any more."""
        lost = self.chance.randrange(1, min(25, len(self.states)))
        del self.states[-lost:]
        self.timeline += 1
        return lost

    async def wire(self) -> None:
        await asyncio.sleep(self.chance.uniform(0.0, 0.05))

    async def reply(self) -> None:
        await self.wire()
        if self.chance.random() < LOST_REPLIES:
            raise StorageUnavailable("the reply is lost")


@dataclass(slots=True)
class Turns:
    """What one process sees of the server."""

    server: Server
    worker_id: int

    async def accept(self, inbound: Inbound, **_: Any) -> Accepted:
        await self.server.wire()
        row = self.server.rows[inbound.session_id]
        if repeated := inbound.dedupe_key in row.stored:
            turn = row.stored.index(inbound.dedupe_key) + 1
        else:
            turn = row.next_turn
            self.server.commit(
                inbound.session_id, next_turn=turn + 1, stored=(*row.stored, inbound.dedupe_key)
            )
        await self.server.reply()
        return _accepted(inbound, turn, repeated=repeated)

    async def accept_and_claim(self, inbound: Inbound, **_: Any) -> tuple[Accepted, Claim] | None:
        await self.server.wire()
        row = self.server.rows[inbound.session_id]
        if row.answered < row.next_turn - 1 or row.leased_by or inbound.dedupe_key in row.stored:
            return None
        row = self.server.commit(
            inbound.session_id, next_turn=row.next_turn + 1, stored=(*row.stored, inbound.dedupe_key),
            epoch=row.epoch + 1, leased_by=self.worker_id,
        )  # fmt: skip
        await self.server.reply()
        return _accepted(inbound, row.next_turn - 1), self._claim(inbound.session_id, row)

    async def claim(self, session_id: int, **_: Any) -> Claim | None:
        await self.server.wire()
        row = self.server.rows[session_id]
        if not row.is_due:
            return None
        row = self.server.commit(session_id, epoch=row.epoch + 1, leased_by=self.worker_id)
        await self.server.reply()
        return self._claim(session_id, row)

    def _claim(self, session_id: int, row: Row) -> Claim:
        known: dict[str, Any] = {
            "session_id": session_id, "turn": row.answered + 1, "epoch": row.epoch,
            "worker_id": self.worker_id, "attempt": 1, "faults": 0, "stop_requested": False,
            "told_waiting": False, "address_id": 1, "reservation_id": None, "refused_scope": None,
            "near_caps": False, "process_faults": 0, "waited_seconds": 0.0,
        }  # fmt: skip
        return SimpleNamespace(**known)  # type: ignore[return-value]

    def _fenced(self, claim: Claim) -> Row:
        row = self.server.rows[claim.session_id]
        if (row.epoch, row.leased_by, row.answered) != (claim.epoch, self.worker_id, claim.turn - 1):
            raise LeaseLost(f"turn {claim.turn}")
        return row

    async def record_answer(self, claim: Claim, outcome: Outcome) -> AnswerStored:
        await self.server.wire()
        row = self._fenced(claim)
        self.server.commit(claim.session_id, answered=claim.turn, leased_by=None)
        self.server.answers += 1
        await self.server.reply()
        return AnswerStored(
            event_seq=claim.turn, payload={}, job=None, another_waits=claim.turn < row.next_turn - 1
        )

    async def postpone(self, claim: Claim, **_: Any) -> None:
        await self.server.wire()
        row = self._fenced(claim)
        self.server.commit(claim.session_id, epoch=row.epoch + 1, leased_by=None)
        await self.server.reply()

    async def load_held_turns(self, worker_id: int) -> dict[int, bool]:
        await self.server.wire()
        found = {one: False for one, row in self.server.rows.items() if row.leased_by == worker_id}
        await self.server.reply()
        return found

    async def release_turns(self, session_ids: Collection[int], *, worker_id: int) -> None:
        await self.server.wire()
        for session_id in session_ids:
            row = self.server.rows[session_id]
            if row.leased_by == worker_id:
                self.server.commit(session_id, epoch=row.epoch + 1, leased_by=None)
        await self.server.reply()

    async def list_unanswered(self, channel: str, *, accounts: Sequence[str] | None = None) -> list[int]:
        await self.server.wire()
        return [one for one, row in self.server.rows.items() if row.is_due]

    async def renew_allowance(self, **_: Any) -> None:
        """Nothing costs anything here."""

    def clear_view_cache(self) -> None:
        pass


def _accepted(inbound: Inbound, turn: int, *, repeated: bool = False) -> Accepted:
    return Accepted(
        session_id=inbound.session_id, seq=turn, turn=turn, event_seq=turn, repeated=repeated, at_ms=0
    )


@dataclass(slots=True)
class Model:
    chance: Random

    async def load_prices(self) -> ClaimPrices:
        return ClaimPrices(micro_per_input_token=0.0, micro_output=0.0)

    async def answer(self, *_: Any, **__: Any) -> TurnResult:
        await asyncio.sleep(self.chance.uniform(0.05, 1.5))
        return TurnResult(outcome=OUTCOME, measured=None)

    def mark_stored(self, _: Outcome) -> None:
        pass


@dataclass(slots=True)
class Pulse:
    server: Server
    tells: bool
    is_lost: bool = False
    lag_seconds: float = 0.0

    @property
    def last_beat(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def timeline(self) -> str:
        return str(self.server.timeline) if self.tells else ""


class Nobody:
    async def __call__(self, event: ReplyEvent) -> None:
        pass

    async def mark_idle(self) -> None:
        pass

    async def close(self) -> None:
        pass


class Process:
    def __init__(self, server: Server, worker_id: int, *, tells: bool) -> None:
        parts: dict[str, Any] = {
            "agent_loop": Model(server.chance), "turns": Turns(server, worker_id), "doorbell": None,
            "edits": None,
            "counter": SimpleNamespace(count_tokens=len), "heartbeat": Pulse(server, tells),
            "caps": Caps(total=None, person=None, visitor=None, session=None),
        }  # fmt: skip
        self.conversation = SessionService(
            channel="web", worker_id=worker_id, crash_point=ignore_crash_point, **parts
        )
        self.answering = TurnDispatcher(self.conversation, channel="web", orphan=self._orphan)

    async def _orphan(self, _: int) -> OpenReplySink:
        return Nobody

    async def hears(self, session_id: int, key: str) -> None:
        """Said until it is acknowledged, as browsers do."""
        said = Inbound(session_id=session_id, address_id=1, text=key, dedupe_key=key)
        while True:
            try:
                await self.conversation.accept_and_claim(said)
            except StorageUnavailable:
                await asyncio.sleep(0.5)
            else:
                return self.answering.dispatch(session_id, Nobody)


async def _promoted(seed: int) -> tuple[Server, int]:
    chance = Random(seed)
    server, said = Server(chance), {one: list[str]() for one in SESSIONS}
    processes = [Process(server, number, tells=bool(seed % 2)) for number in (1, 2)]
    for process in processes:
        process.answering.start()

    async def talks(session_id: int) -> None:
        await asyncio.sleep(chance.uniform(0.0, 1.0))
        while asyncio.get_running_loop().time() < TALK_SECONDS:
            key = f"{session_id}.{len(said[session_id])}"
            await chance.choice(processes).hears(session_id, key)
            said[session_id].append(key)
            await asyncio.sleep(chance.uniform(0.0, 1.5))

    people = [asyncio.create_task(talks(one)) for one in SESSIONS]
    await asyncio.sleep(chance.uniform(2.0, TALK_SECONDS))
    lost = server.promote()
    await asyncio.wait(people)
    for session_id, keys in said.items():
        for key in keys:
            await chance.choice(processes).hears(session_id, key)
    await asyncio.sleep(REST_SECONDS)
    for process in processes:
        await process.answering.close(drain_seconds=1.0)
    for session_id, keys in said.items():
        assert set(keys) == set(server.rows[session_id].stored), f"seed {seed}: lost"
        assert len(keys) == len(server.rows[session_id].stored), f"seed {seed}: doubled"
    return server, lost


class _Selector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nobody will ever do anything again"
        self.now += max(0.0, timeout)
        return super().select(0)


class Hours(asyncio.SelectorEventLoop):
    """Time passes here as soon as everybody waits for it."""

    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


@contextmanager
def _hours() -> Iterator[Hours]:
    loop = Hours()
    try:
        yield loop
    finally:
        loop.close()


def test_after_hundreds_of_promotions_no_turn_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck, lost = [], 0
    for seed in range(1, PROMOTIONS + 1):
        with _hours() as loop:
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=loop.time))
            server, gone = loop.run_until_complete(_promoted(seed))
        lost += gone
        stuck += [
            f"seed {seed}, session {one}: {row}"
            for one, row in server.rows.items()
            if row.leased_by is not None or row.answered < row.next_turn - 1
        ]
    assert stuck == [], f"{len(stuck)} stuck: {stuck[:5]}"
    assert lost > PROMOTIONS, "they lost next to nothing"
