"""Pruning: only old tool results, in batches, once and for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.core.messages import Image, ToolResult, tool_results
from shared.core.policy import ContextPolicy
from shared.core.presets import preset
from shared.core.pruning import PruneDecision, apply_pruning, plan_pruning
from shared.core.session import Entry
from tests.core.builders import entry, exchanges, tool_turn

STEADY, SPEC = preset("steady"), preset("spec008")
LONG = "abcdefghij" * 900


def _log(results: Sequence[str], *, after: int) -> list[Entry]:
    """Turns with a tool result each, then plain answered turns."""
    made = [e for i, text in enumerate(results, 1) for e in tool_turn(i, text, seq=4 * i)]
    return made + exchanges(after, first=len(results) + 1 + 100)


def _decided(entries: Sequence[Entry], decisions: Sequence[PruneDecision]) -> list[Entry]:
    forms = {decision.seq: decision.form for decision in decisions}
    return [replace(e, pruned=forms.get(e.seq, e.pruned)) for e in entries]


def _text(one: Entry, policy: ContextPolicy) -> str:
    return tool_results(apply_pruning(one, policy))[0].text


@pytest.mark.parametrize(("after", "forms"), [(2, []), (3, ["trim"]), (9, ["trim"]), (10, ["clear"])])
def test_a_long_result_is_trimmed_after_three_assistant_turns_and_cleared_after_ten(
    after: int, forms: list[str]
) -> None:
    found = plan_pruning(_log([LONG], after=after), SPEC, cache_cold=False)
    assert [decision.form for decision in found] == forms


def test_spec008_keeps_1500_characters_on_both_sides_of_three_dots() -> None:
    text = "a" * 1_500 + "b" * 5_000 + "c" * 1_500
    trimmed = _text(replace(_log([text], after=3)[2], pruned="trim"), SPEC)
    assert trimmed == "a" * 1_500 + "..." + "c" * 1_500


@pytest.mark.parametrize(("chars", "count"), [(3_999, 0), (4_000, 0), (4_001, 1)])
def test_only_results_longer_than_4000_characters_are_trimmed(chars: int, count: int) -> None:
    assert len(plan_pruning(_log(["x" * chars], after=3), SPEC, cache_cold=False)) == count


def test_spec008_clears_short_results_too_and_steady_leaves_them() -> None:
    log = _log(["short"], after=10)
    assert [d.form for d in plan_pruning(log, SPEC, cache_cold=True)] == ["clear"]
    assert plan_pruning(log, STEADY, cache_cold=True) == ()
    assert _text(replace(log[2], pruned="clear"), SPEC) == "[Tool result cleared]"


def test_steady_waits_until_a_batch_is_worth_a_cold_cache() -> None:
    log = [replace(e, tokens=6_500) if e.author == "tool" else e for e in _log([LONG, LONG[::-1]], after=3)]
    assert plan_pruning(log[4:], STEADY, cache_cold=False) == ()
    assert len(plan_pruning(log, STEADY, cache_cold=False)) == 2
    assert len(plan_pruning(log[4:], STEADY, cache_cold=True)) == 1


def test_decisions_are_sticky_and_planning_again_is_a_no_op() -> None:
    log = _log([LONG, LONG[::-1]], after=3)
    once = plan_pruning(log, STEADY, cache_cold=True)
    assert once
    assert plan_pruning(_decided(log, once), STEADY, cache_cold=True) == ()


def test_a_trimmed_result_may_later_be_cleared_but_never_grows_again() -> None:
    log = [replace(e, pruned="clear") if e.author == "tool" else e for e in _log([LONG], after=3)]
    assert plan_pruning(log, SPEC, cache_cold=True) == ()


def test_an_exact_duplicate_of_a_newer_result_becomes_one_line() -> None:
    log = _log([LONG, LONG], after=3)
    forms = [(d.seq, d.form) for d in plan_pruning(log, STEADY, cache_cold=True)]
    assert forms == [(log[2].seq, "duplicate"), (log[6].seq, "trim")]
    assert len(_text(replace(log[2], pruned="duplicate"), STEADY)) < 100


def test_pinned_results_and_those_of_the_open_turn_stay_whole() -> None:
    pinned = [replace(e, pinned=e.author == "tool") for e in _log([LONG], after=12)]
    assert plan_pruning(pinned, SPEC, cache_cold=True) == ()
    assert plan_pruning(_log([LONG], after=12), SPEC, cache_cold=True, open_turn=1) == ()


def test_nothing_before_the_first_persons_message_is_touched() -> None:
    log = _log([LONG], after=12)[1:]
    assert plan_pruning([e for e in log if e.author != "person"], SPEC, cache_cold=True) == ()


def test_a_tail_that_speaks_of_an_error_keeps_more_of_itself() -> None:
    plain, failed = "x" * 20_000, "x" * 19_900 + " Traceback: it failed " + "x" * 79
    log = [replace(e, pruned="trim") for e in _log([plain, failed], after=0)]
    assert len(_text(log[6], STEADY)) > len(_text(log[2], STEADY)) + 900


def test_images_beside_a_result_stay() -> None:
    picture = Image(attachment_id=1, mime="image/png")
    one = entry(1, 1, ToolResult(tool_use_id="a", text=LONG), picture, author="tool", pruned="clear")
    assert apply_pruning(one, STEADY)[1] is picture


@settings(max_examples=40)
@given(
    lengths=st.lists(st.integers(min_value=0, max_value=12_000), max_size=6),
    after=st.integers(min_value=0, max_value=14),
    name=st.sampled_from(["steady", "spec008"]),
    cold=st.booleans(),
)
def test_pruning_never_lengthens_a_result_nor_touches_words(
    lengths: list[int], after: int, name: str, cold: bool
) -> None:
    policy = preset(name)
    log = _log(["é" * n for n in lengths], after=after)
    decided = _decided(log, plan_pruning(log, policy, cache_cold=cold))
    for before, now in zip(log, decided, strict=True):
        shown = apply_pruning(now, policy)
        if before.author != "tool":
            assert shown == before.blocks
        elif len(before.blocks[0].text) > len(policy.prune_cleared):  # type: ignore[union-attr]
            assert len(_text(now, policy)) <= len(_text(before, policy))
