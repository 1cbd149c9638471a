"""Of the turns that answer one question a request shows the newest; one that ended without an answer none."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from shared.core.session.session import Entry, drop_former, former_answer
from shared.core.values.messages import ERASED, Author, Text, ToolUse

AT = datetime(2026, 5, 4, tzinfo=UTC)


def entry(seq: int, turn: int, author: Author, *, replaces: int | None = None) -> Entry:
    return Entry(
        seq=seq, turn=turn, step=seq, role="assistant" if author == "assistant" else "user", author=author,
        blocks=(Text(text=f"message {seq}"),), tokens=4, at=AT, replaces=replaces,
    )  # fmt: skip


def seqs(entries: tuple[Entry, ...]) -> list[int]:
    return [one.seq for one in entries]


TALK = (entry(1, 1, "person"), entry(2, 1, "assistant"), entry(3, 2, "person"), entry(4, 2, "assistant"))
AGAIN = (*TALK, entry(5, 3, "person", replaces=3))
ANSWERED = (*AGAIN, entry(6, 3, "assistant", replaces=4))


def test_a_talk_without_retries_is_shown_whole() -> None:
    assert drop_former(TALK) == TALK
    assert former_answer(TALK, 2) is None


def test_an_edit_within_a_turn_is_no_retry() -> None:
    edited = (TALK[0], TALK[1], entry(5, 2, "person", replaces=3))
    assert drop_former(edited, open_turn=2) == edited
    assert former_answer(edited, 2) is None


def test_while_it_is_answered_the_former_turn_is_out_of_sight() -> None:
    assert seqs(drop_former(AGAIN, open_turn=3)) == [1, 2, 5]
    assert former_answer(AGAIN, 3) == "m4"


def test_once_answered_the_new_turn_stands_for_the_old_one() -> None:
    assert seqs(drop_former(ANSWERED)) == [1, 2, 5, 6]
    later = (*ANSWERED, entry(7, 4, "person", replaces=3))
    assert former_answer(later, 4) == "m6"
    assert seqs(drop_former(later, open_turn=4)) == [1, 2, 7]


def test_one_that_ended_without_an_answer_changes_nothing() -> None:
    assert drop_former(AGAIN) == TALK
    asked = replace(entry(6, 3, "assistant"), blocks=(ToolUse(id="t1", name="recall", input={}),))
    assert drop_former((*AGAIN, asked)) == TALK


def test_a_question_that_never_got_an_answer_is_there_once() -> None:
    failed = (entry(1, 1, "person"), entry(2, 2, "person", replaces=1), entry(3, 3, "person", replaces=1))
    assert seqs(drop_former(failed)) == [1]
    assert seqs(drop_former(failed, open_turn=3)) == [3]
    assert former_answer(failed, 3) is None


def test_what_is_pinned_stays() -> None:
    pinned = tuple(replace(one, pinned=one.seq == 4) for one in ANSWERED)
    assert seqs(drop_former(pinned)) == [1, 2, 4, 5, 6]


def test_turn_takes_no_room_when_all_of_it_was_erased() -> None:
    gone = [replace(one, blocks=(Text(text=ERASED),)) for one in TALK[:2]]
    assert seqs(drop_former((*gone, *TALK[2:]))) == [3, 4]
    assert seqs(drop_former((gone[0], TALK[1], *TALK[2:]))) == [1, 2, 3, 4], "its answer stays readable"


def test_open_turn_stays_when_its_question_was_erased() -> None:
    question = replace(TALK[2], blocks=(Text(text=ERASED),))
    assert seqs(drop_former((*TALK[:2], question), open_turn=2)) == [1, 2, 3]
    assert seqs(drop_former((*TALK[:2], question))) == [1, 2]
