"""Writers, three rival compactors, undos and pins at once: one wins, the others look again."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import asyncpg
import pytest

from shared.adapters.postgres.operations.invariants import check_invariants
from shared.adapters.postgres.turns.pins import PostgresPins
from shared.core.session.session import Compaction, View
from shared.core.session.session_state import CompactionStored
from shared.core.values.errors import LeaseLost, StaleView
from tests.kit.app_driver import Visit
from tests.kit.histories.log import Log
from tests.kit.rival_compactors import Rivals, rivals_of

WRITERS, MESSAGES, MOST_MESSAGES = 3, 8, 60
"""Each writer goes on until there were enough undos, but not for ever."""
RIVALS, COMMITS = 3, 8
UNDOS, PINS = 6, 14


async def invariants_hold(guest: Visit) -> None:
    url = guest.app.settings.database_url
    assert url is not None
    connection = await asyncpg.connect(url.get_secret_value(), timeout=60)
    try:
        assert await check_invariants(connection) == []
    finally:
        await connection.close(timeout=30)


async def talk(guest: Visit, turns: int) -> None:
    for number in range(turns):
        await guest.ask(f"Message {number}: the ferry to Bodø leaves at 1{number % 10}:40.")


@pytest.mark.row("F47")
async def test_of_three_rivals_with_the_same_view_exactly_one_commits(guest: Visit) -> None:
    rivals = await rivals_of(guest)
    for number in range(1, COMMITS + 1):
        await talk(guest, 4)
        barrier = asyncio.Barrier(RIVALS)
        await asyncio.gather(*(_tried(rivals, barrier.wait) for _ in range(RIVALS)))
        assert rivals.told == {"committed": number, "stale": (RIVALS - 1) * number}
    await guest.app.stores.jobs.end_job(rivals.job, state="done", outcome={})
    assert await guest.one("SELECT count(*) FROM compactions WHERE active") == COMMITS
    await invariants_hold(guest)


async def test_a_compactor_that_was_given_up_cannot_commit(guest: Visit) -> None:
    rivals = await rivals_of(guest)
    await talk(guest, 5)
    rivals.job = replace(rivals.job, epoch=rivals.job.epoch - 1)
    with pytest.raises(LeaseLost):
        await rivals.try_once()
    assert await guest.one("SELECT count(*) FROM compactions") == 0


async def test_a_turn_that_waited_for_a_compaction_knows_its_summary(guest: Visit) -> None:
    """The session's row is read anew after the wait; a summary that was stored meanwhile must be, too."""
    rivals = await rivals_of(guest)
    await talk(guest, 5)
    await guest.say("And when does the ferry leave?")
    async with guest.app.pool.acquire() as connection:
        held = connection.transaction()

        async def hold() -> None:
            await held.start()
            await connection.execute("SELECT FROM sessions FOR UPDATE")

        committing = asyncio.ensure_future(rivals.try_once(before_commit=hold))
        await guest.until_waiting()
        answering = asyncio.ensure_future(guest.answered())
        await guest.until_waiting(2)
        await held.rollback()
        await asyncio.gather(committing, answering)
    assert rivals.told == {"committed": 1}
    link, asked = await guest.one("SELECT head FROM sessions"), await _last_audit(guest)
    assert link is not None
    assert (asked["head"], asked["base_turn"]) == (link, 3)
    assert asked["parts"]["summary"] > 0
    await guest.app.stores.jobs.end_job(rivals.job, state="done", outcome={})
    await invariants_hold(guest)


@pytest.mark.parametrize("deed", ["compaction", "size"])
async def test_job_locks_its_session_first_as_turns_edits_and_erasures_do(guest: Visit, deed: str) -> None:
    rivals, jobs = await rivals_of(guest), guest.app.stores.jobs
    await talk(guest, 5)
    seen = await jobs.load_state(guest.session_id)
    async with guest.app.pool.acquire() as connection:
        held = connection.transaction()

        async def hold() -> None:
            await held.start()
            await connection.execute("SELECT FROM sessions FOR NO KEY UPDATE")

        async def write() -> None:
            if deed == "compaction":
                await rivals.try_once(before_commit=hold)
                return
            await hold()
            await jobs.add_context_tokens(rivals.job, 1, seen=seen)

        writing = asyncio.ensure_future(write())
        await guest.until_waiting()
        await connection.execute("SELECT FROM jobs FOR UPDATE NOWAIT")
        await held.rollback()
        await writing
    assert rivals.told == ({"committed": 1} if deed == "compaction" else {})


