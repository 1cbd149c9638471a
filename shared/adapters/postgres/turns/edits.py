"""Store of edited messages and repeated answers; the log itself is only appended to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC
from typing import Literal

import asyncpg

from shared.adapters.postgres.db.pool import Connection, Named, PoolStore, store_method
from shared.adapters.postgres.turns.turn_sql import ACCEPTED_BEFORE, GOES_ON_ELSEWHERE
from shared.adapters.postgres.turns.turns import build_entry
from shared.core.context.build_context import plain_text
from shared.core.context.memory import UNDO_DAYS, gist_of, note_hash
from shared.core.memory.rewording import find_changed_spans, holds_former_words
from shared.core.memory.rewording import reword as reword_note
from shared.core.session.turns import (
    Accepted,
    Edited,
    EditReceipt,
    EditResult,
    Inbound,
    Stored,
    message_payload,
)
from shared.core.values.errors import CannotEdit, SessionMoved, UnknownMessage, UnknownSession
from shared.core.values.messages import (
    Block,
    Text,
    blocks_from_json,
    blocks_to_json,
    replace_typed_text,
    text_of,
)
from shared.core.values.recordings import RECORDING_NOTE
from shared.core.values.searching import date_words, dictionary_of, pieces, searchable

AgainResult = Literal["begun", "woken", "busy", "nothing", "with_human"]
"""Result of a request to repeat a question, as `PostgresEdits.request_retry` explains."""


class PostgresEdits(PoolStore):
    """Store of edits and repeated answers; each method is one transaction and raises StorageUnavailable."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], *, follow: Sequence[Named] = ()) -> None:
        """Create the store; `follow` are statements that move a channel's references to a new wording.

        Each has the parameters `session_id`, `old` and `new`.
        """
        super().__init__(pool)
        self._follow = follow

    @store_method
    async def edit(
        self,
        session_id: int,
        seq: int,
        *,
        reword: Callable[[tuple[Block, ...]], tuple[Block, ...]],
        count: Callable[[tuple[Block, ...]], int],
        dedupe_key: str,
        receipt: EditReceipt | None = None,
        is_shown: bool = False,
    ) -> Edited:
        """Replace the wording of a person's message, in whatever turn it is; the former one stays readable.

        `reword` makes the new blocks from the present ones; `count` returns their tokens. Pins, search, notes
        and repeated questions follow, running summaries start again, and an event tells screens. `receipt`
        stores what the channel wants stored in the same transaction.

        The result is `replaced` if no answer has begun, `restarted` if a running answer starts again, and
        `last` if a part of the newest answer was shown (`is_shown`) or delivered: screens then offer a new
        answer. It is `old` for an earlier turn, `same` for an equal wording, and `unknown` without such a
        session or message. Repeating the call with the same `dedupe_key` has no effect.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(*_LOCK_CONTACT(session_id=session_id))
            session = await connection.fetchrow(
                *_EDITED_SESSION(
                    session_id=session_id,
                    dedupe_key=dedupe_key,
                )
            )
            current = await connection.fetchrow(*_CURRENT(session_id=session_id, seq=seq))
            if session is None or current is None:
                return Edited(result="unknown")
            copies = await connection.fetch(*_COPIES(session_id=session_id, turn=current["turn_no"]))
            newest = max(row["turn_no"] for row in (current, *copies))
            is_delivered = await connection.fetchval(*_IS_SHOWN(session_id=session_id, turn=newest))
            result = _classify_edit(session, newest, is_shown=is_shown or is_delivered)
            if session["known"]:
                return replace(_build_edited(session, result, newest, current["seq"]), is_repeated=True)
            before = blocks_from_json(current["blocks"])
            after = reword(before)
            if receipt is not None:
                await receipt.record(connection)
            if after == before:
                return _build_edited(session, "same", newest, current["seq"])
            seq = await self._replace_wording(
                connection, session_id, current, after, count(after), dedupe_key
            )
            for copy in copies:
                blocks = replace_typed_text(blocks_from_json(copy["blocks"]), before, after)
                await self._replace_wording(connection, session_id, copy, blocks, count(blocks), None)
            await _correct_notes(connection, session_id, current["turn_no"], text_of(before), text_of(after))
            await connection.execute(*_READ_AGAIN(session_id=session_id, turn=current["turn_no"]))
            await connection.execute(*FENCE_JOBS(session_id=session_id))
            if result == "restarted":
                await connection.execute(*_FENCE_TURN(session_id=session_id))
            extra: dict[str, object] = {"replaces": f"m{current['seq']}"}
            if result == "last":
                extra["outdated"] = newest
                await connection.execute(*_MARK_OUTDATED(session_id=session_id, seq=seq, turn=newest))
            event_seq = await connection.fetchval(
                *_TELL_EDIT(
                    session_id=session_id,
                    seq=seq,
                    turn=current["turn_no"],
                    payload=extra,
                )
            )
        payload = message_payload(
            seq=seq, turn=current["turn_no"], author="person", blocks=after, at=session["at"], extra=extra
        )
        shown = Stored(event_seq=event_seq, kind="edited", payload=payload)
        return replace(_build_edited(session, result, newest, seq), event_seq=event_seq, shown=shown)

    async def _replace_wording(
        self, connection: Connection, session_id: int, row: asyncpg.Record, blocks: tuple[Block, ...],
        tokens: int, dedupe_key: str | None,
    ) -> int:  # fmt: skip
        """Store a new wording in the place of an old one; return its `seq`."""
        old: int = row["seq"]
        new: int = await connection.fetchval(*_NEXT_SEQ(session_id=session_id))
        await connection.execute(
            *_STORE_WORDING(
                session_id=session_id,
                seq=new,
                blocks=blocks_to_json(blocks),
                tokens=tokens,
                dedupe_key=dedupe_key,
                root=row["root"],
            )
        )
        # The position in the turn moves to the new entry; two entries must never have the same position.
        await connection.execute(*_GIVE_PLACE(session_id=session_id, old=old, new=new))
        await connection.execute(
            *_TAKE_PLACE(
                session_id=session_id,
                seq=new,
                turn=row["turn_no"],
                step=row["step"],
            )
        )
        for statement in (*_FOLLOW, *self._follow):
            await connection.execute(*statement(session_id=session_id, old=old, new=new))
        await _index_wording(connection, session_id, old=old, new=new)
        return new

    @store_method
    async def edit_question(
        self, inbound: Inbound, *, seq: int, channel: str, count: Callable[[tuple[Block, ...]], int]
    ) -> tuple[Accepted, Stored | None]:
        """Replace the last question by a new turn with the new text; its files stay.

        Returns the accepted message and the event for screens. For a key that was stored before, nothing
        changes and the event is None. `count` returns the tokens of blocks.

        Former question and answer stay in the log, marked: only the log, an export and the list of former
        versions show them. Running summaries and flushes start again without them. Raises CannotEdit if it is
        not the last question, is being answered, is hidden by a summary, was replaced, or an operator has the
        conversation; UnknownMessage for another `seq`; SessionMoved or UnknownSession if the address has no
        such session.
        """
        of, key = inbound.session_id, inbound.dedupe_key
        async with self._pool.acquire() as connection, connection.transaction():
            session = await connection.fetchrow(
                *_SESSION(
                    session_id=of,
                    address_id=inbound.address_id,
                    dedupe_key=key,
                )
            )
            if session is None:
                moved = await connection.fetchval(
                    *GOES_ON_ELSEWHERE(
                        session_id=of,
                        address_id=inbound.address_id,
                    )
                )
                raise (SessionMoved if moved else UnknownSession)(f"session {of}")
            if session["known"]:
                [before] = await connection.fetch(*ACCEPTED_BEFORE(session_id=of, dedupe_key=key))
                return _build_accepted(of, before, repeated=True), None
            asked = await connection.fetchrow(*_QUESTION(session_id=of, seq=seq))
            if asked is None:
                raise UnknownMessage(f"m{seq}")
            if code := _find_obstacle(session, asked):
                raise CannotEdit(code, turn=asked["last"] or 0)
            blocks = (Text(text=inbound.text), *filter(_is_file, blocks_from_json(asked["blocks"])))
            extra = {"cid": inbound.cid, "replaces": f"m{asked['root']}", "from_turn": asked["first"]}
            if asked["attachments"]:
                extra["attachments"] = asked["attachments"]
            [row] = await connection.fetch(
                *_ASK_ANEW(
                    session_id=of,
                    channel=channel,
                    address_id=inbound.address_id,
                    blocks=blocks_to_json(blocks),
                    tokens=count(blocks),
                    dedupe_key=key,
                    payload=extra,
                )
            )
            gone = await connection.fetch(
                *_REPLACE(
                    session_id=of,
                    first_turn=asked["first"],
                    last_turn=session["answered_turn"],
                    root=asked["root"],
                    seq=row["seq"],
                )
            )
            await connection.execute(*_FORGET_PASSAGES(session_id=of, seqs=[one["seq"] for one in gone]))
            await connection.execute(*FENCE_JOBS(session_id=of))
        said = message_payload(
            seq=row["seq"], turn=row["turn_no"], author="person", blocks=blocks, at=row["at"], extra=extra
        )
        shown = Stored(event_seq=row["event_seq"], kind="msg", payload=said)
        return _build_accepted(of, row, repeated=False), shown

    @store_method
    async def find_turn(self, session_id: int, seq: int) -> int | None:
        """Return the newest turn that contains a message of a person; 0 if the message was erased.

        A repeated question is in several turns. Returns None if `seq` is no message of a person.
        """
        turn: int | None = await self._pool.fetchval(*_TURN_OF_MESSAGE(session_id=session_id, seq=seq))
        return turn

    @store_method
    async def load_newest_text(self, session_id: int, *, turn: int | None = None) -> tuple[int, str] | None:
        """Return (seq, present text) of the last message of a person in a turn; None without one.

        With `turn` None, the newest answered turn is read. The note that marks a recording is left out.
        """
        row = await self._pool.fetchrow(*_WORDS(session_id=session_id, turn=turn))
        if row is None:
            return None
        blocks = blocks_from_json(row["blocks"])
        # The note that only marks a recording is not the person's text.
        return row["seq"], text_of(one for one in blocks if getattr(one, "text", "") != RECORDING_NOTE)

    @store_method
    async def is_newest_turn(self, session_id: int, turn: int) -> bool:
        """Return whether a turn is the newest of its session; False for an unknown session."""
        return bool(await self._pool.fetchval(*_NEWEST(session_id=session_id, turn=turn)))

    @store_method
    async def is_cut(self, session_id: int, turn: int) -> bool:
        """Return whether the answer of a turn reached its length limit; False for an unknown turn."""
        return bool(await self._pool.fetchval(*_CUT(session_id=session_id, turn=turn)))

    @store_method
    async def wake(self, session_id: int) -> bool:
        """Make the session's postponed turn due now; return False if no turn is postponed."""
        return await self._pool.fetchval(*_WAKE(session_id=session_id)) is not None

    @store_method
    async def request_retry(
        self,
        session_id: int,
        *,
        channel: str,
        address_id: int | None,
        dedupe_key: str | None,
        turn: int | None = None,
    ) -> AgainResult:
        """Store a new turn that repeats a question, or make a postponed turn due; return what was done.

        `turn` is the turn whose question is repeated, also one that is being answered; None means the last.
        The result is "begun" if a new turn was stored, also by an earlier call with this key; "woken" if the
        unanswered turn was postponed and is due now; "busy" if it is being answered; "nothing" if the session
        is unknown or has no such question in view; "with_human" while an operator has the conversation.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            session = await connection.fetchrow(
                *_SESSION(
                    session_id=session_id,
                    address_id=address_id,
                    dedupe_key=dedupe_key,
                )
            )
            if session is None:
                return "nothing"
            if session["known"]:
                return "begun"
            if session["held_after"] is not None:
                return "with_human"
            of = session["answered_turn"] if turn is None else turn
            if session["answered_turn"] < session["next_turn"] - 1 and turn is None:
                return "woken" if await connection.fetchval(*_WAKE(session_id=session_id)) else "busy"
            asked = await connection.fetch(*_ASKED(session_id=session_id, turn=of))
            if not asked:
                return "nothing"
            blocks = [block for row in asked for block in row["blocks"]]
            await connection.execute(
                *_AGAIN(
                    session_id=session_id, channel=channel, address_id=address_id, blocks=blocks,
                    tokens=sum(row["tokens"] for row in asked), dedupe_key=dedupe_key, root=asked[-1]["root"],
                    turn=of,
                ),
            )  # fmt: skip
        return "begun"


async def _correct_notes(connection: Connection, session_id: int, turn: int, before: str, after: str) -> int:
    """Correct notes of a turn that contain the former text, or archive those that cannot be corrected.

    Returns their number. Only notes that the program took from the conversation change, never those of a
    person or an operator.
    """
    spans = find_changed_spans(before, after)
    changed = 0
    for row in await connection.fetch(*_NOTES_OF_TURN(session_id=session_id, turn=turn)):
        if not holds_former_words(f"{row['text']} {row['subject']}", before, after):
            continue
        changed += 1
        text, subject = reword_note(row["text"], spans), reword_note(row["subject"], spans)
        heir = None
        if text.strip() and not holds_former_words(f"{text} {subject}", before, after):
            heir = await _find_heir(connection, row["id"], text, subject)
        if heir is None:
            await connection.execute(*_ARCHIVE(note_id=row["id"], undo_days=UNDO_DAYS))
            await connection.execute(
                *_NOTE_EVENT(
                    session_id=session_id,
                    note_id=row["id"],
                    change="forgotten",
                    replaces=None,
                )
            )
            continue
        await connection.execute(*_SUPERSEDE(note_id=row["id"], heir=heir))
        await connection.execute(
            *_NOTE_EVENT(
                session_id=session_id,
                note_id=heir,
                change="changed",
                replaces=row["id"],
            )
        )
    return changed


async def _find_heir(connection: Connection, note_id: int, text: str, subject: str) -> int | None:
    """Return the id of the note with the new text, inserted if there is none.

    Returns None if such a note was forgotten.
    """
    told = note_hash(text)
    twin = await connection.fetchrow(*_TWIN(note_id=note_id, hash=told))
    if twin is None:
        made: int = await connection.fetchval(
            *_REWORDED(
                note_id=note_id,
                text=text,
                subject=subject,
                hash=told,
                gist=list(gist_of(text)),
            )
        )
        return made
    if twin["forgotten_at"] is not None:
        return None
    await connection.execute(*_UNCHAIN(note_id=twin["id"]))
    heir: int = twin["id"]
    return heir


async def _index_wording(connection: Connection, session_id: int, *, old: int, new: int) -> None:
    """Replace the passages of a hidden message by those of its new wording, if it was indexed."""
    former = await connection.fetch(*_TAKE_PASSAGES(session_id=session_id, seq=old))
    if not former:
        return
    row = await connection.fetchrow(*_WORDING(session_id=session_id, seq=new))
    assert row is not None
    entry, first = build_entry(row), former[0]
    numbers = [one["number"] for one in former]
    made = []
    for part, text in enumerate(pieces(plain_text(entry.blocks))):
        dictionary = dictionary_of(text)
        day = date_words(first["at"].astimezone(UTC), dictionary)
        words = searchable(day, first["speaker"], text)
        number = numbers[part] if part < len(numbers) else None
        made.append({"part": part, "number": number, "text": text, "dictionary": dictionary, "words": words})
    await connection.execute(
        *_ADD_PASSAGES(
            session_id=session_id,
            seq=new,
            passages=made,
            turn=entry.turn,
            speaker=first["speaker"],
            sitting=first["sitting"],
            at=first["at"],
        )
    )


def _build_accepted(session_id: int, row: asyncpg.Record, *, repeated: bool) -> Accepted:
    return Accepted(
        session_id=session_id, seq=row["seq"], turn=row["turn_no"], event_seq=row["event_seq"],
        repeated=repeated, at_ms=int(row["at"].timestamp() * 1000),
    )  # fmt: skip


def _find_obstacle(session: asyncpg.Record, asked: asyncpg.Record) -> str:
    """Return the code of the reason why a question cannot be edited; "" if it can."""
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


def _build_edited(session: asyncpg.Record, result: EditResult, turn: int, seq: int) -> Edited:
    at_ms = int(session["at"].timestamp() * 1000)
    return Edited(result=result, turn=turn, seq=seq, event_seq=session["event_seq"], at_ms=at_ms)


def _classify_edit(session: asyncpg.Record, turn: int, *, is_shown: bool) -> EditResult:
    """Return the effect of an edit, by the newest turn that asks the message."""
    if turn > session["answered_turn"] + 1:
        return "replaced"
    if turn == session["answered_turn"] + 1:
        if session["leased_by"] is None:
            return "replaced"
        return "last" if is_shown else "restarted"
    is_last = turn == session["answered_turn"] == session["next_turn"] - 1
    return "last" if is_last and session["held_after"] is None else "old"


_LOCK_CONTACT = Named("""
SELECT p.id FROM sessions s JOIN contacts p ON p.id = s.contact_id WHERE s.id = :session_id
   FOR NO KEY UPDATE OF p
