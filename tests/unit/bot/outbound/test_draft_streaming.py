"""What is shown of an unfinished answer, and when: the machine alone, with a clock made of numbers."""

from __future__ import annotations

from bot.telegram.markup.entity_text import LIVE_UNITS, MAX_PARTS
from bot.telegram.outbound.draft_streaming import DraftMessage, EditPacing, ReplyDraft
from shared.core.session.turns import Delta

RHYTHM = EditPacing()
WORDS = "Every word of this answer is worth waiting for. "


def delta(text: str, offset: int = 0, *, attempt: int = 1) -> Delta:
    return Delta(turn=1, attempt=attempt, offset=offset, text=text)


def draft(text: str = "", now: float = 0.0) -> ReplyDraft:
    made = ReplyDraft(pacing=RHYTHM, attempt=1)
    if text:
        made.append(delta(text), now)
    return made


def opened(text: str, now: float = 0.0) -> ReplyDraft:
    made = draft(text, now)
    opening = made.render_opening()
    assert opening is not None
    made.record_opened(100 + len(made.bubbles), *opening, now)
    return made


def test_nothing_is_sent_before_there_is_something_to_read() -> None:
    made = draft()
    assert not made.wants_bubble(60.0)
    made.append(delta("   \n"), 60.0)
    assert not made.wants_bubble(90.0)


def test_the_first_bubble_comes_after_thirty_characters_or_a_second() -> None:
    assert not draft("Short.").wants_bubble(0.9)
    assert draft("Short.").wants_bubble(1.0)
    assert draft("x" * 30).wants_bubble(0.0)
    assert not draft("x" * 29).wants_bubble(0.0)


def test_an_edit_waits_for_its_time_and_for_twenty_characters() -> None:
    made = opened(WORDS)
    made.append(delta("y" * 19, len(WORDS)), 5.0)
    assert made.next_edit(5.0) is None
    assert made.get_next_edit_time(5.0) is None
    made.append(delta("y", len(WORDS) + 19), 0.5)
    assert made.next_edit(1.4) is None
    assert made.get_next_edit_time(1.0) == 1.5
    edit = made.next_edit(1.5)
    assert edit is not None
    assert edit.part.text == WORDS + "y" * 20
    made.record_edited(edit, 1.5)
    assert made.next_edit(100.0) is None


def test_every_429_halves_the_pace_down_to_ten_seconds() -> None:
    made = opened(WORDS)
    made.append(delta(WORDS, len(WORDS)), 1.0)
    waits = []
    for _ in range(5):
        made.slow_down(0.0, 0.0)
        at = made.get_next_edit_time(0.0)
        waits.append(at)
    assert waits == [3.0, 6.0, 10.0, 10.0, 10.0]
    made.slow_down(29.0, 0.0)
    assert made.get_next_edit_time(0.0) == 29.0


def test_a_piece_is_put_where_it_belongs() -> None:
    made = draft("One 😀 ")
    made.append(delta("two", 7), 0.0)
    assert made.text == "One 😀 two"
    made.append(delta("three", 7), 0.0)
    assert made.text == "One 😀 three"
    made.append(delta("lost", 99), 0.0)
    assert made.text == "One 😀 three"
    made.append(delta("All new", 0), 0.0)
    assert made.text == "All new"


def test_overflowing_text_opens_a_new_bubble_and_freezes_the_former() -> None:
    made = opened(WORDS)
    long = WORDS * 100
    made.append(delta(long[len(WORDS) :], len(WORDS)), 1.0)
    first = made.next_edit(2.0)
    assert first is not None
    assert first.number == 0
    assert len(first.part.text) <= LIVE_UNITS
    made.record_edited(first, 2.0)
    assert made.wants_bubble(4.0)
    opening = made.render_opening()
    assert opening is not None
    made.record_opened(101, *opening, 4.0)
    made.append(delta(WORDS, len(long)), 5.0)
    frozen = made.next_edit(6.0)
    assert frozen is not None
    assert (frozen.number, frozen.part, frozen.is_last) == (0, first.part, False)
    made.record_edited(frozen, 6.0)
    grown = made.next_edit(8.0)
    assert grown is not None
    assert (grown.number, grown.is_last) == (1, True)


def test_no_more_bubbles_than_the_answer_may_have_parts() -> None:
    made = draft(WORDS * 600)
    now = 0.0
    while made.wants_bubble(now):
        opening = made.render_opening()
        assert opening is not None
        made.record_opened(len(made.bubbles), *opening, now)
        now += 2
        made.append(delta(WORDS, len(made.text)), now)
        while (edit := made.next_edit(now)) is not None:
            made.record_edited(edit, now)
            now += 2
    assert len(made.bubbles) == MAX_PARTS


def two_bubbles() -> ReplyDraft:
    """Return a draft of which two messages show a first attempt."""
    made = opened(WORDS * 100)
    made.append(delta(WORDS, len(made.text)), 1.0)
    edit = made.next_edit(2.0)
    while edit is not None:
        made.record_edited(edit, 2.0)
        edit = made.next_edit(4.0)
    opening = made.render_opening()
    assert opening is not None
    made.record_opened(101, *opening, 4.0)
    return made


def test_new_attempt_replaces_a_bubble_when_that_makes_it_no_shorter() -> None:
    made = two_bubbles()
    made.begin(2)
    assert made.next_edit(9.0) is None, "nothing to replace it with yet"
    made.append(delta("late", 99_999, attempt=1), 9.0)
    again = "Again, from the very beginning. "
    made.append(delta(again, attempt=2), 9.0)
    assert made.next_edit(100.0) is None, "the bubble would flash and shrink"
    assert made.get_next_edit_time(100.0) is None, "nothing is looked at until there is more text"
    first = made.bubbles[0].shown
    assert first is not None
    made.append(delta(WORDS * 100, len(again), attempt=2), 101.0)
    edit = made.next_edit(200.0)
    assert edit is not None
    assert (edit.number, edit.part.text[:5]) == (0, "Again")
    assert len(edit.part.text) >= len(first.text) or len(made.render_views()) > 1
    made.record_edited(edit, 200.0)
    assert not made.wants_bubble(1_000.0)


def test_bubble_of_another_process_waits_for_a_full_part_or_the_end() -> None:
    made = draft("")
    made.bubbles = [DraftMessage(message_id=100)]
    made.append(delta(WORDS), 0.0)
    assert made.next_edit(10.0) is None
    made.append(delta(WORDS * 200, len(WORDS)), 11.0)
    edit = made.next_edit(20.0)
    assert edit is not None
    assert (edit.number, edit.part) == (0, made.render_views()[0])


def test_a_running_tool_has_one_line_that_goes_with_the_next_word() -> None:
    made = opened(WORDS)
    made.set_status("Looking it up …")
    edit = made.next_edit(2.0)
    assert edit is not None
    assert edit.part.text == f"{WORDS.strip()}\n\nLooking it up …"
    made.record_edited(edit, 2.0)
    made.append(delta("Found.", len(WORDS)), 3.0)
    edit = made.next_edit(4.0)
    assert edit is not None
    assert edit.part.text == f"{WORDS}Found."


def test_after_the_end_nothing_more_is_shown() -> None:
    made = opened(WORDS)
    made.append(delta(WORDS, len(WORDS)), 1.0)
    made.end()
    assert made.next_edit(9.0) is None
    assert not made.wants_bubble(9.0)
    assert made.get_next_edit_time(9.0) is None
