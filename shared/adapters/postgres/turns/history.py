"""Store that pages through a conversation as people see it; a page begins or ends at an event's number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from shared.adapters.postgres.db.pool import Named, PoolStore, Record, store_method
from shared.adapters.postgres.turns.events import build_event, build_original
from shared.core.session.turns import Stored, shorten_message

_SHOWN = ("msg", "command.result", "handover", "fork")
_ITS_MOMENT = timedelta(seconds=2)
"""Upper limit of the difference between the times of an entry and of its event, which are stored together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    """Page of a conversation's events, oldest first.

    `before` is the number to pass to `list_before` for the page of older events, and `after` the one to pass
    to `list_after` for newer ones. Each is None if the page is empty or there are surely no such events.
    """

    events: tuple[Stored, ...]
    before: int | None
    after: int | None


_BEFORE = Named("""
SELECT v.event_seq, v.kind, v.seq, v.turn_no, v.payload, v.at, e.author, e.blocks, e.at AS entry_at,
       f.opinion, e.author = 'person' AND e.replaces_seq IS NOT NULL AS reworded
  FROM events v LEFT JOIN entries e ON e.session_id = v.session_id AND e.seq = v.seq
  LEFT JOIN feedback f ON f.session_id = v.session_id AND f.turn_no = v.turn_no AND e.author = 'assistant'
 WHERE v.session_id = :session_id AND (:event_seq::bigint IS NULL OR v.event_seq < :event_seq) AND (
   (v.kind <> 'msg' OR NOT v.payload ? 'gone' AND NOT EXISTS (
         SELECT FROM turn_entries r WHERE r.session_id = v.session_id AND r.turn_no = v.turn_no
            AND r.replaced_by IS NOT NULL AND r.seq = coalesce(v.seq, r.seq)
            AND NOT EXISTS (SELECT FROM turn_entries n WHERE n.session_id = r.session_id
                               AND n.seq = r.replaced_by AND n.turn_no = r.turn_no)))
       AND v.kind = ANY (:kinds::text[])
   OR v.kind = 'compaction' AND v.payload->>'state' IN ('new', 'separator')
   OR v.kind = 'compaction' AND :summaries::boolean AND v.payload->>'state' = 'done' AND EXISTS (
         SELECT FROM compactions l WHERE l.session_id = :session_id AND l.active
            AND l.public_id::text = v.payload->>'id'))
 ORDER BY v.event_seq DESC LIMIT :limit
""")
"""Select events that screens show before a number: messages, separators, and summaries in force."""
_AFTER = Named("""
SELECT v.event_seq, v.kind, v.seq, v.turn_no, v.payload, v.at, e.author, e.blocks, e.at AS entry_at,
       f.opinion, e.author = 'person' AND e.replaces_seq IS NOT NULL AS reworded
  FROM events v LEFT JOIN entries e ON e.session_id = v.session_id AND e.seq = v.seq
  LEFT JOIN feedback f ON f.session_id = v.session_id AND f.turn_no = v.turn_no AND e.author = 'assistant'
 WHERE v.session_id = :session_id AND v.event_seq > :event_seq::bigint AND (
   (v.kind <> 'msg' OR NOT v.payload ? 'gone' AND NOT EXISTS (
         SELECT FROM turn_entries r WHERE r.session_id = v.session_id AND r.turn_no = v.turn_no
            AND r.replaced_by IS NOT NULL AND r.seq = coalesce(v.seq, r.seq)
            AND NOT EXISTS (SELECT FROM turn_entries n WHERE n.session_id = r.session_id
                               AND n.seq = r.replaced_by AND n.turn_no = r.turn_no)))
       AND v.kind = ANY (:kinds::text[])
   OR v.kind = 'compaction' AND v.payload->>'state' IN ('new', 'separator')
   OR v.kind = 'compaction' AND :summaries::boolean AND v.payload->>'state' = 'done' AND EXISTS (
         SELECT FROM compactions l WHERE l.session_id = :session_id AND l.active
            AND l.public_id::text = v.payload->>'id'))
 ORDER BY v.event_seq LIMIT :limit
""")
"""Select the same events after a number."""

_FIRST_SINCE = Named("""
WITH RECURSIVE halves(low, high, steps) AS (
  SELECT 1::bigint, next_event_seq, 0 FROM sessions WHERE id = :session_id
  UNION ALL
  SELECT CASE WHEN m.at < :moment THEN m.event_seq + 1 ELSE h.low END,
         CASE WHEN m.at < :moment THEN greatest(h.high, m.event_seq + 1)
            ELSE (h.low + h.high) / 2 END, h.steps + 1
    FROM halves h LEFT JOIN LATERAL (
      SELECT v.event_seq, v.at FROM events v
       WHERE v.session_id = :session_id AND v.event_seq >= (h.low + h.high) / 2 ORDER BY v.event_seq
         LIMIT 1) m ON true
   WHERE h.low < h.high AND h.steps < 70
) SELECT low FROM halves ORDER BY steps DESC LIMIT 1
""")
"""Select the number of the first event since a time, by bisection: numbers grow with time."""


_MESSAGE = Named("""
SELECT e.seq, e.author, e.blocks, e.at,
       (SELECT min(turn_no) FROM turn_entries WHERE session_id = :session_id AND seq = :seq) AS turn_no
  FROM entries e WHERE e.session_id = :session_id AND e.seq = :seq
    AND e.author IN ('person', 'assistant', 'operator')
""")