""")
"""Lock the person, under which notes are written; it is taken before the lock of the session."""
_EDITED_SESSION = Named("""
SELECT answered_turn, next_turn, leased_by, held_after, next_event_seq - 1 AS event_seq, now() AS at,
       EXISTS (SELECT FROM entries k WHERE k.session_id = :session_id AND k.dedupe_key = :dedupe_key) AS known
  FROM sessions WHERE id = :session_id FOR UPDATE
""")
_CURRENT = Named("""
WITH RECURSIVE wordings(seq, turn_no, step, replaced_by) AS (
  SELECT seq, turn_no, step, replaced_by FROM turn_entries WHERE session_id = :session_id AND seq = :seq
  UNION ALL
  SELECT n.seq, n.turn_no, n.step, n.replaced_by FROM wordings w
    JOIN turn_entries n ON n.session_id = :session_id AND n.seq = w.replaced_by AND n.turn_no = w.turn_no
)
SELECT w.seq, w.turn_no, w.step, e.blocks, coalesce(e.replaces_seq, e.seq) AS root
  FROM wordings w JOIN entries e ON e.session_id = :session_id AND e.seq = w.seq
    JOIN sessions s ON s.id = :session_id
 WHERE w.replaced_by IS NULL AND e.author = 'person' AND w.turn_no > s.erased_turn
   AND e.blocks <> erased_blocks(e.blocks)
