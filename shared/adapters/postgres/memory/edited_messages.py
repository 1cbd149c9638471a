"""Notes and passages of a message whose wording was replaced, changed in the caller's transaction."""

from __future__ import annotations

from datetime import UTC

from shared.adapters.postgres.db.pool import Connection
from shared.adapters.postgres.memory.notes_sql import UNCHAIN
from shared.adapters.postgres.turns.turns import build_entry
from shared.core.context.build_context import plain_text
from shared.core.context.memory import UNDO_DAYS, gist_of, note_hash
from shared.core.memory.rewording import find_changed_spans, holds_former_words, reword
from shared.core.values.searching import date_words, dictionary_of, pieces, searchable


async def correct_notes(connection: Connection, session_id: int, turn: int, before: str, after: str) -> int:
    """Reword notes of this turn that hold the former words; archive those that cannot be. Return how many.

    Only notes that the program took from the conversation change, never those of a person or an operator.
    """
    spans = find_changed_spans(before, after)
    changed = 0
    for row in await connection.fetch(_NOTES_OF_TURN, session_id, turn):
        if not holds_former_words(f"{row['text']} {row['subject']}", before, after):
            continue
        changed += 1
        text, subject = reword(row["text"], spans), reword(row["subject"], spans)
        heir = None
        if text.strip() and not holds_former_words(f"{text} {subject}", before, after):
            heir = await _find_heir(connection, row["id"], text, subject)
        if heir is None:
            await connection.execute(_ARCHIVE, row["id"], UNDO_DAYS)
            await connection.execute(_NOTE_EVENT, session_id, row["id"], "forgotten", None)
            continue
        await connection.execute(_SUPERSEDE, row["id"], heir)
        await connection.execute(_NOTE_EVENT, session_id, heir, "changed", row["id"])
    return changed


async def _find_heir(connection: Connection, note_id: int, text: str, subject: str) -> int | None:
    """The note that says the new text, made if there is none; None where such a note was forgotten."""
    told = note_hash(text)
    twin = await connection.fetchrow(_TWIN, note_id, told)
    if twin is None:
        made: int = await connection.fetchval(_REWORDED, note_id, text, subject, told, list(gist_of(text)))
        return made
    if twin["forgotten_at"] is not None:
        return None
    await connection.execute(UNCHAIN, twin["id"])
    heir: int = twin["id"]
    return heir


async def index_wording(connection: Connection, session_id: int, *, old: int, new: int) -> None:
    """Make a hidden message searchable by its new wording alone, where its former one was searchable."""
    former = await connection.fetch(_TAKE_PASSAGES, session_id, old)
    if not former:
        return
    row = await connection.fetchrow(_WORDING, session_id, new)
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
        _ADD_PASSAGES, session_id, new, made, entry.turn, first["speaker"], first["sitting"], first["at"]
    )


_NOTES_OF_TURN = """
SELECT id, text, subject FROM notes
 WHERE session_id = $1 AND $2 BETWEEN from_turn AND coalesce(through_turn, from_turn)
   AND superseded_by IS NULL AND forgotten_at IS NULL AND authority <> 'operator'
 ORDER BY id LIMIT 500
"""
_ARCHIVE = """
UPDATE notes SET forgotten_at = now(), undo_until = now() + make_interval(days => $2) WHERE id = $1
"""
_TWIN = """
SELECT n.id, n.forgotten_at FROM notes o
  JOIN notes n ON n.party_id = o.party_id AND n.scope = o.scope AND n.hash = $2 AND n.id <> o.id
 WHERE o.id = $1
"""
_REWORDED = """
INSERT INTO notes (party_id, scope, kind, text, subject, importance, hash, authority, session_id, from_turn,
                   through_turn, flush_id, durability, source_seqs, gist, observed_at)
SELECT party_id, scope, kind, $2, $3, importance, $4, authority, session_id, from_turn, through_turn,
       flush_id, durability, source_seqs, $5, now()
  FROM notes WHERE id = $1 RETURNING id
"""
_SUPERSEDE = "UPDATE notes SET superseded_by = $2, superseded_reason = 'changed' WHERE id = $1"
_NOTE_EVENT = """
WITH s AS (
  UPDATE sessions SET next_event_seq = next_event_seq + 1 WHERE id = $1
  RETURNING next_event_seq - 1 AS event_seq
)
INSERT INTO events (session_id, event_seq, kind, payload)
SELECT $1, s.event_seq, 'memory', jsonb_strip_nulls(jsonb_build_object(
         'id', 'n' || left(n.public_id::text, 8), 'kind', n.kind, 'change', $3::text, 'quiet', true,
         'text', CASE WHEN $3 = 'forgotten' THEN '' ELSE n.text END,
         'replaces', (SELECT 'n' || left(o.public_id::text, 8) FROM notes o WHERE o.id = $4)))
  FROM s, notes n WHERE n.id = $2
"""
_TAKE_PASSAGES = """
WITH gone AS (
  DELETE FROM passages WHERE session_id = $1 AND seq = $2 RETURNING number, part, speaker, sitting, at
)
SELECT * FROM gone ORDER BY part
"""
_WORDING = """
SELECT e.seq, te.turn_no, te.step, e.role, e.author, e.blocks, e.tokens, e.at, e.replaces_seq,
       false AS pinned, NULL AS form, NULL AS shown
  FROM turn_entries te JOIN entries e USING (session_id, seq) WHERE te.session_id = $1 AND te.seq = $2
"""
_ADD_PASSAGES = """
INSERT INTO passages (session_id, number, seq, part, turn_no, author, speaker, sitting, at, text, terms,
                      vector)
SELECT $1, coalesce(x.number, (SELECT coalesce(max(number), 0) FROM passages WHERE session_id = $1)
                              + row_number() OVER (PARTITION BY x.number IS NULL ORDER BY x.part)),
       $2, x.part, $4, 'person', $5, $6, $7, x.text,
       (SELECT coalesce(sum(cardinality(positions)), 0) FROM unnest(v)), v
  FROM jsonb_to_recordset($3::jsonb) AS x(part int, number bigint, text text, dictionary text, words text)
 CROSS JOIN LATERAL to_tsvector(x.dictionary::regconfig, x.words) AS v
"""
