"""Queries of the overview, and of the list and the page of conversations.

Each statement returns one JSON text. A page is one statement, except that the overview reads spending and
times of answers, too, and a search first reads its matches.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from time import monotonic
from typing import Any
from uuid import UUID

import asyncpg

from shared.adapters.postgres.dashboard import read_models_sql as sql
from shared.adapters.postgres.dashboard.metrics_queries import AnswerTimes
from shared.adapters.postgres.dashboard.session_list import (
    BadQuery,
    Matches,
    SessionQuery,
    build_matches,
    build_matches_query,
    build_near_page,
    build_session_count,
    build_session_page,
    read_cursor,
    write_cursor,
)
from shared.adapters.postgres.db.page_read import MAX_LIMIT, SECONDS, count_rows, page_size, read_page
from shared.adapters.postgres.db.pool import Named, Pool, PoolStore, store_method
from shared.adapters.postgres.db.search_terms import is_short
from shared.adapters.postgres.turns.counters import SpentToday

__all__ = [
    "MAX_LIMIT",
    "BadQuery",
    "Insights",
    "SessionQuery",
    "describe_undo",
    "read_cursor",
    "write_cursor",
]

BATCH = 1000
"""Sessions that one statement of an export reads."""
SENDING_SECONDS = 0.001
"""Seconds to wait until a statement has been sent to the database."""


class Insights(PoolStore):
    """Read-only queries of the dashboard; unknown numbers are None. They raise StorageUnavailable."""

    def __init__(self, pool: Pool, *, timezone: str = "UTC", clock: Callable[[], float] = monotonic) -> None:
        super().__init__(pool)
        self._timezone = timezone
        self._today = SpentToday(pool, timezone, clock=clock)
        self._times = AnswerTimes(pool)

    def in_zone(self, timezone: str) -> Insights:
        """Return the same queries with another time zone, which decides when a day begins."""
        return Insights(self._pool, timezone=timezone)

    async def load_overview(self) -> dict[str, Any]:
        """Return the figures of the overview page: spending, speed of answers, waiting work and problems.

        They are read one after another; `at` is when waiting work and problems were read.
        `spend_micro` is today's, in micro-dollars, None if no call of today has a known price.
        """
        spent = await self._today.read()
        return {
            **await self._read(*sql.OVERVIEW(timezone=self._timezone)),
            **await self._times.read(),
            "spend_micro": None if spent["calls"] == spent["unknown"] > 0 else spent["spent"],
            "spend_unknown_calls": spent["unknown"],
            "calls": spent["calls"],
        }

    async def load_checklist(self, operator_id: int, *, demo_model: str) -> dict[str, Any]:
        """Return which steps of the set-up checklist are done, for an operator, and kinds of open alerts.

        Answers by `demo_model` do not count.
        """
        found: dict[str, Any] = await self._read(
            *sql.CHECKLIST(operator_id=operator_id, demo_model=demo_model)
        )
        return found

    async def load_sessions(self, query: SessionQuery) -> dict[str, Any]:
        """Return a page of sessions as `{sessions, next}`; `next` is the cursor of the next page, or None.

        Raises BadQuery for an unknown order or state, or an invalid cursor.
        """
        limit = page_size(query.limit)
        rows = await self._session_rows(query, limit=limit + 1)
        more = len(rows) > limit
        shown = rows[:limit]
        last = shown[-1] if shown else {}
        following = write_cursor(query.sort, last["key"], last["row"]) if more else None
        return {"sessions": [_without(row, "key", "row") for row in shown], "next": following}

    async def count_sessions(self, query: SessionQuery) -> dict[str, Any] | None:
        """Return the number of matching sessions as `{count, more}`; None if counting takes too long.

        Raises BadQuery for an unknown order or state.
        """
        statement, arguments = build_session_count(query, await self._matches(query.search) or Matches())
        return await count_rows(self._pool, statement, *arguments)

    async def iterate_sessions(self, query: SessionQuery) -> AsyncGenerator[list[dict[str, Any]], None]:
        """Yield all matching sessions from the first one on, in batches of 1,000. Raises BadQuery.

        The next batch is requested before the caller gets a batch, so that PostgreSQL reads while the caller
        writes.
        """
        query, matches = replace(query, cursor=""), await self._matches(query.search) or Matches()
        coming = asyncio.ensure_future(self._batch(query, matches))
        try:
            while rows := await coming:
                if len(rows) < BATCH:
                    yield rows
                    return
                query = replace(query, cursor=write_cursor(query.sort, rows[-1]["key"], rows[-1]["row"]))
                coming = asyncio.ensure_future(self._batch(query, matches))
                await asyncio.wait([coming], timeout=SENDING_SECONDS)
                yield rows
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)

    async def _batch(self, query: SessionQuery, matches: Matches) -> list[dict[str, Any]]:
        statement, arguments = build_session_page(query, matches, limit=BATCH)
        return await self._read(statement, *arguments) or []

    async def _session_rows(self, query: SessionQuery, *, limit: int) -> list[dict[str, Any]]:
        near = build_near_page(query, limit=limit)
        matches = await self._matches(query.search, only_few=near is not None)
        if near is not None and matches is None:
            rows = await self._read(near[0], *near[1]) or []
            if len(rows) == limit:
                return list(rows)
            matches = await self._matches(query.search)
        statement, arguments = build_session_page(query, matches or Matches(), limit=limit)
        return await self._read(statement, *arguments) or []

    async def _matches(self, search: str, *, only_few: bool = False) -> Matches | None:
        """Return the ids of people and agents that match the search.

        With `only_few`, return None for a search that may match very many.
        """
        if not search:
            return Matches()
        if only_few and is_short(search):
            return None
        found = await self._read(*build_matches_query(search, only_few=only_few))
        return None if only_few and found["people"] is None else build_matches(found)

    async def load_session(self, public_id: UUID) -> dict[str, Any] | None:
        """Return a session's facts, context, flushes with their notes, and spending by purpose.

        Returns None if there is no such session.
        """
        found: dict[str, Any] | None = await self._read(*sql.SESSION(public_id=public_id))
        return found

    async def load_messages(
        self, public_id: UUID, *, before: tuple[int, int] | None = None, limit: int = 100
    ) -> dict[str, Any] | None:
        """Return the newest `limit` messages before `(turn, step)`, oldest first.

        Returns None if the session is unknown.

        The dividers of compactions, the hand-overs and the private notes between them are included.
        """
        turn, step = before or (2**62, 2**30)
        found: dict[str, Any] | None = await self._read(
            *sql.MESSAGES(
                public_id=public_id, turn=turn, step=step, limit=page_size(limit), first=0, last=2**62
            )
        )
        return found

    async def load_originals(
        self, compaction: UUID, *, before: tuple[int, int] | None = None, limit: int = 100
    ) -> dict[str, Any] | None:
        """Return the newest `limit` messages that a summary replaces, before `(turn, step)`.

        Returns None if the summary is unknown.
        """
        turn, step = before or (2**62, 2**30)
        found: dict[str, Any] | None = await self._read(
            *sql.ORIGINALS(public_id=compaction, turn=turn, step=step, limit=page_size(limit))
        )
        return found

    async def load_context_audit(
        self, public_id: UUID, *, before: tuple[int, int] | None = None, limit: int = 50
    ) -> dict[str, Any] | None:
        """Return at most `limit` audits of model calls before `(turn, number)`, newest first.

        Returns None if the session is unknown.
        """
        turn, number = before or (2**62, 0)
        statement = Named(sql.CONTEXT_AUDIT.format(limit=page_size(limit)))
        found: dict[str, Any] | None = await self._read(
            *statement(public_id=public_id, turn=turn, number=number)
        )
        return found

    async def load_compactions(
        self, public_id: UUID, *, before: int | None = None, limit: int = 50
    ) -> dict[str, Any] | None:
        """Return at most `limit` summaries, newest first, with cost and whether each can be undone.

        Failed attempts are listed with the first page, that is with `before` None. Returns None if the
        session is unknown.
        """
        statement = Named(sql.COMPACTIONS.format(limit=page_size(limit)))
        found = await self._read(*statement(public_id=public_id, before=2**62 if before is None else before))
        if found is None:
            return None
        standing = found.pop("standing")
        for compaction in found["compactions"]:
            compaction |= describe_undo(compaction, **standing)
        if before is not None:
            found["failed"] = []
        return dict(found)

    async def load_compaction(self, compaction: UUID) -> tuple[int, dict[str, Any]] | None:
        """Return (session's internal id, summary in the form of `load_compactions`).

        Returns None if the summary is unknown.
        """
        owner = await self._owner(compaction)
        if owner is None:
            return None
        page = await self.load_compactions(owner["public_id"], before=owner["compaction"] + 1, limit=1)
        return owner["id"], page["compactions"][0] if page and page["compactions"] else {}

    @store_method
    async def _owner(self, compaction: UUID) -> asyncpg.Record | None:
        return await self._pool.fetchrow(
            *_OWNER(compaction=compaction),
            timeout=SECONDS,
        )

    async def _read(self, statement: str, *arguments: object) -> Any:
        return await read_page(self._pool, statement, *arguments)


def describe_undo(
    compaction: dict[str, Any],
    *,
    head: str | None,
    head_kind: str | None,
    redo: str | None,
    context: int,
    hard: int | None,
    busy: bool,
) -> dict[str, Any]:
    """Return `{can_undo, undo_reason, can_restore, restore_reason}` of a summary; reasons are texts or None.

    `head` and `redo` are ids of the summaries that can be undone and restored, `context` and `hard` tokens.
    The command itself decides again; this shows its decision beforehand.
    """
    if compaction["active"]:
        refusal = _find_undo_obstacle(
            compaction, head=head, head_kind=head_kind, context=context, hard=hard, busy=busy
        )
        return {
            "can_undo": refusal is None,
            "undo_reason": refusal,
            "can_restore": False,
            "restore_reason": None,
        }
    if compaction["id"] == redo:
        refusal = _BUSY if busy else None
    elif compaction["undone_at"] is not None:
        refusal = "The conversation was summarised again since this was undone."
    else:
        refusal = "A newer summary contains this one."
    return {
        "can_undo": False,
        "undo_reason": None,
        "can_restore": refusal is None,
        "restore_reason": refusal,
    }


_NOT_CROSSED = {
    "new": "A new conversation was started after this summary.",
    "separator": "A separator was set after this summary.",
    "window": "Older messages have left the window since this summary.",
}
_BUSY = "A message is being answered just now. Try again in a moment."


def _find_undo_obstacle(
    compaction: dict[str, Any],
    *,
    head: str | None,
    head_kind: str | None,
    context: int,
    hard: int | None,
    busy: bool,
) -> str | None:
    if compaction["id"] != head:
        if head_kind in ("summary", "digest"):
            return "A newer summary builds on this one. Undo the newer one first."
        return _NOT_CROSSED.get(head_kind or "", _NOT_CROSSED["new"])
    after = context + compaction["tokens_before"] - compaction["tokens_after"]
    if hard is not None and after > hard:
        return f"The original needs about {after:,} tokens; {hard:,} is the most that fits."
    return _BUSY if busy else None


def _without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


_OWNER = Named("""
SELECT s.id, s.public_id, l.id AS compaction FROM compactions l JOIN sessions s ON s.id = l.session_id
 WHERE l.public_id = :compaction AND l.kind IN ('summary', 'digest')
""")
