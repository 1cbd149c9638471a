"""The day behind notes, pins and items of a record: on which something was said, by the person's clock."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import get_args
from zoneinfo import ZoneInfo

from shared.core.compaction.next_ledger import with_days
from shared.core.compaction.summary_prompts import merge_request, repair_request, summary_request
from shared.core.context.build_context import build_context
from shared.core.context.memory import build_known_notes, likely_source, render_note, words_of_line
from shared.core.context.memory_tools import FORGET_MEMORY, SAVE_MEMORY, SEARCH_MEMORY, UPDATE_MEMORY
from shared.core.context.prompts import default_layers, flush_instruction, helper_prompt, system_text
from shared.core.context.recall_query import RECALL
from shared.core.presets.catalog import preset
from shared.core.session.ledger import Ledger, LedgerItem, ledger_from_json, ledger_to_json
from shared.core.session.session import FrozenPrefix, Note
from shared.core.session.summary import render_summary
from shared.core.session.summary_strategy import SummaryForm
from shared.core.values.messages import text_of
from tests.kit.builders import entry, view, words

BERLIN, ISLANDS = ZoneInfo("Europe/Berlin"), ZoneInfo("Pacific/Kiritimati")
LATE = datetime(2026, 10, 25, 22, 59, tzinfo=UTC)
"""A minute before midnight in Berlin, on the day on which its clocks are turned back."""


def test_a_note_tells_the_day_of_the_person() -> None:
    note = Note(id=1, kind="plan", text="Anna moves to Graz.", observed_at=LATE)
    assert render_note(note, BERLIN) == "- Anna moves to Graz. (said 2026-10-25)"
    assert render_note(replace(note, observed_at=LATE.replace(hour=23, minute=0)), BERLIN).endswith("10-26)")
    assert render_note(note, ISLANDS).endswith("(said 2026-10-26)")
    dated = replace(note, event_date="2026-12")
    assert render_note(dated, BERLIN) == "- Anna moves to Graz. (said 2026-10-25, about 2026-12)"
    assert "about" not in render_note(replace(dated, text="Anna moves in 2026-12."), BERLIN)


def test_the_words_of_a_line_are_those_of_its_note() -> None:
    """An erasure that looks for what was stored late knows the note by them."""
    for text in ("Anna moves to Graz.", "Anna moved (2026-05-31)", "Paid (about 30)"):
        note = Note(id=1, kind="fact", text=text, observed_at=LATE, event_date="2026-12-03")
        for line in (render_note(note, BERLIN), render_note(note, BERLIN, ended=True)):
            assert words_of_line(line) == text


def test_what_stands_before_the_history_keeps_its_days_in_another_zone() -> None:
    old = Note(id=1, kind="fact", text="Mia is the cat.", observed_at=LATE)
    first = build_known_notes([old], count=words, zone=BERLIN)
    frozen = FrozenPrefix(notes_block=first.block, notes=first.ids)
    new = Note(id=2, kind="fact", text="Bo is the dog.", observed_at=LATE, importance=9)
    later = build_known_notes([old, new], frozen, count=words, zone=ISLANDS)
    assert later.block == first.block
    assert "- Bo is the dog. (said 2026-10-26)" in later.since
    assert later.shown == (1, 2)


def test_note_has_the_day_of_its_source_message() -> None:
    said = ["Bertil the terrier limps.", "What a day!", "My terrier Bertil limps again.", "Good night."]
    assert likely_source("The person's terrier Bertil limps.", said) == 2
    assert likely_source("The person moves to Graz in spring.", said) is None
    assert likely_source("Bertil", []) is None


def test_a_pin_tells_its_day() -> None:
    pin = replace(entry(1, 1, "The exam is tomorrow.", at=LATE), pinned=True)
    state = view([entry(9, 5, "When is it?", at=LATE.replace(day=30))], base_turn=4, pins=(pin,), open_turn=5)
    made = build_context(state, policy=preset("steady"), system=default_layers(), zone=BERLIN, count=words)
    assert "[#1] person (2026-10-25): The exam is tomorrow." in text_of(made.messages[0].blocks)


def test_items_of_a_record_stand_under_their_days() -> None:
    items = (
        LedgerItem(id="f1", kind="fact", text="Mia is the cat."),
        LedgerItem(id="f2", kind="fact", text="Bo is the dog.", sources=(1, 3)),
        LedgerItem(id="f3", kind="fact", text="Graz is home.", sources=(1,)),
        LedgerItem(id="f4", kind="fact", text="Linz was home.", sources=(70,), day="2026-10-01"),
    )
    said = [entry(1, 1, "one", at=LATE), entry(3, 2, "two", at=LATE.replace(hour=23))]
    told = with_days(Ledger(items=items), said, BERLIN)
    assert ledger_from_json(ledger_to_json(told)) == told
    assert render_summary(told).splitlines() == [
        "## Facts", "- Mia is the cat.",
        "### 2026-10-01", "- Linz was home. (#70)",
        "### 2026-10-25", "- Graz is home. (#1)",
        "### 2026-10-26", "- Bo is the dog. (#1, #3)",
    ]  # fmt: skip


def test_unknown_day_is_not_shown() -> None:
    told = with_days(Ledger(items=(LedgerItem(id="f1", kind="fact", text="So.", sources=(9,)),)), [], UTC)
    assert "day" not in json.dumps(ledger_to_json(told))
    assert render_summary(told) == "## Facts\n- So. (#9)"


def test_no_example_in_prompts_and_tools_is_a_possible_date() -> None:
    """A model copies what it is shown: an example that could be a date becomes one in somebody's notes."""
    tools = (SAVE_MEMORY, SEARCH_MEMORY, UPDATE_MEMORY, FORGET_MEMORY, RECALL)
    told = [f"{tool.description} {json.dumps(dict(tool.input_schema))}" for tool in tools]
    told += [system_text(default_layers()), flush_instruction(), helper_prompt()]
    for form in get_args(SummaryForm):
        told += summary_request("", Ledger(), form=form, most_words=100)
        told += [*merge_request(Ledger(), ["", ""], form=form), repair_request("", form=form)]
    found = [day for text in told for day in re.findall(r"\d{4}-\d{1,2}(?:-\d{1,2})?", text)]
    assert [day for day in found if is_possible(day)] == []


def is_possible(day: str) -> bool:
    year, month, *rest = map(int, day.split("-"))
    try:
        date(year, month, *(rest or [1]))
    except ValueError:
        return False
    return True
