"""Store of a session's durable events, as screens read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from shared.adapters.postgres.db.pool import Named, PoolStore, Record, store_method
from shared.adapters.postgres.turns.feedback import VALUES
from shared.core.identity.handover import event_payload
from shared.core.session.turns import Stored, iso, message_payload, notice_payload, shorten_message
from shared.core.values.messages import Block, blocks_from_json, text_without_files


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginalsPage:
    """Page of the messages that a summary replaces, oldest first.

    `before` is the id, such as `m12`, of the page's first message; the next page has earlier ones. It is None
    on the last page, with the oldest messages.
    """

    messages: tuple[Mapping[str, Any], ...]
    before: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHead:
    """Number of a session's newest event, 0 without events, and the epoch of the log.

    Numbers that a client has from another `log_epoch` may be invalid, as after a restore.
    """

    event_seq: int
    log_epoch: int


_RUNNING = Named("""
SELECT t.turn_no, t.state, j.id AS job_id, h.state AS held, h.asked_by, h.reason,
       (SELECT o.display_name FROM operators o WHERE o.id = h.operator_id) AS shown_name,
       coalesce((SELECT p.key FROM operator_pictures p WHERE p.operator_id = h.operator_id), '')
         AS shown_picture,
       (SELECT max(r.id) FROM handovers r WHERE r.session_id = s.id AND r.ended_by = 'resolved'
           AND r.rating IS NULL AND r.ended_at > now() - interval '1 day') AS unrated,
       coalesce(h.taken_at, h.asked_at) AS held_at, coalesce(j.started_at, now()) AS started_at,
       ARRAY (SELECT te.seq FROM turn_entries te JOIN entries e USING (session_id, seq)
               WHERE te.session_id = s.id AND te.turn_no > s.answered_turn + (t.state = 'claimed')::int
                 AND e.author = 'person' ORDER BY te.seq LIMIT 100) AS queued,
       s.held_after IS NOT NULL AND s.answered_turn >= s.held_after AS is_held
  FROM sessions s
  LEFT JOIN turns t ON t.session_id = s.id AND t.turn_no = s.answered_turn + 1
  LEFT JOIN handovers h ON h.session_id = s.id AND h.ended_at IS NULL
  LEFT JOIN jobs j ON j.session_id = s.id AND j.kind = 'compact' AND j.state = 'running'
 WHERE s.id = :session_id
