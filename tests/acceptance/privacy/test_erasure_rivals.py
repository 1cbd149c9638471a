"""Forgetting against everything that runs: whoever has read it already can write nothing of it back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from shared.adapters.postgres.compaction.job_backoff import PostgresJobBackoff
from shared.adapters.postgres.memory.notes import PostgresNotes
from shared.adapters.postgres.operations.invariants import check_invariants
from shared.adapters.postgres.telegram.deliveries import PostgresDeliveries
from shared.adapters.postgres.telegram.inbox import PostgresTelegramInbox
from shared.adapters.postgres.telegram.receipts import TelegramReceipt
from shared.adapters.postgres.turns.attachments import PostgresAttachments
from shared.adapters.postgres.turns.edits import FENCE_JOBS
from shared.core.context.notes import NewNote, NoteSource
from shared.core.session.ledger import Ledger
from shared.core.session.session_state import Checkpoint, FlushReport, JobClaim
from shared.core.session.turns import Claim, Described, Inbound, JobOrder
from shared.core.values.errors import LeaseLost, StaleView
from shared.core.values.messages import Text, ToolUse
from tests.kit.app_driver import Visit
from tests.kit.canaries import dumped
from tests.kit.rival_compactors import Rivals

CANARY = "Rivalen-Kanarienvogel-505"
FILLER = "We walked along the river and talked of this and that. " * 40


@pytest.fixture
def model_options() -> dict[str, Any]:
    """Let the built-in demo answer."""
    return {}


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"context_window": 9_000, "max_output": 1_000, "keep_turns": 2}


@pytest.fixture(autouse=True)
async def four_turns(guest: Visit) -> None:
    for number in range(4):
        await guest.ask(f"Number {number}: {CANARY}. {FILLER}")


async def forget(guest: Visit) -> None:
    assert (await guest.app.erasure.erase_everything(guest.session_id, "person")).finished


async def is_gone(guest: Visit) -> None:
    stored = await dumped(guest.app.settings)
    assert CANARY not in stored, stored[max(0, stored.index(CANARY) - 300) :][:400]
    url = guest.app.settings.database_url
    assert url is not None
    connection = await asyncpg.connect(url.get_secret_value())
    try:
        assert await check_invariants(connection) == []
    finally:
        await connection.close()


async def job(guest: Visit, kind: str) -> JobClaim:
    order = JobOrder(kind=kind, key=f"{kind}:by:hand", trigger="manual", payload={"focus": CANARY})  # type: ignore[arg-type]
    job_id = await guest.app.stores.jobs.request_job(guest.session_id, order)
    assert job_id is not None
    claim = await guest.app.stores.jobs.claim_job(job_id, worker_id=guest.app.worker_id)
    assert claim is not None
    return claim


async def claimed(guest: Visit) -> Claim:
    await guest.say(f"What about {CANARY}?")
    claim = await guest.app.sessions._claim(guest.session_id)
    assert claim is not None
    return claim


def note() -> NewNote:
    return NewNote(kind="fact", text=f"The dog is called {CANARY}.")


async def test_a_flush_that_has_read_everything_saves_nothing(guest: Visit) -> None:
    store, work = guest.app.stores.jobs, await job(guest, "flush")
    contact = await guest.one("SELECT contact_id FROM sessions WHERE id = $1", guest.session_id)
    ticket = await store.begin_flush(work, cycle=0, threshold="soft", from_turn=1, through_turn=3)
    notes = PostgresNotes(guest.app.pool)
    source = NoteSource(
        session_id=guest.session_id, contact_id=contact, scope="default", from_turn=1, through_turn=3,
        flush_id=ticket.id,
    )  # fmt: skip
    assert (await notes.save(note(), source)).outcome == "saved"
    await forget(guest)
    with pytest.raises(LeaseLost):
        await notes.save(note(), source)
    report = FlushReport(outcome="saved", stray_text=CANARY, model="m")
    with pytest.raises(LeaseLost):
        await store.end_flush(work, ticket, report, contact_id=contact)
    with pytest.raises(LeaseLost):
        await store.begin_flush(work, cycle=1, threshold="late", from_turn=1, through_turn=3)
    await is_gone(guest)


async def test_flush_that_lost_its_job_changes_no_note_beside_the_next_attempt(guest: Visit) -> None:
    """The next attempt uses the same row of the flush, which is running again."""
    store, work = guest.app.stores.jobs, await job(guest, "flush")
    contact = await guest.one("SELECT contact_id FROM sessions WHERE id = $1", guest.session_id)
    ticket = await store.begin_flush(work, cycle=0, threshold="soft", from_turn=1, through_turn=3)
    notes = PostgresNotes(guest.app.pool)
    source = NoteSource(
        session_id=guest.session_id, contact_id=contact, scope="default", from_turn=1, through_turn=3,
        flush_id=ticket.id, job_id=work.id, epoch=work.epoch,
    )  # fmt: skip
    kept = (await notes.save(NewNote(kind="fact", text="The boat is green."), source)).note
    assert kept is not None
    await guest.app.pool.execute(*FENCE_JOBS(session_id=guest.session_id))
    again = await store.claim_job(work.id, worker_id=guest.app.worker_id)
    assert again is not None
    assert ticket == await store.begin_flush(again, cycle=0, threshold="soft", from_turn=1, through_turn=3)
    for late in (
        notes.save(note(), source),
        notes.change(kept.short_id, note(), source),
        notes.archive(kept.short_id, source),
    ):
        with pytest.raises(LeaseLost):
            await late
    assert await guest.one("SELECT array_agg(text) FROM notes WHERE forgotten_at IS NULL") == [kept.text]
    assert (await notes.save(note(), replace(source, epoch=again.epoch))).outcome == "saved"


async def test_a_summary_that_is_written_meanwhile_is_not_stored(guest: Visit) -> None:
    rivals = Rivals(guest=guest, job=await job(guest, "compact"))
    with pytest.raises((LeaseLost, StaleView)):
        await rivals.try_once(before_commit=lambda: forget(guest))
    await is_gone(guest)


async def test_a_checkpoint_and_a_failed_job_tell_nothing(guest: Visit) -> None:
    work = await job(guest, "flush")
    await forget(guest)
    checkpoint = Checkpoint(
        parent=None, from_turn=1, through_turn=2, ledger=Ledger(narrative=CANARY), audit={}, tokens=1,
        model="", cost_micro=None,
    )  # fmt: skip
    with pytest.raises(LeaseLost):
        await PostgresJobBackoff(guest.app.pool).save_checkpoint(work, checkpoint, spent=(), contact_id=1)
    with pytest.raises(LeaseLost):
        await guest.app.stores.jobs.end_job(work, state="due", outcome={"advice": CANARY}, error=CANARY)
    await is_gone(guest)


async def test_a_tool_round_can_store_neither_calls_nor_results_nor_notes(guest: Visit) -> None:
    claim = await claimed(guest)
    turns = guest.app.stores.turns
    call = ToolUse(id="t1", name="read", input={"about": CANARY})
    await turns.record_tool_calls(claim, blocks=(call,), tokens=3, calls=(call,), spent=())
    await forget(guest)
    with pytest.raises(LeaseLost):
        await turns.record_tool_results(claim, blocks=(Text(text=CANARY),), tokens=1, outcomes={"t1": "done"})
    source = NoteSource(
        session_id=claim.session_id, contact_id=claim.contact_id, scope="default", from_turn=claim.turn,
        through_turn=claim.turn,
    )  # fmt: skip
    for epoch in (0, claim.epoch):
        with pytest.raises(LeaseLost):
            await PostgresNotes(guest.app.pool).save(note(), replace(source, epoch=epoch))
    assert (await guest.one("SELECT status FROM turn_steps")) == "unknown"
    await turns.release_reservation(claim.reservation_id or 0)
    await is_gone(guest)
    await guest.ask("And now?")
    await is_gone(guest)


async def test_a_picture_that_is_being_described_stays_undescribed(guest: Visit) -> None:
    attachments = PostgresAttachments(guest.app.pool)
    picture = await attachments.store(
        guest.session_id, body=CANARY.encode(), mime="image/png", name=f"{CANARY}.png"
    )
    contact = await guest.one("SELECT contact_id FROM sessions WHERE id = $1", guest.session_id)
    await forget(guest)
    seen = Described(
        session_id=guest.session_id, contact_id=contact, turn=1, attachment_id=picture,
        description=f"It shows {CANARY}.", spent=(), reservation_id=None,
    )  # fmt: skip
    await attachments.describe(seen)
    await is_gone(guest)


async def test_an_answer_on_its_way_to_a_chat_is_sent_no_further(guest: Visit) -> None:
    deliveries = PostgresDeliveries(guest.app.pool)
    await guest.app.pool.execute(
        """INSERT INTO deliveries (session_id, turn_no, part, channel, address_id)
           SELECT session_id, turn_no, 0, channel, address_id FROM turns WHERE turn_no = 3"""
    )
    await forget(guest)
    assert not await deliveries.begin(guest.session_id, 3, 0)
    assert await deliveries.list_unfinished([0]) == []
    await deliveries.mark_not_sent(guest.session_id, 3, 0, error=CANARY)
    await is_gone(guest)


async def test_updates_that_are_still_being_put_together_are_refused(guest: Visit) -> None:
    app = guest.app
    await app.pool.execute(
        "UPDATE addresses SET channel = 'telegram', account = '7', chat = '42' WHERE id = $1",
        guest.address_id,
    )
    await app.pool.execute("DELETE FROM visitors")  # which open places of the web only
    inbox = PostgresTelegramInbox(app.pool)
    mine = {"message_id": 1, "chat": {"id": 42}, "from": {"id": 42}, "text": CANARY}
    pressed = {"id": "9", "from": {"id": 42}, "message": mine, "data": CANARY}
    others = {"message_id": 2, "chat": {"id": 43}, "from": {"id": 43}, "text": "Somebody else's words"}
    updates: list[dict[str, Any]] = [{"message": mine}, {"callback_query": pressed}, {"message": others}]
    await inbox.store(7, [{"update_id": number, **update} for number, update in enumerate(updates, 1)])
    await forget(guest)
    inbound = Inbound(
        session_id=guest.session_id, address_id=guest.address_id, text=CANARY, dedupe_key="tg:1",
        receipt=TelegramReceipt(bot_id=7, update_ids=(1,), chat_id=42, message_ids=(1,)),
    )  # fmt: skip
    with pytest.raises(LeaseLost):
        await app.sessions.accept(inbound)
    assert [waiting.update_id for waiting in await inbox.list_waiting(7)] == [3]
    assert "Somebody else's words" in await dumped(app.settings)
    await is_gone(guest)


@pytest.mark.control("S40")
@pytest.mark.row("F48")
@pytest.mark.parametrize("pause", [0.0, 0.02, 0.06, 0.15, 0.3])
async def test_whatever_runs_at_any_moment_leaves_nothing(guest: Visit, pause: float) -> None:
    await guest.app.pool.execute("UPDATE sessions SET context_tokens = 5000")
    await guest.say(f"Please remember that the password is {CANARY}.")
    running = asyncio.gather(guest.answered(), work(guest), return_exceptions=True)
    await asyncio.sleep(pause)
    await forget(guest)
    await running
    await guest.app.pool.execute("UPDATE reservations SET state = state")
    await work(guest)
    await guest.answered()
    await is_gone(guest)
    await guest.ask("Hello again")
    await is_gone(guest)


async def work(guest: Visit) -> None:
    order = JobOrder(kind="compact", key="compact:by:hand", trigger="manual", payload={"force": True})
    await guest.app.stores.jobs.request_job(guest.session_id, order)
    await guest.run_due_jobs()
