"""Passages get vectors behind the turns, are found by what they mean, and take their vectors with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import asyncpg
import pytest

from shared.adapters.postgres.memory.passage_vectors import PostgresPassageVectors
from shared.adapters.postgres.memory.recall import PostgresRecall
from shared.adapters.postgres.memory.recall_index import PostgresRecallIndex
from shared.adapters.postgres.memory.recall_sql import NEAREST
from shared.core.context.question import read_question
from shared.core.context.recall_query import RecallQuery
from shared.core.memory.recall import rank_passages
from shared.services.memory.passage_encoder import ENDS, PassageEncoder
from shared.services.turns.retrieval import encode_question
from tests.bench.recall.data import Conversation, Said
from tests.bench.recall.storing import Stored, make_searchable, store
from tests.kit.fakes.encoder import KnownWordsEncoder

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
BICYCLE = "My bicycle is in the cellar."
CHANGED = "The parrot is in the cellar."
LINES = (
    BICYCLE,
    "Good to know, I keep that in mind.",
    "The parrot eats papaya every morning.",
    "What a lucky bird it must be!",
    "Supper was cheese again, as on each Friday.",
    "That sounds fine to me.",
)


def conversation(name: str = "one") -> Conversation:
    said = tuple(
        Said(id=f"m{at}", by_person=at % 2 == 0, text=text, at=NOON + timedelta(minutes=at))
        for at, text in enumerate(LINES)
    )
    return Conversation(name=name, person="", assistant="", said=said, questions=())


@pytest.fixture
async def talked(pool: Pool) -> Stored:
    stored = await store(pool, conversation())
    await make_searchable(pool, stored.session_id)
    return stored


def passage_encoder(pool: Pool, encoder: KnownWordsEncoder) -> PassageEncoder:
    return PassageEncoder(PostgresPassageVectors(pool), encoder)


async def best(
    pool: Pool, stored: Stored, question: str, encoder: KnownWordsEncoder, **more: Any
) -> list[str]:
    asked = read_question(question)
    name, vector = await encode_question(encoder, question)
    query = RecallQuery(
        **{
            "session_id": stored.session_id, "base_turn": stored.last_turn, "words": asked.words,
            "dictionary": asked.dictionary, "encoder": name, "vector": vector, **more,
        }
    )  # fmt: skip
    return [item.passage.text for item in rank_passages(await PostgresRecall(pool).search(query), asked)]


async def counts(pool: Pool) -> tuple[int, int]:
    """Vectors, and listed conversations."""
    return (
        await pool.fetchval("SELECT count(*) FROM passage_vectors WHERE vector IS NOT NULL"),
        await pool.fetchval("SELECT count(*) FROM unencoded_sessions"),
    )


@pytest.mark.parametrize("question", ["Wo ist mein Fahrrad?", "Где велосипед?", "Where is my bike?"])
async def test_passage_is_found_in_another_language(pool: Pool, talked: Stored, question: str) -> None:
    encoder = KnownWordsEncoder()
    assert BICYCLE not in await best(pool, talked, question, encoder)
    await passage_encoder(pool, encoder).sweep()
    assert (await best(pool, talked, question, encoder))[0] == BICYCLE
    assert await counts(pool) == (len(LINES), 0)


_COPIES = """
WITH copy AS (
  INSERT INTO passages (session_id, number, seq, part, turn_no, author, at, text, terms, vector, sitting)
  SELECT p.session_id, 1000 + g, p.seq, 1000 + g, p.turn_no, p.author, p.at - interval '1 day', p.text,
         p.terms, p.vector, p.sitting
    FROM passages p, generate_series(1, $2::int) g WHERE p.text = $1 RETURNING session_id, number
)
SELECT count(*) FROM copy
"""
_THEIR_VECTORS = """
INSERT INTO passage_vectors (session_id, number, encoder, signs, vector)
SELECT c.session_id, c.number, v.encoder, v.signs, v.vector
  FROM passages c JOIN passages p USING (session_id, text) JOIN passage_vectors v ON v.number = p.number
 WHERE c.text = $1 AND c.number > 1000 AND p.number < 1000
