"""The closed table of forms: every text is read into the same parts, however the headings are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.compaction.next_ledger import LedgerPatch, NewItem, apply_patch
from shared.core.context.prompts import OUR_TAGS, summary_block
from shared.core.presets.catalog import PRESETS
from shared.core.session.ledger import Ledger, LedgerItem, Section, Topic, ledger_from_json, ledger_to_json
from shared.core.session.summary import (
    FORMS,
    convert_to_ledger,
    fit_ledger,
    five_fields,
    form_of,
    has_known_heading,
    is_blank,
    render_summary,
    sections_in,
)
from shared.core.session.summary_strategy import SummaryForm
from shared.core.values.tokens import estimate_by_script
from tests.kit.builders import words

SECTIONS = form_of("sections")
HANDOVER = form_of("handover")


def test_every_form_of_a_policy_is_in_the_table() -> None:
    assert set(FORMS) == set(get_args(SummaryForm))
    assert {policy.writing.summary_form for policy in PRESETS.values()} <= set(FORMS)
    assert {form.tag for form in FORMS.values()} <= set(OUR_TAGS)


@pytest.mark.parametrize("name", get_args(SummaryForm))
def test_a_summary_is_shown_in_the_tag_of_its_form(name: SummaryForm) -> None:
    shown = summary_block("Tea.", through_seq=7, form=name)
    if name == "sections":
        assert shown.startswith("<compressed_history_summary>\n")
        assert shown.endswith("</compressed_history_summary>")
    else:
        assert shown.startswith('<conversation_summary through_seq="7">\n')


def test_headings_are_found_as_models_write_them_and_put_into_order() -> None:
    text = (
        "**Action Items:**\n- Buy tea\n# 2. Decisions and Conclusions\n- Tea it is\n### context\nTea.\n"
        "## Mood\nGood"
    )
    assert sections_in(text, SECTIONS) == (
        Section(heading="Context", text="Tea."),
        Section(heading="Decisions & Conclusions", text="- Tea it is"),
        Section(heading="Action Items", text="- Buy tea"),
        Section(heading="Mood", text="Good"),
    )


def test_empty_sections_are_left_out() -> None:
    text = "## Context\nTea.\n## Key Information\nNone\n## Action Items\n- None yet.\n## Code & Technical\n"
    assert [section.heading for section in sections_in(text, SECTIONS)] == ["Context"]


def test_a_heading_inside_a_block_of_code_is_code() -> None:
    text = "## Code & Technical\n```sh\n# Context\nls\n```"
    found = sections_in(text, SECTIONS)
    assert found == (Section(heading="Code & Technical", text="```sh\n# Context\nls\n```"),)


def test_a_form_without_headings_takes_the_text_as_it_is() -> None:
    assert sections_in(" ## Tea\nis good \n", form_of("thread")) == (
        Section(heading="", text="## Tea\nis good"),
    )
    assert not has_known_heading((Section(heading="Mood", text="x"),), HANDOVER)


@pytest.mark.parametrize("text", ["", "none", "- N/A", "**None.**", "nichts", "None yet"])
def test_words_that_stand_for_nothing(text: str) -> None:
    assert is_blank(text)
    assert not is_blank(f"{text} but tea")


TEXT = Ledger(
    form="sections",
    sections=(
        Section(heading="Context", text="They talk about tea."),
        Section(heading="Key Information", text="- Bob is 40.\n- Tea costs 3 euros."),
        Section(heading="Action Items", text="- Buy tea\n- When do we meet?"),
        Section(heading="Code & Technical", text="```py\nprint(1)\nprint(2)\n```"),
    ),
    items=(LedgerItem(id="c4", kind="constraint", text="Never call before 9.", sources=(3,)),),
    last_number=4,
)


def test_the_five_fields_of_a_text_come_from_its_headings() -> None:
    assert five_fields(TEXT) == {
        "summary_text": "They talk about tea.",
        "key_facts": ["Never call before 9.", "Bob is 40.", "Tea costs 3 euros.", "print(1) print(2)"],
        "decisions": [],
        "open_questions": ["When do we meet?"],
        "action_items": ["Buy tea"],
        "range": [],
        "sources": [3],
    }


def test_a_text_becomes_items_with_new_ids_when_the_form_changes() -> None:
    made = convert_to_ledger(TEXT)
    assert [item.id for item in made.items] == ["c4", "f5", "f6", "a7", "q8", "t9"]
    assert (made.form, made.sections, made.last_number) == ("ledger", (), 9)
    again = apply_patch(TEXT, LedgerPatch(narrative="n", add=(NewItem(kind="goal", text="g"),)))
    assert again.items[-1].id == "g10"


def test_a_text_is_shown_with_what_code_keeps_beside_it() -> None:
    shown = render_summary(TEXT)
    assert shown.startswith("## Context\nThey talk about tea.\n\n## Key Information\n- Bob is 40.")
    assert shown.endswith("## What must not be done\n- Never call before 9. (#3)")


def test_every_value_of_a_ledger_survives_its_json() -> None:
    topic = Topic(label="tea, cups", from_turn=1, through_turn=3, from_seq=1, through_seq=7)
    full = Ledger(
        narrative="n", items=TEXT.items, identifiers=("Bob",), last_number=4, topics=(topic,),
        form="handover", sections=TEXT.sections,
    )  # fmt: skip
    assert ledger_from_json(ledger_to_json(full)) == full
    assert set(ledger_to_json(Ledger())) == {"narrative", "items", "identifiers", "last_number"}
    assert ledger_from_json({"form": "unheard of"}).form == "ledger"


@given(st.integers(min_value=4, max_value=40))
def test_a_text_is_cut_to_its_room_and_its_code_is_closed(room: int) -> None:
    made = fit_ledger(TEXT, room, words)
    shown = render_summary(made)
    assert words(shown) <= room
    assert shown.count("```") % 2 == 0
    assert [item.id for item in made.items] == ["c4"], "an item is closed, never dropped"


def test_where_there_is_room_a_prohibition_outlives_the_text() -> None:
    long = Ledger(
        form="running", sections=(Section(heading="", text="tea is good. " * 50),), items=TEXT.items
    )
    shown = render_summary(fit_ledger(long, 60, words))
    assert "Never call before 9." in shown
    assert "tea is good." in shown
    assert words(shown) <= 60


@given(
    st.lists(st.text("abc.!? \n日本", min_size=1, max_size=120), min_size=1, max_size=12),
    st.integers(min_value=24, max_value=400),
    st.sampled_from([estimate_by_script, words]),
)
def test_cut_text_keeps_half_its_room_and_a_mark(
    parts: list[str], room: int, count: Callable[[str], int]
) -> None:
    text = " ".join(parts).strip()
    made = render_summary(
        fit_ledger(Ledger(form="running", sections=(Section(heading="", text=text),)), room, count)
    )
    if count(text) <= room:
        assert made == text
        return
    assert count(made) <= room
    assert made.endswith(" …")
    assert text.startswith(made.removesuffix(" …"))
    assert count is words or count(made) >= room // 2
