"""Store that erases a person's data: one transaction stops all running work, small batches follow."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from shared.adapters.postgres.db.pool import Connection, Named, PoolStore, store_method
from shared.adapters.postgres.people.account_links_sql import ONE_AT_A_TIME
from shared.adapters.postgres.people.operator_auth import append_audit
from shared.adapters.postgres.privacy import erasure_sql as sql
from shared.adapters.postgres.privacy.erasure_map import AT_ONCE, STEPS
from shared.adapters.postgres.privacy.erasure_messages import erase_messages_everywhere
from shared.core.privacy.erasure import WISH_MINUTES, Preview, Report
from shared.core.privacy.erasures import AGAIN
from shared.core.values.errors import OnHold, UnknownSession

_SCAN_SECONDS = 120
"""Seconds for searching all audits for request parts that others were sent too.

Only the erasure waits for it.
"""


class PostgresErasure(PoolStore):
    """Store of erasures. It raises StorageUnavailable and UnknownSession."""

    @store_method
    async def load_preview(self, session_id: int) -> Preview:
        """Return how many rows of each kind a person has in all their conversations; changes nothing."""
        row = await self._pool.fetchrow(*_PREVIEW(session_id=session_id))
        assert row is not None
        return Preview(counts=dict(row))

    @store_method
    async def record_pending_confirmation(self, session_id: int) -> None:
        """Store that the person was asked now to confirm an erasure, in place of an earlier time."""
        await self._pool.execute(
            *_RECORD_WISH(session_id=session_id),
        )

    @store_method
    async def take_pending_confirmation(self, session_id: int) -> bool:
        """Delete the record that the person was asked to confirm an erasure.

        Returns whether there was one, at most WISH_MINUTES old.
        """
        found = await self._pool.fetchval(
            *_TAKE_WISH(session_id=session_id),
        )
        return bool(found)

    @store_method
    async def start_erasure(self, session_id: int, *, actor: str, scope: str = "everything") -> Report:
        """Begin an erasure: one commit ends all running work, clears the screens, and erases small tables.

        The rest is erased by calls of `advance`; the report has its id and `finished` False. With `scope`
        "everything" all conversations of the person and their notes are erased. With "retention" or "import"
        only this conversation is, and notes stay. `actor` is stored in the logs of erasures and audits.

        Raises UnknownSession, and OnHold for a person on legal hold. A retention of data on hold, or of a
        conversation used within 12 hours, does nothing: the report has the id 0.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            # People are joined, separated and erased one at a time.
            await connection.execute(ONE_AT_A_TIME)
            contact_hash = await connection.fetchval(*sql.CONTACT_HASH(session_id=session_id))
            if contact_hash is None:
                raise UnknownSession(f"session {session_id}")
            whole = scope == "everything"
            if await _is_held(connection, session_id, actor):
                if scope != "retention":
                    raise OnHold
                return Report(erasure_id=0, counts={})
            contacts = (
                [row["id"] for row in await connection.fetch(*sql.FAMILY(session_id=session_id))]
                if whole
                else []
            )
            one = sql.LOCK_IMPORT if scope == "import" else sql.LOCK_ONE
            lock = sql.LOCK_SESSIONS(contacts=contacts) if whole else one(session_id=session_id)
            sessions = [row["id"] for row in await connection.fetch(*lock)]
            if not sessions:
                return Report(erasure_id=0, counts={})  # somebody has come back meanwhile
            bounds = [await _fence(connection, session) for session in sessions]
            work = {"contacts": contacts, "sessions": bounds, "place": 0, "cursor": 0}
            told = (
                sql.ABOUT_CONTACTS(contacts=contacts) if whole else sql.ABOUT_SESSION(session_id=session_id)
            )
            about = await connection.fetchval(*told)
            row = await connection.fetchrow(
                *sql.INSERT_ERASURE(
                    contact_hash=contact_hash, actor=actor, scope=scope, work=work, about=about
                )
            )
            assert row is not None
            counts = {table: await _erase_at_once(connection, table, work, row["at"]) for table in AT_ONCE}
            await connection.execute(*_SET_COUNTS(erasure_id=row["id"], counts=counts))
            await append_audit(
                connection, actor=actor, action=f"erasure.{scope}", about=str(row["id"]),
                detail={"conversations": len(sessions)},
            )  # fmt: skip
        marks = {bound["id"]: bound["event"] for bound in bounds}
        return Report(erasure_id=row["id"], counts=counts, finished=False, marks=marks)

    @store_method
    async def erase_messages(
        self, session_id: int, seqs: Sequence[int], *, actor: str, places: bool = True
    ) -> Report:
        """Erase messages, their edits, answers to former wordings and copies in forks, in one commit.

        Rows made from them, such as notes and files, are erased, and summaries are rewritten without them.
        `seqs` are entry numbers. `places` False also removes the placeholders that screens would show. Raises
        UnknownSession, and OnHold for a person on legal hold.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            if await _is_held(connection, session_id, actor):
                raise OnHold
            return await erase_messages_everywhere(connection, session_id, seqs, actor=actor, places=places)

    @store_method
    async def list_running(self) -> list[int]:
        """Return the ids of at most 20 erasures that are not complete, oldest first."""
        return [row["id"] for row in await self._pool.fetch(sql.RUNNING)]

    @store_method
    async def advance(self, erasure_id: int) -> Report | None:
        """Erase one batch of at most 2,000 rows in one transaction.

        Returns the report if the erasure is complete, else None. An unknown id gives an empty report.
        Concurrent calls wait for each other.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            row = await connection.fetchrow(*sql.LOCK_ERASURE(erasure_id=erasure_id))
            if row is None:
                return await _report(connection, erasure_id)
            step, counts, work = row["step"], dict(row["counts"]), dict(row["work"])
            if step >= len(STEPS):
                await connection.execute(*sql.END_ERASURE(erasure_id=erasure_id, counts=counts))
                return await _report(connection, erasure_id)
            await connection.execute(sql.BEGIN_ERASING)
            done, over = await _batch(connection, STEPS[step], work, row["at"])
            label = _LABELS.get(STEPS[step], STEPS[step])
            counts[label] = counts.get(label, 0) + done
            await connection.execute(
                *sql.STORE_PROGRESS(erasure_id=erasure_id, step=step + over, counts=counts, work=work)
            )
        return None


