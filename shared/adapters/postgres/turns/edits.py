"""Messages that their person changed, and answers that are wished anew: the log is only ever added to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import asyncpg

from shared.adapters.postgres.db.pool import store_method
from shared.adapters.postgres.turns.turn_sql import ACCEPTED_BEFORE, GOES_ON_ELSEWHERE
from shared.core.session.turns import Accepted, Inbound, message_payload
from shared.core.values.errors import CannotEdit, SessionMoved, UnknownMessage, UnknownSession
from shared.core.values.messages import (
    Block,
    Text,
    block_to_json,
    blocks_from_json,
    blocks_to_json,
    text_of,
)
from shared.core.values.recordings import RECORDING_NOTE

EditResult = Literal["replaced", "last", "old", "unknown"]
AgainResult = Literal["begun", "woken", "busy", "nothing", "with_human"]


class PostgresEdits:
    """Each method is one transaction; raises StorageUnavailable."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    @store_method
    async def edit(self, session_id: int, seq: int, *, text: str, tokens: int, dedupe_key: str) -> EditResult:
        """Store the new words as an entry of their own.

        In a turn that nobody has claimed they take the place of the old ones (`replaced`); of the turn that
        was answered last they may be answered again (`last`); older ones change nothing (`old`).
        """
        async with self._pool.acquire() as connection, connection.transaction():
            session = await connection.fetchrow(
                "SELECT open_turn, answered_turn FROM sessions WHERE id = $1 FOR UPDATE", session_id
            )
            old = await connection.fetchrow(_OLD, session_id, seq, dedupe_key)
            if session is None or old is None:
                return "unknown"
            is_open = old["turn_no"] == session["open_turn"]
            if not old["known"]:
                blocks = [block_to_json(Text(text=text)), *_list_other_blocks(old["blocks"])]
                await connection.execute(
                    _STORE, session_id, blocks, tokens, dedupe_key, seq, old["turn_no"] if is_open else None
                )
            if is_open:
                return "replaced"
        return "last" if old["turn_no"] >= session["answered_turn"] else "old"

    @store_method
    async def edit_question(
        self, inbound: Inbound, *, seq: int, channel: str, count: Callable[[tuple[Block, ...]], int]
    ) -> tuple[Accepted, Mapping[str, Any]]:
        """Put other words in the place of the last question, in a turn of their own; its files stay.

        What was asked and answered before stays in the log, marked: only the log, an export and `former` show
        it from now on. Whatever is being summarised or noted down just now begins anew without it. With what
        screens show; nothing where the key was known. Raises CannotEdit, UnknownMessage, SessionMoved,
        UnknownSession.
        """
        of, key = inbound.session_id, inbound.dedupe_key
        async with self._pool.acquire() as connection, connection.transaction():
            session = await connection.fetchrow(_SESSION, of, inbound.address_id, key)
            if session is None:
                moved = await connection.fetchval(GOES_ON_ELSEWHERE, of, inbound.address_id)
                raise (SessionMoved if moved else UnknownSession)(f"session {of}")
            if session["known"]:
                [before] = await connection.fetch(ACCEPTED_BEFORE, of, key)
                return _build_accepted(of, before, repeated=True), {}
            asked = await connection.fetchrow(_QUESTION, of, seq)
            if asked is None:
                raise UnknownMessage(f"m{seq}")
            if code := _find_obstacle(session, asked):
                raise CannotEdit(code)
            blocks = (Text(text=inbound.text), *filter(_is_file, blocks_from_json(asked["blocks"])))
            shown = {"cid": inbound.cid, "replaces": f"m{asked['root']}", "from_turn": asked["first"]}
            if asked["attachments"]:
                shown["attachments"] = asked["attachments"]
            [row] = await connection.fetch(
                _ASK_ANEW, of, channel, inbound.address_id, blocks_to_json(blocks), count(blocks), key, shown
            )
            gone = await connection.fetch(
                _REPLACE, of, asked["first"], session["answered_turn"], asked["root"], row["seq"]
            )
            await connection.execute(_FORGET_PASSAGES, of, [one["seq"] for one in gone])
            await connection.execute(FENCE_JOBS, of)
        said = message_payload(
            seq=row["seq"], turn=row["turn_no"], author="person", blocks=blocks, at=row["at"], extra=shown
        )
        return _build_accepted(of, row, repeated=False), said

    @store_method
    async def load_newest_text(self, session_id: int, *, turn: int | None = None) -> tuple[int, str] | None:
        """The last message of a person in a turn (the newest answered one), as it reads after edits."""
        row = await self._pool.fetchrow(_WORDS, session_id, turn)
        if row is None:
            return None
        blocks = blocks_from_json(row["blocks"])
        # What only says that it was spoken is nobody's words.
        return row["seq"], text_of(one for one in blocks if getattr(one, "text", "") != RECORDING_NOTE)

    @store_method
    async def wake(self, session_id: int) -> bool:
        """A turn that was put back is due now; False when none waits."""
        return await self._pool.fetchval(_WAKE, session_id) is not None

    @store_method
    async def request_retry(
        self, session_id: int, *, channel: str, address_id: int | None, dedupe_key: str | None
    ) -> AgainResult:
        """Begin a turn that asks the last one's question once more; again with the same key changes nothing.

        `woken` where one was put back and is due now; `busy` while one is unanswered; `nothing` when nobody
        asked anything that is still in view; `with_human` while the assistant is silent.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            session = await connection.fetchrow(_SESSION, session_id, address_id, dedupe_key)
            if session is None:
                return "nothing"
            if session["known"]:
                return "begun"
            if session["held_after"] is not None:
                return "with_human"
            if session["answered_turn"] < session["next_turn"] - 1:
                return "woken" if await connection.fetchval(_WAKE, session_id) else "busy"
            asked = await connection.fetch(_ASKED, session_id)
            if not asked:
                return "nothing"
            blocks = [block for row in asked for block in row["blocks"]]
            await connection.execute(
                _AGAIN, session_id, channel, address_id, blocks, sum(row["tokens"] for row in asked),
                dedupe_key, asked[-1]["root"],
            )  # fmt: skip
        return "begun"


def _build_accepted(session_id: int, row: asyncpg.Record, *, repeated: bool) -> Accepted:
    return Accepted(
        session_id=session_id, seq=row["seq"], turn=row["turn_no"], event_seq=row["event_seq"],
        repeated=repeated, at_ms=int(row["at"].timestamp() * 1000),
    )  # fmt: skip


def _find_obstacle(session: asyncpg.Record, asked: asyncpg.Record) -> str:
    """Why this question cannot be edited; empty where it can."""
    if asked["replaced"]:
        return "edit_changed"
    if session["held_after"] is not None or asked["by_human"]:
        return "edit_with_human"
    if session["answered_turn"] < session["next_turn"] - 1:
        return "edit_busy"
    if asked["last"] != session["answered_turn"] or asked["followed"]:
        return "edit_not_last"
    return "edit_out_of_view" if asked["first"] <= session["base_turn"] else ""


def _is_file(block: Block) -> bool:
    return not isinstance(block, Text) or block.attachment_id is not None


def _list_other_blocks(blocks: list[dict[str, object]]) -> list[dict[str, object]]:
    return [block for block in blocks if block["type"] != "text"]


_OLD = """
SELECT te.turn_no, e.blocks,
       EXISTS (SELECT FROM entries k WHERE k.session_id = $1 AND k.dedupe_key = $3) AS known
  FROM entries e JOIN turn_entries te USING (session_id, seq)
 WHERE e.session_id = $1 AND e.author = 'person'
   AND e.seq = coalesce((SELECT max(r.seq) FROM entries r JOIN turn_entries USING (session_id, seq)
                          WHERE r.session_id = $1 AND r.replaces_seq = $2), $2)
