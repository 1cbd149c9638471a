"""Who makes a change of a note."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.core.context.notes import NoteSource

SOURCE = NoteSource(session_id=1, contact_id=1, scope="main")


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        (SOURCE, "person"),
        (replace(SOURCE, by_person=True, from_turn=3), "person"),
        (replace(SOURCE, from_turn=3, call_key="k"), "tool"),
        (replace(SOURCE, from_turn=3, flush_id=9), "flush"),
        (replace(SOURCE, by_operator=True), "operator"),
    ],
)
def test_note_change_names_its_cause(source: NoteSource, cause: str) -> None:
    assert source.cause == cause
