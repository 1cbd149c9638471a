"""What of a view is sent: never less than must stay, never a request that the provider refuses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.context.build_context import (
    WINDOW_SLACK,
    WINDOW_WAITS,
    build_context,
    select,
    window_through,
)
from shared.core.context.prompts import default_layers
from shared.core.presets.catalog import preset
from shared.core.session.policy import ContextPolicy, with_overrides
from shared.core.session.session import Compaction, Entry, View, find_unresolved_turns
from shared.core.values.messages import Text, ToolUse
from tests.kit.builders import entry, exchanges, tool_turn, view, words
from tests.kit.valid_requests import assert_valid_request


def policy(**more: Any) -> ContextPolicy:
    return with_overrides(preset("steady"), **more)


def sent(state: View, chosen: ContextPolicy, **more: Any) -> list[int]:
    return [e.seq for e in select(state, chosen, **more).view.entries]


def talk(turns: int, *, tokens: int | None = None) -> View:
    """Ended turns of two messages, and the next message of the person."""
    log = [*exchanges(turns, tokens=tokens), entry(2 * turns + 1, turns + 1, "and now?", tokens=tokens)]
    return view(log, open_turn=turns + 1)


def test_without_limits_the_very_same_view_is_sent() -> None:
    state = talk(40)
    assert select(state, preset("steady")).view is state


@pytest.mark.parametrize(
    ("most", "seqs"), [(1, [9]), (2, [9]), (3, [7, 8, 9]), (5, [5, 6, 7, 8, 9]), (6, [5, 6, 7, 8, 9])]
)
def test_a_window_of_messages_begins_with_a_person_and_is_never_longer(most: int, seqs: list[int]) -> None:
    assert sent(talk(4), policy(window_messages=most)) == seqs


def test_tool_calls_and_results_are_not_counted_and_not_parted() -> None:
    log = [*exchanges(2), *tool_turn(3, "found", seq=10), entry(20, 4, "thanks")]
    assert sent(view(log, open_turn=4), policy(window_messages=3)) == [10, 11, 12, 13, 20]
    assert sent(view(log, open_turn=4), policy(window_messages=2)) == [20]


@pytest.mark.parametrize(("rounds", "seqs"), [(1, [9]), (2, [7, 8, 9]), (3, [5, 6, 7, 8, 9])])
def test_window_rounds_count_the_open_one(rounds: int, seqs: list[int]) -> None:
    assert sent(talk(4), policy(max_rounds=rounds)) == seqs
    assert len(seqs) <= 2 * rounds


@pytest.mark.parametrize(
    ("channel", "seqs"), [("telegram", [7, 8, 9]), ("web", [5, 6, 7, 8, 9]), (None, list(range(1, 10)))]
)
def test_turns_of_history_are_limited_by_the_channel_that_asks(channel: str | None, seqs: list[int]) -> None:
    limited = policy(history_turns=(("telegram", 1), ("web", 2)))
    assert sent(talk(4), limited, channel=channel) == seqs


@pytest.mark.parametrize(
    ("tokens", "seqs"), [(30, [7, 8, 9]), (29, [9]), (49, [7, 8, 9]), (50, [5, 6, 7, 8, 9])]
)
def test_a_trim_keeps_whole_newest_messages_from_a_person_on(tokens: int, seqs: list[int]) -> None:
    assert sent(talk(4, tokens=10), policy(trim_tokens=tokens)) == seqs


def test_a_trim_counts_the_summary_the_pins_and_the_sessions_ratio() -> None:
    head = Compaction(id=1, kind="summary", from_turn=1, through_turn=1, tokens=20, summary_text="tea")
    pin = entry(90, 1, "keep", tokens=10, pinned=True)
    state = replace(talk(4, tokens=10), head=head, pins=(pin,))
    assert sent(state, policy(trim_tokens=60)) == [7, 8, 9]
    assert sent(talk(4, tokens=10), policy(trim_tokens=60), ratio=2.0) == [7, 8, 9]


def test_a_trim_from_the_first_keeps_the_beginning_and_the_newest_message() -> None:
    chosen = policy(trim_tokens=40, trim_from="first")
    assert sent(talk(4, tokens=10), chosen) == [1, 2, 3, 9]


def test_trim_from_first_never_splits_a_call_and_its_result() -> None:
    log = [replace(e, tokens=10) for e in tool_turn(1, "found", seq=1)]
    state = view([*log, entry(9, 2, "next", tokens=10)], open_turn=2)
    assert sent(state, policy(trim_tokens=30, trim_from="first")) == [1, 9]
    assert sent(state, policy(trim_tokens=40, trim_from="first")) == [1, 2, 3, 9]


def test_the_newest_message_stays_however_large_it_is() -> None:
    state = view([*exchanges(3, tokens=10), entry(99, 4, "giant", tokens=90_000)], open_turn=4)
    assert sent(state, policy(trim_tokens=4_000)) == [99]
    ended = view([*exchanges(3, tokens=10), *exchanges(1, first=4, tokens=9_000)])
    assert sent(ended, policy(trim_tokens=4_000)) == [7, 8], "the gauge sees the newest person's message, too"


def test_pins_that_are_left_out_stand_among_the_pins() -> None:
    log = exchanges(6)
    log[1] = replace(log[1], pinned=True)
    chosen = select(view(log), policy(max_rounds=2))
    assert [e.seq for e in chosen.view.pins] == [2]
    assert [e.seq for e in chosen.left_out] == [1, *range(3, 9)]


def test_unanswered_turns_are_sent_however_old_they_are() -> None:
    log = [entry(100, 1, "lost question"), *exchanges(5, first=2)]
    assert find_unresolved_turns(log) == {1}
    assert sent(view(log), policy(max_rounds=1)) == [100, 11, 12]


def test_a_turn_whose_last_step_failed_is_unresolved_however_old_it_is() -> None:
    failed = tool_turn(1, "no", seq=1, is_error=True)
    assert find_unresolved_turns(failed) == {1}
    assert find_unresolved_turns([*failed, *exchanges(1, first=2)]) == {1}
    again = [replace(e, turn=1, step=e.step + 4) for e in tool_turn(1, "found", seq=20)]
    assert find_unresolved_turns([*failed, *again]) == frozenset(), "a second try that worked resolves it"
    call = entry(50, 3, ToolUse(id="x", name="look_up", input={}), author="assistant", step=1)
    assert find_unresolved_turns([*failed, entry(49, 3, "again"), call]) == {1, 3}


def test_what_a_flush_has_not_read_is_shown_to_the_flush() -> None:
    state = replace(view(exchanges(8)), flushed_turn=5)
    assert sent(state, policy(max_rounds=1)) == [15, 16]
    assert sent(state, policy(max_rounds=1), unread=True) == list(range(11, 17))


def test_hidden_chatter_is_sent_again_under_a_policy_that_hides_none() -> None:
    log = exchanges(3)
    log[1] = replace(log[1], pruned="hide")
    assert 2 not in sent(view(log), preset("pantheon"))
    assert 2 in sent(view(log), preset("steady"))
    log[1] = replace(log[1], pinned=True)
    assert 2 in sent(view(log), preset("pantheon"))


def test_window_link_is_made_for_fifty_unsendable_turns() -> None:
    chosen = policy(max_rounds=4)
    assert window_through(view(exchanges(WINDOW_SLACK + 4)), chosen) is None
    assert window_through(view(exchanges(WINDOW_SLACK + 5)), chosen) == WINDOW_SLACK + 1
    assert window_through(view(exchanges(500)), preset("steady")) is None


def test_a_limit_of_one_channel_alone_hides_nothing_for_good() -> None:
    state = view(exchanges(300))
    assert window_through(state, policy(history_turns=(("telegram", 5),))) is None
    assert window_through(state, policy(history_turns=(("telegram", 5), ("web", 100)))) == 200


def test_windows_of_messages_and_of_tokens_are_bounded_too() -> None:
    state = view(exchanges(100, tokens=10))
    assert window_through(state, preset("chatbox")) == 97
    assert window_through(state, policy(trim_tokens=100)) == 94, "ten messages, twelve with the least ratio"
    assert window_through(state, policy(trim_tokens=100, trim_from="first")) is None


def test_an_unanswered_turn_holds_the_link_back_but_not_for_ever() -> None:
    log = [*exchanges(60), entry(900, 61, "lost"), *exchanges(100, first=62)]
    assert window_through(view(log), policy(max_rounds=1)) == 60
    later = [*log, *exchanges(WINDOW_WAITS, first=162)]
    assert window_through(view(later), policy(max_rounds=1)) == 360


def seqs(entries: Iterable[Entry]) -> set[int]:
    return {e.seq for e in entries}


LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "window_messages": st.integers(1, 12),
        "max_rounds": st.integers(1, 6),
        "trim_tokens": st.integers(1, 200),
        "trim_from": st.sampled_from(["last", "first"]),
        "history_turns": st.just((("web", 3),)),
    },
)


@st.composite
def logs(draw: st.DrawFn) -> list[Entry]:
    log: list[Entry] = []
    for turn in range(1, draw(st.integers(1, 12)) + 1):
        seq = 10 * turn
        kind = draw(st.sampled_from(["plain", "tools", "lost", "doubled", "cut"]))
        if kind == "plain":
            log += [entry(seq, turn, "q"), entry(seq + 1, turn, "a", author="assistant", step=1)]
        elif kind == "doubled":
            log += [entry(seq, turn, "q"), entry(seq + 1, turn, "more", step=1)]
            log.append(entry(seq + 2, turn, "a", author="assistant", step=2))
        elif kind == "lost":
            log.append(entry(seq, turn, "q"))
        else:
            made = tool_turn(turn, "found", seq=seq, is_error=draw(st.booleans()))
            log += made[: 2 if kind == "cut" else 4]
    pinned = draw(st.sets(st.sampled_from([e.seq for e in log if e.author != "tool"]), max_size=2))
    return [replace(e, pinned=e.seq in pinned) for e in log]


@given(log=logs(), limits=LIMITS, asking=st.booleans())
def test_every_selection_is_a_valid_request_and_drops_nothing_that_must_stay(
    log: list[Entry], limits: dict[str, Any], asking: bool
) -> None:
    newest = log[-1].turn + 1
    entries = [*log, entry(999, newest, "now")] if asking else log
    state = view(entries, open_turn=newest if asking else None)
    chosen = select(state, policy(**limits), channel="web")
    kept = chosen.view.entries
    shown = seqs(kept) | seqs(chosen.view.pins)
    assert shown | seqs(chosen.left_out) == seqs(entries), "every message is somewhere"
    assert shown >= {e.seq for e in entries if e.pinned}
    assert find_unresolved_turns(entries, state.open_turn) <= {e.turn for e in kept}
    assert not asking or kept[-1].seq == 999
    if kept:
        assert kept[0].author == "person"
        calls = [e for e in kept if any(isinstance(b, ToolUse) for b in e.blocks)]
        results = {e.seq for e in kept if e.author == "tool"}
        stored = {e.seq for e in entries if e.author == "tool"}
        assert all(call.seq + 1 in results for call in calls if call.seq + 1 in stored)
        made = build_context(chosen.view, policy=policy(), system=default_layers(), count=words)
        assert_valid_request(made.messages)


def test_texts_are_never_cut() -> None:
    state = talk(20, tokens=30)
    for one in select(state, policy(trim_tokens=100)).view.entries:
        assert one in state.entries
        assert isinstance(one.blocks[0], Text)
