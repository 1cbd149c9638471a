"""Hiding chatter: whole messages of assistant and tools, oldest first, and never what must stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.context.build_context import build_context, select
from shared.core.context.prompts import default_layers
from shared.core.overflow.filler_trimming import HIDE_DOWN_TO, hiding_threshold, plan_hiding
from shared.core.presets.catalog import preset
from shared.core.session.budget import ContextBudget, budget_for
from shared.core.session.ledger import ItemKind, Ledger, LedgerItem
from shared.core.session.pruning import PruneDecision
from shared.core.session.session import Compaction, CompactionBackoff, Entry, View
from tests.kit.builders import entry, exchange, exchanges, tool_turn, view, words
from tests.kit.valid_requests import assert_valid_request

PANTHEON = preset("pantheon")
BUDGET: ContextBudget = budget_for(PANTHEON, 8_192, 8_192, 200)
AT = hiding_threshold(PANTHEON, BUDGET) or 0


def asked(log: Sequence[Entry], tokens: int = AT, **more: Any) -> list[int]:
    """After an undo summarising is on hold, so chatter is all that can go."""
    state = view([*log, entry(9_000, 900, "now")], open_turn=900, hold_compaction=True)
    return [
        d.seq for d in plan_hiding(replace(state, **more), PANTHEON, budget=BUDGET, context_tokens=tokens)
    ]


def test_the_boundary_is_nine_tenths_of_the_input_budget_and_equal_counts() -> None:
    assert BUDGET.hard == 8_192 - 1_638 - 1_024
    assert AT == 4_977, "the first whole number that is not below 4,977"
    log = exchanges(20, tokens=200)
    assert asked(log, AT - 1) == []
    assert asked(log, AT) != []
    assert asked(log, AT + 1) != []


def test_no_other_preset_hides_anything() -> None:
    assert hiding_threshold(preset("steady"), BUDGET) is None
    state = view(exchanges(20, tokens=900))
    assert plan_hiding(state, preset("steady"), budget=BUDGET, context_tokens=90_000) == ()


def test_only_the_assistants_messages_go_oldest_first_until_there_is_room() -> None:
    found = asked(exchanges(20, tokens=200))
    wanted = -(-(AT - int(HIDE_DOWN_TO * AT)) // 200)
    assert found == [2 * turn for turn in range(1, wanted + 1)]


def test_the_last_four_turns_stay_whole() -> None:
    log = exchanges(6, tokens=200)
    assert asked(log, 90_000) == [2, 4]


def test_filler_calls_and_results_go_together_before_meaningful_text() -> None:
    log = [
        *exchange(1, "when?", "We meet on 14 March 2027 at https://example.org/room.", seq=1),
        *tool_turn(2, "found", seq=10),
        *exchanges(4, first=3),
    ]
    found = asked(log, 90_000)
    assert found.index(11) + 1 == found.index(12)
    assert found[-1] == 2, "a message with a date and an address is the last to go"
    assert 1 not in found
    assert 10 not in found


@pytest.mark.parametrize(
    ("kind", "stays"), [("fact", True), ("decision", True), ("question", True), ("goal", False)]
)
def test_what_the_newest_summary_cites_stays(kind: ItemKind, stays: bool) -> None:
    item = LedgerItem(id="i1", kind=kind, text="tea", sources=(2,))
    head = Compaction(id=1, kind="summary", from_turn=1, through_turn=1, ledger=Ledger(items=(item,)))
    assert (2 not in asked(exchanges(8, tokens=200), 90_000, head=head)) is stays
    closed = replace(head, ledger=Ledger(items=(replace(item, closed="done"),)))
    assert 2 in asked(exchanges(8, tokens=200), 90_000, head=closed)


def test_pins_and_unanswered_turns_stay() -> None:
    log = exchanges(8, tokens=200)
    log[1] = replace(log[1], pinned=True)
    log[4:6] = tool_turn(3, "half", seq=500)[:2]
    assert {2, 501} & set(asked(log, 90_000)) == set()


def test_summarising_comes_first_while_it_can_help() -> None:
    log = exchanges(20, tokens=200)
    state = view([*log, entry(9_000, 900, "now")], open_turn=900)
    assert plan_hiding(state, PANTHEON, budget=BUDGET, context_tokens=AT) == ()
    over_hard = plan_hiding(state, PANTHEON, budget=BUDGET, context_tokens=BUDGET.hard + 1)
    assert over_hard, "what does not fit at all cannot wait for a summary"


@pytest.mark.parametrize(("until_turn", "hidden"), [(0, False), (10_000, True)])
def test_chatter_is_hidden_while_a_refused_summary_rests(until_turn: int, hidden: bool) -> None:
    rest = CompactionBackoff(
        reason="thrashing", limit=BUDGET.limit, model="chat-model", pins=(), until_turn=until_turn
    )
    log = exchanges(20, tokens=200)
    assert bool(asked(log, hold_compaction=False, backoff=rest)) is hidden


def test_decisions_stick_and_asking_again_takes_the_next_ones() -> None:
    log = exchanges(20, tokens=200)
    hidden = set(asked(log))
    later = [replace(e, pruned="hide") if e.seq in hidden else e for e in log]
    assert not hidden & set(asked(later))


@given(
    turns=st.lists(st.sampled_from(["plain", "tools", "lost"]), min_size=1, max_size=14),
    tokens=st.integers(0, 20_000),
)
def test_the_request_without_chatter_is_valid_and_holds_every_word_of_people(
    turns: list[str], tokens: int
) -> None:
    log: list[Entry] = []
    for turn, kind in enumerate(turns, 1):
        made = (
            tool_turn(turn, "found", seq=10 * turn)
            if kind == "tools"
            else exchange(turn, "q", "a", seq=10 * turn)
        )
        log += made[:1] if kind == "lost" else made
    state = view([*log, entry(9_000, 900, "now")], open_turn=900, hold_compaction=True)
    made_decisions = plan_hiding(state, PANTHEON, budget=BUDGET, context_tokens=tokens)
    shown = select(_with(state, made_decisions), PANTHEON).view
    gone = {e.seq for e in state.entries} - {e.seq for e in shown.entries}
    assert gone == {decision.seq for decision in made_decisions}
    assert all(e.author != "person" for e in state.entries if e.seq in gone)
    assert_valid_request(build_context(shown, policy=PANTHEON, system=default_layers(), count=words).messages)


def _with(state: View, decisions: Sequence[PruneDecision]) -> View:
    hidden = {decision.seq for decision in decisions}
    entries = (replace(e, pruned="hide") if e.seq in hidden else e for e in state.entries)
    return replace(state, entries=tuple(entries))