""")
"""Select what is in progress for a screen: running turn, summary, hand-over, waiting messages."""


class PostgresEvents(PoolStore):
    """Store of events and of how far each address has read. It raises StorageUnavailable."""

    @store_method
    async def load_head(self, session_id: int) -> LogHead | None:
        """Return the number of the newest event and the log epoch; None if the session is unknown."""
        row = await self._pool.fetchrow(
            *_HEAD(session_id=session_id),
        )
        return None if row is None else LogHead(event_seq=row["head"], log_epoch=row["log_epoch"])

    @store_method
    async def load_newest_seqs(self, session_ids: Sequence[int]) -> dict[int, int]:
        """Return the newest event number by session, 0 without events; unknown sessions are missing."""
        rows = await self._pool.fetch(
            *_NEWEST_SEQS(session_ids=list(session_ids)),
        )
        return {row["id"]: row["head"] for row in rows}

    @store_method
    async def find_sessions(self, address_ids: Sequence[int]) -> dict[int, int]:
        """Return the id of the present session by address id; unknown addresses are missing."""
        rows = await self._pool.fetch(*_SESSIONS(address_ids=list(address_ids)))
        return {row["id"]: row["session_id"] for row in rows}

    @store_method
    async def list_after(self, session_id: int, event_seq: int, *, limit: int = 500) -> tuple[Stored, ...]:
        """Return the events with a higher number, oldest first, at most `limit`."""
        rows = await self._pool.fetch(
            *_LIST_AFTER(session_id=session_id, event_seq=event_seq, limit=limit),
        )
        return tuple(build_event(row) for row in rows)

    @store_method
    async def list_newest(
        self, session_id: int, *, messages: int = 50, limit: int = 500
    ) -> tuple[Stored, ...]:
        """Return the last `messages` messages and all events between and after them, oldest first.

        Replaced messages and events of edits and erasures are left out. At most the newest `limit` events.
        """
        rows = await self._pool.fetch(
            *_LIST_NEWEST(session_id=session_id, messages=messages, limit=limit),
        )
        return tuple(build_event(row) for row in reversed(rows))

    @store_method
    async def list_messages_before(
        self, session_id: int, event_seq: int | None, *, limit: int
    ) -> tuple[Stored, ...]:
        """Return the newest `limit` messages with an event number below `event_seq`, oldest first.

        `event_seq` None means the newest of all. Replaced and removed messages are left out.
        """
        rows = await self._pool.fetch(
            *_MESSAGES_BEFORE(session_id=session_id, event_seq=event_seq, limit=limit),
        )
        return tuple(build_event(row) for row in reversed(rows))

    @store_method
    async def list_pinned(self, session_id: int) -> tuple[str, ...]:
        """Return the message ids, such as `m12`, of the messages that are pinned now, oldest first."""
        rows = await self._pool.fetch(*_PINNED(session_id=session_id))
        return tuple(f"m{row['seq']}" for row in rows)

    @store_method
    async def load_read_mark(self, address_id: int) -> int:
        """Return the number of the newest event that was read at this address.

        Returns 0 if none was read or the address is unknown.
        """
        number: int | None = await self._pool.fetchval(*_READ_MARK(address_id=address_id))
        return number or 0

    @store_method
    async def mark_read(self, address_id: int, session_id: int, event_seq: int) -> int | None:
        """Store the number up to which an address has read, but at most the newest event's number.

        Returns the stored number. Returns None, without effect, if it is not higher than before, or if the
        address is of another session.
        """
        number: int | None = await self._pool.fetchval(
            *_MARK_READ(address_id=address_id, session_id=session_id, event_seq=event_seq),
        )
        return number

    @store_method
    async def has_message(self, session_id: int, dedupe_key: str) -> bool:
        """Return whether a message with this key is stored in the session."""
        found: bool = await self._pool.fetchval(
            *_HAS_MESSAGE(session_id=session_id, dedupe_key=dedupe_key),
        )
        return found

    @store_method
    async def load_running(self, session_id: int) -> Mapping[str, Any]:
        """Return what is in progress in a session, for a new screen.

        `queued` has the ids of at most 100 waiting messages. `run` is the turn that is started or queued,
        `compaction` the running summary, and `handover` the open hand-over, or one of the last day that can
        be rated. These three are absent if there is none.
        """
        row = await self._pool.fetchrow(*_RUNNING(session_id=session_id))
        if row is None:
            return {"queued": []}
        state: dict[str, Any] = {"queued": [f"m{seq}" for seq in row["queued"]]}
        if row["turn_no"] is not None and not row["is_held"]:
            run_state = "started" if row["state"] == "claimed" else "queued"
            state["run"] = {"turn": row["turn_no"], "state": run_state}
        if row["held"] is not None:
            told = event_payload(
                row["held"], name=row["shown_name"] or "", picture=row["shown_picture"],
                reason=row["reason"], asked_by=row["asked_by"],
            )  # fmt: skip
            state["handover"] = {**told, "at": iso(row["held_at"])}
        elif row["unrated"] is not None:
            state["handover"] = {**event_payload("bot"), "rate": row["unrated"]}
        if row["job_id"] is not None:
            state["compaction"] = {
                "id": str(row["job_id"]),
                "started_at": iso(row["started_at"]),
                "percent": 0,
            }
        return state

    @store_method
    async def list_hidden_messages(
        self, session_id: int, compaction: UUID, *, limit: int = 200, before_seq: int | None = None
    ) -> OriginalsPage | None:
        """Return the last `limit` messages that a summary replaces, before the entry `before_seq`.

        `before_seq` None means from the end. Messages without text are left out, so a page may have fewer.
        Returns None if the summary is not of this session.
        """
        row = await self._pool.fetchrow(
            *_HIDDEN_RANGE(session_id=session_id, compaction=compaction),
        )
        if row is None:
            return None
        rows = await self._pool.fetch(
            *_HIDDEN_MESSAGES(
                session_id=session_id,
                from_turn=row["from_turn"],
                through_turn=row["through_turn"],
                limit=limit + 1,
                before_seq=before_seq,
            ),
        )
        page = rows[-limit:]
        return OriginalsPage(
            messages=tuple(
                shorten_message(message) for message in map(build_original, page) if message["text"]
            ),
            before=f"m{page[0]['seq']}" if len(rows) > limit else None,
        )


def build_event(row: Record) -> Stored:
    """Return the stored event of a row, with its payload in the form of the API."""
    return Stored(event_seq=row["event_seq"], kind=row["kind"], payload=_payload(row))


def _payload(row: Record) -> Mapping[str, Any]:
    stored: Mapping[str, Any] = row["payload"]
    if row["kind"] == "edited" and row["blocks"] is not None:
        return build_edited(row["seq"], row["turn_no"], blocks_from_json(row["blocks"]), row["at"], stored)
    if row["kind"] != "msg":
        return {**stored, "at": stored.get("at", iso(row["at"]))}
    if row["blocks"] is None:
        return notice_payload(
            event_seq=row["event_seq"], at=row["at"], extra={"turn": row["turn_no"], **stored}
        )
    stored = {**stored, "feedback": VALUES[row["opinion"]]} if row["opinion"] else stored
    if row["reworded"]:
        stored = {**stored, "edited": True, "at": iso(row["at"])}
    return message_payload(
        seq=row["seq"],
        turn=row["turn_no"],
        author=row["author"],
        blocks=blocks_from_json(row["blocks"]),
        at=row["entry_at"],
        extra=stored,
    )


def build_edited(
    seq: int, turn: int, blocks: Sequence[Block], at: datetime, extra: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the payload of an `edited` event, the new wording of the message `replaces`."""
    return message_payload(seq=seq, turn=turn, author="person", blocks=blocks, at=at, extra=extra)


