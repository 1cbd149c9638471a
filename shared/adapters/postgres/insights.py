"""What the dashboard reads: each page is one statement that Postgres answers as one JSON text."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg

from shared.adapters.postgres import insights_sql as sql
from shared.adapters.postgres.pool import store_method

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
SECONDS = 9.0
MAX_LIMIT = 200


class BadQuery(ValueError):
    """A filter, an order or a cursor that does not exist; the text is for the person who asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionQuery:
    """What the session list shows. `sort` names a column, with a minus for the largest first."""

    search: str = ""
    channel: str = ""
    state: str = ""
    min_pct: float | None = None
    since: datetime | None = None
    until: datetime | None = None
    sort: str = "-active"
    cursor: str = ""
    limit: int = 50


class Insights:
    """Reads only; numbers that nobody knows are null."""

    def __init__(self, pool: Pool, *, timezone: str = "UTC") -> None:
        self._pool = pool
        self._timezone = timezone

    async def overview(self) -> dict[str, Any]:
        """Spend of today, and what needs an eye."""
        return dict(await self._read(sql.OVERVIEW, self._timezone))

    async def sessions(self, query: SessionQuery) -> dict[str, Any]:
        """`{sessions: […], next: cursor | null}`; raises BadQuery."""
        statement, arguments = _session_page(query)
        rows = await self._read(statement, *arguments) or []
        more = len(rows) > query.limit
        shown = rows[: query.limit]
        last = shown[-1] if shown else {}
        following = write_cursor(query.sort, last["key"], last["row"]) if more else None
        return {"sessions": [_without(row, "key", "row") for row in shown], "next": following}

    async def session(self, public_id: UUID) -> dict[str, Any] | None:
        """Facts, what fills the window now, flushes with their notes, spend by purpose."""
        found: dict[str, Any] | None = await self._read(sql.SESSION, public_id)
        return found

    async def messages(
        self, public_id: UUID, *, before: tuple[int, int] | None = None, limit: int = 100
    ) -> dict[str, Any] | None:
        """The newest messages before `(turn, step)`, oldest first, with the dividers between them."""
        turn, step = before or (2**62, 2**30)
        found: dict[str, Any] | None = await self._read(
            sql.MESSAGES, public_id, turn, step, _capped(limit), 0, 2**62
        )
        return found

    async def originals(
        self, link: UUID, *, before: tuple[int, int] | None = None, limit: int = 100
    ) -> dict[str, Any] | None:
        """The messages that one summary stands in for."""
        turn, step = before or (2**62, 2**30)
        found: dict[str, Any] | None = await self._read(sql.ORIGINALS, link, turn, step, _capped(limit))
        return found

    async def timeline(self, public_id: UUID, *, max_points: int = 500) -> dict[str, Any] | None:
        """How full the context was at each turn. Of more turns than points, each stretch keeps its lowest
        and its highest, so that no fall of a compaction and no peak is lost."""
        found: dict[str, Any] | None = await self._read(
            sql.TIMELINE, public_id, max(10, min(max_points, 2000))
        )
        return found

    async def context_audit(
        self, public_id: UUID, *, before: int | None = None, limit: int = 50
    ) -> dict[str, Any] | None:
        """What each model call was given, newest first."""
        found: dict[str, Any] | None = await self._read(
            sql.CONTEXT_AUDIT, public_id, before or 2**62, _capped(limit)
        )
        return found

    async def compactions(self, public_id: UUID) -> dict[str, Any] | None:
        """Every summary with what it cost and whether it can be undone, and the attempts that failed."""
        found = await self._read(sql.COMPACTIONS, public_id)
        if found is None:
            return None
        standing = found.pop("standing")
        for link in found["compactions"]:
            link |= judge(link, **standing)
        return dict(found)

    @store_method
    async def compaction_owner(self, link: UUID) -> tuple[int, UUID] | None:
        """The session that a summary belongs to: its internal and its public id."""
        row = await self._pool.fetchrow(
            """SELECT s.id, s.public_id FROM links l JOIN sessions s ON s.id = l.session_id
                WHERE l.public_id = $1 AND l.kind IN ('summary', 'digest')""",
            link,
            timeout=SECONDS,
        )
        return (row["id"], row["public_id"]) if row else None

    async def jobs(self, *, state: str = "", before: int | None = None, limit: int = 50) -> dict[str, Any]:
        """Jobs, newest first, counts by state; processes, bots, and answers that may not have arrived."""
        if state not in ("", "due", "running", "done", "dead"):
            raise BadQuery("state is one of due, running, done, dead")
        found = await self._read(sql.JOBS, state, before or 2**62, _capped(limit))
        return dict(found)

    async def counters(self) -> dict[str, Any]:
        """Everything `/metrics` tells, in one read."""
        return dict(await self._read(sql.COUNTERS))

    @store_method
    async def _read(self, statement: str, *arguments: object) -> Any:
        text = await self._pool.fetchval(statement, *arguments, timeout=SECONDS)
        return None if text is None else json.loads(text)