"""
_STORE = """
WITH s AS (
  UPDATE sessions SET next_seq = next_seq + 1 WHERE id = $1 RETURNING next_seq - 1 AS seq
), e AS (
  INSERT INTO entries (session_id, seq, role, author, blocks, tokens, dedupe_key, replaces_seq)
  SELECT $1, seq, 'user', 'person', $2::jsonb, $3, $4, $5 FROM s
), gone AS (
  DELETE FROM turn_entries te USING entries o
   WHERE $6::bigint IS NOT NULL AND te.session_id = $1 AND te.turn_no = $6
     AND o.session_id = $1 AND o.seq = te.seq AND (o.seq = $5 OR o.replaces_seq = $5)
)
INSERT INTO turn_entries (session_id, seq, turn_no, step) SELECT $1, seq, $6, seq FROM s WHERE $6 IS NOT NULL
"""
_WORDS = """
SELECT e.seq, coalesce(r.blocks, e.blocks) AS blocks
  FROM turn_entries te JOIN entries e USING (session_id, seq)
  LEFT JOIN LATERAL (SELECT x.blocks FROM entries x
                      WHERE x.session_id = $1 AND x.replaces_seq = coalesce(e.replaces_seq, e.seq)
                      ORDER BY x.seq DESC LIMIT 1) r ON true
 WHERE te.session_id = $1 AND e.author = 'person'
   AND te.turn_no = coalesce($2, (SELECT answered_turn FROM sessions WHERE id = $1))
 ORDER BY te.step DESC LIMIT 1
