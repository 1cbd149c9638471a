"""From a model's answer to the next ledger: lenient reading, conservation by code, one rendering."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.compaction.next_ledger import (
    KINDS,
    LedgerPatch,
    NewItem,
    Unreadable,
    apply_patch,
    parse_ledger_patch,
)
from shared.core.compaction.summary_prompts import describe_form
from shared.core.session.ledger import Ledger, LedgerItem, ledger_from_json, ledger_to_json
from shared.core.session.summary import ITEM_CHARS, LEFT_OUT, fit_ledger, five_fields, form_of, render_summary
from shared.core.values.identifiers import identifiers_of
from tests.kit.builders import words

ANSWER = {
    "narrative": "They plan a trip.",
    "add": [{"kind": "fact", "text": "Anna has two cats.", "sources": [3, "#5"], "author": "person"}],
    "replace": {"f1": "New text."},
    "close": {"q2": "answered"},
}
FORMER = Ledger(
    narrative="Before.",
    items=(
        LedgerItem(id="f1", kind="fact", text="Old text.", sources=(1,)),
        LedgerItem(id="q2", kind="question", text="When?", sources=(2,)),
        LedgerItem(id="c3", kind="constraint", text="Never call.", sources=(2,)),
        LedgerItem(id="f4", kind="fact", text="Gone before.", closed="was wrong"),
    ),
    last_number=4,
)


def _patch(text: str) -> LedgerPatch:
    made = parse_ledger_patch(text)
    assert isinstance(made, LedgerPatch), made
    return made


@pytest.mark.parametrize(
    "wrapped",
    [
        "{}",
        "```json\n{}\n```",
        "Sure! Here is the record {{so far}}:\n{}\nHope this helps.",
    ],
)
def test_the_answer_is_found_whatever_stands_around_it(wrapped: str) -> None:
    patch = _patch(wrapped.replace("{}", json.dumps(ANSWER)))
    assert patch.narrative == "They plan a trip."
    assert patch.add == (NewItem(kind="fact", text="Anna has two cats.", sources=(3, 5)),)
    assert patch.replace == (("f1", "New text."),)
    assert patch.close == (("q2", "answered"),)


def test_trailing_commas_unknown_kinds_and_lists_are_forgiven() -> None:
    patch = _patch(
        '{"narrative": "x", "add": [{"kind": "Decisions", "text": "a"}, {"kind": "idea", "text": "b"},'
        ' "c", 5],'
        ' "replace": [{"id": "f1", "text": "n"}], "close": [{"id": "q2", "reason": "r"}],}'
    )
    assert [item.kind for item in patch.add] == ["decision", "fact", "fact"]
    assert patch.replace == (("f1", "n"),)
    assert patch.close == (("q2", "r"),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("I cannot do that.", "no JSON"),
        ('{"narrative": "x", "add": [{"kind": "fact", "te', "cut off"),
        ('{"answer": 42}', "cannot be read"),
    ],
)
def test_what_cannot_be_read_has_a_reason(text: str, reason: str) -> None:
    made = parse_ledger_patch(text)
    assert isinstance(made, Unreadable)
    assert reason in made.reason


@given(st.text())
def test_reading_an_answer_never_fails(text: str) -> None:
    assert parse_ledger_patch(text) is not None
    assert parse_ledger_patch("{" + text + "}") is not None


def test_items_leave_only_with_a_reason() -> None:
    made = apply_patch(FORMER, _patch(json.dumps(ANSWER)))
    assert {item.id: (item.text, item.closed) for item in made.items} == {
        "f1": ("New text.", None),
        "q2": ("When?", "answered"),
        "c3": ("Never call.", None),
        "f5": ("Anna has two cats.", None),
    }


def test_closing_without_a_reason_or_an_unknown_item_does_nothing() -> None:
    made = apply_patch(FORMER, LedgerPatch(close=(("f1", " "), ("x9", "gone")), replace=(("f1", ""),)))
    assert [item.id for item in made.items] == ["f1", "q2", "c3"]
    assert all(item.closed is None for item in made.items)
    assert made.narrative == "Before."


def test_an_id_is_never_used_twice_even_after_its_item_is_history() -> None:
    once = apply_patch(FORMER, LedgerPatch(add=(NewItem(kind="goal", text="a"),), close=(("f1", "r"),)))
    closed = apply_patch(once, LedgerPatch(close=(("g5", "done"),)))
    later = apply_patch(closed, LedgerPatch())
    again = apply_patch(
        ledger_from_json(ledger_to_json(later)), LedgerPatch(add=(NewItem(kind="goal", text="b"),))
    )
    assert [item.id for item in again.items] == ["q2", "c3", "g6"]


def test_saying_it_again_only_adds_its_sources() -> None:
    again = LedgerPatch(add=(NewItem(kind="fact", text="old TEXT", sources=(9,)),))
    made = apply_patch(FORMER, again)
    assert made.items[0].sources == (1, 9)
    assert len(made.items) == 3


def test_length_limits_are_code() -> None:
    patch = LedgerPatch(narrative="word " * 300, add=(NewItem(kind="fact", text="long " * 200),))
    made = apply_patch(Ledger(), patch)
    assert len(made.narrative.split()) <= 121
    assert len(made.items[0].text) <= ITEM_CHARS + 2


def test_rendering_is_stable_and_leaves_closed_items_out() -> None:
    assert render_summary(FORMER) == (
        "Before.\n\n## What must not be done\n- Never call. (#2)\n\n## Facts\n- Old text. (#1)"
        "\n\n## Open questions\n- When? (#2)"
    )


def test_the_five_fields_are_a_view_of_the_ledger() -> None:
    fields = five_fields(FORMER)
    assert fields["summary_text"] == "Before."
    assert fields["key_facts"] == ["Old text.", "Never call."]
    assert fields["open_questions"] == ["When?"]
    assert fields["decisions"] == fields["action_items"] == []


def test_a_ledger_that_grew_too_long_makes_room_with_a_reason() -> None:
    items = tuple(NewItem(kind=KINDS[i % 9], text=f"item {i} " + "w " * 20) for i in range(36))
    ledger = apply_patch(Ledger(narrative="n"), LedgerPatch(narrative="n", add=items))
    made = fit_ledger(ledger, 400, words)
    assert words(render_summary(made)) <= 400
    assert len(made.items) == 36
    gone = [item for item in made.items if item.closed is not None]
    assert {item.closed for item in gone} == {LEFT_OUT}
    assert all(item.kind not in ("constraint", "goal", "question") for item in gone)


def test_a_ledger_that_fits_is_left_alone() -> None:
    assert fit_ledger(FORMER, 400, words) is FORMER


_new_items = st.builds(NewItem, kind=st.sampled_from(KINDS), text=st.text(max_size=40))
_patches = st.builds(
    LedgerPatch,
    narrative=st.text(max_size=40),
    add=st.lists(_new_items, max_size=4).map(tuple),
    replace=st.lists(st.tuples(st.sampled_from(["f1", "f2", "q3"]), st.text(max_size=9)), max_size=2).map(
        tuple
    ),
    close=st.lists(st.tuples(st.sampled_from(["f1", "g2", "q3"]), st.text(max_size=9)), max_size=2).map(
        tuple
    ),
)


@given(st.lists(_patches, max_size=5))
def test_whatever_a_model_says_no_open_item_disappears_silently(patches: list[LedgerPatch]) -> None:
    ledger = Ledger()
    for patch in patches:
        after = apply_patch(ledger, patch)
        ids = {item.id: item for item in after.items}
        assert len(ids) == len(after.items)
        for item in ledger.items:
            if item.closed is None:
                assert ids[item.id].closed is None or ids[item.id].closed.strip()  # type: ignore[union-attr]
        assert ledger_from_json(ledger_to_json(after)) == after
        ledger = after


def test_identifiers_are_names_numbers_and_addresses_but_never_secrets() -> None:
    text = (
        "Then Anna Lee paid 1,250 for it at https://example.org/a?b=1. Write to anna@example.org or see "
        "/srv/data/plan.txt. The key is sk-ant-abcdefghij1234567890."
    )
    found = identifiers_of(text)
    assert found == (
        "Anna Lee", "1,250", "https://example.org/a?b=1", "anna@example.org", "/srv/data/plan.txt"
    )  # fmt: skip


def test_the_ledgers_request_names_limits_that_code_does_not_have_to_enforce() -> None:
    """What a model writes within them stands in the summary as it was written."""
    asked = describe_form(form_of("ledger"), Ledger(), most_words=500)
    items, words_each = map(int, re.findall(r"at most (\d+) items of at most (\d+) words", asked)[0])
    assert 5 <= items < 40
    text = "sails " * (words_each - 2) + "number"
    patch = LedgerPatch(
        narrative="n " * int(re.findall(r"at most (\d+) words\"", asked)[0]),
        add=tuple(NewItem(kind="fact", text=f"{text} {number}", sources=(number,)) for number in range(8)),
    )
    made = apply_patch(Ledger(), patch)
    assert all(item.text.startswith(text) for item in made.items)
    assert fit_ledger(made, 500, words) == made
    tight = describe_form(form_of("ledger"), made, most_words=120)
    assert "Add at most 5 items" in tight
    assert "close or shorten old items" in tight