async def test_compaction_names_the_flush_that_has_read_its_turns(guest: Visit) -> None:
    rivals = await rivals_of(guest)
    await talk(guest, 5)
    await guest.app.pool.execute(
        """INSERT INTO flushes (session_id, cycle, threshold, from_turn, through_turn, job_id, outcome,
                                ended_at)
           VALUES ($1, 0, 'near_limit', 1, 3, $2, 'failed', now())""",
        guest.session_id, rivals.job.id,
    )  # fmt: skip
    await rivals.try_once()
    named = "SELECT f.outcome FROM compactions c JOIN flushes f ON f.id = c.flush_id"
    assert await guest.one(named) == "nothing"


async def _last_audit(guest: Visit) -> asyncpg.Record:
    row = await guest.app.pool.fetchrow("SELECT * FROM turn_context_audit ORDER BY turn_id DESC LIMIT 1")
    assert row is not None
    return row


@dataclass(slots=True)
class Storm:
    """Everything that can happen to one session at once, until enough of each has happened."""

    guest: Visit
    rivals: Rivals
    rng: random.Random
    said: list[int] = field(default_factory=list)
    undone: asyncio.Event = field(default_factory=asyncio.Event)
    written: asyncio.Event = field(default_factory=asyncio.Event)

    async def blow(self) -> None:
        async with asyncio.timeout(400):
            await asyncio.gather(self._writers(), self._undo(), *(self._compact() for _ in range(RIVALS)))
            await self.guest.app.sessions.answer(self.guest.session_id, self.guest.hear)

    async def _writers(self) -> None:
        await asyncio.gather(*(self._write(number) for number in range(WRITERS)), self._pin())
        self.written.set()

    async def _write(self, writer: int) -> None:
        for number in range(MOST_MESSAGES):
            if number >= MESSAGES and self.undone.is_set():
                break
            accepted = await self.guest.say(f"Writer {writer}, message {number}: pier {number} at 9:15.")
            self.said.append(accepted.seq)
            await self.guest.app.sessions.answer(self.guest.session_id, self.guest.hear)
            await self._pause(5)

    async def _compact(self) -> None:
        while not self.written.is_set():
            await _tried(self.rivals)
            await self._pause(10)

    async def _undo(self) -> None:
        store, told = self.guest.app.stores.jobs, self.rivals.told
        while not self.written.is_set() and told["moved"] < UNDOS:
            if self.rng.random() < 0.6:
                done = await store.undo_compaction(
                    self.guest.session_id, limit_tokens=10**9, fixed_tokens=900
                )
            else:
                done = await store.restore_compaction(self.guest.session_id, fixed_tokens=900)
            told["moved"] += isinstance(done, CompactionStored)
            await self._pause(50)
        self.undone.set()

    async def _pin(self) -> None:
        pins = PostgresPins(self.guest.app.pool)
        for _ in range(PINS):
            if self.said:
                deed = "pin" if self.rng.random() < 0.7 else "unpin"
                await _moved_pin(pins, self.guest.session_id, deed, self.rng.choice(self.said))
            await self._pause(50)

    async def _pause(self, most_ms: float) -> None:
        await asyncio.sleep(self.rng.random() * most_ms / 1000)