"""
_SESSION = """
SELECT answered_turn, next_turn, held_after, base_turn,
       EXISTS (SELECT FROM entries k WHERE k.session_id = $1 AND k.dedupe_key = $3) AS known
  FROM sessions
 WHERE id = $1 AND archived_at IS NULL
   AND ($2::bigint IS NULL OR left_by IS NULL OR NOT $2 = ANY (left_by))
   FOR UPDATE
"""
_WAKE = """
UPDATE sessions SET retry_at = now()
 WHERE id = $1 AND answered_turn < next_turn - 1 AND held_after IS NULL
   AND leased_by IS NULL AND retry_at > now()
RETURNING id
"""
_ASKED = """
SELECT coalesce(r.blocks, e.blocks) AS blocks, coalesce(r.tokens, e.tokens) AS tokens,
       coalesce(e.replaces_seq, e.seq) AS root
  FROM sessions s JOIN turn_entries te ON te.session_id = s.id AND te.turn_no = s.answered_turn
  JOIN entries e ON e.session_id = s.id AND e.seq = te.seq
  LEFT JOIN LATERAL (SELECT x.blocks, x.tokens FROM entries x
                      WHERE x.session_id = $1 AND x.replaces_seq = coalesce(e.replaces_seq, e.seq)
                      ORDER BY x.seq DESC LIMIT 1) r ON true
 WHERE s.id = $1 AND e.author = 'person' AND s.answered_turn > greatest(s.base_turn, s.erased_turn)
   AND e.blocks <> erased_blocks(e.blocks)
   AND NOT EXISTS (SELECT FROM turn_entries h JOIN entries o USING (session_id, seq)
                    WHERE h.session_id = $1 AND h.turn_no = s.answered_turn AND o.author = 'operator')
 ORDER BY te.step