def judge(
    link: dict[str, Any],
    *,
    head: str | None,
    head_kind: str | None,
    redo: str | None,
    context: int,
    hard: int | None,
    busy: bool,
) -> dict[str, Any]:
    """Whether this summary can be undone or restored, else the reason in words.

    The command that does it decides for itself; this says beforehand what it would say.
    """
    if link["active"]:
        refusal = _why_not_undo(link, head=head, head_kind=head_kind, context=context, hard=hard, busy=busy)
        return {
            "can_undo": refusal is None,
            "undo_reason": refusal,
            "can_restore": False,
            "restore_reason": None,
        }
    if link["id"] == redo:
        refusal = _BUSY if busy else None
    elif link["undone_at"] is not None:
        refusal = "The conversation was summarised anew since this was undone."
    else:
        refusal = "A newer summary contains this one."
    return {
        "can_undo": False,
        "undo_reason": None,
        "can_restore": refusal is None,
        "restore_reason": refusal,
    }


_NOT_CROSSED = {
    "new": "The conversation was begun anew after this summary.",
    "separator": "A separator was set after this summary.",
    "window": "Older messages have left the window since this summary.",
}
_BUSY = "A message is being answered just now. Try again in a moment."


def _why_not_undo(
    link: dict[str, Any],
    *,
    head: str | None,
    head_kind: str | None,
    context: int,
    hard: int | None,
    busy: bool,
) -> str | None:
    if link["id"] != head:
        if head_kind in ("summary", "digest"):
            return "A newer summary builds on this one. Undo the newer one first."
        return _NOT_CROSSED.get(head_kind or "", _NOT_CROSSED["new"])
    after = context + link["tokens_before"] - link["tokens_after"]
    if hard is not None and after > hard:
        return f"The original needs about {after:,} tokens; {hard:,} is the most that fits."
    return _BUSY if busy else None


def write_cursor(sort: str, key: str, row: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([sort, key, row]).encode()).decode().rstrip("=")


def read_cursor(cursor: str, sort: str) -> tuple[str, int]:
    """The key and row where the next page begins; raises BadQuery when it is of another order."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        made_for, key, row = json.loads(base64.urlsafe_b64decode(padded.encode()))
    except (ValueError, binascii.Error, TypeError):
        raise BadQuery("the cursor cannot be read") from None
    if made_for != sort or not isinstance(key, str) or not isinstance(row, int):
        raise BadQuery("the cursor belongs to another order")
    return key, row


def _session_page(query: SessionQuery) -> tuple[str, Sequence[object]]:
    column = query.sort.removeprefix("-")
    if column not in sql.SORTS:
        raise BadQuery(f"sort is one of {', '.join(sql.SORTS)}, with a minus for the largest first")
    if query.state and query.state not in sql.STATES:
        raise BadQuery(f"state is one of {', '.join(sql.STATES)}")
    key, kind = sql.SORTS[column]
    falling = query.sort.startswith("-")
    arguments: list[object] = []

    def put(value: object) -> str:
        arguments.append(value)
        return f"${len(arguments)}"

    wanted = ["true"]
    if query.search:
        words = put("%" + query.search.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%")
        wanted.append(
            f"(p.display_name ILIKE {words} OR s.public_id::text ILIKE {words} OR a.name ILIKE {words})"
        )
    if query.channel:
        wanted.append(f"{sql.CHANNEL} = {put(query.channel)}")
    if query.state:
        wanted.append(f"{sql.STATE} = {put(query.state)}")
    if query.min_pct is not None:
        wanted.append(
            f"s.context_limit > 0 AND s.context_tokens * 100.0 / s.context_limit >= {put(query.min_pct)}"
        )
    if query.since is not None:
        wanted.append(f"s.last_active_at >= {put(query.since)}")
    if query.until is not None:
        wanted.append(f"s.last_active_at < {put(query.until)}")
    if query.cursor:
        edge, row = read_cursor(query.cursor, query.sort)
        sign = "<" if falling else ">"
        wanted.append(f"({key}, s.id) {sign} ({put(edge)}::text::{kind}, {put(row)}::bigint)")
    direction = "DESC" if falling else "ASC"
    statement = sql.SESSIONS.format(
        key=key, where=" AND ".join(wanted), direction=direction, limit=put(_capped(query.limit) + 1)
    )
    return statement, arguments


def _capped(limit: int) -> int:
    return max(1, min(limit, MAX_LIMIT))


def _without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}