@pytest.mark.row("F47")
@pytest.mark.timeout(500)
async def test_a_storm_of_writers_rivals_undos_and_pins_loses_nothing(guest: Visit) -> None:
    storm = Storm(guest, await rivals_of(guest), random.Random(4))
    await storm.blow()
    await guest.app.stores.jobs.end_job(storm.rivals.job, state="done", outcome={})
    stored = await guest.app.pool.fetch("SELECT seq FROM entries WHERE author = 'person' ORDER BY seq")
    assert sorted(storm.said) == [row["seq"] for row in stored]
    assert await guest.one("SELECT count(*) FROM turns WHERE ended_at IS NULL") == 0
    assert storm.rivals.told["committed"] >= 1, storm.rivals.told
    assert storm.rivals.told["moved"] >= 1, storm.rivals.told
    covered = await guest.app.pool.fetch(
        "SELECT from_turn, through_turn FROM compactions WHERE active ORDER BY 1"
    )
    hidden = [turn for row in covered for turn in range(row["from_turn"], row["through_turn"] + 1)]
    assert hidden == list(range(1, await guest.one("SELECT base_turn FROM sessions") + 1))
    await invariants_hold(guest)


async def test_the_log_of_the_histories_means_what_postgres_means(guest: Visit) -> None:
    """The same deeds on both, and after each the same view: what histories prove holds for this store."""
    rng, log, rivals = random.Random(11), Log(), await rivals_of(guest)
    pins = PostgresPins(guest.app.pool)
    deeds: Counter[str] = Counter()
    choices = (*["talk"] * 6, *["compact", "undo", "restore"] * 3, "anew", *["pin", "unpin"] * 2)
    for _ in range(110):
        deed = rng.choice(choices)
        match deed:
            case "talk":
                await guest.ask(f"The ferry leaves at {rng.randrange(24)}:40.")
                log.accept((), 1)
                log.claim()
                log.step("assistant", (), 1)
                log.end("answered", {})
                done = True
            case "compact":
                before, seen = rivals.told["committed"], log.seen
                await _tried(rivals)
                done = rivals.told["committed"] > before
                if done:
                    row = await guest.app.pool.fetchrow("SELECT * FROM compactions ORDER BY id DESC LIMIT 1")
                    assert row is not None
                    turns = {"from_turn": row["from_turn"], "through_turn": row["through_turn"]}
                    log.compact(Compaction(id=row["id"], kind="digest", **turns), seen)
            case "undo":
                made = await guest.app.stores.jobs.undo_compaction(
                    guest.session_id, limit_tokens=10**9, fixed_tokens=0
                )
                done = log.undo()
                assert done == isinstance(made, CompactionStored)
            case "restore":
                made = await guest.app.stores.jobs.restore_compaction(guest.session_id, fixed_tokens=0)
                done = log.restore()
                assert done == isinstance(made, CompactionStored)
            case "anew":
                made = await guest.app.stores.jobs.start_new_conversation(guest.session_id, fixed_tokens=0)
                done = log.begin_anew("new")
                assert done == isinstance(made, CompactionStored)
            case _:
                held = sorted(log.pins) if deed == "unpin" else sorted(log.entries)
                seq = rng.choice(held or [1])
                done = await _moved_pin(pins, guest.session_id, deed, seq)
                if done:
                    (log.pin if deed == "pin" else log.unpin)(seq)
        deeds[deed] += done
        state = await guest.app.stores.jobs.load_state(guest.session_id)
        assert _shape(state.view) == _shape(log.view()), (deed, done)
    assert all(deeds[deed] > 0 for deed in choices), deeds
    await guest.app.stores.jobs.end_job(rivals.job, state="done", outcome={})
    await invariants_hold(guest)


async def _tried(rivals: Rivals, before_commit: Callable[[], Awaitable[object]] | None = None) -> None:
    with contextlib.suppress(StaleView):
        await rivals.try_once(before_commit=before_commit)


async def _moved_pin(pins: PostgresPins, session_id: int, deed: str, seq: int) -> bool:
    if deed == "pin":
        return await pins.pin(session_id, seq, most_tokens=10**6) == "pinned"
    return await pins.unpin(session_id, seq) == "unpinned"


def _shape(view: View) -> dict[str, object]:
    """Everything of a view but its words and tokens."""
    return {
        "base": view.base_turn,
        "cycle": view.cycle,
        "hold": view.hold_compaction,
        "head": None if view.head is None else (view.head.kind, view.head.from_turn, view.head.through_turn),
        "live": [(entry.seq, entry.turn, entry.author, entry.pinned) for entry in view.entries],
        "pins": [entry.seq for entry in view.pins],
    }
