"""Store of spoken answers: requested before the answer is sent, made and paid once, deleted after a day.

For Telegram a voice note is `due`, then `sending`, then `over`; one that may have been sent is not sent
again. Recordings for web pages stay `due` and can be loaded repeatedly.
"""

from __future__ import annotations

from collections.abc import Sequence

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.adapters.postgres.turns.turns import settle_calls
from shared.core.session.turns import Spending
from shared.core.values.recordings import SpeechFormat


class PostgresSpeech(PoolStore):
    """Store of spoken answers; each method is one transaction and raises StorageUnavailable."""

    @store_method
    async def request_note(self, session_id: int, turn: int) -> None:
        """Request a voice note for an answered turn, if the session wants one: always, or after a recording.

        At most one is stored per turn; a repeat has no effect. Call it before the delivery, so that a crash
        loses no voice note.
        """
        await self._pool.execute(*_WANT_NOTE(session_id=session_id, turn=turn))

    @store_method
    async def list_due_notes(self, accounts: Sequence[int], *, limit: int = 20) -> list[tuple[int, int, int]]:
        """Return (session id, turn, address id) of at most `limit` due voice notes, oldest first.

        `accounts` are ids of Telegram bots. A note is left out while its text is not delivered, if the chat
        is unreachable, and an hour after its request. Changes nothing; `begin_note` claims a note.
        """
        rows = await self._pool.fetch(
            *_DUE_NOTES(
                accounts=[str(account) for account in accounts],
                limit=limit,
            )
        )
        return [(row["session_id"], row["turn_no"], row["address_id"]) for row in rows]

    @store_method
    async def find_answered_turn(self, session_id: int, seq: int) -> int | None:
        """Return the turn of an assistant's entry; None if it is erased or of another author."""
        turn: int | None = await self._pool.fetchval(
            *_ANSWERED_TURN(session_id=session_id, seq=seq),
        )  # fmt: skip
        return turn

    @store_method
    async def load_spoken(self, session_id: int, turn: int, form: SpeechFormat) -> bytes | None:
        """Return the stored recording in this format; None if there is none yet.

        If there is no row for the recording, one is inserted, which `record_spoken` needs.
        """
        body: bytes | None = await self._pool.fetchval(
            *_LOAD_SPOKEN(session_id=session_id, turn=turn, form=form),
        )  # fmt: skip
        return body

    @store_method
    async def record_spoken(
        self,
        session_id: int,
        turn: int,
        form: SpeechFormat,
        *,
        body: bytes | None,
        spent: Spending,
        reservation_id: int | None,
    ) -> None:
        """Store the cost and, unless None or the text was erased, the recording.

        A recording that is already stored stays. `reservation_id` is the reservation of budget that the cost
        settles; None if there is none.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await settle_calls(
                connection, [spent], reservation_id=reservation_id, settled_micro=spent.cost_micro or 0,
                session_id=session_id, contact_id=None, turn=turn, purpose="speech",
            )  # fmt: skip
            await connection.execute(*_KEEP_SPOKEN(session_id=session_id, turn=turn, form=form, body=body))

    @store_method
    async def begin_note(self, session_id: int, turn: int) -> bool:
        """Mark a due voice note as being sent, before the request.

        Returns False if the note is not due: another process sends or has sent it, or it is erased.
        """
        return await self._change_state(session_id, turn, "due", "sending")

    @store_method
    async def mark_note_not_sent(self, session_id: int, turn: int) -> None:
        """Mark a voice note that was surely not sent as due again; no effect unless it is being sent."""
        await self._change_state(session_id, turn, "sending", "due")

    @store_method
    async def end_note(self, session_id: int, turn: int) -> None:
        """End a voice note that was sent or given up, and delete its bytes; it is never sent again."""
        await self._pool.execute(
            *_END_NOTE(session_id=session_id, turn=turn),
        )  # fmt: skip

    async def _change_state(self, session_id: int, turn: int, before: str, after: str) -> bool:
        found = await self._pool.fetchval(
            *_CHANGE_STATE(session_id=session_id, turn=turn, before=before, after=after),
        )  # fmt: skip
        return found is not None


_WANT_NOTE = Named("""
INSERT INTO spoken_answers (session_id, turn_no, form)
SELECT t.session_id, t.turn_no, 'opus' FROM turns t JOIN sessions s ON s.id = t.session_id
 WHERE t.session_id = :session_id AND t.turn_no = :turn AND t.state = 'answered'
   AND (s.voice = 'on' OR s.voice = 'auto' AND EXISTS (
         SELECT FROM turn_entries te JOIN entries e USING (session_id, seq)
          CROSS JOIN LATERAL jsonb_array_elements(e.blocks) AS b
           JOIN attachments f ON f.id = (b ->> 'attachment_id')::bigint AND f.session_id = e.session_id
          WHERE te.session_id = t.session_id AND te.turn_no = t.turn_no AND e.author = 'person'
            AND f.mime LIKE 'audio/%'))
ON CONFLICT DO NOTHING
""")
"""Insert a voice note if the session wants spoken answers, or if "auto" and the person sent a recording.

It inserts one per turn.
"""
_DUE_NOTES = Named("""
SELECT s.session_id, s.turn_no, t.address_id
  FROM spoken_answers s JOIN turns t USING (session_id, turn_no) JOIN addresses a ON a.id = t.address_id
 WHERE s.form = 'opus' AND s.state = 'due' AND s.created_at > now() - interval '1 hour'
   AND a.account = ANY (:accounts::text[]) AND a.unreachable_since IS NULL
   AND NOT EXISTS (SELECT FROM deliveries d WHERE d.session_id = s.session_id AND d.turn_no = s.turn_no
                      AND d.state IN ('queued', 'sending', 'sent'))
 ORDER BY s.created_at LIMIT :limit
""")
"""Select voice notes to send; after an hour they are not sent any more."""
_ANSWERED_TURN = Named("""
SELECT te.turn_no FROM turn_entries te JOIN entries e USING (session_id, seq)
 WHERE te.session_id = :session_id AND te.seq = :seq AND e.author = 'assistant'
   AND e.blocks <> '[{"type": "text", "text": "[erased]"}]'
""")
_KEEP_SPOKEN = Named("""
UPDATE spoken_answers SET body = :body
 WHERE session_id = :session_id AND turn_no = :turn AND form = :form AND state = 'due' AND body IS NULL
""")
_LOAD_SPOKEN = Named("""
INSERT INTO spoken_answers AS s (session_id, turn_no, form) VALUES (:session_id, :turn, :form)
ON CONFLICT (session_id, turn_no, form) DO UPDATE SET form = s.form RETURNING body
""")
_END_NOTE = Named("""
UPDATE spoken_answers SET state = 'over', body = NULL
 WHERE session_id = :session_id AND turn_no = :turn AND form = 'opus'
""")
_CHANGE_STATE = Named("""
UPDATE spoken_answers SET state = :after
 WHERE session_id = :session_id AND turn_no = :turn AND form = 'opus' AND state = :before RETURNING true
""")
