"""What a session's size becomes when a turn ends that nobody counted, and what screens draw of an answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from shared.services.turns.agent_loop import select_before_calls
from shared.services.turns.turn_attempt import ContextMeter, StreamState
from tests.kit.builders import tool_turn, view


def meter(**values: Any) -> ContextMeter:
    return ContextMeter(**{"ratio": 1.0, "anchor": 30_000, "pending": 100, **values})


def test_what_was_never_counted_stays_unknown() -> None:
    assert meter(anchor=None).estimate_growth(None, 50, pruned=True) is None


def test_words_of_the_person_and_of_the_answer_are_added() -> None:
    assert meter().estimate_growth(None, 50, pruned=True) == 30_150


def test_what_pruning_saved_stays_saved_only_where_its_decisions_are_stored() -> None:
    pruned = meter()
    pruned.prune(20_000)
    assert pruned.estimate_growth(None, 50, pruned=True) == 10_150
    assert pruned.estimate_growth(None, 0, pruned=False) == 30_100


def test_a_count_of_this_very_turn_already_leaves_out_what_was_pruned() -> None:
    counted = meter()
    counted.prune(20_000)
    counted.anchor_at(30_000)
    assert counted.estimate_growth(None, 10, pruned=True) == 30_010
    assert counted.estimate_growth(None, 0, pruned=False) == 30_000


def test_chatter_that_was_left_out_is_not_counted_again() -> None:
    prepared: Any = SimpleNamespace(estimate=8_000, ratio=2.0)
    assert meter(filler_trimmed=True).estimate_growth(prepared, 50, pruned=True) == 8_100


def test_a_screen_goes_on_where_it_is_and_counts_as_browsers_do() -> None:
    stream = StreamState(texts=[])
    stream.begin_call()
    assert stream.add("Hi 🙂", model_attempt=1) == (0, "Hi 🙂")
    assert stream.add(" there", model_attempt=1) == (5, " there")
    assert stream.draft == "Hi 🙂 there"


def test_a_further_round_follows_behind_the_earlier_ones() -> None:
    stream = StreamState(texts=[])
    stream.begin_call()
    stream.add("I look.", model_attempt=1)
    stream.end_round("I look.")
    stream.begin_call()
    assert stream.add("Found.", model_attempt=1) == (7, "\n\nFound.")
    assert stream.number == 0


def test_a_fresh_beginning_draws_the_earlier_rounds_again() -> None:
    stream = StreamState(texts=["I look."])
    stream.begin_call()
    stream.add("Fou", model_attempt=1)
    assert stream.add("Found.", model_attempt=2) == (0, "I look.\n\nFound.")
    assert stream.draft == "Found."


def test_draft_number_never_falls_from_retry_to_next_round() -> None:
    stream = StreamState(texts=[])
    stream.begin_call()
    stream.add("I lo", model_attempt=1)
    stream.add("I look.", model_attempt=2)
    assert stream.number == 1
    stream.end_round("I look.")
    stream.begin_call()
    assert stream.add("Found.", model_attempt=1) == (7, "\n\nFound.")
    assert stream.number == 1


def test_draft_number_grows_when_another_call_replaces_sent_text() -> None:
    stream = StreamState(texts=["I look."])
    for number in range(30):
        stream.begin_call()
        assert stream.add("Fou", model_attempt=1) == (0, "I look.\n\nFou")
        assert stream.number == number


def test_silent_retry_with_tool_calls_replaces_the_text_before_it() -> None:
    stream = StreamState(texts=[])
    stream.begin_call()
    stream.add("I lo", model_attempt=1)
    stream.end_round("")
    stream.begin_call()
    assert stream.add("Found.", model_attempt=1) == (0, "Found.")
    assert stream.number == 1


def test_restarted_turn_is_pruned_by_its_first_view() -> None:
    before, mine = tool_turn(1, "found", seq=1), tool_turn(2, "found again", seq=11)
    asked = [*before, mine[0]]
    assert select_before_calls(view(asked, open_turn=2)) == tuple(asked)
    assert select_before_calls(view([*before, *mine[:3]], open_turn=2)) == tuple(asked)
