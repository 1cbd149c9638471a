"""Notes follow an edit of the message that they were taken from."""

from __future__ import annotations

from shared.core.memory.rewording import ChangedSpan, find_changed_spans, holds_former_words, reword

BEFORE, AFTER = "My flight leaves on the 12th of May.", "My flight leaves on the 13th of May."


def test_note_of_an_edited_message_gets_the_new_wording() -> None:
    spans = find_changed_spans(BEFORE, AFTER)
    assert spans == (ChangedSpan(before="12th", after="13th"),)
    assert reword("The flight is on the 12th; row 112th stays.", spans) == (
        "The flight is on the 13th; row 112th stays."
    )


def test_deleted_words_leave_no_gap_and_new_ones_stay_literal() -> None:
    spans = (ChangedSpan(before="very", after=""), ChangedSpan(before="disk", after=r"C:\1"))
    assert reword("The very old disk.", spans) == r"The old C:\1."


def test_former_words_in_a_note_are_recognised() -> None:
    assert holds_former_words("Leaves on the 12th.", BEFORE, AFTER)
    assert not holds_former_words("Leaves on the 13th.", BEFORE, AFTER)
