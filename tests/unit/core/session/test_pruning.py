"""Pruning: only old tool results, in batches, once and for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.core.compaction.jobs import next_job
from shared.core.presets.catalog import preset
from shared.core.session.budget import budget_for
from shared.core.session.policy import ContextPolicy
from shared.core.session.prune_forms import render_blocks
from shared.core.session.prune_rules import prune_rules
from shared.core.session.pruning import (
    PruneDecision,
    apply_decisions,
    apply_pruning,
    clear_first,
    is_clearing_enough,
    places_to_change,
    plan_pruning,
    prune_to_target,
)
from shared.core.session.session import Entry
from shared.core.values.messages import Image, Message, Thinking, ToolResult, ToolUse, repair, tool_results
from tests.kit.builders import entry, exchange, exchanges, tool_turn, view

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
def test_result_is_trimmed_after_three_turns_and_cleared_after_ten(after: int, forms: list[str]) -> None:
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


def test_shown_texts_change_nothing_without_a_form() -> None:
    result = _log(["as stored"], after=1)[2]
    shown = {tool_results(result.blocks)[0].tool_use_id: "cut"}
    assert render_blocks(result, None, shown, SPEC.pruning) == result.blocks


def _calls(results: Sequence[str], *, turn: int = 1, **block: bool) -> list[Entry]:
    """One turn that goes on and on: a call and its result of a quarter as many tokens as characters."""
    made = [entry(1000 * turn, turn, "Please do it all")]
    for i, text in enumerate(results):
        call = ToolUse(id=f"c{turn}_{i}", name="read", input={"path": f"file {turn} {i}"})
        result = ToolResult(tool_use_id=call.id, text=text, **block)
        made.append(entry(1000 * turn + 2 * i + 1, turn, call, author="assistant", tokens=30))
        made.append(entry(1000 * turn + 2 * i + 2, turn, result, author="tool", tokens=len(text) // 4))
    return made


@pytest.mark.parametrize(("after", "taken"), [(10, False), (11, False), (12, True), (30, True)])
def test_a_batch_waits_until_reading_on_has_cost_what_writing_again_costs(after: int, taken: bool) -> None:
    # Due after 10 calls, each costs a tenth of 10,000 tokens. With 12, 3,000 are paid; 11 calls of 230 tokens
    # are written again for 1.15 of them each, 2,900. With 11, 2,000 are paid for 2,650.
    log = [
        replace(e, tokens=200) if e.tokens == 50 else e for e in _calls(["a" * 40_000, *["b" * 200] * after])
    ]
    made = plan_pruning(log, STEADY, cache_cold=False, open_turn=1)
    assert [decision.form for decision in made] == (["clear"] if taken else [])
    dearer = plan_pruning(log, STEADY, cache_cold=False, open_turn=1, cache_long=True)
    assert bool(dearer) is (after == 30)
    assert [decision.form for decision in plan_pruning(log, STEADY, cache_cold=True, open_turn=1)] == [
        "clear"
    ]


def test_within_a_turn_results_stay_whole_until_they_are_ten_calls_old() -> None:
    assert plan_pruning(_calls([f"{i}{LONG}" for i in range(10)]), STEADY, cache_cold=True, open_turn=1) == ()
    made = plan_pruning(
        _calls([*map(str, range(9)), LONG, *"abcdefghij"]), STEADY, cache_cold=True, open_turn=1
    )
    assert [decision.seq for decision in made] == [1020]
    assert plan_pruning(_calls([LONG] * 12), SPEC, cache_cold=True, open_turn=1) == ()


def test_nothing_before_the_newest_thinking_of_the_open_turn_is_changed() -> None:
    log = [*_calls([LONG] * 12), *_calls(["ok"] * 3, turn=2)]
    thought = replace(log[-2], blocks=(Thinking(text="Hm.", signature="s"), *log[-2].blocks))
    assert plan_pruning(log, STEADY, cache_cold=True, open_turn=2)
    assert plan_pruning([*log[:-2], thought, log[-1]], STEADY, cache_cold=True, open_turn=2) == ()
    assert plan_pruning([*log[:-2], thought, log[-1]], STEADY, cache_cold=True, open_turn=3)


def test_errors_and_what_newer_calls_name_are_not_cleared() -> None:
    failed = _calls(["x" * 3_000] * 20, is_error=True)
    assert plan_pruning(failed, STEADY, cache_cold=True, open_turn=1) == ()
    beside = ToolResult(tool_use_id="other", text="y" * 3_000)
    both = [replace(e, blocks=(*e.blocks, beside)) if e.seq == 1002 else e for e in failed]
    assert plan_pruning(both, STEADY, cache_cold=True, open_turn=1) == ()
    log = _calls(["x" * 3_000 + str(i) for i in range(20)])
    edit = ToolUse(id="edit", name="edit", input={"path": "file 1 0"})
    log += [
        entry(1990, 1, edit, author="assistant"),
        entry(1991, 1, ToolResult(tool_use_id="edit", text="ok"), author="tool"),
    ]
    cleared = {decision.seq for decision in plan_pruning(log, STEADY, cache_cold=True, open_turn=1)}
    assert 1002 not in cleared
    assert {1004, 1006} <= cleared


def test_the_next_batch_begins_where_the_last_one_ended() -> None:
    log = _calls(["x" * 3_000 + str(i) for i in range(20)])
    assert places_to_change(log, STEADY) == (2,)
    made = plan_pruning(log, STEADY, cache_cold=True, open_turn=1)
    assert [decision.seq for decision in made] == [1002 + 2 * i for i in range(10)]
    once = apply_decisions(log, made)
    assert set(places_to_change(once, STEADY)) == {2, 22}
    assert places_to_change(apply_decisions(once, ()), STEADY) == (22,)


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
        elif len(before.blocks[0].text) > len(policy.pruning.prune_cleared):  # type: ignore[union-attr]
            assert len(_text(now, policy)) <= len(_text(before, policy))


# ---- rule `protect`, and clearing above the limit


def _worth(turn: int, tokens: int, text: str = LONG) -> list[Entry]:
    made = tool_turn(turn, f"{turn} {text}", seq=10 * turn)
    return [replace(e, tokens=tokens) if e.author == "tool" else e for e in made]


@pytest.mark.parametrize(
    ("oldest", "cleared"), [([20_000], []), ([20_100], [10]), ([10_000, 10_100], [10, 20]), ([1_000], [])]
)
def test_opencode_clears_beyond_40000_tokens_if_over_20000_are_saved(
    oldest: list[int], cleared: list[int]
) -> None:
    old = [e for turn, tokens in enumerate(oldest, 1) for e in _worth(turn, tokens)]
    new = [e for turn in range(11, 15) for e in _worth(turn, 10_000)]
    log = [*old, *new, *exchanges(3, first=20)]
    decided = plan_pruning(log, preset("opencode"), cache_cold=True)
    assert [(d.seq, d.form) for d in decided] == [(seq + 2, "clear") for seq in cleared]
    assert all(
        _text(e, preset("opencode")) == "[output too long, was trimmed]"
        for e in _decided(log, decided)
        if e.pruned
    )


def test_opencode_never_touches_the_last_two_turns() -> None:
    log = [e for turn in (1, 2) for e in _worth(turn, 90_000)]
    assert plan_pruning(log, preset("opencode"), cache_cold=True) == ()
    asked = [*log, entry(90, 9, "And now?")]
    assert plan_pruning(asked, preset("opencode"), cache_cold=True, open_turn=9) == ()
    assert len(plan_pruning([*asked, *exchanges(1, first=12)], preset("opencode"), cache_cold=False)) == 1


def test_small_batch_is_not_pruned_cold_by_policy() -> None:
    log = [replace(e, tokens=7_000) if e.author == "tool" else e for e in _log([LONG], after=3)]
    assert plan_pruning(log, STEADY, cache_cold=True)
    assert plan_pruning(log, STEADY.with_settings(prune_when_cold=False), cache_cold=True) == ()


@pytest.mark.parametrize(("saved", "taken"), [(7_999, False), (8_000, True), (8_001, True)])
def test_a_batch_is_taken_at_just_what_it_must_save(saved: int, taken: bool) -> None:
    log = [replace(e, tokens=saved) if e.author == "tool" else e for e in _log(["x" * 10_000], after=10)]
    nothing_left = STEADY.with_settings(prune_rule="age", prune_cleared="")
    assert bool(plan_pruning(log, nothing_left, cache_cold=False)) is taken
    over = nothing_left.with_settings(prune_batch_over=True)
    assert bool(plan_pruning(log, over, cache_cold=False)) is (saved > 8_000)


def test_a_policy_without_pruning_prunes_nothing() -> None:
    assert plan_pruning(_log([LONG], after=20), preset("arawn"), cache_cold=True) == ()


CLAUDE = preset("claude-code")
ROOM = budget_for(CLAUDE, 200_000, 8_192, 1_000)


def _tool_log(turns: int, tokens: int) -> list[Entry]:
    return [e for turn in range(1, turns + 1) for e in _worth(turn, tokens)]


def test_claude_code_prunes_nothing_below_its_limit() -> None:
    log = _tool_log(12, 10_000)
    assert plan_pruning(log, CLAUDE, cache_cold=True) == ()
    assert clear_first(view(log), ROOM, CLAUDE, ROOM.compact_at) == ()


def test_oldest_results_are_cleared_above_the_limit() -> None:
    log = _tool_log(15, 10_000)
    decided = clear_first(view(log), ROOM, CLAUDE, ROOM.compact_at + 1)
    assert [d.seq for d in decided] == [12, 22, 32]
    assert {d.form for d in decided} == {"clear"}
    assert is_clearing_enough(view(log), ROOM, CLAUDE, ROOM.compact_at + 1)
    assert next_job(view(log), budget=ROOM, policy=CLAUDE, context_tokens=ROOM.compact_at + 1) is None


def test_a_summary_follows_when_clearing_is_not_enough() -> None:
    log = [*_tool_log(1, 10_000), *exchanges(20, first=30, tokens=4_000)]
    over = ROOM.compact_at + 11_000
    assert len(clear_first(view(log), ROOM, CLAUDE, over)) == 1
    assert not is_clearing_enough(view(log), ROOM, CLAUDE, over)
    wish = next_job(view(log), budget=ROOM, policy=CLAUDE, context_tokens=over)
    assert wish is not None
    assert wish.kind == "compact"


def test_to_a_target_repeats_go_first_then_trims_then_clears_oldest_first() -> None:
    same = [e for turn in (4, 5) for e in tool_turn(turn, LONG, seq=10 * turn)]
    log = [*_tool_log(3, 9_000), *same, *exchanges(3, first=20)]
    log = [replace(e, tokens=9_000) if e.author == "tool" else e for e in log]

    def forms(save: int) -> list[tuple[int, str]]:
        return [(d.seq, d.form) for d in prune_to_target(log, STEADY, save=save)]

    assert forms(0) == []
    assert forms(1) == [(42, "duplicate")]
    assert forms(9_000) == [(12, "trim"), (42, "duplicate")]
    assert forms(32_000) == [(12, "trim"), (22, "trim"), (32, "trim"), (42, "duplicate"), (52, "trim")]
    assert forms(34_000)[0] == (12, "clear")
    assert {form for _, form in forms(10**9)} == {"clear", "duplicate"}


@pytest.mark.parametrize("tail", ["ValueError: bad", "Exception in thread", "3 tests failed", "ERROR 500"])
def test_every_way_to_say_that_it_went_wrong_keeps_the_longer_tail(tail: str) -> None:
    one = replace(_log(["x" * 20_000 + tail], after=0)[2], pruned="trim")
    assert len(_text(one, STEADY)) > STEADY.pruning.prune_head_chars + STEADY.pruning.prune_error_tail_chars


# ---- properties


SECTIONS: tuple[dict[str, object], ...] = (
    {},
    {"deny": ["fetch*"]},
    {"tools": [{"match": "fetch*", "rule": "clear"}, {"match": "*", "rule": "trim", "head_chars": 100}]},
    {"tools": [{"match": "*", "over_chars": 0, "head_chars": 9_000, "tail_chars": 9_000}]},
)


def _half(tool: str, text: str, policy: ContextPolicy) -> str | None:
    return text[: len(text) // 2] if tool == "read" else None


@st.composite
def _histories(draw: st.DrawFn) -> list[Entry]:
    texts = st.sampled_from(["", "ok", "é" * 300, "same " * 1_000, "x" * 4_001, "long error " * 2_000])
    entries: list[Entry] = []
    for turn in range(1, draw(st.integers(1, 16)) + 1):
        seq = 20 * turn
        if draw(st.booleans()):
            name = draw(st.sampled_from(["fetch_page", "read", "look_up"]))
            entries += tool_turn(turn, draw(texts), seq=seq, name=name, is_error=draw(st.booleans()))
        else:
            entries += exchange(turn, draw(texts) or "Hello", "Hi", seq=seq)
    tokens = draw(st.sampled_from([10, 3_000, 30_000]))
    pinned = draw(st.booleans())
    return [
        replace(e, tokens=tokens, pinned=pinned and e.turn == 1) if e.author == "tool" else e for e in entries
    ]


@settings(max_examples=120)
@given(
    log=_histories(),
    name=st.sampled_from(["steady", "spec008", "opencode", "claude-code"]),
    section=st.sampled_from(SECTIONS),
    plug_in=st.booleans(),
    cold=st.booleans(),
    data=st.data(),
)
def test_whatever_is_decided_turn_by_turn_only_ever_shortens_results(
    log: list[Entry],
    name: str,
    section: dict[str, object],
    plug_in: bool,
    cold: bool,
    data: st.DataObject,
) -> None:
    """Never longer, sticky and monotone, idempotent, words untouched, and the request stays valid."""
    policy = preset(name).with_settings(prune_rules=prune_rules(section, [_half] if plug_in else []))
    budget = budget_for(policy, 200_000, 8_192, 1_000)
    by_turn = sorted({e.turn for e in log})
    seen: dict[int, Entry] = {}
    for upto in by_turn:
        now = [seen.get(e.seq, e) for e in log if e.turn <= upto]
        used = data.draw(st.sampled_from([0, budget.compact_at + 1]))
        decided = (
            *plan_pruning(now, policy, cache_cold=cold),
            *clear_first(view(now), budget, policy, used),
        )
        after = apply_decisions(now, decided)
        for before, later in zip(now, after, strict=True):
            old, new = apply_pruning(before, policy), apply_pruning(later, policy)
            if before.author != "tool" or before.pinned:
                assert new == before.blocks
                continue
            for was, result in zip(tool_results(old), tool_results(new), strict=True):
                assert len(result.text) <= max(len(was.text), len(policy.pruning.prune_cleared))
                assert (result.tool_use_id, result.is_error) == (was.tool_use_id, was.is_error)
        assert plan_pruning(after, policy, cache_cold=cold) == ()
        seen |= {e.seq: e for e in after}
        messages = tuple(
            Message(role=e.role, blocks=apply_pruning(e, policy)) for e in (*after, entry(999, 99, "And?"))
        )
        assert repair(messages) == repair(repair(messages))
        assert sum(len(tool_results(m.blocks)) for m in repair(messages)) == sum(
            len(tool_results(e.blocks)) for e in after
        )
