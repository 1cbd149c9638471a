"""Notes in Postgres: whatever is done in whatever order, none is doubled, lost in a circle, or back again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import asyncpg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.adapters.postgres.operations.invariants import check_invariants
from shared.core.context.memory import gist_of, is_near_gist, note_from, note_hash
from shared.core.context.notes import NewNote, NoteSource
from shared.core.session.session_state import JobClaim
from tests.kit.app_driver import Visit, running_app, settings_for, visit
from tests.kit.midday import MIDDAY

WORDS = ("likes tea", "drinks coffee", "plays chess", "has two cats", "has three cats")
TEXTS = [
    f"Anna of Graz {what} nearly every morning in the small garden behind the house{end}"
    for what in WORDS
    for end in ("", "!", " now")
]
STEP = st.tuples(
    st.sampled_from(["save", "say", "change", "put_away", "bring_back", "erase", "tidy", "night"]),
    st.integers(0, len(TEXTS) - 1),
    st.integers(0, 30),
)


@dataclass(slots=True)
class Story:
    """What was done to one person's notes, and what must never come back."""

    guest: Visit
    whose: NoteSource
    erased: set[str] = field(default_factory=set)

    async def ids(self) -> list[str]:
        rows = await self.guest.app.pool.fetch(
            "SELECT left(public_id::text, 8) AS id FROM notes WHERE contact_id = $1 ORDER BY id",
            self.whose.contact_id,
        )
        return [f"n{row['id']}" for row in rows]

    async def step(self, what: str, text: str, place: int) -> None:
        notes, ids = self.guest.app.stores.notes, await self.ids()
        note, said = NewNote(kind="fact", text=text), _said(self.whose)
        some = ids[place % len(ids)] if ids else "n00000000"
        match what:
            case "save":
                result = await notes.save(note, self.whose)
                if result.outcome == "saved":
                    assert not any(is_near_gist(gist_of(text), gist_of(gone)) for gone in self.erased), text
            case "say":
                await notes.save(note, said)
                self.erased.discard(text)
                self.erased = {gone for gone in self.erased if note_hash(gone) != note_hash(text)}
            case "change":
                await notes.change(some, note, self.whose)
            case "put_away":
                await notes.archive(some, self.whose)
            case "bring_back":
                await notes.restore(some, said)
            case "erase":
                found = await notes.find(self.whose, [], limit=50, everything=True)
                if found.notes:
                    await self._erase(found.notes[place % len(found.notes)].id)
            case "tidy":
                await self._tidied()
            case _:
                await self.guest.app.pool.execute(
                    "UPDATE notes SET undo_until = now() - interval '1 day' WHERE undo_until IS NOT NULL"
                )

    async def _erase(self, note_id: int) -> None:
        before = await self._texts()
        await self.guest.app.stores.notes.erase(self.whose, [note_id])
        self.erased |= before - await self._texts()

    async def _texts(self) -> set[str]:
        rows = await self.guest.app.pool.fetch(
            "SELECT text FROM notes WHERE contact_id = $1 AND text <> ''", self.whose.contact_id
        )
        return {row["text"] for row in rows}

    async def _tidied(self) -> None:
        before = await self._texts()
        await self.guest.app.pool.execute(
            """INSERT INTO jobs (kind, session_id, key) VALUES ('tidy', $1, 'tidy:' || $1::bigint)
               ON CONFLICT DO NOTHING""",
            self.guest.session_id,
        )
        await self.guest.app.pool.execute("UPDATE jobs SET due_at = now() WHERE state = 'due'")
        await self.guest.run_due_jobs()
        assert await self.guest.one("SELECT count(*) FROM jobs WHERE state = 'dead'") == 0
        self.erased |= before - await self._texts()


def _said(whose: NoteSource) -> NoteSource:
    return NoteSource(
        session_id=whose.session_id, contact_id=whose.contact_id, scope=whose.scope, by_person=True
    )


@given(steps=st.lists(STEP, min_size=4, max_size=25))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_story_keeps_hashes_chains_and_graves(
    steps: list[tuple[str, int, int]], database_url: str, redis_url: str
) -> None:
    asyncio.run(_told(steps, database_url, redis_url))


async def _told(steps: list[tuple[str, int, int]], database_url: str, redis_url: str) -> None:
    async with running_app(settings_for(database_url, redis_url)) as app:
        guest = await visit(app)
        story = Story(guest, await app.stores.notes.load_owner(guest.session_id))
        for what, text, place in steps:
            await story.step(what, TEXTS[text], place)
        live = await app.stores.notes.find(story.whose, [], limit=100)
        assert len({note_hash(note.text) for note in live.notes}) == len(live.notes)
    connection = await asyncpg.connect(database_url)
    try:
        assert await check_invariants(connection) == []
    finally:
        await connection.close()