"""
"""What a human has answered is not the assistant's to answer again: their words would be out of its sight."""
_AGAIN = """
WITH s AS (
  UPDATE sessions SET next_seq = next_seq + 1, next_turn = next_turn + 1, last_channel = $2,
                      last_active_at = now()
   WHERE id = $1 RETURNING next_seq - 1 AS seq, next_turn - 1 AS turn_no, answered_turn
), t AS (
  INSERT INTO turns (session_id, turn_no, channel, address_id, process_faults)
  SELECT $1, s.turn_no, $2, coalesce($3, l.address_id), least(l.process_faults, 1)
    FROM s JOIN turns l ON l.session_id = $1 AND l.turn_no = s.answered_turn
), e AS (
  INSERT INTO entries (session_id, seq, role, author, blocks, tokens, dedupe_key, replaces_seq)
  SELECT $1, seq, 'user', 'person', $4::jsonb, $5, $6, $7 FROM s
)
INSERT INTO turn_entries (session_id, seq, turn_no, step) SELECT $1, seq, turn_no, seq FROM s
"""
"""The question has no event of its own: every screen shows it where it was first asked.

A question that has stopped processes may stop one more: the next fault ends its turn.
"""
_QUESTION = """
WITH q AS (
  SELECT coalesce(replaces_seq, seq) AS root FROM entries
   WHERE session_id = $1 AND seq = $2 AND author = 'person'
), asked AS (
  SELECT te.turn_no, te.step, te.replaced_by
    FROM q CROSS JOIN sessions s
    JOIN turn_entries te ON te.session_id = s.id AND te.turn_no > s.answered_turn - 1000
    JOIN entries e ON e.session_id = s.id AND e.seq = te.seq
   WHERE s.id = $1 AND e.author = 'person' AND q.root IN (e.seq, e.replaces_seq)
), t AS (
  SELECT min(turn_no) AS first, max(turn_no) AS last,
         coalesce(bool_or(replaced_by IS NOT NULL), false) AS replaced FROM asked
)
SELECT q.root, t.first, t.last, t.replaced, e.blocks,
       (SELECT v.payload -> 'attachments'
          FROM (SELECT seq, payload FROM events WHERE session_id = $1 ORDER BY event_seq DESC LIMIT 1000) v
         WHERE v.seq = q.root LIMIT 1) AS attachments,
       EXISTS (SELECT FROM asked a JOIN turn_entries x USING (turn_no) JOIN entries o USING (session_id, seq)
                WHERE x.session_id = $1 AND x.step > a.step AND o.author = 'person') AS followed,
       EXISTS (SELECT FROM turn_entries x JOIN entries o USING (session_id, seq)
                WHERE x.session_id = $1 AND x.turn_no BETWEEN t.first AND t.last
                  AND o.author = 'operator') AS by_human
  FROM q CROSS JOIN t JOIN entries e ON e.session_id = $1 AND e.seq = q.root JOIN sessions s ON s.id = $1
 WHERE e.blocks <> erased_blocks(e.blocks) AND coalesce(t.first, s.erased_turn + 1) > s.erased_turn
"""
"""A question as it was asked first, with the turns that answered it, of the last thousand."""
_ASK_ANEW = """
WITH s AS (
  UPDATE sessions SET next_seq = next_seq + 1, next_turn = next_turn + 1, last_channel = $2,
                      next_event_seq = next_event_seq + 1, view_epoch = view_epoch + 1, last_active_at = now()
   WHERE id = $1 RETURNING next_seq - 1 AS seq, next_turn - 1 AS turn_no, next_event_seq - 1 AS event_seq
), t AS (
  INSERT INTO turns (session_id, turn_no, channel, address_id) SELECT $1, turn_no, $2, $3::bigint FROM s
), e AS (
  INSERT INTO entries (session_id, seq, role, author, blocks, tokens, dedupe_key)
  SELECT $1, seq, 'user', 'person', $4::jsonb, $5, $6 FROM s
), te AS (
  INSERT INTO turn_entries (session_id, seq, turn_no, step) SELECT $1, seq, turn_no, seq FROM s
), ev AS (
  INSERT INTO events (session_id, event_seq, kind, seq, turn_no, payload)
  SELECT $1, event_seq, 'msg', seq, turn_no, $7::jsonb FROM s
)
SELECT seq, turn_no, event_seq, now() AS at FROM s
"""
_REPLACE = """
UPDATE turn_entries te SET replaced_by = $5 FROM entries e
 WHERE te.session_id = $1 AND te.turn_no BETWEEN $2 AND $3
   AND e.session_id = $1 AND e.seq = te.seq AND (e.author <> 'person' OR e.seq = $4 OR e.replaces_seq = $4)
RETURNING te.seq
"""
"""What else its person had asked in the same turn stays, and is answered with the newer words."""
_FORGET_PASSAGES = "DELETE FROM passages WHERE session_id = $1 AND seq = ANY ($2::bigint[])"
"""There are some where a summary that had hidden them was undone."""
FENCE_JOBS = """
WITH j AS (
  UPDATE jobs SET state = 'due', epoch = epoch + 1, leased_by = NULL, due_at = now()
   WHERE session_id = $1 AND state = 'running' RETURNING id
)
UPDATE flushes f SET outcome = 'failed', ended_at = now() WHERE f.session_id = $1 AND f.outcome = 'running'
"""
"""Whatever is being summarised or noted down just now is begun anew, of what there is from now on."""
