"""Store of summaries of imported conversations, their passages, and the worker's progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shared.adapters.postgres.compaction.jobs import spend_on, still_mine
from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.adapters.postgres.memory.recall_index import ADD_PASSAGES, LAST_PASSAGE
from shared.adapters.postgres.turns.turns import build_entry
from shared.core.memory.past import SummariesState
from shared.core.memory.past_summaries import (
    SUMMARY,
    ImportSpending,
    ImportToSummarise,
    SummaryPassage,
    TurnSize,
)
from shared.core.session.ledger import Ledger, ledger_to_json
from shared.core.session.session import Entry
from shared.core.session.session_state import JobClaim
from shared.core.session.turns import Spending
from shared.core.values.errors import StaleView
from shared.core.values.searching import date_words, dictionary_of, prevailing_dictionary, searchable


class PostgresImportSummaries(PoolStore):
    """Store of import summaries; each method is one transaction and raises StorageUnavailable."""

    @store_method
    async def request_due(self) -> int:
        """Insert a job for each of at most 100 imports that wait for a summary and have no job.

        Returns the number of jobs. An import whose last job died gets a new one after an hour.
        """
        return len(await self._pool.fetch(_REQUEST))

    @store_method
    async def load(self, session_id: int) -> ImportToSummarise | None:
        """Return an import with its progress; None if it was undone, is not complete or is no import."""
        row = await self._pool.fetchrow(*_LOAD(session_id=session_id))
        if row is None:
            return None
        spent = ImportSpending(
            micro=row["cost_micro"], input_tokens=row["input_tokens"], output_tokens=row["output_tokens"]
        )
        return ImportToSummarise(
            session_id=session_id, contact_id=row["contact_id"], state=row["summaries"],
            covered=row["summarised_turns"], turns=row["answered_turn"],
            searchable_turns=row["indexed_turn"], is_newest_first=row["is_newest_first"],
            agent_config=row["agent_config"], timezone=row["timezone"], anonymous=row["anonymous"],
            spent=spent,
        )  # fmt: skip

    @store_method
    async def load_sizes(self, session_id: int, *, first: int, last: int) -> tuple[TurnSize, ...]:
        """Return estimated tokens and time of the turns `first` to `last` in their order.

        Their texts are not read.
        """
        rows = await self._pool.fetch(*_SIZES(session_id=session_id, first=first, last=last))
        return tuple(TurnSize(turn=row["turn_no"], tokens=row["tokens"], at=row["at"]) for row in rows)

    @store_method
    async def load_entries(self, session_id: int, *, first: int, last: int) -> tuple[Entry, ...]:
        """Return the messages of the turns `first` to `last` in their order."""
        rows = await self._pool.fetch(*_ENTRIES(session_id=session_id, first=first, last=last))
        return tuple(build_entry(row) for row in rows)

    @store_method
    async def record(
        self, job: JobClaim, seen: ImportToSummarise, turns: tuple[int, int], *, ledger: Ledger | None,
        passages: Sequence[SummaryPassage], audit: Mapping[str, Any], model: str, spent: Sequence[Spending],
    ) -> None:  # fmt: skip
        """Store the summary of the turns `turns` (first, last) with its passages, and book its model calls.

        `ledger` None marks the turns as done without a summary. Raises LeaseLost if another worker has the
        job, and StaleView if the import was undone, stopped or summarised since `seen`.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(*_WAIT_FOR_INDEXER(session_id=job.session_id))
            place = await connection.fetchrow(*LAST_PASSAGE(session_id=job.session_id))
            await still_mine(connection, job)
            number = turns[1] - turns[0] + 1
            advanced = await connection.fetchval(
                *_ADVANCE(session_id=job.session_id, covered=seen.covered, number=number)
            )
            if advanced is None or place is None:
                raise StaleView(f"import {job.session_id}")
            await connection.execute(
                *_ADD(
                    session_id=job.session_id, from_turn=turns[0], through_turn=turns[1],
                    ledger={} if ledger is None else ledger_to_json(ledger), passages=len(passages),
                    audit=dict(audit), model=model, job_id=job.id,
                )
            )  # fmt: skip
            rows = _rows(passages, number=place["number"], sitting=place["sitting"] + 1)
            if rows:
                await connection.execute(*ADD_PASSAGES(session_id=job.session_id, passages=rows))
            await spend_on(connection, job, "compact", spent, seen.contact_id)

    @store_method
    async def end(self, job: JobClaim, seen: ImportToSummarise, state: SummariesState) -> None:
        """Set the state of an import's summaries, unless they are stopped or have advanced since `seen`.

        Raises LeaseLost if another worker has the job.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await still_mine(connection, job)
            await connection.execute(*_END(session_id=job.session_id, covered=seen.covered, state=state))

    @store_method
    async def switch(self, session_id: int, import_id: str, *, on: bool) -> bool:
        """Resume the summaries of an import, or stop them if `on` is False; finished ones stay finished.

        `import_id` is the public id of the import's session. Returns False if the session's person has no
        such complete import.
        """
        return (
            await self._pool.fetchval(*_SWITCH(session_id=session_id, import_id=import_id, on=on)) is not None
        )


def _rows(passages: Sequence[SummaryPassage], *, number: int, sitting: int) -> list[dict[str, Any]]:
    fallback = prevailing_dictionary(one.text for one in passages)
    rows: list[dict[str, Any]] = []
    for place, one in enumerate(passages, start=number + 1):
        dictionary = dictionary_of(one.text, otherwise=fallback)
        rows.append(
            {
                "number": place, "seq": one.seq, "part": one.part, "turn": one.turn, "author": SUMMARY,
                "speaker": "", "sitting": sitting, "at": one.at.isoformat(), "text": one.text,
                "dictionary": dictionary, "words": searchable(date_words(one.at, dictionary), "", one.text),
            }
        )  # fmt: skip
    return rows


_REQUEST = """
INSERT INTO jobs (kind, session_id, key, trigger)
SELECT 'import', i.session_id, 'import:' || i.session_id || ':' || i.summarised_turns, 'import'
  FROM past_imports i
 WHERE i.summaries = 'due' AND i.digest IS NOT NULL
   AND NOT EXISTS (SELECT FROM jobs o WHERE o.session_id = i.session_id AND o.kind = 'import'
                      AND (o.state IN ('due', 'running')
                           OR o.state = 'dead' AND o.ended_at > now() - interval '1 hour'))
 LIMIT 100
