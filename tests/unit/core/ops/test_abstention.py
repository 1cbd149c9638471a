"""Abstention: which questions are asked, and how an answer is judged by its words."""

from __future__ import annotations

from typing import Any

import pytest

from shared.core.ops.abstention import (
    AbstentionRow,
    JudgedAnswer,
    Verdict,
    judge_by_rules,
    render_abstention,
    with_abstention,
)
from shared.core.ops.evaluation import EvalFigures, EvalQuestion
from shared.core.ops.recorded_talks import read_talks

CELLO = EvalQuestion(question="Who repairs the cello?", answers=("Marit Solberg in Bergen",))
NOWHERE = EvalQuestion(question="Who repairs the harp?")
LONG = EvalQuestion(
    question="How did the repair go?",
    answers=("The neck was glued, the bridge carved anew, and the bow got horse hair from Mongolia",),
)


def record(name: str, thing: str) -> dict[str, Any]:
    said = [
        {"id": "c0", "by": "person", "at": "2024-03-15T09:01:00+00:00", "text": f"My {thing} is green."},
        {"id": "c1", "by": "assistant", "at": "2024-03-15T09:02:00+00:00", "text": "A fine colour."},
    ]
    asked = [
        {"question": f"Which colour has my {thing}?", "category": "fact", "answer": "green"},
        {"question": f"How old is my {thing}?", "category": "abstention", "answer": "It was never told."},
    ]
    return {"name": name, "said": said, "questions": asked}


RECORDS = {"conversations": [record("one", "boat"), record("two", "kayak"), record("three", "canoe")]}


@pytest.mark.parametrize(
    ("question", "answer", "verdict"),
    [
        (CELLO, "It is Marit Solberg, in Bergen.", "right"),
        (CELLO, "I don't know the street, but it is Marit Solberg in Bergen.", "right"),
        (CELLO, "I do not know.", "abstained"),
        (CELLO, "", "abstained"),
        (CELLO, "It is Tobias in Oslo.", "invented"),
        (NOWHERE, "I found no information about a harp.", "abstained"),
        (NOWHERE, "It is Marit Solberg in Bergen.", "invented"),
        (NOWHERE, "Das weiß ich leider nicht.", "abstained"),
        (NOWHERE, "Je ne sais pas.", "abstained"),
        (NOWHERE, "Я этого не знаю.", "abstained"),
        (NOWHERE, "我不知道这件事。", "abstained"),
        (NOWHERE, "それはわかりません。", "abstained"),
        (LONG, "The neck was glued and the bridge carved, the bow got horse hair.", "right"),
        (LONG, "The neck was painted blue.", "invented"),
    ],
)
def test_answer_is_judged_by_its_words(question: EvalQuestion, answer: str, verdict: Verdict) -> None:
    assert judge_by_rules(question, answer) == verdict


def test_judging_a_hostile_answer_ends_soon() -> None:
    answer = "I do not " + "weiß a " * 200_000
    assert judge_by_rules(NOWHERE, answer) == "invented"


def test_beam_record_has_lines_and_unanswerable_questions() -> None:
    one, *_ = read_talks(RECORDS)
    assert (one.name, [line.is_assistant for line in one.lines]) == ("one", [False, True])
    assert one.messages[0].endswith("[2024-03-15]\nMe: My boat is green.\nAssistant: A fine colour.")
    assert [asked.answers for asked in one.questions] == [("green",)]
    assert [asked.question for asked in one.unanswerable] == ["How old is my boat?"]


def test_unanswerable_questions_are_half_from_other_talks() -> None:
    one, two, _ = with_abstention(read_talks(RECORDS), unanswerable=2, answerable=5)
    assert [(asked.question, asked.elsewhere) for asked in one.unanswerable] == [
        ("How old is my boat?", False), ("Which colour has my kayak?", True),
    ]  # fmt: skip
    assert two.unanswerable[1].question == "Which colour has my canoe?"
    assert not any(asked.answers for asked in (*one.unanswerable, *two.unanswerable))


def test_single_talk_has_only_its_own_unanswerable_questions() -> None:
    (alone,) = with_abstention(read_talks(RECORDS)[:1], unanswerable=9, answerable=1)
    assert [asked.question for asked in alone.unanswerable] == ["How old is my boat?"]


def test_abstention_table_counts_both_kinds_of_questions() -> None:
    def judged(question: EvalQuestion, verdict: Verdict, *, used_recall: bool) -> JudgedAnswer:
        return JudgedAnswer(question=question, answer="a", verdict=verdict, used_recall=used_recall)

    row = AbstentionRow(
        data="beam", preset="steady", figures=EvalFigures(),
        answers=(
            judged(NOWHERE, "abstained", used_recall=True), judged(NOWHERE, "abstained", used_recall=False),
            judged(NOWHERE, "invented", used_recall=True), judged(CELLO, "right", used_recall=False),
            judged(CELLO, "abstained", used_recall=True),
        ),
    )  # fmt: skip
    assert row.as_json()["unanswerable"] == {"asked": 3, "abstained": 2, "right": 0, "invented": 1}
    assert row.as_json()["answerable"] == {"asked": 2, "abstained": 1, "right": 1, "invented": 0}
    assert row.as_json()["abstained_without_recall"] == 1
    assert render_abstention([row]).splitlines()[1].split() == [
        "beam", "steady", "3", "2", "1", "2", "1", "1", "0", "1", "0.0000", "0",
    ]  # fmt: skip
