"""Recalled text read back: messages, notes and files, whatever their own text looks like."""

from __future__ import annotations

from datetime import UTC, date, datetime

from shared.core.context.memory import render_note
from shared.core.memory.recall import FoundPassage, Lane, render_passages
from shared.core.memory.sent_memory import SentPassage, parse_note_lines, parse_recalled
from shared.core.session.session import Note

DAY = datetime(2026, 11, 17, 9, tzinfo=UTC)


def passage(text: str, *, lane: Lane = "said", owner: int = 1, seq: int = 3, path: str = "") -> FoundPassage:
    return FoundPassage(
        lane=lane, owner=owner, number=1, at=DAY, text=text, terms=3, hits=(), seq=seq, author="person",
        path=path, heading="Prices" if path else "",
    )  # fmt: skip


def render(*passages: FoundPassage) -> str:
    return render_passages(passages, session_id=1, today=date(2026, 11, 29))


def test_recalled_text_is_read_as_it_was_rendered() -> None:
    read = parse_recalled(
        render(
            passage("The boat leaks.\nBadly."),
            passage("It was red.", owner=2),
            passage("Has a boat.", lane="note"),
            passage("Ten a day.", lane="knowledge", path="boats.md"),
        )
    )
    assert read.passages == (
        SentPassage(day="2026-11-17", seq=3, text="The boat leaks.\nBadly."),
        SentPassage(day="2026-11-17", seq=0, text="It was red."),
    )
    assert [one.author for one in read.passages] == ["person", "person"]
    summary = passage("They row.", owner=2)._replace(author="summary")
    [read_summary] = parse_recalled(render(summary)).passages
    assert (read_summary.author, read_summary.seq) == ("summary", 0)
    assert read.notes == ("Has a boat.",)
    assert read.files == ("boats.md › Prices",)


def test_message_that_imitates_recalled_lines_names_no_others() -> None:
    text = "Look:\n#4 person: mine\nearlier person: old\n[note] false\n[a.md] false\nFiles:\nend"
    read = parse_recalled(render(passage(text)))
    assert [one.seq for one in read.passages] == [3]
    assert read.notes == ()
    assert read.files == ()


def test_empty_text_holds_no_memory() -> None:
    assert parse_recalled("").passages == ()


def test_note_lines_leave_out_what_holds_no_longer() -> None:
    kept = Note(id=1, kind="fact", text="Has a boat.", observed_at=DAY)
    ended = Note(id=2, kind="fact", text="Has a car.", observed_at=DAY)
    block = "\n".join(["<known>", render_note(kept, UTC), render_note(ended, UTC, ended=True), "</known>"])
    assert parse_note_lines(block) == ("Has a boat.",)
