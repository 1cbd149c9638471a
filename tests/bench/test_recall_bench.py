"""The bench of recall runs over made-up talk and finds what was hidden in it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest

from shared.adapters.postgres.db.pool import open_pool
from tests.bench.recall.data import UNANSWERABLE, Fact, Question, conversations, made_up
from tests.bench.recall.measuring import quality, speed


@pytest.fixture
async def pool(database_url: str) -> asyncpg.Pool[asyncpg.Record]:
    return await open_pool(database_url)


async def test_what_was_said_once_is_found_again(pool: asyncpg.Pool[asyncpg.Record]) -> None:
    talk = made_up(days=6, messages_a_day=50, seed=3)
    facts = tuple(Fact(text=asked.answer, evidence=asked.evidence) for asked in talk.questions[:3])
    never_said = Question(text="Which violin plays the cello?", category=UNANSWERABLE, evidence=(), answer="")
    other = made_up(days=1, messages_a_day=50, seed=4)
    asked = (*talk.questions, never_said)
    found = await quality(pool, [replace(talk, facts=facts, questions=asked), replace(other, questions=())])
    assert found["questions"] == len(talk.questions) > 3
    assert found["recall_at_10"] >= 0.9
    assert found["any_at_10"] >= found["recall_at_10"]
    assert found["within_500"] <= found["within_1200"] <= found["within_4000"]
    assert found["abstention"] == 1.0
    assert found["abstention_elsewhere"] > 0.5
    assert 0 < found["tokens"] <= 1_200
    assert found["behind_other_words"]["recall_at_10"] >= 0.8
    assert found["with_names"]["recall_at_10"] >= 0.9
    assert found["with_notes"]["recall_at_10"] >= 0.9
    timed = await speed(pool, talk)
    assert timed["statements_300"] == 1
    assert timed["found_300"] >= 0.9
    await pool.close()


def test_both_kinds_of_data_are_read(tmp_path: Path) -> None:
    named = {
        "sample_id": "talk-1",
        "conversation": {
            "speaker_a": "Ada", "speaker_b": "Bo", "session_1_date_time": "1:05 pm on 3 March, 2026",
            "session_1": [{"speaker": "Ada", "dia_id": "D1:1", "text": "I bought a kite."}],
        },
        "qa": [{"question": "What did Ada buy?", "category": 4, "evidence": ["D1:1"], "answer": "a kite"}],
    }  # fmt: skip
    asked = {"question": "What did I buy?", "category": "abstention", "evidence": [], "answer": "unknown"}
    said = {"id": "c0", "by": "person", "at": "2026-03-03T13:05:00+00:00", "text": "I bought a kite."}
    helped = {"name": "talk-2", "said": [said], "questions": [asked]}
    talks = []
    for name, data in (("named", [named]), ("helped", {"source": "hand", "conversations": [helped]})):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(data), encoding="utf-8")
        talks += conversations(path)
    assert [(talk.person, talk.assistant) for talk in talks] == [("Ada", "Bo"), ("", "")]
    assert talks[0].said[0].at == talks[1].said[0].at
    assert talks[0].questions[0].evidence == ("D1:1",)
    assert talks[1].questions[0].category == UNANSWERABLE
