"""A night's tidying: doubles go behind the better one, dated notes leave, and never too much at once."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest

from shared.core.context.memory import gist_of
from shared.core.memory.consolidation import LiveNote, TidyPlan, is_past, plan_tidying

TODAY = date(2026, 5, 20)
TEA = "Anna likes to drink green tea in the garden in the morning"


def note(number: int, text: str = "", **values: Any) -> LiveNote:
    text = (
        text or f"Something of its own about {'abcdefghij'[number % 10] * 5} and {'klmnop'[number % 6] * 4}"
    )
    defaults: dict[str, Any] = {
        "scope": "default", "authority": "person", "durability": "durable", "event_date": None,
        "observed": TODAY,
    }  # fmt: skip
    return LiveNote(id=number, gist=gist_of(text), **{**defaults, **values})


OTHERS = [note(number) for number in range(10, 20)]


def test_of_two_that_say_the_same_the_newer_one_stays() -> None:
    plan = plan_tidying([note(1, TEA), note(2, f"{TEA}, too"), *OTHERS], today=TODAY)
    assert plan == TidyPlan(doubles=((1, 2),))


def test_who_vouches_for_a_note_weighs_more_than_its_age() -> None:
    notes = [note(1, TEA), note(2, TEA + "!", authority="tool"), *OTHERS]
    assert plan_tidying(notes, today=TODAY).doubles == ((2, 1),)


def test_notes_of_other_agents_are_no_doubles() -> None:
    notes = [note(1, TEA), note(2, TEA, scope="shop"), *OTHERS]
    assert plan_tidying(notes, today=TODAY).doubles == ()


def test_a_number_that_differs_makes_another_note() -> None:
    notes = [note(1, f"{TEA} at 7"), note(2, f"{TEA} at 8"), *OTHERS]
    assert plan_tidying(notes, today=TODAY).doubles == ()


def test_tidying_that_drops_over_a_quarter_is_refused_whole() -> None:
    texts = [f"{TEA} with {name}" for name in ("Bo", "Cy", "Di", "Ed")]
    notes = [note(2 * at + copy, text) for at, text in enumerate(texts) for copy in (0, 1)]
    plan = plan_tidying(notes, today=TODAY)
    assert plan.doubles == ()
    assert plan.refused >= 4


@pytest.mark.parametrize(
    ("event_date", "durability", "gone"),
    [
        ("2026-05-19", "ephemeral", True),
        ("2026-05-20", "ephemeral", False),
        ("2026-05", "ephemeral", False),
        ("2026-04", "ephemeral", True),
        ("2025", "ephemeral", True),
        ("2026", "ephemeral", False),
        ("2020-01-01", "durable", False),
        ("2020-01-01", "permanent", False),
    ],
)
def test_an_ephemeral_note_leaves_after_its_day(event_date: str, durability: Any, gone: bool) -> None:
    assert is_past(note(1, durability=durability, event_date=event_date), TODAY) is gone


def test_an_ephemeral_note_without_a_date_leaves_after_two_weeks() -> None:
    for days, gone in ((14, False), (15, True)):
        old = note(1, durability="ephemeral", observed=TODAY - timedelta(days=days))
        assert is_past(old, TODAY) is gone