async def claimed(guest: Visit) -> JobClaim:
    job_id = await guest.one(
        "INSERT INTO jobs (kind, session_id, key) VALUES ('tidy', $1, 'tidy:now') RETURNING id",
        guest.session_id,
    )
    job = await guest.app.stores.jobs.claim_job(job_id, worker_id=guest.app.worker_id)
    assert job is not None
    return job


async def test_nightly_tidying_is_requested_once_a_day_when_needed(guest: Visit) -> None:
    ask = guest.app.stores.consolidation.request_due
    assert await ask(timezone=MIDDAY, hour=0) == []
    whose = await guest.app.stores.notes.load_owner(guest.session_id)
    await guest.app.stores.notes.save(note_from({"text": "My dog is called Bertil."}), whose)
    assert await ask(timezone=MIDDAY, hour=24) == []
    (job_id,) = await ask(timezone=MIDDAY, hour=0)
    assert await ask(timezone=MIDDAY, hour=0) == []
    await guest.app.job_runner.run(job_id)
    row = await guest.app.pool.fetchrow("SELECT state, outcome FROM jobs WHERE id = $1", job_id)
    assert row is not None
    assert row["state"] == "done"
    assert row["outcome"] == {"notes": 1, "doubles": 0, "expired": 0, "let_go": 0, "parts": 0}
    assert await ask(timezone=MIDDAY, hour=0) == []


async def test_expired_note_leaves_the_prompt_and_can_still_be_found(guest: Visit) -> None:
    whose = await guest.app.stores.notes.load_owner(guest.session_id)
    dated = {"text": "The person is in Rome.", "durability": "ephemeral", "event_date": "2020-05-01"}
    await guest.app.stores.notes.save(note_from(dated), whose)
    assert len((await guest.app.stores.jobs.load_state(guest.session_id)).view.notes) == 1
    job = await claimed(guest)
    await guest.app.pool.execute("UPDATE jobs SET state = 'due', leased_by = NULL WHERE id = $1", job.id)
    await guest.app.job_runner.run(job.id)
    assert (await guest.app.stores.jobs.load_state(guest.session_id)).view.notes == ()
    assert (await guest.app.stores.notes.find(whose, ["rome"], limit=5)).total == 1


async def test_prompt_stored_after_note_erasure_is_cleaned_by_next_tidying(
    guest: Visit,
) -> None:
    """Such a turn stores its prompt after the erasure."""
    whose = await guest.app.stores.notes.load_owner(guest.session_id)
    note = note_from({"text": "My dog is called Zanzibarine."})
    kept = (await guest.app.stores.notes.save(note, whose)).note
    assert kept is not None
    await guest.ask("Hello.")
    parts = await guest.app.pool.fetch("SELECT * FROM prompt_parts WHERE body LIKE '%Zanzibarine%'")
    assert parts
    assert await guest.app.stores.notes.erase(whose, [kept.id]) == 1
    await guest.app.pool.executemany(
        "INSERT INTO prompt_parts (sha256, body) VALUES ($1, $2)",
        [(part["sha256"], part["body"]) for part in parts],
    )
    await guest.app.pool.execute("UPDATE jobs SET due_at = now() WHERE kind = 'tidy'")
    await guest.run_due_jobs()
    assert await guest.one("SELECT count(*) FROM prompt_parts WHERE body LIKE '%Zanzibarine%'") == 0


async def test_a_save_whose_result_was_lost_is_recognised_by_its_call(guest: Visit) -> None:
    await guest.ask("My dog is called Bertil.")
    whose = await guest.app.stores.notes.load_owner(guest.session_id)
    call = NoteSource(
        session_id=whose.session_id, contact_id=whose.contact_id, scope=whose.scope, from_turn=1,
        through_turn=1, call_id="c1", call_key="1:1:c1",
    )  # fmt: skip
    note = note_from({"text": "The dog is called Bertil."})
    first, again = [await guest.app.stores.notes.save(note, call) for _ in range(2)]
    assert (first.outcome, again.outcome) == ("saved", "saved")
    assert first.note == again.note
    assert again.event_seq is None
    changed = note_from({"text": "The dog is called Bertil the Second."})
    assert first.note is not None
    done = [await guest.app.stores.notes.change(first.note.short_id, changed, call) for _ in range(2)]
    assert [result.outcome for result in done] == ["changed", "changed"]
    assert await guest.one("SELECT count(*) FROM notes") == 2
    assert await guest.one("SELECT count(*) FROM events WHERE kind = 'memory'") == 2