_LABELS = {"entry_rows": "entries", "audit_rows": "turn_context_audit"}
"""Names in the report for tables that are known by another name."""


async def _is_held(connection: Connection, session_id: int, actor: str) -> bool:
    """Return whether a legal hold forbids the erasure.

    The repetition of an older erasure in a backup is allowed.
    """
    return actor != AGAIN and bool(await connection.fetchval(*sql.IS_HELD(session_id=session_id)))


async def _report(connection: Connection, erasure_id: int) -> Report | None:
    row = await connection.fetchrow(*_REPORT(erasure_id=erasure_id))
    if row is None:
        return Report(erasure_id=erasure_id, counts={})
    return Report(erasure_id=erasure_id, counts=row["counts"]) if row["state"] == "done" else None


async def _fence(connection: Connection, session_id: int) -> dict[str, Any]:
    await connection.execute(*sql.FENCE_TURNS(session_id=session_id))
    await connection.execute(*sql.FENCE_WORK(session_id=session_id))
    row = await connection.fetchrow(*sql.HIDE_ALL(session_id=session_id))
    assert row is not None
    await connection.execute(*sql.MARK(session_id=session_id, event=row["event"], turn=row["turn"]))
    return dict(row)


async def _batch(connection: Connection, table: str, work: dict[str, Any], at: datetime) -> tuple[int, bool]:
    """Erase a batch of a table; return the number of rows and whether the table is done.

    The position of the next batch is stored in `work`.
    """
    if table in ("entry_rows", "events"):
        return await _erase_in_batches(connection, table, work)
    sessions, contacts = [one["id"] for one in work["sessions"]], work["contacts"]
    match table:
        case "prompt_parts":
            await connection.execute(*_ALLOW_SCAN())
            done = await connection.fetchval(
                *sql.PROMPT_PARTS(sessions=sessions, at=at), timeout=_SCAN_SECONDS
            )
            return done, True
        case "telegram_updates":
            done = await connection.fetchval(*sql.TELEGRAM_UPDATES(contacts=contacts, at=at))
            return done, done == 0
        case "telegram_access":
            return await connection.fetchval(*sql.TELEGRAM_ACCESS(contacts=contacts)), True
        case "secretary_connections":
            return await connection.fetchval(*sql.SECRETARY_CONNECTIONS(contacts=contacts)), True
        case "push_subscriptions":
            return await connection.fetchval(*sql.PUSH_SUBSCRIPTIONS(contacts=contacts)), True
    key = await connection.fetchval(*sql.PRIMARY_KEY(table=table))
    batch = sql.render_batch(table, key, sessions=sessions, contacts=contacts, at=at)
    done = await connection.fetchval(*batch)
    return done, done < sql.BATCH