def build_original(row: Record) -> Mapping[str, Any]:
    """Return a message of a row as `{mid, role, text, at, turn}`, with its full text without files.

    `role` is its author.
    """
    return {
        "mid": f"m{row['seq']}",
        "role": row["author"],
        "text": text_without_files(blocks_from_json(row["blocks"])),
        "at": iso(row["at"]),
        "turn": row["turn_no"],
    }


_HEAD = Named("""
SELECT s.next_event_seq - 1 AS head, d.log_epoch FROM sessions s, deployment d
 WHERE s.id = :session_id
""")
_NEWEST_SEQS = Named("""
SELECT id, next_event_seq - 1 AS head FROM sessions WHERE id = ANY (:session_ids::bigint[])
""")
_SESSIONS = Named("SELECT id, session_id FROM addresses WHERE id = ANY (:address_ids::bigint[])")
_LIST_AFTER = Named("""
SELECT v.event_seq, v.kind, v.seq, v.turn_no, v.payload, v.at, e.author, e.blocks, e.at AS entry_at,
       f.opinion, e.author = 'person' AND e.replaces_seq IS NOT NULL AS reworded
  FROM events v LEFT JOIN entries e ON e.session_id = v.session_id AND e.seq = v.seq
  LEFT JOIN feedback f ON f.session_id = v.session_id AND f.turn_no = v.turn_no AND e.author = 'assistant'
 WHERE v.session_id = :session_id AND v.event_seq > :event_seq ORDER BY v.event_seq LIMIT :limit
""")
"""Select events after a number, with what the log holds of them."""
_LIST_NEWEST = Named("""
SELECT v.event_seq, v.kind, v.seq, v.turn_no, v.payload, v.at, e.author, e.blocks, e.at AS entry_at,
       f.opinion, e.author = 'person' AND e.replaces_seq IS NOT NULL AS reworded
  FROM events v LEFT JOIN entries e ON e.session_id = v.session_id AND e.seq = v.seq
  LEFT JOIN feedback f ON f.session_id = v.session_id AND f.turn_no = v.turn_no AND e.author = 'assistant'
 WHERE v.session_id = :session_id AND v.event_seq >= coalesce((
         SELECT min(event_seq) FROM (
           SELECT event_seq FROM events WHERE session_id = :session_id AND kind = 'msg'
            ORDER BY event_seq DESC LIMIT :messages) m), 0)
   AND v.kind NOT IN ('edited', 'erased')
   AND (v.kind <> 'msg' OR NOT v.payload ? 'gone' AND NOT EXISTS (
         SELECT FROM turn_entries r WHERE r.session_id = v.session_id AND r.turn_no = v.turn_no
            AND r.replaced_by IS NOT NULL AND r.seq = coalesce(v.seq, r.seq)
            AND NOT EXISTS (SELECT FROM turn_entries n WHERE n.session_id = r.session_id
                               AND n.seq = r.replaced_by AND n.turn_no = r.turn_no)))
 ORDER BY v.event_seq DESC LIMIT :limit
""")
"""Select the newest events, from a number of messages on, without replaced ones."""
_MESSAGES_BEFORE = Named("""
SELECT v.event_seq, v.kind, v.seq, v.turn_no, v.payload, v.at, e.author, e.blocks, e.at AS entry_at,
       f.opinion, e.author = 'person' AND e.replaces_seq IS NOT NULL AS reworded
  FROM events v LEFT JOIN entries e ON e.session_id = v.session_id AND e.seq = v.seq
  LEFT JOIN feedback f ON f.session_id = v.session_id AND f.turn_no = v.turn_no AND e.author = 'assistant'
 WHERE v.session_id = :session_id AND v.kind = 'msg'
   AND (:event_seq::bigint IS NULL OR v.event_seq < :event_seq)
   AND (v.kind <> 'msg' OR NOT v.payload ? 'gone' AND NOT EXISTS (
         SELECT FROM turn_entries r WHERE r.session_id = v.session_id AND r.turn_no = v.turn_no
            AND r.replaced_by IS NOT NULL AND r.seq = coalesce(v.seq, r.seq)
            AND NOT EXISTS (SELECT FROM turn_entries n WHERE n.session_id = r.session_id
                               AND n.seq = r.replaced_by AND n.turn_no = r.turn_no)))
 ORDER BY v.event_seq DESC LIMIT :limit
""")
"""Select messages before a number, the newest first.

Left out are removed messages, and a question that was edited into a new turn, with its answer. A message
whose wording alone was replaced keeps its event.
"""
_PINNED = Named("SELECT seq FROM pins WHERE session_id = :session_id ORDER BY seq")
_READ_MARK = Named("SELECT read_seq FROM addresses WHERE id = :address_id")
_MARK_READ = Named("""
UPDATE addresses a SET read_seq = least(:event_seq, s.next_event_seq - 1) FROM sessions s
 WHERE a.id = :address_id AND a.session_id = :session_id AND s.id = :session_id
   AND a.read_seq < least(:event_seq, s.next_event_seq - 1)
RETURNING a.read_seq
""")
_HAS_MESSAGE = Named("""
SELECT EXISTS (SELECT FROM entries WHERE session_id = :session_id AND dedupe_key = :dedupe_key)
""")
_HIDDEN_RANGE = Named("""
SELECT from_turn, through_turn FROM compactions WHERE session_id = :session_id AND public_id = :compaction
""")
_HIDDEN_MESSAGES = Named("""
SELECT * FROM (
  SELECT e.seq, te.turn_no, te.step, e.author, e.blocks, e.at
    FROM turn_entries te JOIN entries e USING (session_id, seq)
   WHERE te.session_id = :session_id AND te.turn_no BETWEEN :from_turn AND :through_turn
     AND coalesce(te.replaced_by, 0) <= 0 AND e.author NOT IN ('tool', 'program')
     AND (:before_seq::bigint IS NULL OR (te.turn_no, te.step) < (
           SELECT b.turn_no, b.step FROM turn_entries b
            WHERE b.session_id = :session_id AND b.seq = :before_seq))
   ORDER BY te.turn_no DESC, te.step DESC LIMIT :limit) m ORDER BY turn_no, step
""")
"""Select messages that a summary hides, before one of them, in their order."""
