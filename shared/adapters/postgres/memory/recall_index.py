"""Indexing of hidden messages and new notes for recall, in the background and never as part of a turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.adapters.postgres.memory.recall_sql import NAMED_SESSIONS
from shared.adapters.postgres.turns.turns import add_descriptions, build_entry
from shared.core.context.build_context import plain_text
from shared.core.identity.introductions import find_introduced_name
from shared.core.session.session import Entry, drop_former
from shared.core.values.searching import date_words, dictionary_of, pieces, prevailing_dictionary, searchable

TURNS_AT_ONCE = 100
"""Maximum turns that one transaction indexes."""
NOTES_AT_ONCE = 200
"""Maximum notes that one transaction indexes."""
PIECES_OF_A_RESULT = 3
"""Pieces from the beginning of a tool result that are indexed; there the id of an artifact is found too."""
SITTING = timedelta(hours=3)
"""Pause after which messages count as a new topic."""


class PostgresRecallIndex(PoolStore):
    """Store of the index for recall.

    Each method can be repeated, and raises StorageUnavailable. Each but `list_unindexed` is one transaction.
    """

    @store_method
    async def list_unindexed(self, *, limit: int = 20) -> list[int]:
        """Return at most `limit` sessions with hidden turns to index, and as many without an address.

        Also removes sessions from the list of those without an address that need no index any more.
        """
        await self._pool.execute(_FORGET_SETTLED)
        rows = await self._pool.fetch(*_BEHIND(limit=limit))
        return [row["id"] for row in rows]

    @store_method
    async def index_session(self, session_id: int) -> bool:
        """Index at most TURNS_AT_ONCE further hidden turns of a session; return whether there are more.

        A session without an address is indexed whole. Returns False if another process indexes the session.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            if not await connection.fetchval(*_MINE(session_id=session_id)):
                return False  # somebody else is at it, and will finish
            session = await connection.fetchrow(*_SESSION(session_id=session_id))
            if session is None or session["indexed_turn"] >= session["through"]:
                return False
            through = min(session["through"], session["indexed_turn"] + TURNS_AT_ONCE)
            rows = await connection.fetch(
                *_ENTRIES(session_id=session_id, after_turn=session["indexed_turn"], through_turn=through)
            )
            said = drop_former([build_entry(row) for row in rows])
            entries = await add_descriptions(connection, said)
            await connection.execute(
                *ADD_PASSAGES(session_id=session_id, passages=_passages(entries, dict(session)))
            )
            await connection.execute(*_ADVANCE(session_id=session_id, through_turn=through))
            return bool(through < session["through"])

    @store_method
    async def index_notes(self) -> int:
        """Index at most NOTES_AT_ONCE listed notes; return how many list rows were processed.

        Returns 0 if another process indexes notes.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            if not await connection.fetchval(_NOTES_MINE):
                return 0
            listed = [row["note_id"] for row in await connection.fetch(*_TAKE_NOTES(limit=NOTES_AT_ONCE))]
            if not listed:
                return 0
            rows = await connection.fetch(*_NEW_NOTES(note_ids=listed))
            fallback = prevailing_dictionary(row["text"] for row in rows)
            notes = [
                {
                    "id": row["id"],
                    "dictionary": dictionary_of(row["text"], otherwise=fallback),
                    "words": searchable(_day(row["observed_at"]), row["subject"], row["text"]),
                }
                for row in rows
            ]
            await connection.execute(*_ADD_NOTES(notes=notes))
            return len(listed)


def _passages(entries: Sequence[Entry], session: Mapping[str, Any]) -> list[dict[str, Any]]:
    said = [plain_text(entry.blocks) for entry in entries if entry.author != "tool"]
    fallback = prevailing_dictionary([*session["recent"], *said])
    number, sitting, before = session["number"], session["sitting"], session["last_at"]
    made: list[dict[str, Any]] = []
    for entry in entries:
        if session["is_unnamed"] and entry.author == "person":
            name = find_introduced_name(plain_text(entry.blocks))
            session = {**session, "person": name} if name else session
        # Files of other programs may begin with the newest conversation.
        is_apart = before is not None and abs(entry.at - before) > SITTING
        sitting += is_apart
        before = entry.at if before is None or is_apart else max(before, entry.at)
        for part, text in _pieces(entry):
            number += 1
            made.append(_passage(entry, part, text, number, sitting, session, fallback))
    return made


def _pieces(entry: Entry) -> Iterator[tuple[int, str]]:
    said = pieces(plain_text(entry.blocks))
    return enumerate(said[:PIECES_OF_A_RESULT] if entry.author == "tool" else said)


def _passage(
    entry: Entry, part: int, text: str, number: int, sitting: int, session: Mapping[str, Any], fallback: str
) -> dict[str, Any]:
    speaker = {"person": session["person"], "assistant": session["assistant"]}.get(entry.author, "")
    dictionary = dictionary_of(text, otherwise=fallback)
    return {
        "number": number,
        "seq": entry.seq,
        "part": part,
        "turn": entry.turn,
        "author": entry.author,
        "speaker": speaker,
        "sitting": sitting,
        "at": entry.at.isoformat(),
        "text": text,
        "dictionary": dictionary,
        "words": searchable(date_words(entry.at.astimezone(UTC), dictionary), speaker, text),
    }


def _day(at: datetime) -> str:
    return date_words(at.astimezone(UTC))


_FORGET_SETTLED = """
DELETE FROM left_sessions l
 WHERE NOT EXISTS (
       SELECT FROM sessions s WHERE s.id = l.session_id AND s.indexed_turn < s.next_turn - 1
          AND NOT EXISTS (SELECT FROM addresses a WHERE a.session_id = s.id))
