"""What a session's size becomes when a turn ends that nobody counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from shared.services.turns.turn_outcomes import estimate_context_growth


def attempt(**values: Any) -> Any:
    usual = {
        "anchor": 30_000, "anchored": False, "pending": 100, "pruned_tokens": 0, "filler_trimmed": False,
        "ratio": 1.0, "prepared": None,
    }  # fmt: skip
    return SimpleNamespace(**{**usual, **values})


def test_what_was_never_counted_stays_unknown() -> None:
    assert estimate_context_growth(attempt(anchor=None), 50, pruned=True) is None


def test_words_of_the_person_and_of_the_answer_are_added() -> None:
    assert estimate_context_growth(attempt(), 50, pruned=True) == 30_150


def test_what_pruning_saved_stays_saved_only_where_its_decisions_are_stored() -> None:
    turn = attempt(pending=100 - 20_000, pruned_tokens=20_000)
    assert estimate_context_growth(turn, 50, pruned=True) == 10_150
    assert estimate_context_growth(turn, 0, pruned=False) == 30_100


def test_a_count_of_this_very_turn_already_leaves_out_what_was_pruned() -> None:
    turn = attempt(anchored=True, pending=0, pruned_tokens=20_000)
    assert estimate_context_growth(turn, 10, pruned=True) == 30_010
    assert estimate_context_growth(turn, 0, pruned=False) == 30_000


def test_chatter_that_was_left_out_is_not_counted_again() -> None:
    turn = attempt(filler_trimmed=True, prepared=SimpleNamespace(estimate=8_000, ratio=2.0))
    assert estimate_context_growth(turn, 50, pruned=True) == 8_100
