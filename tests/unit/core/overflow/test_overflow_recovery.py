"""What is done to a request while somebody waits: a digest first, then less and less, then a plain no."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.core.context.build_context import BuiltContext, build_context, count_fading
from shared.core.context.prompts import SystemLayers
from shared.core.overflow.overflow_recovery import HIDDEN_AT_ONCE, Shrunk, fit, replace_with_digest
from shared.core.presets.catalog import preset
from shared.core.session.session import View
from shared.core.values.errors import ContextBudgetExceeded
from shared.core.values.messages import Image, Message, Text, Thinking
from shared.core.values.tokens import RATIO_MOST, compute_ratio
from tests.kit.builders import entry, exchange, tool_turn, view, words
from tests.kit.valid_requests import assert_valid_request

STEADY = preset("steady")


def build(state: View) -> BuiltContext:
    return build_context(state, policy=STEADY, system=SystemLayers(base="You are kind."), count=words)


def fitted(state: View, hard: int) -> Shrunk:
    return fit(state, hard=hard, build=build, count=words, policy=STEADY)


def long_talk(turns: int = 12) -> View:
    said = [
        e
        for turn in range(1, turns)
        for e in exchange(turn, f"In room {turn} lives number K-{turn}77. " + "And on. " * 60, "I see. " * 40)
    ]
    seq = len(said) + 1
    thought = entry(seq + 1, turns, Thinking(text="hm", signature="s"), author="assistant", step=1)
    return view([*said, entry(seq, turns, "What now?"), thought], open_turn=turns)


def test_what_fits_is_left_alone() -> None:
    state = long_talk()
    assert fitted(state, 100_000).view is state


def test_old_turns_go_behind_a_digest_and_no_turn_is_missing() -> None:
    state = long_talk()
    small = fitted(state, 1_400)
    assert small.context.estimate <= 1_400
    assert small.digested_through == small.view.base_turn
    first = small.context.messages[0].blocks[0]
    assert isinstance(first, Text)
    assert first.text.startswith("<conversation_summary")
    assert "K-177" in first.text


@pytest.mark.parametrize("hard", [3_000, 6_000, 20_000])
def test_only_oldest_turns_go_and_three_quarters_stay(hard: int) -> None:
    turns = hard // 160 + 1
    state = long_talk(turns)
    while fitted(state, hard).view is state:
        turns += 1
        state = long_talk(turns)
    small = fitted(state, hard)
    assert 0.7 * hard <= small.context.estimate <= hard
    kept = [e.turn for e in small.view.entries]
    assert kept == [e.turn for e in state.entries if e.turn > small.view.base_turn]


def test_next_messages_find_room_and_prefix_stays_until_used_up() -> None:
    """While a summary is being written, each message costs only itself."""
    hard, sent, moves = 6_000, tuple[Message, ...](), 0
    for turns in range(30, 80):
        messages = fitted(long_talk(turns), hard).context.messages
        moves += messages[: len(sent)] != sent
        sent = tuple(m for m in messages[:-2])
    assert moves <= 1 + 50 * 215 / (HIDDEN_AT_ONCE * hard)


@given(
    sizes=st.lists(st.integers(min_value=1, max_value=400), min_size=3, max_size=40),
    share=st.floats(min_value=0.3, max_value=0.95),
    factor=st.sampled_from([0.8, 1.0, 1.43, 2.5]),
)
@settings(max_examples=60)
def test_no_turn_is_hidden_that_had_room(sizes: list[int], share: float, factor: float) -> None:
    said = [e for t, size in enumerate(sizes, 1) for e in exchange(t, "word " * size, "yes")]
    state = view([*said, entry(9_000, len(sizes) + 1, "And now?")], open_turn=len(sizes) + 1)
    whole = build(state).estimate
    hard = max(600, int(share * whole * factor))
    try:
        small = fit(state, hard=hard, build=build, count=words, policy=STEADY, ratio=factor)
    except ContextBudgetExceeded:
        return
    assert small.context.estimate * factor <= hard
    assert_valid_request(small.context.messages)
    if not small.digested_through:
        return
    hidden = sum(e.tokens for e in state.entries if e.turn <= small.digested_through)
    step, largest = HIDDEN_AT_ONCE * hard / factor, max(sizes) + 1
    digest = small.view.head.tokens if small.view.head else 0
    # What had to go, what a digest may take, and one step with the turn that ends it.
    most = whole - hard / factor + max(64, step / 2) + step + largest
    assert hidden <= most + digest


def test_open_turn_loses_its_thinking_when_the_prefix_changed() -> None:
    small = fitted(long_talk(), 1_400)
    assert not any(isinstance(b, Thinking) for message in small.context.messages for b in message.blocks)


def test_pins_of_digested_turns_stay_word_for_word() -> None:
    state = long_talk()
    pinned = [entry(1, 1, "Never ring before nine.", pinned=True), *state.entries[1:]]
    small = fitted(view(pinned, open_turn=12), 1_400)
    assert [e.seq for e in small.view.pins] == [1]


def test_unresolved_turns_stay_word_for_word_beside_the_digest_while_they_fit() -> None:
    state = long_talk()
    failed = tool_turn(1, "no route to the harbour", seq=900, is_error=True)
    log = [*failed, *(e for e in state.entries if e.turn > 1)]
    small = fitted(view(log, open_turn=12), 1_500)
    assert 1 in {e.turn for e in small.view.entries}
    assert small.digested_through is not None
    assert "no route to the harbour" in str(small.context.messages)
    assert_valid_request(small.context.messages)
    giant = [*tool_turn(1, "no route " * 900, seq=900, is_error=True), *log[len(failed) :]]
    narrow = fitted(view(giant, open_turn=12), 900)
    assert 1 not in {e.turn for e in narrow.view.entries}, "the digest alone tells of it"


def test_the_same_view_gives_the_same_digest() -> None:
    state = long_talk()
    first, second = (replace_with_digest(state, through=8, count=words, most=300) for _ in range(2))
    assert first is not None
    assert first == second


def test_there_is_no_digest_of_nothing() -> None:
    state = view([entry(1, 1, "Hello")], open_turn=1)
    assert replace_with_digest(state, through=0, count=words, most=300) is None
    pinned = view(exchange(1, "Hello", "Hi"), open_turn=2)
    pinned = replace(pinned, entries=tuple(replace(e, pinned=True) for e in pinned.entries))
    assert replace_with_digest(pinned, through=1, count=words, most=300) is None


def test_what_cannot_be_made_to_fit_names_the_three_largest() -> None:
    with pytest.raises(ContextBudgetExceeded) as refused:
        fitted(view([entry(1, 1, "word " * 900)], open_turn=1), 20)
    assert len(refused.value.largest) == 3
    assert "/new" in refused.value.advice


def test_what_is_sent_only_while_a_turn_is_open_is_known() -> None:
    plain = entry(1, 1, "Hello there")
    thought = entry(2, 1, Thinking(text="one two three", signature="s"), "Yes", author="assistant", step=1)
    picture = entry(3, 1, Image(attachment_id=1, mime="image/png"))
    assert count_fading([plain], STEADY, words) == 0
    assert count_fading([thought], STEADY, words) == 3
    assert count_fading([picture], STEADY, words) == 0, "it stays in sight for some turns"
    assert count_fading([picture], STEADY.with_settings(picture_turns=0), words) > 1_500


def test_a_ratio_is_what_was_seen_within_what_can_be_true() -> None:
    assert compute_ratio(1_200, 1_000, 1.0) == 1.2
    assert compute_ratio(0, 1_000, 1.1) == 1.1
    assert compute_ratio(9_000, 1_000, 1.0) == RATIO_MOST