ON CONFLICT (key) WHERE state IN ('due', 'running') DO NOTHING RETURNING id
"""
_LOAD = Named("""
SELECT i.summaries, i.summarised_turns, coalesce(p.merged_into, p.id) AS contact_id, s.answered_turn,
       s.indexed_turn, a.config AS agent_config, p.timezone, coalesce(p.anonymous, false) AS anonymous,
       t.cost_micro, t.output_tokens,
       t.input_tokens + t.cache_read_tokens + t.cache_write_tokens AS input_tokens,
       coalesce((SELECT opened_at FROM turns WHERE session_id = s.id AND turn_no = 1)
              > (SELECT opened_at FROM turns WHERE session_id = s.id AND turn_no = s.answered_turn), false)
         AS is_newest_first
  FROM past_imports i JOIN sessions s ON s.id = i.session_id JOIN contacts p ON p.id = s.contact_id
  JOIN agents a ON a.id = s.agent_id JOIN session_totals t ON t.session_id = s.id
 WHERE i.session_id = :session_id AND i.digest IS NOT NULL AND i.ended_at IS NOT NULL
""")
"""Select the state of a complete import that was not undone, with all that its summaries have cost."""
_SIZES = Named("""
SELECT te.turn_no, sum(e.tokens)::bigint AS tokens, min(e.at) AS at
  FROM turn_entries te JOIN entry_rows e USING (session_id, seq)
 WHERE te.session_id = :session_id AND te.turn_no BETWEEN :first AND :last
 GROUP BY te.turn_no ORDER BY te.turn_no
""")
_ENTRIES = Named("""
SELECT e.seq, te.turn_no, te.step, e.role, e.author, e.blocks, e.tokens, e.at, e.replaces_seq,
       false AS pinned, NULL AS form, NULL AS shown
  FROM turn_entries te JOIN entries e USING (session_id, seq)
 WHERE te.session_id = :session_id AND te.turn_no BETWEEN :first AND :last
 ORDER BY te.turn_no, te.step
""")
_WAIT_FOR_INDEXER = Named(
    "SELECT pg_advisory_xact_lock(hashtextextended('recall:' || :session_id::bigint, 0))"
)
"""Lock against the indexer, which numbers passages of the session too."""
_ADVANCE = Named("""
UPDATE past_imports i
   SET summarised_turns = summarised_turns + :number,
       summaries = CASE WHEN summarised_turns + :number >= s.answered_turn THEN 'done' ELSE 'due' END
  FROM sessions s
 WHERE i.session_id = :session_id AND s.id = i.session_id AND i.digest IS NOT NULL
   AND i.summaries = 'due' AND i.summarised_turns = :covered
RETURNING i.session_id
""")
"""Advance the progress by compare-and-set: no row if the import was undone, stopped or summarised further."""
_ADD = Named("""
INSERT INTO past_summaries (session_id, from_turn, through_turn, ledger, passages, audit, model, job_id)
VALUES (:session_id, :from_turn, :through_turn, :ledger, :passages, :audit, :model, :job_id)
""")
_END = Named("""
UPDATE past_imports SET summaries = :state
 WHERE session_id = :session_id AND summaries = 'due' AND summarised_turns = :covered
""")
_SWITCH = Named("""
UPDATE past_imports i
   SET summaries = CASE WHEN i.summaries = 'done' THEN 'done' WHEN :on::boolean THEN 'due' ELSE 'stopped' END
  FROM sessions s, sessions me JOIN contacts p ON p.id = me.contact_id
 WHERE me.id = :session_id AND s.id = i.session_id AND s.public_id = :import_id::text::uuid
   AND i.contact_id IN (SELECT contact_family(coalesce(p.merged_into, p.id)))
   AND i.digest IS NOT NULL AND i.ended_at IS NOT NULL
RETURNING i.session_id
""")
"""Resume or stop the summaries of the person's complete import; finished summaries stay finished."""
