"""A new summary beside the one before: what changed, what left and why, which facts it does not say."""

from __future__ import annotations

from dataclasses import replace

from shared.core.compaction.summary_diff import compare, says
from shared.core.session.ledger import Ledger, LedgerItem

FORMER = Ledger(
    items=(
        LedgerItem(id="f1", kind="fact", text="Flight LX812 leaves at 9:40."),
        LedgerItem(id="q1", kind="question", text="Which hotel?"),
        LedgerItem(id="f2", kind="fact", text="She is allergic to shellfish."),
        LedgerItem(id="f3", kind="fact", text="The budget is 1,800 euros."),
    )
)
LEDGER = Ledger(
    items=(
        FORMER.items[0],
        replace(FORMER.items[1], closed="answered"),
        replace(FORMER.items[3], text="The budget is 2,000 euros."),
        LedgerItem(id="d1", kind="decision", text="They stay in the Alfama."),
    )
)
BEFORE = "They plan a trip to Lisbon. Flight LX812 leaves at 9:40.\n\n- Open: which hotel?"
AFTER = "They plan a trip to Lisbon. They stay in the Alfama.\n\n- Budget: 2,000 euros (#12)"


def test_summary_diff_names_the_fate_of_each_item() -> None:
    found = compare(FORMER, BEFORE, LEDGER, AFTER)
    told = {item.id: (item.change, item.former, item.reason) for item in found.items}
    assert told == {
        "q1": ("closed", "", "answered"),
        "f2": ("lost", "", ""),
        "f3": ("changed", "The budget is 1,800 euros.", ""),
        "d1": ("added", "", ""),
    }
    assert found.kept == 1


def test_words_are_compared_sentence_by_sentence_and_lines_of_lists_stay_whole() -> None:
    lines = [(line.change, line.text) for line in compare(FORMER, BEFORE, LEDGER, AFTER).lines]
    assert lines == [
        ("same", "They plan a trip to Lisbon."),
        ("removed", "Flight LX812 leaves at 9:40."),
        ("removed", "- Open: which hotel?"),
        ("added", "They stay in the Alfama."),
        ("added", "- Budget: 2,000 euros (#12)"),
    ]


def test_each_line_of_a_list_is_compared_alone() -> None:
    former, now = "- Which hotel? Near the sea.\n- Which flight?", "- Which flight?"
    lines = [(line.change, line.text) for line in compare(FORMER, former, LEDGER, now).lines]
    assert lines == [("removed", "- Which hotel? Near the sea."), ("same", "- Which flight?")]


def test_items_that_the_text_does_not_say_are_named() -> None:
    assert [item.id for item in compare(FORMER, BEFORE, LEDGER, AFTER).unsaid] == ["f1"]


def test_a_fact_is_said_by_its_names_and_most_of_its_words() -> None:
    assert says("The flight LX812 leaves in the morning at 9:40", "Flight LX812 leaves at 9:40.")
    assert not says("The flight leaves in the morning at 9:40", "Flight LX812 leaves at 9:40.")
    assert not says("They plan a trip.", "She is allergic to shellfish.")
    assert says("anything", "")


def test_the_first_summary_has_no_former_and_all_of_it_is_new() -> None:
    found = compare(Ledger(), "", LEDGER, AFTER)
    assert {line.change for line in found.lines} == {"added"}
    assert {item.change for item in found.items} == {"added"}
