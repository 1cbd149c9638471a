"""Planning: whole turns, a tail that stays, ranges without gap, and reasons for doing nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.core.compaction.plan import (
    CHUNK_TOKENS,
    RULES,
    SUMMARY_MOST,
    CompactionPlan,
    NothingToCompact,
    chunk_limit,
    plan_compaction,
    smaller_summary,
    split_into_chunks,
    summary_room,
    why_not_committed,
    why_not_smaller,
)
from shared.core.presets.catalog import preset
from shared.core.session.ledger import Ledger
from shared.core.session.session import Compaction, Entry, View
from tests.kit.builders import budget, entry, exchange, exchanges, tool_turn, view

STEADY = preset("steady")


def plan(state: View, now: int = 8_500, **more: Any) -> CompactionPlan | NothingToCompact:
    return plan_compaction(state, budget=budget(), policy=STEADY, now_tokens=now, **more)


def planned(state: View, now: int = 8_500, **more: Any) -> CompactionPlan:
    made = plan(state, now, **more)
    assert isinstance(made, CompactionPlan), made
    return made


def test_the_last_turns_stay_and_everything_before_is_hidden() -> None:
    made = planned(view(exchanges(20, tokens=200)))
    assert (made.from_turn, made.through_turn, made.through_seq) == (1, 15, 30)
    assert [e.turn for e in made.entries] == [t for t in range(1, 16) for _ in (0, 1)]
    assert made.tokens_before == 8_500


def test_small_turns_are_kept_up_to_tenth_of_budget() -> None:
    made = planned(view(exchanges(120, tokens=35)))
    assert 120 - made.through_turn == 10, "700 tokens are a tenth of 7,000; 10 turns of 70 reach it"


def test_a_tail_of_long_turns_shrinks_but_the_last_turn_stays() -> None:
    assert planned(view(exchanges(9, tokens=450))).through_turn == 7, "2 turns of 900 fit into 2,000 tokens"
    assert planned(view(exchanges(9, tokens=1_400)), 26_000).through_turn == 8
    assert planned(view(exchanges(9, tokens=550)), keep_turns=5).through_turn == 6, (
        "half the budget, if asked"
    )


def test_room_is_left_for_what_a_question_brings_back() -> None:
    """What is hidden may be recalled from then on: the next compaction is not due at once."""
    state, roomy = view(exchanges(40, tokens=200)), replace(budget(), recall=1_500)
    made = plan_compaction(state, budget=roomy, policy=STEADY, now_tokens=17_000)
    assert isinstance(made, CompactionPlan)
    bare = planned(state, 17_000)
    assert made.stays + made.summary_limit <= roomy.beside + STEADY.keeping.land_at * roomy.conversation
    assert made.summary_limit < bare.summary_limit or made.through_turn > bare.through_turn
    assert why_not_committed(made, made.summary_limit, budget=roomy, policy=STEADY, force=False) is None


@pytest.mark.parametrize("ratio", [1.0, 1.43])
def test_what_was_written_is_measured_before_it_is_committed(ratio: float) -> None:
    made = planned(view(exchanges(20, tokens=200)), round(8_500 * ratio), ratio=ratio)

    def why_not(tokens: int, *, force: bool = False, of: CompactionPlan = made) -> str | None:
        refused = why_not_committed(of, tokens, budget=budget(), policy=STEADY, force=force)
        return None if refused is None else refused.reason

    assert why_not(made.summary_limit) is None, "what is cut to the plan's limit lands"
    whole = sum(e.tokens for e in made.entries)
    assert why_not(whole - 100) == "gain_too_small", "less than it replaces, but not by much"
    assert why_not(whole - 100, force=True) is None
    assert why_not(whole + 1) == "gain_too_small"
    assert why_not(whole + 1, force=True) == "grows"
    most = smaller_summary(made, budget=budget(), policy=STEADY)
    assert most is not None
    assert why_not(most) is None
    assert why_not(most + 2) == "gain_too_small"
    assert smaller_summary(replace(made, replaced=10), budget=budget(), policy=STEADY) is None


def test_former_summary_counts_among_the_replaced_tokens() -> None:
    head = Compaction(id=1, kind="summary", from_turn=1, through_turn=3, tokens=500)
    made = planned(view(exchanges(20, first=4, tokens=200), head=head))
    assert made.replaced == 500 + sum(e.tokens for e in made.entries)


def test_the_open_turn_is_never_compacted() -> None:
    log = [*exchanges(10, tokens=400), entry(99, 11, "now", tokens=50)]
    assert planned(view(log, open_turn=11)).through_turn <= 8
    giant = [entry(1, 1, "now", tokens=9_000)]
    made = plan(view(giant, open_turn=1))
    assert isinstance(made, NothingToCompact)
    assert made.reason == "open_turn_too_big"


def test_a_short_conversation_has_nothing_old() -> None:
    made = plan(view(exchanges(3)))
    assert isinstance(made, NothingToCompact)
    assert made.reason == "nothing_old"


def test_pinned_messages_are_not_summarised_but_their_turn_is_hidden() -> None:
    log = exchanges(20, tokens=200)
    log[2] = replace(log[2], pinned=True)
    made = planned(view(log))
    assert (made.from_turn, made.through_turn) == (1, 15)
    assert log[2] not in made.entries
    assert len(made.entries) == 29


def test_nothing_but_pins_is_a_reason() -> None:
    log = [replace(e, pinned=e.turn <= 2) for e in exchanges(8, tokens=100)]
    made = plan(view(log), keep_turns=6)
    assert isinstance(made, NothingToCompact)
    assert made.reason == "pins"


def test_too_little_gain_is_a_reason_unless_forced() -> None:
    log = exchanges(8, tokens=120)
    made = plan(view(log), 1_000 + 16 * 120, keep_turns=7)
    assert isinstance(made, NothingToCompact)
    assert made.reason == "gain_too_small"
    assert planned(view(log), 1_000 + 16 * 120, keep_turns=7, force=True).through_turn == 1


def test_an_unanswered_turn_stays_live_while_the_tail_can_afford_it() -> None:
    log = [e for e in exchanges(20, tokens=150) if e.seq != 24]
    assert planned(view(log)).through_turn == 11


def test_unanswered_turn_is_summarised_without_a_tail() -> None:
    """As when a digest is written anew: the range is what it was."""
    whole = STEADY.with_settings(keep_turns=0, keep_turns_least=0, tail_share_most=0.0, tail_room=0)
    log = [e for e in exchanges(8, tokens=150) if e.seq != 4]
    made = plan_compaction(view(log), budget=budget(), policy=whole, now_tokens=8_500, force=True)
    assert isinstance(made, CompactionPlan)
    assert made.through_turn == 8


def test_a_tail_may_have_more_than_half_where_a_policy_says_so() -> None:
    roomy = STEADY.with_settings(keep_turns=9, tail_share_most=0.6, land_at=0.9)
    made = plan_compaction(view(exchanges(12, tokens=250)), budget=budget(), policy=roomy, now_tokens=8_500)
    assert isinstance(made, CompactionPlan)
    assert made.through_turn == 4, "8 turns of 500 tokens fit into 60 % of 7,000"


def test_an_old_unanswered_turn_does_not_end_all_compaction() -> None:
    log = [e for e in exchanges(20, tokens=300) if e.seq != 4]
    assert planned(view(log), 12_000).through_turn >= 10


def test_the_former_ledger_and_the_base_are_carried_into_the_plan() -> None:
    head = Compaction(
        id=1, kind="summary", from_turn=1, through_turn=10, through_seq=20, ledger=Ledger(narrative="n")
    )
    made = planned(view(exchanges(20, first=11, tokens=200), base_turn=10, head=head))
    assert made.from_turn == 11
    assert made.former.narrative == "n"


def test_an_explicit_number_of_turns_is_obeyed_down_to_one() -> None:
    assert planned(view(exchanges(20, tokens=50)), keep_turns=3).through_turn == 17
    assert planned(view(exchanges(20, tokens=50)), keep_turns=1).through_turn == 19
    assert planned(view(exchanges(20, tokens=50)), keep_turns=0).through_turn == 19


def test_the_conversation_lands_where_the_policy_wants_it() -> None:
    made = planned(view(exchanges(40, tokens=200)), 17_000)
    assert made.expected_after - 1_000 <= STEADY.keeping.land_at * budget().conversation


def test_chunks_are_cut_between_turns() -> None:
    log = exchanges(10, tokens=500)
    chunks = split_into_chunks(log, 2_500)
    assert [len(chunk) for chunk in chunks] == [4, 4, 4, 4, 4]
    assert [e for chunk in chunks for e in chunk] == log


def test_a_turn_that_is_too_large_alone_is_cut_between_its_messages() -> None:
    chunks = split_into_chunks(exchange(1, "a", "b", tokens=2_000), 2_500)
    assert [len(chunk) for chunk in chunks] == [1, 1]


def test_tool_results_count_as_much_as_they_will_show() -> None:
    log = [replace(e, tokens=50_000) if e.author == "tool" else e for e in tool_turn(1, "r", seq=1)]
    assert len(split_into_chunks(log, 2_000)) == 1


@pytest.mark.parametrize(
    ("window", "limit"), [(1_000_000, CHUNK_TOKENS), (32_000, 19_200), (16_000, 9_400), (8_192, 3_544)]
)
def test_a_chunk_fits_into_the_summarisers_window(window: int, limit: int) -> None:
    assert chunk_limit(window) == limit
    assert chunk_limit(window) + RULES + SUMMARY_MOST + summary_room(window) <= window


@st.composite
def states(draw: st.DrawFn) -> View:
    sizes = draw(st.lists(st.integers(min_value=1, max_value=3_000), min_size=1, max_size=14))
    base = draw(st.integers(min_value=0, max_value=5))
    log: list[Entry] = []
    for turn, size in enumerate(sizes, base + 1):
        pair = exchange(turn, "q", "a", tokens=size)
        pair = [replace(e, pinned=draw(st.integers(0, 9)) == 0) for e in pair]
        log += pair[: draw(st.sampled_from([1, 2, 2, 2]))]
    open_turn = draw(st.sampled_from([None, log[-1].turn]))
    return view(log, base_turn=base, open_turn=open_turn)


@settings(max_examples=150)
@given(states(), st.integers(min_value=1_000, max_value=60_000), st.booleans())
def test_nothing_is_lost_and_turns_stay_whole(state: View, now: int, force: bool) -> None:
    made = plan(state, now, force=force)
    assert made == plan(state, now, force=force), "planning is pure"
    if isinstance(made, NothingToCompact):
        assert made.detail
        return
    hidden = [e for e in state.entries if e.turn <= made.through_turn]
    live = [e for e in state.entries if e.turn > made.through_turn]
    assert made.from_turn == state.base_turn + 1 <= made.through_turn
    assert {e.seq for e in made.entries} == {e.seq for e in hidden if not e.pinned}
    assert made.through_seq == max(e.seq for e in hidden)
    assert state.open_turn is None or made.through_turn < state.open_turn
    ended = {e.turn for e in live} - {state.open_turn}
    assert len(ended) >= STEADY.keeping.keep_turns_least
    assert [e for chunk in made.chunks for e in chunk] == list(made.entries)
    after = replace(state, base_turn=made.through_turn, entries=tuple(live))
    again = plan(after, made.expected_after)
    assert isinstance(again, NothingToCompact) or again.from_turn == made.through_turn + 1


# ---- what each preset keeps


def planned_as(name: str, state: View, now: int, *, window: int = 16_000, **more: Any) -> CompactionPlan:
    made = plan_compaction(
        state, budget=budget(window=window, policy=name), policy=preset(name), now_tokens=now, **more
    )
    assert isinstance(made, CompactionPlan), made
    return made


def test_a_persons_command_archives_the_whole_chat_in_chatbox() -> None:
    made = planned_as("chatbox", view(exchanges(8, tokens=300)), 6_000)
    assert (made.from_turn, made.through_turn) == (1, 8)
    assert made.form == "thread"


@pytest.mark.parametrize(
    ("name", "kept"),
    [("pantheon", 4), ("lobechat", 1), ("opencode", 2), ("claude-code", 2), ("arawn", 3)],
)
def test_each_preset_keeps_its_own_last_turns(name: str, kept: int) -> None:
    made = planned_as(name, view(exchanges(40, tokens=300)), 26_000, window=40_000)
    assert 40 - made.through_turn == kept


@pytest.mark.parametrize(
    "name",
    ["steady", "spec008", "pantheon", "opencode", "openclaw", "goclaw", "arawn", "langmem", "lobechat"],
)
@pytest.mark.parametrize("tokens", [40, 300, 1_500])
def test_a_compaction_lands_where_its_preset_wants_it(name: str, tokens: int) -> None:
    """Unless the turns that may never be hidden are larger by themselves."""
    policy = preset(name)
    allowed = budget(window=40_000, policy=name)
    made = planned_as(
        name, view(exchanges(40, tokens=tokens)), 90 * tokens + 1_000, window=40_000, force=True
    )
    least = policy.keeping.keep_turns_least * 2 * tokens + policy.writing.summary_least
    assert made.expected_after - allowed.fixed <= max(policy.keeping.land_at * allowed.conversation, least)


def test_the_length_of_a_summary_is_the_policys() -> None:
    running = planned_as("langmem", view(exchanges(20, tokens=200)), 9_000)
    assert running.summary_limit == 128
    assert (
        planned_as("lobechat", view(exchanges(90, tokens=200)), 39_000, window=60_000).summary_limit > 2_000
    )


def test_merged_presets_cut_even_portions_with_a_margin() -> None:
    log = exchanges(60, tokens=1_000)
    made = planned_as("openclaw", view(log), 120_000, window=200_000, summariser_window=32_000)
    assert made.merged
    sizes = [sum(e.tokens for e in chunk) for chunk in made.chunks]
    assert len(sizes) > 1
    assert max(sizes) - min(sizes) <= 4_000
    assert max(sizes) * 1.2 <= chunk_limit(32_000)
    assert not planned(view(exchanges(40, tokens=200))).merged


def test_messages_that_the_summariser_cannot_read_are_named_in_the_plan() -> None:
    log = [*exchange(1, "a", "b", tokens=5_000), *exchanges(20, first=2, tokens=200)]
    assert planned(view(log), 30_000, summariser_window=8_192).named == {1, 2}
    assert planned(view(log), 30_000).named == frozenset()


def test_turn_with_a_failed_last_step_stays_while_affordable() -> None:
    log = [
        *exchanges(10, tokens=400),
        *tool_turn(11, "no route", seq=21, is_error=True),
        *exchanges(9, first=12, tokens=100),
    ]
    assert planned(view(log), 12_000).through_turn == 10
    healed = [e for e in log if e.turn != 11]
    assert (
        planned(view([*healed[:20], *tool_turn(11, "found", seq=99), *healed[20:]]), 12_000).through_turn
        >= 11
    )


def test_unanswered_turn_prevents_compaction_unless_forced() -> None:
    log = [e for e in exchanges(8, tokens=100) if e.seq != 2]
    made = plan(view(log), keep_turns=3)
    assert isinstance(made, NothingToCompact)
    assert made.reason == "unanswered"
    assert planned(view(log), keep_turns=3, force=True).through_turn == 5


@settings(max_examples=100)
@given(states(), st.booleans(), st.sampled_from(["steady", "pantheon", "openclaw", "langmem", "lobechat"]))
def test_after_a_compaction_there_is_nothing_left_to_plan(state: View, force: bool, name: str) -> None:
    """Planning is idempotent: only new turns can make another summary due."""
    policy, allowed = preset(name), budget(policy=name)
    made = plan_compaction(state, budget=allowed, policy=policy, now_tokens=60_000, force=force)
    if isinstance(made, NothingToCompact):
        return
    live = tuple(e for e in state.entries if e.turn > made.through_turn)
    pins = tuple(e for e in state.entries if e.turn <= made.through_turn and e.pinned)
    head = Compaction(id=1, kind="summary", from_turn=1, through_turn=made.through_turn, tokens=200)
    after = replace(state, base_turn=made.through_turn, entries=live, pins=pins, head=head)
    again = plan_compaction(after, budget=allowed, policy=policy, now_tokens=made.expected_after)
    assert isinstance(again, NothingToCompact), again


@pytest.mark.parametrize(("after", "refused"), [(2_499, False), (2_500, True), (2_700, True)])
def test_compaction_that_would_not_shrink_is_refused_with_sizes(after: int, refused: bool) -> None:
    found = why_not_smaller(2_500, after)
    assert (found is not None) is refused
    if found is not None:
        assert (found.reason, found.sizes) == ("grows", (2_500, after))