"""
"""Delete list rows of sessions that are indexed or have an address; those with an open turn stay."""
_BEHIND = Named("""
(SELECT id FROM sessions WHERE indexed_turn < base_turn ORDER BY id LIMIT :limit)
UNION ALL
(SELECT s.id FROM sessions s
  WHERE s.id IN (SELECT session_id FROM left_sessions)
    AND s.indexed_turn < s.answered_turn AND s.indexed_turn >= s.base_turn
    AND NOT EXISTS (SELECT FROM addresses a WHERE a.session_id = s.id) ORDER BY s.id LIMIT :limit)
""")
"""Select sessions to index: those with hidden turns, and as a whole those without an address."""
_MINE = Named("SELECT pg_try_advisory_xact_lock(hashtextextended('recall:' || :session_id::bigint, 0))")
_NOTES_MINE = "SELECT pg_try_advisory_xact_lock(hashtextextended('recall:notes', 0))"
_SESSION = Named(
    """
SELECT s.indexed_turn,
       CASE WHEN EXISTS (SELECT FROM addresses a WHERE a.session_id = s.id) THEN s.base_turn
            ELSE s.answered_turn END AS through,
       CASE WHEN p.kind <> 'person' OR p.display_name <> '' THEN p.display_name ELSE coalesce((
         SELECT x.speaker FROM (
                  SELECT o.id, o.last_active_at FROM sessions o
                   WHERE o.agent_id = s.agent_id AND o.contact_id IN (SELECT contact_family(s.contact_id))
                     AND o.indexed_turn > 0
                   ORDER BY o.id <> s.id, o.last_active_at DESC, o.id DESC LIMIT :named_sessions) o
          CROSS JOIN LATERAL (SELECT y.speaker FROM passages y
                               WHERE y.session_id = o.id AND y.author = 'person'
                               ORDER BY y.number DESC LIMIT 1) x
          WHERE x.speaker <> '' ORDER BY o.id <> s.id, o.last_active_at DESC, o.id DESC LIMIT 1), '') END
         AS person, p.kind = 'person' AND p.display_name = '' AS is_unnamed,
       coalesce(a.config ->> 'name', '') AS assistant,
       coalesce(l.number, 0) AS number, coalesce(l.sitting, 0) AS sitting, l.at AS last_at,
       ARRAY (SELECT x.text FROM passages x WHERE x.session_id = s.id AND x.author <> 'tool'
               ORDER BY x.number DESC LIMIT 20) AS recent
  FROM sessions s JOIN contacts p ON p.id = s.contact_id JOIN agents a ON a.id = s.agent_id
  LEFT JOIN LATERAL (SELECT x.number, x.sitting, x.at FROM passages x WHERE x.session_id = s.id
                      ORDER BY x.number DESC LIMIT 1) l ON true
 WHERE s.id = :session_id FOR KEY SHARE OF s
