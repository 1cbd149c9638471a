"""Planted facts: forms of recorded talk, when an answer counts, and what a run will cost about."""

from __future__ import annotations

from typing import Any

import pytest

from shared.core.ops.evaluation import (
    EvalAnswer,
    EvalFigures,
    EvalQuestion,
    EvalRow,
    EvalTalk,
    estimate_talk,
    is_literal_match,
    part_ends,
)
from shared.core.ops.evaluation_report import draw_picture, render_table
from shared.core.ops.recorded_talks import MESSAGE_CHARS, BadTalk, read_talks
from shared.core.presets.catalog import preset
from shared.core.session.budget import budget_for
from shared.core.values.money import Prices
from shared.samples import load_year, load_year_questions

PRICES = Prices(input=3, output=15, cache_read=0.3, cache_write=3.75, dated="2026-11")
LOCOMO: dict[str, Any] = {
    "sample_id": "conv-1",
    "conversation": {
        "speaker_a": "Ann",
        "session_2_date_time": "9 May, 2023",
        "session_2": [{"speaker": "Bo", "text": "It is green.", "blip_caption": "a green boat"}],
        "session_1_date_time": "8 May, 2023",
        "session_1": [{"speaker": "Ann", "text": "I bought a boat."}],
        "session_3_date_time": "10 May, 2023",
    },
    "qa": [
        {"question": "Which colour has the boat?", "answer": "green", "category": 4},
        {"question": "When was it bought?", "answer": 2023, "category": 2},
        {"question": "Who sank it?", "adversarial_answer": "Bo", "category": 5},
    ],
}
LONG_MEM: dict[str, Any] = {
    "question_id": "q1",
    "question": "How many plants have I?",
    "answer": "three",
    "question_date": "2023/06/01",
    "haystack_dates": ["2023/05/01", "2023/05/02"],
    "haystack_sessions": [
        [
            {"role": "user", "content": "I have three plants."},
            {"role": "assistant", "content": "Water them."},
        ],
        [{"role": "user", "content": "Hello."}],
    ],
}


@pytest.mark.parametrize(
    ("said", "answers", "kept"),
    [
        ("That was 18,000 kroner.", ["18000"], True),
        ("18 000 kroner", ["18,000"], True),
        ("On May 7, 2023.", ["7 May 2023"], True),
        ("On May 17, 2023.", ["7 May 2023"], False),
        ("It weighs 42 kg.", ["4.2"], False),
        ("It weighs 4.2 kg.", ["4.2"], True),
        ("The cat is grey.", ["a grey cat"], True),
        ("I do not know.", ["fish"], False),
        ("Her name is Ingrid.", ["Tobias", "Ingrid"], True),
        ("anything", [""], False),
    ],
)
def test_an_answer_counts_when_its_words_are_said(said: str, answers: list[str], kept: bool) -> None:
    assert is_literal_match(said, answers) is kept


def test_every_question_about_the_year_is_answered_in_it() -> None:
    said = "\n".join(one.person for one in load_year())
    for question, answers in load_year_questions():
        assert is_literal_match(said, answers), question
        assert not is_literal_match(question, answers), question


def test_locomo_is_played_in_order_of_its_days() -> None:
    (talk,) = read_talks([LOCOMO])
    assert talk.name == "conv-1"
    (words,) = talk.messages
    assert words.index("[8 May, 2023]\nAnn: I bought a boat.") < words.index(
        "[9 May, 2023]\nBo: It is green."
    )
    assert "[shows a picture: a green boat]" in words
    assert [one.answers for one in talk.questions] == [("green",), ("2023",)]


def test_longmemeval_is_played_with_days_and_asked_separately() -> None:
    (talk,) = read_talks([LONG_MEM, {**LONG_MEM, "question_id": "q2_abs"}])
    assert "[2023/05/01]\nMe: I have three plants.\nAssistant: Water them." in talk.messages[0]
    assert talk.questions == (
        EvalQuestion(question="(It is 2023/06/01.) How many plants have I?", answers=("three",)),
    )


def test_long_records_are_several_messages_that_lose_nothing() -> None:
    lines = [{"speaker": "Ann", "text": f"Line {number}. " + 400 * "x"} for number in range(30)]
    (talk,) = read_talks([{**LOCOMO, "conversation": {"session_1": lines}}])
    assert max(map(len, talk.messages)) < MESSAGE_CHARS + 600
    assert [f"Line {number}. " in "\n".join(talk.messages) for number in range(30)] == [True] * 30
    assert len(talk.messages) == 6


@pytest.mark.parametrize(
    "data", [None, {}, [], [{}], [3], [{**LOCOMO, "qa": []}], [{**LONG_MEM, "haystack_dates": []}, {"x": 1}]]
)
def test_what_is_no_recorded_talk_is_refused(data: Any) -> None:
    with pytest.raises(BadTalk):
        read_talks(data)


def test_a_summary_is_made_after_equal_parts() -> None:
    assert part_ends(68, 3) == (23, 45, 68)
    assert part_ends(2, 5) == (1, 2)


def _estimate(messages: int, compactions: int, prices: Prices | None) -> Any:
    talk = EvalTalk(name="", messages=("word " * 40,) * messages, questions=())
    budget = budget_for(preset("steady"), 200_000, 8_192, 3_000)
    return estimate_talk(talk, budget, prices, compactions=compactions, count=lambda words: len(words) / 4)


def test_more_talk_costs_more_and_nothing_is_promised_without_a_price() -> None:
    short, long = _estimate(10, 1, PRICES), _estimate(20, 1, PRICES)
    assert (short.calls, long.calls) == (11, 21)
    assert 0 < short.likely < long.likely < long.most
    assert (_estimate(10, 1, None).likely, _estimate(10, 1, None).most) == (None, None)


def test_the_table_has_the_judge_only_where_one_was_asked() -> None:
    answer = EvalAnswer(question="q", expected="a", answer="a", kept=True)
    row = EvalRow(preset="steady", answers=(answer,), figures=EvalFigures(fresh=12_345, unpriced_calls=1))
    table = render_table([row])
    assert "judged" not in table
    assert table.splitlines()[1].split() == ["steady", "1/1", "0", "12,345", "0", "0", "0", "unknown", "0"]
    judged = EvalAnswer(question="q", expected="a", answer="b", kept=False, judged=True)
    assert "1/1" in render_table([EvalRow(preset="steady", answers=(judged,), figures=EvalFigures())])
    assert "<b>" not in draw_picture([row], title="<b>")
