"""The bench of recall runs over made-up talk and finds what was hidden in it."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import asyncpg

from shared.adapters.meaning.client import LocalEncoder
from shared.core.memory.recall import FoundPassage
from tests.bench.recall.data import OTHER_SCRIPTS, UNANSWERABLE, Fact, Question, conversations, made_up
from tests.bench.recall.measuring import (
    COMPARED,
    COMPARED_OF_FILES,
    LEAST_QUESTIONS,
    below_plain,
    quality,
    speed,
)
from tests.bench.recall.plain import PlainSearch
from tests.kit.fakes.encoder import running_encoder


async def test_what_was_said_once_is_found_again(pool: asyncpg.Pool[asyncpg.Record]) -> None:
    talk = made_up(days=6, messages_a_day=50, seed=3)
    facts = tuple(Fact(text=asked.answer, evidence=asked.evidence[0]) for asked in talk.questions[:3])
    never_said = Question(text="Which violin plays the cello?", category=UNANSWERABLE, evidence=(), answer="")
    other = made_up(days=1, messages_a_day=50, seed=4)
    asked = (*talk.questions, never_said)
    found = await quality(pool, [replace(talk, facts=facts, questions=asked), replace(other, questions=())])
    assert found["questions"] == len(talk.questions) > 3
    assert found["recall_at_10"] >= 0.9
    assert found["any_at_10"] >= found["recall_at_10"]
    assert found["within_500"] <= found["within_1200"] <= found["within_4000"]
    assert found["abstention"] == 1.0
    assert 0 < found["tokens"] <= 1_200
    assert found["candidates"] >= found["recall_at_10"]
    assert found["silent"] == 0
    assert found["plain"]["recall_at_10"] >= 0.8
    assert below_plain(found) == []
    assert found["with_names"]["recall_at_10"] >= 0.9
    assert found["with_notes"]["recall_at_10"] >= 0.9
    timed = await speed(pool, talk)
    assert timed["statements_300"] == 1
    assert timed["found_300"] >= 0.9
    assert timed["cpu_p50_ms_300"] >= timed["ranking_cpu_p50_ms_300"] > 0
    await pool.close()


def test_made_up_talk_has_words_of_several_scripts() -> None:
    talk = made_up(days=10, messages_a_day=20, scripts=OTHER_SCRIPTS)
    letters = {
        unicodedata.name(letter).split()[0] for said in talk.said for letter in said.text if letter.isalpha()
    }
    assert letters == {"LATIN", "CYRILLIC", "ARABIC", "DEVANAGARI", "CJK"}
    assert len(talk.questions) >= 3


async def test_search_with_vectors_of_all_passages_is_measured(
    pool: asyncpg.Pool[asyncpg.Record], tmp_path: Path
) -> None:
    talk = made_up(days=3, messages_a_day=50, scripts=OTHER_SCRIPTS)
    async with running_encoder(tmp_path / "e.sock") as process:
        encoder = LocalEncoder(tmp_path / "e.sock", question_seconds=10)
        timed = await speed(pool, talk, encoder, encoder_pid=process.pid)
    passages = await pool.fetchval("SELECT count(*) FROM passages")
    assert (
        await pool.fetchval("SELECT count(*) FROM passage_vectors WHERE encoder = 'known-words/128'")
        == passages
    )
    assert timed["meaning_cpu_p50_ms_150"] > timed["meaning_encoding_cpu_p50_ms_150"] > 0
    assert timed["meaning_found_150"] > 0.5
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
    assert talks[0].questions[0].evidence == (("D1:1",),)
    assert talks[1].questions[0].category == UNANSWERABLE


def test_earlier_sessions_are_evidence_up_to_the_message_that_asks(tmp_path: Path) -> None:
    said = [
        {"id": f"c{at}", "by": "person", "at": "2026-03-03T13:05:00+00:00", "text": f"Kite {at}."}
        for at in range(3)
    ]
    asked = {
        "question": "Go on with the kite.", "category": "update", "before": "c2", "answer": "",
        "evidence_sessions": [["c0", "c1"], ["gone"]],
    }  # fmt: skip
    path = tmp_path / "projects.json"
    path.write_text(json.dumps({"conversations": [{"name": "t", "said": said, "questions": [asked]}]}))
    (question,) = conversations(path)[0].questions
    assert (question.evidence, question.before) == ((("c0", "c1"),), "c2")


def test_bench_names_each_row_that_is_below_plain_search() -> None:
    good = dict.fromkeys(COMPARED_OF_FILES, 0.5)
    few = {"questions": LEAST_QUESTIONS - 1, **dict.fromkeys(COMPARED_OF_FILES, 0.0), "plain": good}
    many = {**few, "questions": LEAST_QUESTIONS}
    found = {"questions": 100, **good, "plain": good, "by_category": {"rare": few, "usual": many}}
    assert below_plain(found) == [f"usual.{row}: 0.0 is less than 0.5" for row in COMPARED]
    little = {**found, "within_500": 0.4, "by_category": {}}
    assert below_plain(little) == ["within_500: 0.4 is less than 0.5"]


def test_plain_search_ranks_by_rare_words_and_knows_no_later_message() -> None:
    at = datetime(2026, 3, 3, tzinfo=UTC)
    texts = ("We sail the kite.", "We sail.", "We eat.", "A kite, a kite!")
    passages = [
        FoundPassage("said", 1, number, at, text, 4, (), seq=number)
        for number, text in enumerate(texts, start=1)
    ]
    plain = PlainSearch(passages)
    assert plain.rank("Which kite do we sail?", before_seq=4)[0].passage.seq == 1
    assert {item.passage.seq for item in plain.rank("kite", before_seq=9)} == {1, 4}