""")
"""Select the newest wording of the message stored as `seq`.

There is no row if the message was erased or asked in another turn.
"""
_COPIES = Named("""
SELECT te.seq, te.turn_no, te.step, e.blocks, e.replaces_seq AS root
  FROM sessions s JOIN turn_entries te ON te.session_id = s.id
   AND te.turn_no > greatest(:turn, s.answered_turn - 1000)
  JOIN entries e ON e.session_id = s.id AND e.seq = te.seq
 WHERE s.id = :session_id AND te.replaced_by IS NULL AND e.author = 'person' AND e.replaces_seq IN (
       SELECT coalesce(o.replaces_seq, o.seq) FROM turn_entries q JOIN entries o USING (session_id, seq)
        WHERE q.session_id = :session_id AND q.turn_no = :turn AND o.author = 'person')
""")
"""Select turns that repeat the messages of a turn, among the last thousand."""
_TURN_OF_MESSAGE = Named("""
SELECT CASE WHEN e.blocks = erased_blocks(e.blocks) THEN 0 ELSE (
         SELECT max(te.turn_no) FROM entries c JOIN turn_entries te USING (session_id, seq)
          WHERE c.session_id = :session_id AND coalesce(e.replaces_seq, e.seq) IN (c.seq, c.replaces_seq)) END
  FROM entries e WHERE e.session_id = :session_id AND e.seq = :seq AND e.author = 'person'
