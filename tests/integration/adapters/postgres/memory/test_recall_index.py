"""What was hidden is found by its words, by those who may, and only while it is hidden."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from shared.adapters.postgres.memory.knowledge import PostgresKnowledge
from shared.adapters.postgres.memory.recall import PostgresRecall
from shared.adapters.postgres.memory.recall_index import PostgresRecallIndex
from shared.core.context.agents import ASSISTANT
from shared.core.context.question import read_question
from shared.core.context.recall_query import RecallQuery
from shared.core.memory.knowledge import Passage
from shared.core.memory.recall import rank_passages
from tests.bench.recall.data import Conversation, Said
from tests.bench.recall.storing import Stored, make_searchable, store

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LINES = (
    "My sister Ingrid lives in Tromsø and hikes every weekend.",
    "That sounds lovely, I would like to see the fjord one day.",
    "Der Schlüssel zum Keller liegt unter den Blumentöpfen.",
    "Gut, das merke ich mir für den nächsten Umzug.",
    "Я оставила зелёный чемодан у бабушки в деревне.",
    "Хорошо, чемодан у бабушки.",
    "我把备用钥匙放在蓝色的花瓶里。",
    "好的，我记住了。",
    "The invoice number of the piano is PX-4471.",
    "Noted, the piano invoice.",
)  # fmt: skip


def conversation(name: str = "one") -> Conversation:
    said = tuple(
        Said(id=f"m{at}", by_person=at % 2 == 0, text=text, at=NOON + timedelta(minutes=at))
        for at, text in enumerate(LINES)
    )
    return Conversation(name=name, person="Ada", assistant="Robin", said=said, questions=())


@pytest.fixture
async def indexed(pool: asyncpg.Pool[asyncpg.Record]) -> Stored:
    stored = await store(pool, conversation())
    await make_searchable(pool, stored.session_id)
    return stored


async def best(pool: asyncpg.Pool[asyncpg.Record], stored: Stored, question: str, **more: Any) -> list[str]:
    asked = read_question(question)
    query = RecallQuery(
        **{
            "session_id": stored.session_id, "base_turn": stored.last_turn, "words": asked.words,
            "dictionary": asked.dictionary, **more,
        }
    )  # fmt: skip
    return [item.passage.text for item in rank_passages(await PostgresRecall(pool).search(query), asked)]


@pytest.mark.parametrize(
    ("question", "line"),
    [
        ("Who was hiking?", 0),
        ("Wo liegen die Schlüssel vom Keller?", 2),
        ("Где мои чемоданы?", 4),
        ("备用钥匙在哪里？", 6),
        ("What was the number of the invoice?", 8),
    ],
)
async def test_a_message_is_found_in_its_own_language(
    pool: asyncpg.Pool[asyncpg.Record], indexed: Stored, question: str, line: int
) -> None:
    assert LINES[line] in (await best(pool, indexed, question))[:2]


async def test_the_names_of_both_sides_are_those_of_now(
    pool: asyncpg.Pool[asyncpg.Record], indexed: Stored
) -> None:
    query = RecallQuery(session_id=indexed.session_id, base_turn=indexed.last_turn, words=("invoice",))
    assert (await PostgresRecall(pool).search(query)).names == {"person": "Ada", "assistant": "Robin"}
    await pool.execute("UPDATE contacts SET display_name = 'Ada Lovelace'")
    await pool.execute("UPDATE agents SET config = '{}'")
    named = {"person": "Ada Lovelace", "assistant": ASSISTANT}
    assert (await PostgresRecall(pool).search(query)).names == named
    await pool.execute("UPDATE contacts SET kind = 'group'")
    assert (await PostgresRecall(pool).search(query)).names == {"assistant": ASSISTANT}


async def test_person_who_introduces_themselves_is_asked_about_by_name(
    pool: asyncpg.Pool[asyncpg.Record],
) -> None:
    lines = (
        "Good evening, what a day.",
        "Hello!",
        "I'm Ada.",
        "Nice to meet you, Ada.",
        "I bought a kayak.",
        "A kayak!",
    )
    said = tuple(
        Said(id=f"m{at}", by_person=at % 2 == 0, text=text, at=NOON + timedelta(minutes=at))
        for at, text in enumerate(lines)
    )
    talk = Conversation(name="unnamed", person="", assistant="", said=said, questions=())
    stored = await store(pool, talk)
    await make_searchable(pool, stored.session_id)
    query = RecallQuery(session_id=stored.session_id, base_turn=stored.last_turn, words=("kayak", "ada"))
    assert (await PostgresRecall(pool).search(query)).names["person"] == "Ada"
    assert (await best(pool, stored, "What did Ada say about the kayak?"))[0] == "I bought a kayak."
    later = await store(pool, replace(talk, name="later", said=said[:1]))
    await pool.execute(
        "UPDATE contacts SET merged_into = $2 WHERE id = $1", later.contact_id, stored.contact_id
    )
    await pool.execute(
        """UPDATE sessions SET contact_id = $2, agent_id = (SELECT agent_id FROM sessions WHERE id = $3)
            WHERE id = $1""",
        later.session_id, stored.contact_id, stored.session_id,
    )  # fmt: skip
    await make_searchable(pool, later.session_id)
    assert (
        await pool.fetchval("SELECT speaker FROM passages WHERE session_id = $1", later.session_id) == "Ada"
    )
    await pool.execute("UPDATE contacts SET display_name = 'Grace' WHERE id = $1", stored.contact_id)
    assert (await PostgresRecall(pool).search(query)).names["person"] == "Grace"


async def test_group_is_not_named_by_one_of_its_people(pool: asyncpg.Pool[asyncpg.Record]) -> None:
    said = (
        Said(id="m0", by_person=True, text="I'm Ada.", at=NOON),
        Said(id="m1", by_person=False, text="Hi!", at=NOON),
    )
    talk = Conversation(name="group", person="", assistant="", said=said, questions=())
    stored = await store(pool, talk)
    await pool.execute("UPDATE contacts SET kind = 'group' WHERE id = $1", stored.contact_id)
    await make_searchable(pool, stored.session_id)
    assert await pool.fetchval(
        "SELECT array_agg(DISTINCT speaker) FROM passages WHERE author = 'person'"
    ) == [""]


async def test_what_came_back_by_an_undo_is_live_and_not_found(
    pool: asyncpg.Pool[asyncpg.Record], indexed: Stored
) -> None:
    assert LINES[8] not in await best(pool, indexed, "Which invoice?", base_turn=4)
    assert LINES[8] in await best(pool, indexed, "Which invoice?", base_turn=5)


async def test_indexing_again_changes_nothing(pool: asyncpg.Pool[asyncpg.Record], indexed: Stored) -> None:
    await pool.execute("UPDATE sessions SET indexed_turn = 0")
    await make_searchable(pool, indexed.session_id)
    assert await pool.fetchval("SELECT count(*) FROM passages") == len(LINES)
    counted = await pool.fetchval("SELECT passages FROM recall_words WHERE lane = 'said' AND lexeme = ''")
    assert counted == len(LINES)


@pytest.mark.control("S22")
async def test_others_find_nothing_and_a_merged_person_finds_all(
    pool: asyncpg.Pool[asyncpg.Record], indexed: Stored
) -> None:
    other = await store(pool, conversation("two"))
    await pool.execute("UPDATE sessions SET base_turn = 0 WHERE id = $1", other.session_id)
    same_agent = "UPDATE sessions SET agent_id = (SELECT agent_id FROM sessions WHERE id = $1) WHERE id = $2"
    await pool.execute(same_agent, indexed.session_id, other.session_id)
    assert await best(pool, other, "Which invoice?") == []
    await pool.execute(
        "UPDATE contacts SET merged_into = $1 WHERE id = $2", other.contact_id, indexed.contact_id
    )
    assert LINES[8] in await best(pool, other, "Which invoice?")


async def test_nothing_crosses_a_separator_unasked(
    pool: asyncpg.Pool[asyncpg.Record], indexed: Stored
) -> None:
    await pool.execute(
        """INSERT INTO compactions (session_id, kind, from_turn, through_turn, from_seq, through_seq, trigger)
           VALUES ($1, 'separator', 1, 4, 1, 8, 'manual')""",
        indexed.session_id,
    )
    assert await best(pool, indexed, "Who was hiking?") == []
    assert LINES[8] in await best(pool, indexed, "Which invoice?")
    assert LINES[0] in await best(pool, indexed, "Who was hiking?", automatic=False)


async def test_pins_are_not_recalled_unasked(pool: asyncpg.Pool[asyncpg.Record], indexed: Stored) -> None:
    await pool.execute("INSERT INTO pins (session_id, seq) VALUES ($1, 9)", indexed.session_id)
    assert LINES[8] not in await best(pool, indexed, "Which invoice?")
    assert LINES[8] in await best(pool, indexed, "Which invoice?", automatic=False)


async def test_days_and_numbers_narrow_the_search(
    pool: asyncpg.Pool[asyncpg.Record], indexed: Stored
) -> None:
    assert await best(pool, indexed, "Which invoice?", after=NOON + timedelta(days=1), automatic=False) == []
    found = await best(pool, indexed, "Which invoice?", from_seq=10, through_seq=10, automatic=False)
    assert found == [LINES[9]]
    query = RecallQuery(
        session_id=indexed.session_id, base_turn=indexed.last_turn, words=(), from_seq=2, through_seq=3,
        automatic=False,
    )  # fmt: skip
    assert [p.text for p in await PostgresRecall(pool).load_range(query)] == list(LINES[1:3])


async def test_notes_are_found_by_their_contact_until_they_are_forgotten(
    pool: asyncpg.Pool[asyncpg.Record], indexed: Stored
) -> None:
    note = await pool.fetchval(
        """INSERT INTO notes (contact_id, scope, kind, text, hash)
           VALUES ($1, $2, 'fact', 'Ada is afraid of thunderstorms.', '\\x01') RETURNING id""",
        indexed.contact_id, indexed.agent,
    )  # fmt: skip
    question = "Are thunderstorms a problem?"
    assert await best(pool, indexed, question) == []
    await PostgresRecallIndex(pool).index_notes()
    assert await best(pool, indexed, question) == ["Ada is afraid of thunderstorms."]
    assert await best(pool, indexed, question, known_notes=(note,)) == []
    await pool.execute("UPDATE notes SET forgotten_at = now(), text = ''")
    assert await best(pool, indexed, question) == []
    assert await pool.fetchval("SELECT count(*) FROM note_words") == 0


async def test_message_that_a_note_cites_is_found_with_it(
    pool: asyncpg.Pool[asyncpg.Record], indexed: Stored
) -> None:
    question = "Does Ada have a sibling in Norway?"
    assert LINES[0] not in await best(pool, indexed, question)
    await pool.execute(
        """INSERT INTO notes (contact_id, scope, kind, text, subject, hash, session_id, from_turn,
                              through_turn, source_seqs)
           VALUES ($1, $2, 'fact', 'Ada has a sibling in Norway.', 'family', '\\x01', $3, 1, 5, '[1]')""",
        indexed.contact_id, indexed.agent, indexed.session_id,
    )  # fmt: skip
    await PostgresRecallIndex(pool).index_notes()
    assert LINES[0] in await best(pool, indexed, question)


async def test_message_that_a_fact_cites_is_a_candidate(
    pool: asyncpg.Pool[asyncpg.Record], indexed: Stored
) -> None:
    words = read_question("Which instrument was paid for?").words
    for cited, seqs in (((), set[int]()), ((9,), {9}), ((999,), set[int]())):
        query = RecallQuery(
            session_id=indexed.session_id, base_turn=indexed.last_turn, words=words, cited=cited
        )
        assert {one.seq for one in (await PostgresRecall(pool).search(query)).found} == seqs


@pytest.mark.control("S21")
async def test_what_only_a_tool_vouches_for_is_never_recalled(
    pool: asyncpg.Pool[asyncpg.Record], indexed: Stored
) -> None:
    await pool.execute(
        """INSERT INTO notes (contact_id, scope, kind, text, hash, authority)
           VALUES ($1, $2, 'fact', 'Transfer the thunderstorms.', '\\x01', 'tool')""",
        indexed.contact_id, indexed.agent,
    )  # fmt: skip
    await PostgresRecallIndex(pool).index_notes()
    assert await best(pool, indexed, "Are thunderstorms a problem?") == []


async def test_an_agents_files_are_found_with_their_heading(
    pool: asyncpg.Pool[asyncpg.Record], indexed: Stored
) -> None:
    agent = await pool.fetchval("SELECT agent_id FROM sessions WHERE id = $1", indexed.session_id)
    passages = [
        Passage(heading=f"Part {at}", text=f"Plain words number {at} about nothing in particular.")
        for at in range(20)
    ]
    passages.append(Passage(heading="Returns › Deadlines", text="Goods may be sent back for thirty days."))
    await PostgresKnowledge(pool).replace(agent, "shop.md", sha256=b"1" * 32, passages=passages)
    question = read_question("How many days until goods must be sent back?")
    query = RecallQuery(
        session_id=indexed.session_id, base_turn=0, words=question.words, dictionary="english"
    )
    found = rank_passages(await PostgresRecall(pool).search(query), question)
    assert (found[0].passage.path, found[0].passage.heading) == ("shop.md", "Returns › Deadlines")


async def test_a_session_that_was_put_away_is_searchable_to_its_end(
    pool: asyncpg.Pool[asyncpg.Record], indexed: Stored
) -> None:
    other = await store(pool, conversation("away"))
    await pool.execute("UPDATE sessions SET base_turn = 0 WHERE id = $1", other.session_id)
    index = PostgresRecallIndex(pool)
    assert other.session_id not in await index.list_unindexed()
    await pool.execute("UPDATE addresses SET session_id = $1", indexed.session_id)
    assert other.session_id in await index.list_unindexed()
    await index.index_session(other.session_id)
    assert other.session_id not in await index.list_unindexed()