_SAID_AT = Named("""
SELECT coalesce(o.at, e.at) FROM entries e
  LEFT JOIN entries o ON o.session_id = e.session_id AND o.seq = e.replaces_seq AND e.author = 'person'
 WHERE e.session_id = :session_id AND e.seq = :seq
""")
"""Select the time of a message; of an edited one, the time when it was first sent."""

_FORMER = Named("""
WITH RECURSIVE former(seq, turn_no, step) AS (
  SELECT seq, turn_no, step FROM turn_entries WHERE session_id = :session_id AND replaced_by = :seq
  UNION ALL
  SELECT te.seq, te.turn_no, te.step
    FROM former f JOIN turn_entries te ON te.session_id = :session_id AND te.replaced_by = f.seq
)
SELECT e.seq, f.turn_no, e.author, e.blocks, e.at
  FROM former f JOIN entries e ON e.session_id = :session_id AND e.seq = f.seq
 WHERE e.author = 'assistant' OR e.author = 'person' AND (
         e.replaces_seq IS NULL OR f.turn_no = (
           SELECT r.turn_no FROM turn_entries r WHERE r.session_id = :session_id AND r.seq = e.replaces_seq))
 ORDER BY f.turn_no, e.author <> 'person', e.seq
""")
"""Select the former wordings of a message with their answers; a repetition of the question appears once."""


class PostgresHistory(PoolStore):
    """Read-only queries of events and messages. They raise StorageUnavailable."""

    @store_method
    async def list_before(
        self, session_id: int, event_seq: int | None, *, limit: int, summaries: bool
    ) -> HistoryPage:
        """Return the newest `limit` events with a number below `event_seq`, or of all if it is None.

        Events are messages, results of commands, hand-overs, forks and separators; `summaries` adds the
        summaries in force. `after` of the page is set even if there are no newer events.
        """
        rows = await self._pool.fetch(
            *_BEFORE(
                session_id=session_id,
                kinds=list(_SHOWN),
                summaries=summaries,
                event_seq=event_seq,
                limit=limit + 1,
            )
        )
        events = _read(rows[:limit][::-1])
        more = len(rows) > limit
        return HistoryPage(
            events=events,
            before=events[0].event_seq if more else None,
            after=events[-1].event_seq if events else None,
        )

    @store_method
    async def list_after(
        self, session_id: int, event_seq: int, *, limit: int, summaries: bool
    ) -> HistoryPage:
        """Return the oldest `limit` events with a number above `event_seq`.

        Events are messages, results of commands, hand-overs, forks and separators; `summaries` adds the
        summaries in force. `before` of the page is None only if it is empty or `event_seq` is 0.
        """
        rows = await self._pool.fetch(
            *_AFTER(
                session_id=session_id,
                kinds=list(_SHOWN),
                summaries=summaries,
                event_seq=event_seq,
                limit=limit + 1,
            )
        )
        events = _read(rows[:limit])
        return HistoryPage(
            events=events,
            before=events[0].event_seq if events and event_seq > 0 else None,
            after=events[-1].event_seq if len(rows) > limit else None,
        )

    @store_method
    async def list_since(
        self, session_id: int, moment: datetime, *, limit: int, summaries: bool
    ) -> HistoryPage:
        """Return the first `limit` events at or after a moment, or the newest ones if there are none since.

        `summaries` adds the summaries in force.
        """
        number: int = await self._pool.fetchval(*_FIRST_SINCE(session_id=session_id, moment=moment)) or 1
        page = await self.list_after(session_id, number - 1, limit=limit, summaries=summaries)
        if page.events:
            return page
        return await self.list_before(session_id, None, limit=limit, summaries=summaries)

    @store_method
    async def load_message(self, session_id: int, seq: int) -> Mapping[str, Any] | None:
        """Return the full text of a message, with author and time.

        Returns None if it is of another session, of a tool or of the program.
        """
        row = await self._pool.fetchrow(*_MESSAGE(session_id=session_id, seq=seq))
        return None if row is None else build_original(row)

    @store_method
    async def list_versions(self, session_id: int, seq: int) -> list[dict[str, Any]] | None:
        """Return former texts of a message with their answers, oldest first.

        Returns None if the session has no such message by a person.
        """
        if not await self._pool.fetchval(
            *_VERSIONS(session_id=session_id, seq=seq),
        ):
            return None
        versions: list[dict[str, Any]] = []
        for row in await self._pool.fetch(*_FORMER(session_id=session_id, seq=seq)):
            said = shorten_message(build_original(row))
            if row["author"] == "person":
                versions.append({**said, "answers": []})
            elif said["text"] and versions:
                versions[-1]["answers"].append(said)
        return versions

    @store_method
    async def list_around(
        self, session_id: int, seq: int, *, limit: int, summaries: bool
    ) -> HistoryPage | None:
        """Return the first `limit` events from one message on, found by its time.

        An edited message has the time of its first wording. Returns None if the message is not of this
        session.
        """
        moment = await self._pool.fetchval(*_SAID_AT(session_id=session_id, seq=seq))
        if moment is None:
            return None
        return await self.list_since(session_id, moment - _ITS_MOMENT, limit=limit, summaries=summaries)


def _read(rows: Sequence[Record]) -> tuple[Stored, ...]:
    return tuple(build_event(row) for row in rows)


_VERSIONS = Named("""
SELECT true FROM entries WHERE session_id = :session_id AND seq = :seq AND author = 'person'
""")