""")
_NEXT_SEQ = Named("""
UPDATE sessions SET next_seq = next_seq + 1, view_epoch = view_epoch + 1 WHERE id = :session_id
RETURNING next_seq - 1
""")
_STORE_WORDING = Named("""
INSERT INTO entries (session_id, seq, role, author, blocks, tokens, dedupe_key, replaces_seq)
VALUES (:session_id, :seq, 'user', 'person', :blocks::jsonb, :tokens, :dedupe_key, :root)
""")
_GIVE_PLACE = Named("""
UPDATE turn_entries SET step = :new::bigint::int, replaced_by = :new WHERE session_id = :session_id
   AND seq = :old
""")
_TAKE_PLACE = Named("""
INSERT INTO turn_entries (session_id, seq, turn_no, step) VALUES (:session_id, :seq, :turn, :step)
""")
_FOLLOW = (
    Named("UPDATE pins SET seq = :new WHERE session_id = :session_id AND seq = :old"),
    Named("""
        UPDATE events SET seq = :new WHERE session_id = :session_id AND seq = :old AND kind = 'msg'
           AND event_seq > (SELECT next_event_seq - 5000 FROM sessions WHERE id = :session_id)
    """),
)
"""Point references to an entry's newest wording; of events, only among the last five thousand."""
_MARK_OUTDATED = Named("""
UPDATE events SET payload = payload || jsonb_build_object('outdated', :turn::bigint)
 WHERE session_id = :session_id AND seq = :seq AND kind = 'msg' AND event_seq > (
         SELECT next_event_seq - 5000 FROM sessions WHERE id = :session_id)
""")
"""Mark a message whose answer was shown before the edit; screens then offer a new answer."""
_TELL_EDIT = Named("""
WITH s AS (
  UPDATE sessions SET next_event_seq = next_event_seq + 1 WHERE id = :session_id
  RETURNING next_event_seq - 1 AS event_seq
)
INSERT INTO events (session_id, event_seq, kind, seq, turn_no, payload)
SELECT :session_id, event_seq, 'edited', :seq, :turn, :payload FROM s RETURNING event_seq
""")
"""Insert the event of a new wording; its text is read from the entry, so that an erasure reaches it."""
_READ_AGAIN = Named("""
UPDATE sessions SET flushed_turn = least(flushed_turn, :turn - 1) WHERE id = :session_id AND base_turn < :turn
""")
"""Let the next flush read the turn again, for hidden turns too."""
_IS_SHOWN = Named("""
SELECT EXISTS (SELECT FROM deliveries
                WHERE session_id = :session_id AND turn_no = :turn AND state NOT IN ('queued', 'dead'))
""")
_FENCE_TURN = Named("""
UPDATE sessions SET turn_epoch = turn_epoch + 1, leased_by = NULL, retry_at = now()
 WHERE id = :session_id AND leased_by IS NOT NULL
""")
_WORDS = Named("""
SELECT e.seq, e.blocks FROM turn_entries te JOIN entries e USING (session_id, seq)
 WHERE te.session_id = :session_id AND e.author = 'person' AND te.replaced_by IS NULL
   AND te.turn_no = coalesce(:turn, (SELECT answered_turn FROM sessions WHERE id = :session_id))
 ORDER BY te.step DESC LIMIT 1
""")
_SESSION = Named("""
SELECT answered_turn, next_turn, held_after, base_turn,
       EXISTS (SELECT FROM entries k WHERE k.session_id = :session_id AND k.dedupe_key = :dedupe_key) AS known
  FROM sessions
 WHERE id = :session_id AND archived_at IS NULL
   AND (:address_id::bigint IS NULL OR left_by IS NULL OR NOT :address_id = ANY (left_by))
   FOR UPDATE
""")
_NEWEST = Named("SELECT next_turn - 1 = :turn FROM sessions WHERE id = :session_id")
_CUT = Named("SELECT stop_reason = 'length' FROM turns WHERE session_id = :session_id AND turn_no = :turn")
_WAKE = Named("""
UPDATE sessions SET retry_at = now()
 WHERE id = :session_id AND answered_turn < next_turn - 1 AND held_after IS NULL
   AND leased_by IS NULL AND retry_at > now()
RETURNING id
""")
_ASKED = Named("""
SELECT e.blocks, e.tokens, coalesce(e.replaces_seq, e.seq) AS root
  FROM sessions s JOIN turn_entries te ON te.session_id = s.id AND te.turn_no = :turn
  JOIN entries e ON e.session_id = s.id AND e.seq = te.seq
 WHERE s.id = :session_id AND e.author = 'person' AND te.replaced_by IS NULL
   AND te.turn_no > greatest(s.base_turn, s.erased_turn)
   AND e.blocks <> erased_blocks(e.blocks)
   AND NOT EXISTS (SELECT FROM turn_entries h JOIN entries o USING (session_id, seq)
                    WHERE h.session_id = :session_id AND h.turn_no = :turn AND o.author = 'operator')
 ORDER BY te.step
""")
"""Select the question to repeat; one that an operator answered is not repeated."""
_AGAIN = Named("""
WITH s AS (
  UPDATE sessions SET next_seq = next_seq + 1, next_turn = next_turn + 1, last_channel = :channel,
                      last_active_at = now()
   WHERE id = :session_id RETURNING next_seq - 1 AS seq, next_turn - 1 AS turn_no
), t AS (
  INSERT INTO turns (session_id, turn_no, channel, address_id, process_faults)
  SELECT :session_id, s.turn_no, :channel, coalesce(:address_id, l.address_id), least(l.process_faults, 1)
    FROM s JOIN turns l ON l.session_id = :session_id AND l.turn_no = :turn
), e AS (
  INSERT INTO entries (session_id, seq, role, author, blocks, tokens, dedupe_key, replaces_seq)
  SELECT :session_id, seq, 'user', 'person', :blocks::jsonb, :tokens, :dedupe_key, :root FROM s
)
INSERT INTO turn_entries (session_id, seq, turn_no, step) SELECT :session_id, seq, turn_no, seq FROM s
""")
"""Insert a turn that repeats a question.

It has no event, since screens show the question where it was first asked. A question that has stopped
processes may stop one more: the next fault ends its turn.
"""
_QUESTION = Named("""
WITH q AS (
  SELECT coalesce(replaces_seq, seq) AS root FROM entries
   WHERE session_id = :session_id AND seq = :seq AND author = 'person'
), asked AS (
  SELECT te.turn_no, te.step, te.replaced_by
    FROM q CROSS JOIN sessions s
    JOIN turn_entries te ON te.session_id = s.id AND te.turn_no > s.answered_turn - 1000
    JOIN entries e ON e.session_id = s.id AND e.seq = te.seq
   WHERE s.id = :session_id AND e.author = 'person' AND q.root IN (e.seq, e.replaces_seq)
), t AS (
  SELECT min(turn_no) AS first, max(turn_no) AS last,
         coalesce(bool_and(replaced_by IS NOT NULL), false) AS replaced FROM asked
)
SELECT q.root, t.first, t.last, t.replaced, e.blocks,
       (SELECT v.payload -> 'attachments'
          FROM (SELECT seq, payload FROM events WHERE session_id = :session_id ORDER BY event_seq DESC
                LIMIT 1000) v
         WHERE v.payload ? 'attachments' AND EXISTS (
               SELECT FROM entry_rows w WHERE w.session_id = :session_id AND w.seq = v.seq
                  AND q.root IN (w.seq, w.replaces_seq)) LIMIT 1) AS attachments,
       EXISTS (SELECT FROM asked a JOIN turn_entries x USING (turn_no) JOIN entries o USING (session_id, seq)
                WHERE x.session_id = :session_id AND x.step > a.step AND o.author = 'person'
                   AND x.replaced_by IS NULL) AS followed,
       EXISTS (SELECT FROM turn_entries x JOIN entries o USING (session_id, seq)
                WHERE x.session_id = :session_id AND x.turn_no BETWEEN t.first AND t.last
                  AND o.author = 'operator') AS by_human
  FROM q CROSS JOIN t JOIN entries e ON e.session_id = :session_id AND e.seq = q.root
    JOIN sessions s ON s.id = :session_id
 WHERE e.blocks <> erased_blocks(e.blocks) AND coalesce(t.first, s.erased_turn + 1) > s.erased_turn
""")
"""Select a question as first asked, with the turns that answered it, among the last thousand."""
_ASK_ANEW = Named("""
WITH s AS (
  UPDATE sessions SET next_seq = next_seq + 1, next_turn = next_turn + 1, last_channel = :channel,
                      next_event_seq = next_event_seq + 1, view_epoch = view_epoch + 1, last_active_at = now()
   WHERE id = :session_id RETURNING next_seq - 1 AS seq, next_turn - 1 AS turn_no,
     next_event_seq - 1 AS event_seq
), t AS (
  INSERT INTO turns (session_id, turn_no, channel, address_id) SELECT :session_id, turn_no, :channel,
     :address_id::bigint FROM s
), e AS (
  INSERT INTO entries (session_id, seq, role, author, blocks, tokens, dedupe_key)
  SELECT :session_id, seq, 'user', 'person', :blocks::jsonb, :tokens, :dedupe_key FROM s
), te AS (
  INSERT INTO turn_entries (session_id, seq, turn_no, step) SELECT :session_id, seq, turn_no, seq FROM s
), ev AS (
  INSERT INTO events (session_id, event_seq, kind, seq, turn_no, payload)
  SELECT :session_id, event_seq, 'msg', seq, turn_no, :payload::jsonb FROM s
)
SELECT seq, turn_no, event_seq, now() AS at FROM s
""")
"""Insert an edited question as a new turn; the caller holds the session's lock."""
_REPLACE = Named("""
UPDATE turn_entries te SET replaced_by = :seq FROM entries e
 WHERE te.session_id = :session_id AND te.turn_no BETWEEN :first_turn AND :last_turn
   AND e.session_id = :session_id AND e.seq = te.seq
   AND (e.author <> 'person' OR e.seq = :root OR e.replaces_seq = :root)
   AND te.replaced_by IS NULL
RETURNING te.seq
""")
"""Mark the replaced entries; other messages of the person in the same turn stay and are answered too."""
_FORGET_PASSAGES = Named("""
DELETE FROM passages WHERE session_id = :session_id AND seq = ANY (:seqs::bigint[])
""")
"""Delete passages, which exist if a summary that had hidden the message was undone."""
FENCE_JOBS = Named("""
WITH j AS (
  UPDATE jobs SET state = 'due', epoch = epoch + 1, leased_by = NULL, due_at = now()
   WHERE session_id = :session_id AND state = 'running' RETURNING id
)
UPDATE flushes f SET outcome = 'failed', ended_at = now() WHERE f.session_id = :session_id
   AND f.outcome = 'running'
""")
"""Make the running jobs of a session due again with a new epoch, and end its running flushes as failed.

The workers that hold these jobs lose their claims, so that summaries start again with the present log.
"""
_UNCHAIN = Named("UPDATE notes SET superseded_by = NULL, superseded_reason = '' WHERE id = :note_id")
_NOTES_OF_TURN = Named("""
SELECT id, text, subject FROM notes
 WHERE session_id = :session_id AND :turn BETWEEN from_turn AND coalesce(through_turn, from_turn)
   AND superseded_by IS NULL AND forgotten_at IS NULL AND authority <> 'operator'
 ORDER BY id LIMIT 500
""")
_ARCHIVE = Named("""
UPDATE notes SET forgotten_at = now(), undo_until = now() + make_interval(days => :undo_days)
   WHERE id = :note_id
""")
_TWIN = Named("""
SELECT n.id, n.forgotten_at FROM notes o
  JOIN notes n ON n.contact_id = o.contact_id AND n.scope = o.scope AND n.hash = :hash AND n.id <> o.id
 WHERE o.id = :note_id
""")
_REWORDED = Named("""
INSERT INTO notes (contact_id, scope, kind, text, subject, importance, hash, authority, session_id, from_turn,
                   through_turn, flush_id, durability, source_seqs, gist, observed_at)
SELECT contact_id, scope, kind, :text, :subject, importance, :hash, authority, session_id, from_turn,
       through_turn,
       flush_id, durability, source_seqs, :gist, now()
  FROM notes WHERE id = :note_id RETURNING id
""")
_SUPERSEDE = Named("""
WITH o AS (
  UPDATE notes SET superseded_by = :heir, superseded_reason = 'changed' WHERE id = :note_id
  RETURNING id, contact_id
)
INSERT INTO note_changes (contact_id, old_id, new_id, cause) SELECT contact_id, id, :heir, 'edit' FROM o
""")
_NOTE_EVENT = Named("""
WITH s AS (
  UPDATE sessions SET next_event_seq = next_event_seq + 1 WHERE id = :session_id
  RETURNING next_event_seq - 1 AS event_seq
)
INSERT INTO events (session_id, event_seq, kind, payload)
SELECT :session_id, s.event_seq, 'memory', jsonb_strip_nulls(jsonb_build_object(
         'id', 'n' || left(n.public_id::text, 8), 'kind', n.kind, 'change', :change::text, 'quiet', true,
         'text', CASE WHEN :change = 'forgotten' THEN '' ELSE n.text END,
         'replaces', (SELECT 'n' || left(o.public_id::text, 8) FROM notes o WHERE o.id = :replaces)))
  FROM s, notes n WHERE n.id = :note_id
""")
"""Insert the event of a note that an edit changed; without its text if the note was forgotten."""
_TAKE_PASSAGES = Named("""
WITH gone AS (
  DELETE FROM passages WHERE session_id = :session_id AND seq = :seq
     RETURNING number, part, speaker, sitting, at
)
SELECT * FROM gone ORDER BY part
""")
_WORDING = Named("""
SELECT e.seq, te.turn_no, te.step, e.role, e.author, e.blocks, e.tokens, e.at, e.replaces_seq,
       false AS pinned, NULL AS form, NULL AS shown
  FROM turn_entries te JOIN entries e USING (session_id, seq) WHERE te.session_id = :session_id
    AND te.seq = :seq
""")
_ADD_PASSAGES = Named("""
INSERT INTO passages (session_id, number, seq, part, turn_no, author, speaker, sitting, at, text, terms,
                      vector)
SELECT :session_id, coalesce(x.number, (SELECT coalesce(max(number), 0) FROM passages
                                        WHERE session_id = :session_id)
                              + row_number() OVER (PARTITION BY x.number IS NULL ORDER BY x.part)),
       :seq, x.part, :turn, 'person', :speaker, :sitting, :at, x.text,
       (SELECT coalesce(sum(cardinality(positions)), 0) FROM unnest(v)), v
  FROM jsonb_to_recordset(:passages::jsonb) AS
    x(part int, number bigint, text text, dictionary text, words text)
 CROSS JOIN LATERAL to_tsvector(x.dictionary::regconfig, x.words) AS v
""")
"""Insert the passages of an edited message; existing ones keep their numbers."""