""",
    named_sessions=NAMED_SESSIONS,
)
"""Select the session to index, locked against erasures, so that nothing erased is indexed.

The person has the name of the account, else the one given in an earlier message, as in `SEARCH` of recall.
"""
_ENTRIES = Named("""
SELECT e.seq, te.turn_no, te.step, e.role, e.author, e.blocks, e.tokens, e.at, e.replaces_seq,
       false AS pinned, NULL AS form, NULL AS shown
  FROM turn_entries te JOIN entries e USING (session_id, seq)
 WHERE te.session_id = :session_id AND te.turn_no > :after_turn AND te.turn_no <= :through_turn
    AND coalesce(te.replaced_by, 0) <= 0
 ORDER BY te.turn_no, te.step
""")
LAST_PASSAGE = Named("""
SELECT coalesce(l.number, 0) AS number, coalesce(l.sitting, 0) AS sitting
  FROM sessions s
  LEFT JOIN LATERAL (SELECT x.number, x.sitting FROM passages x WHERE x.session_id = s.id
                      ORDER BY x.number DESC LIMIT 1) l ON true
 WHERE s.id = :session_id FOR KEY SHARE OF s
""")
"""Select the number of the newest passage; an erasure of the session waits until the transaction ends."""
ADD_PASSAGES = Named("""
INSERT INTO passages (session_id, number, seq, part, turn_no, author, speaker, sitting, at, text, terms,
                      vector)
SELECT :session_id, x.number, x.seq, x.part, x.turn, x.author, x.speaker, x.sitting, x.at, x.text,
       (SELECT coalesce(sum(cardinality(positions)), 0) FROM unnest(v)), v
  FROM jsonb_to_recordset(:passages::jsonb) AS x(number bigint, seq bigint, part int, turn bigint,
     author text,
       speaker text, sitting int, at timestamptz, text text, dictionary text, words text)
 CROSS JOIN LATERAL to_tsvector(x.dictionary::regconfig, x.words) AS v
ON CONFLICT (session_id, seq, part) DO NOTHING
""")
"""Insert passages of hidden messages with their search vectors; a repeated batch adds none."""
_ADVANCE = Named(
    "UPDATE sessions SET indexed_turn = :through_turn WHERE id = :session_id AND indexed_turn < :through_turn"
)
_TAKE_NOTES = Named("""
DELETE FROM unindexed_notes
 WHERE ctid = ANY (ARRAY (SELECT ctid FROM unindexed_notes LIMIT :limit)) RETURNING note_id
""")
_NEW_NOTES = Named("""
SELECT n.id, n.text, n.subject, n.observed_at FROM notes n
 WHERE n.id = ANY (:note_ids::bigint[])
   AND n.forgotten_at IS NULL AND n.superseded_by IS NULL AND n.authority <> 'tool'
   AND NOT EXISTS (SELECT FROM note_words w WHERE w.note_id = n.id)
 ORDER BY n.id FOR SHARE OF n
""")
_ADD_NOTES = Named("""
INSERT INTO note_words (note_id, contact_id, terms, vector)
SELECT n.id, n.contact_id, (SELECT coalesce(sum(cardinality(positions)), 0) FROM unnest(v)), v
  FROM jsonb_to_recordset(:notes::jsonb) AS x(id bigint, dictionary text, words text)
     JOIN notes n ON n.id = x.id
 CROSS JOIN LATERAL to_tsvector(x.dictionary::regconfig, x.words) AS v
ON CONFLICT (note_id) DO NOTHING
""")
