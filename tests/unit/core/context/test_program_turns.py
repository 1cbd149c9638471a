"""A turn that a reminder begins is like any other, but its first words are nobody's."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from shared.core.compaction.audit import list_required_items
from shared.core.compaction.digest import digest
from shared.core.compaction.next_ledger import LedgerPatch, parse_ledger_patch
from shared.core.compaction.plan import render_source, source_lines
from shared.core.context.build_context import build_context, select
from shared.core.context.prompts import default_layers, reminder_entry
from shared.core.presets.catalog import preset
from shared.core.session.ledger import Ledger
from shared.core.session.policy import with_overrides
from shared.core.session.session import Entry
from shared.core.session.turns import message_payload
from shared.core.values.messages import BEGINNERS, text_of
from tests.kit.builders import entry, exchanges, view, words
from tests.kit.valid_requests import assert_valid_request

REMINDER = reminder_entry(
    "never call Bob, when do we meet?", asked="2026-05-01 09:00", due="2026-05-08 09:00"
)


def reminded(turn: int, seq: int) -> list[Entry]:
    return [
        entry(seq, turn, REMINDER, author="program"),
        entry(seq + 1, turn, "It is time: do not call Bob.", author="assistant", step=1),
    ]


LOG = [*exchanges(2), *reminded(3, 5), *reminded(4, 7), *reminded(5, 9)]


def test_a_program_may_begin_a_turn_and_a_tool_may_not() -> None:
    assert set(BEGINNERS) == {"person", "program", "operator"}


def test_its_request_is_valid_and_the_clock_stands_behind_its_words() -> None:
    state = view([*LOG[:4], LOG[4]], open_turn=3)
    built = build_context(
        state, policy=preset("steady"), system=default_layers(), runtime_facts="It is Friday.", count=words
    )
    assert_valid_request(built.messages)
    newest = text_of(built.messages[-1].blocks)
    assert newest.startswith("[Reminder")
    assert newest.endswith("</runtime_facts>")


@pytest.mark.parametrize("limits", [{"window_messages": 3}, {"trim_tokens": 120}, {"max_rounds": 2}])
def test_a_window_may_begin_with_it(limits: dict[str, int]) -> None:
    """Otherwise a talk of reminders alone would be sent as nothing."""
    state = view([*LOG, entry(11, 6, "Thank you.")], open_turn=6)
    kept = select(state, with_overrides(preset("steady"), **limits)).view.entries
    assert [one.seq for one in kept[-2:]] == [10, 11]
    assert kept[0].author == "program"


def test_program_text_is_marked_and_never_attributed_to_the_person() -> None:
    source = render_source(LOG)
    lines = {line.seq: line.author for line in source_lines(source)}
    assert lines[5] == "program"
    assert all(item.author == "person" for item in list_required_items(source_lines(source)))
    assert not any("Bob" in item.text for item in list_required_items(source_lines(source)))
    made = digest(LOG, Ledger(), words, budget_tokens=200)
    assert not any(5 in item.sources or 7 in item.sources for item in made.items)


def test_a_summary_may_name_it_as_its_source() -> None:
    said = '{"narrative": "They talked.", "add": [{"kind": "fact", "text": "x", "author": "program"}]}'
    patch = parse_ledger_patch(said)
    assert isinstance(patch, LedgerPatch)
    assert [item.author for item in patch.add] == ["program"]


def test_a_screen_would_show_it_as_a_notice() -> None:
    shown = message_payload(
        seq=5, turn=3, author="program", blocks=LOG[4].blocks, at=datetime(2026, 5, 8, tzinfo=UTC), extra={}
    )
    assert shown["role"] == "notice"