async def _erase_at_once(connection: Connection, table: str, work: dict[str, Any], at: datetime) -> int:
    """Erase the person's rows of a table, all in this transaction; return their number.

    Used for small tables whose rows are parts of requests to models.
    """
    whole = 0
    while True:
        done, over = await _batch(connection, table, work, at)
        whole += done
        if over:
            return whole


async def _erase_in_batches(connection: Connection, table: str, work: dict[str, Any]) -> tuple[int, bool]:
    """Erase a batch of entries or events, by session and number, so that no row is read twice."""
    if work["place"] >= len(work["sessions"]):
        work |= {"place": 0, "cursor": 0}
        return 0, True
    session = work["sessions"][work["place"]]
    statement, bound = (
        (sql.ENTRIES, session["seq"]) if table == "entry_rows" else (sql.EVENTS, session["event"])
    )
    batch = statement(session_id=session["id"], cursor=work["cursor"], bound=bound)
    row = await connection.fetchrow(*batch)
    assert row is not None
    if row["cursor"] is None:
        work |= {"place": work["place"] + 1, "cursor": 0}
    else:
        work["cursor"] = row["cursor"]
    return row["done"], False


_PREVIEW = Named("""
WITH p AS MATERIALIZED (
  SELECT f AS id FROM sessions s JOIN contacts p ON p.id = s.contact_id
   CROSS JOIN contact_family(coalesce(p.merged_into, p.id)) AS f WHERE s.id = :session_id ORDER BY 1
), s AS MATERIALIZED (
  SELECT id FROM sessions WHERE contact_id IN (SELECT id FROM p)
)
SELECT (SELECT count(*) FROM s JOIN sessions x ON x.id = s.id
          JOIN turn_entries te ON te.session_id = s.id AND te.turn_no > x.erased_turn) AS entries,
       (SELECT count(*) FROM compactions
         WHERE session_id IN (SELECT id FROM s) AND summary_text <> '') AS compactions,
       (SELECT count(*) FROM notes WHERE contact_id IN (SELECT id FROM p) AND forgotten_at IS NULL
           AND superseded_by IS NULL) AS notes,
       (SELECT count(*) FROM artifacts WHERE session_id IN (SELECT id FROM s)) AS artifacts,
       (SELECT count(*) FROM attachments WHERE session_id IN (SELECT id FROM s)) AS attachments,
       (SELECT count(*) FROM pins WHERE session_id IN (SELECT id FROM s)) AS pins
""")
"""Select how many rows an erasure of the person would remove."""
_RECORD_WISH = Named("""
INSERT INTO erasure_wishes (session_id) VALUES (:session_id)
ON CONFLICT (session_id) DO UPDATE SET asked_at = now()
""")
_TAKE_WISH = Named(
    """
WITH gone AS (DELETE FROM erasure_wishes WHERE session_id = :session_id RETURNING asked_at)
SELECT asked_at > now() - make_interval(mins => :wish_minutes) FROM gone
""",
    wish_minutes=WISH_MINUTES,
)
_ALLOW_SCAN = Named("SELECT set_config('statement_timeout', :timeout, true)", timeout=f"{_SCAN_SECONDS}s")
_SET_COUNTS = Named("UPDATE erasures SET counts = :counts WHERE id = :erasure_id")
_REPORT = Named("SELECT state, counts FROM erasures WHERE id = :erasure_id")