"""


async def test_period_of_a_search_is_not_crowded_out_by_nearer_passages(pool: Pool, talked: Stored) -> None:
    encoder = KnownWordsEncoder()
    await passage_encoder(pool, encoder).sweep()
    assert await pool.fetchval(_COPIES, BICYCLE, NEAREST + 50) == NEAREST + 50
    await pool.execute(_THEIR_VECTORS, BICYCLE)
    found = await best(pool, talked, "Wo ist mein Fahrrad?", encoder, after=NOON - timedelta(hours=1))
    assert found[0] == BICYCLE


async def test_search_without_an_encoder_stays_the_same(pool: Pool, talked: Stored) -> None:
    encoder = KnownWordsEncoder()
    encoder.away = True
    before = await best(pool, talked, "Where is my bicycle?", encoder)
    encoder.away = False
    await passage_encoder(pool, encoder).sweep()
    encoder.away = True
    assert await best(pool, talked, "Where is my bicycle?", encoder) == before


async def test_passages_wait_while_the_encoder_is_away(pool: Pool, talked: Stored) -> None:
    encoder = KnownWordsEncoder()
    encoder.away = True
    work = passage_encoder(pool, encoder)
    await work.sweep()
    assert await counts(pool) == (0, 1)
    encoder.away = False
    await work.sweep()
    assert await counts(pool) == (len(LINES), 0)


async def test_live_messages_are_not_found_by_meaning(pool: Pool, talked: Stored) -> None:
    encoder = KnownWordsEncoder()
    await passage_encoder(pool, encoder).sweep()
    assert BICYCLE not in await best(pool, talked, "Wo ist mein Fahrrad?", encoder, base_turn=0)


async def test_retry_sees_no_vector_from_after_its_claim(pool: Pool, talked: Stored) -> None:
    encoder = KnownWordsEncoder()
    await pool.execute("UPDATE turns SET claimed_at = now() WHERE turn_no = $1", talked.last_turn)
    await passage_encoder(pool, encoder).sweep()
    assert BICYCLE not in await best(pool, talked, "Wo ist mein Fahrrad?", encoder, turn=talked.last_turn)


async def test_other_model_makes_all_vectors_again(pool: Pool, talked: Stored) -> None:
    await passage_encoder(pool, KnownWordsEncoder("old")).sweep()
    newer = KnownWordsEncoder("new")
    assert BICYCLE not in await best(pool, talked, "Wo ist mein Fahrrad?", newer)
    await passage_encoder(pool, newer).sweep()
    assert await pool.fetchval("SELECT array_agg(DISTINCT encoder) FROM passage_vectors") == ["new"]
    assert (await best(pool, talked, "Wo ist mein Fahrrad?", newer))[0] == BICYCLE


async def test_deleted_passage_takes_its_vector_along(pool: Pool, talked: Stored) -> None:
    await passage_encoder(pool, KnownWordsEncoder()).sweep()
    await pool.execute("DELETE FROM passages WHERE text = $1", BICYCLE)
    assert await counts(pool) == (len(LINES) - 1, 0)


async def test_changed_passage_gets_a_new_vector(pool: Pool, talked: Stored) -> None:
    encoder = KnownWordsEncoder()
    work = passage_encoder(pool, encoder)
    await work.sweep()
    await pool.execute(
        """WITH gone AS (DELETE FROM passages WHERE text = $1 RETURNING *)
           INSERT INTO passages (session_id, number, seq, part, turn_no, author, speaker, sitting, at, text,
                                 terms, vector)
           SELECT session_id, number + 1000, seq, part, turn_no, author, speaker, sitting, at,
                  $2, terms, vector FROM gone""",
        BICYCLE,
        CHANGED,
    )
    assert await counts(pool) == (len(LINES) - 1, 1)
    await work.sweep()
    assert await counts(pool) == (len(LINES), 0)
    assert (await best(pool, talked, "Ist der Papagei im Keller?", encoder))[
        0
    ] == "The parrot is in the cellar."


async def test_passage_erased_while_it_is_encoded_gets_no_vector(pool: Pool, talked: Stored) -> None:
    vectors = PostgresPassageVectors(pool)

    class Erasing(KnownWordsEncoder):
        async def encode(self, texts: Any, *, question: bool = False, session: int | None = None) -> Any:
            if BICYCLE in texts:
                await pool.execute("DELETE FROM passages WHERE text = $1", BICYCLE)
                await pool.execute("UPDATE passages SET text = 'another text' WHERE text = $1", LINES[2])
            return await super().encode(texts, question=question)

    await PassageEncoder(vectors, Erasing()).sweep()
    stored = await pool.fetch("SELECT text FROM passages JOIN passage_vectors USING (session_id, number)")
    assert len(stored) == len(LINES) - 1
    assert await counts(pool) == (len(LINES) - 1, 0)


async def test_passage_added_meanwhile_keeps_its_conversation_listed(pool: Pool, talked: Stored) -> None:
    vectors = PostgresPassageVectors(pool)
    found = await vectors.load_unencoded("model", after=0, limit=10)
    assert found is not None
    await pool.execute("UPDATE sessions SET indexed_turn = 0")
    await pool.execute("DELETE FROM passages")
    await PostgresRecallIndex(pool).index_session(talked.session_id)
    await vectors.delist(found)
    assert await counts(pool) == (0, 1)
    again = await vectors.load_unencoded("model", after=0, limit=10)
    assert again is not None
    await vectors.delist(again)
    assert await counts(pool) == (0, 0)


async def test_text_that_ends_the_encoder_is_left_without_a_vector(pool: Pool, talked: Stored) -> None:
    encoder = KnownWordsEncoder()
    encoder.ends_at = "papaya"
    work = passage_encoder(pool, encoder)
    for _ in range(ENDS + 2):
        await work.sweep()
    assert await counts(pool) == (len(LINES) - 1, 0)
    asked = len(encoder.asked)
    await work.sweep()
    assert len(encoder.asked) == asked
    assert (await best(pool, talked, "Wo ist mein Fahrrad?", encoder))[0] == BICYCLE


async def test_long_past_does_not_hold_up_other_conversations(pool: Pool, talked: Stored) -> None:
    other = await store(pool, conversation("two"))
    await make_searchable(pool, other.session_id)
    seconds = iter(range(0, 1_000, 1))
    work = PassageEncoder(PostgresPassageVectors(pool), KnownWordsEncoder(), clock=lambda: next(seconds))
    for _ in range(6):
        await work.sweep()
    assert await counts(pool) == (2 * len(LINES), 0)


async def test_others_find_nothing_by_meaning(pool: Pool, talked: Stored) -> None:
    other = await store(pool, conversation("two"))
    await pool.execute("UPDATE sessions SET base_turn = 0 WHERE id = $1", other.session_id)
    encoder = KnownWordsEncoder()
    await passage_encoder(pool, encoder).sweep()
    assert await best(pool, other, "Wo ist mein Fahrrad?", encoder) == []


async def note_ids(pool: Pool, stored: Stored, question: str, encoder: KnownWordsEncoder) -> list[str]:
    """Return the texts of notes that are found, the best first."""
    asked = read_question(question)
    name, vector = await encode_question(encoder, question)
    query = RecallQuery(
        session_id=stored.session_id, base_turn=stored.last_turn, words=asked.words,
        dictionary=asked.dictionary, encoder=name, vector=vector, asks=asked.asks, asked=asked.asked,
    )  # fmt: skip
    ranked = rank_passages(await PostgresRecall(pool).search(query), asked)
    return [item.passage.text for item in ranked if item.passage.lane == "note"]


NOTED = ("Ada keeps her bicycle in the cellar.", "Ada's parrot is called Papageno.")


async def keep_notes(pool: Pool, stored: Stored) -> None:
    await pool.execute(
        """INSERT INTO notes (contact_id, scope, kind, text, hash, observed_at)
           SELECT s.contact_id, a.name, 'fact', x.text, sha256(x.text::bytea), now()
             FROM sessions s JOIN agents a ON a.id = s.agent_id, unnest($2::text[]) AS x(text)
            WHERE s.id = $1""",
        stored.session_id,
        [*NOTED],
    )
    await make_searchable(pool, stored.session_id)


async def note_counts(pool: Pool) -> tuple[int, int]:
    """Vectors, and listed notes."""
    return (
        await pool.fetchval("SELECT count(*) FROM note_vectors WHERE vector IS NOT NULL"),
        await pool.fetchval("SELECT count(*) FROM unencoded_notes"),
    )


async def test_note_is_found_in_another_language(pool: Pool, talked: Stored) -> None:
    encoder = KnownWordsEncoder()
    await keep_notes(pool, talked)
    question = "Wo ist mein Fahrrad?"
    assert await note_ids(pool, talked, question, encoder) == []
    assert await note_counts(pool) == (0, len(NOTED))
    await passage_encoder(pool, encoder).sweep()
    assert (await note_ids(pool, talked, question, encoder))[0] == NOTED[0]
    assert await note_counts(pool) == (len(NOTED), 0)
    encoder.away = True
    assert await note_ids(pool, talked, question, encoder) == []
    assert await note_ids(pool, talked, "Where is the bicycle?", encoder) == [NOTED[0]]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE notes SET forgotten_at = now(), text = '' WHERE text = $1",
        "UPDATE notes SET superseded_by = (SELECT min(id) FROM notes) WHERE text = $1",
        "DELETE FROM notes WHERE text = $1",
    ],
)
async def test_note_takes_its_vector_along(change: str, pool: Pool, talked: Stored) -> None:
    await keep_notes(pool, talked)
    await passage_encoder(pool, KnownWordsEncoder()).sweep()
    await pool.execute(change, NOTED[1])
    assert await note_counts(pool) == (1, 0)


async def test_changed_note_gets_a_new_vector(pool: Pool, talked: Stored) -> None:
    encoder = KnownWordsEncoder()
    await keep_notes(pool, talked)
    await passage_encoder(pool, encoder).sweep()
    changed = "Her sister has the parrot."
    await pool.execute("UPDATE notes SET text = $2 WHERE text = $1", NOTED[1], changed)
    await make_searchable(pool, talked.session_id)
    assert await note_counts(pool) == (1, 1)
    await passage_encoder(pool, encoder).sweep()
    assert (await note_ids(pool, talked, "Ist der Papagei bei der Schwester?", encoder))[0] == changed


async def test_other_model_makes_the_vectors_of_notes_again(pool: Pool, talked: Stored) -> None:
    await keep_notes(pool, talked)
    await passage_encoder(pool, KnownWordsEncoder("old")).sweep()
    newer = KnownWordsEncoder("new")
    assert await note_ids(pool, talked, "Wo ist mein Fahrrad?", newer) == []
    await passage_encoder(pool, newer).sweep()
    assert await pool.fetchval("SELECT array_agg(DISTINCT encoder) FROM note_vectors") == ["new"]
    assert (await note_ids(pool, talked, "Wo ist mein Fahrrad?", newer))[0] == NOTED[0]


async def test_note_that_ends_the_encoder_holds_up_no_passage(pool: Pool, talked: Stored) -> None:
    encoder = KnownWordsEncoder()
    encoder.ends_at = "Papageno"
    await keep_notes(pool, talked)
    work = passage_encoder(pool, encoder)
    await work.sweep()
    assert await counts(pool) == (len(LINES), 0)
    for _ in range(ENDS + 2):
        await work.sweep()
    assert await note_counts(pool) == (1, 0)


async def test_note_forgotten_while_it_is_encoded_gets_no_vector(pool: Pool, talked: Stored) -> None:
    class Forgetting(KnownWordsEncoder):
        async def encode(self, texts: Any, *, question: bool = False, session: int | None = None) -> Any:
            if NOTED[0] in texts:
                await pool.execute(
                    "UPDATE notes SET forgotten_at = now(), text = '' WHERE text = $1", NOTED[0]
                )
            return await super().encode(texts, question=question)

    await keep_notes(pool, talked)
    await passage_encoder(pool, Forgetting()).sweep()
    assert await note_counts(pool) == (1, 0)
