"""Memory without a ghost turn: which way is used, what is read of a model's lines, what code keeps."""

from __future__ import annotations

import pytest

from shared.core.compaction.note_requests import (
    FlushWay,
    flush_way,
    parse_note_lines,
    pieces_of,
    wishes_from,
    wishes_of,
)
from shared.core.session.ledger import Ledger, LedgerItem
from shared.core.values.tokens import by_script

SOURCE = """\
--- 2031-02-03 ---
[#1] person: My aunt Solveig keeps bees on Hitra.
[#2] assistant: How many hives has she?
--- 2031-02-04 ---
[#3] person: Eleven hives, and the honey is called Lynghonning.
It is sold at the quay of Sandstad."""


@pytest.mark.parametrize(
    ("allowed", "on_prefix", "calls_tools", "request_room", "line_room", "way"),
    [
        (True, True, True, 9_000, 9_000, "prefix"),
        (True, False, True, 250, 900, "request"),
        (True, False, True, 249, 900, "lines"),
        (True, False, False, 900, 250, "lines"),
        (True, False, False, 900, 249, "code"),
        (False, True, True, 9_000, 9_000, "off"),
    ],
)
def test_the_smaller_a_window_and_the_less_a_model_can_do_the_simpler_the_way(
    allowed: bool, on_prefix: bool, calls_tools: bool, request_room: int, line_room: int, way: FlushWay
) -> None:
    room = {"request": request_room, "lines": line_room}
    assert flush_way(allowed=allowed, on_prefix=on_prefix, calls_tools=calls_tools, room=room) == way


def test_lines_are_read_through_bullets_tables_and_words_around_them() -> None:
    said = """Here is what I would keep:
| kind | note | number |
|---|---|---|
| fact | Aunt Solveig keeps bees on Hitra. | 1 |
- **preference** | The person likes heather honey | #3
relations | Solveig is the person's aunt.
"""
    found = parse_note_lines(said)
    assert found is not None
    assert [(wish.kind, wish.text, wish.seq) for wish in found] == [
        ("fact", "Aunt Solveig keeps bees on Hitra.", 1),
        ("preference", "The person likes heather honey", 3),
        ("relation", "Solveig is the person's aunt.", None),
    ]


def test_silence_is_an_answer_and_anything_else_without_lines_is_none() -> None:
    assert parse_note_lines("SILENT.") == ()
    assert parse_note_lines("The talk was about bees.") is None
    assert parse_note_lines("") is None


@pytest.mark.parametrize("room", [40, 60, 80, 1_000])
def test_pieces_leave_no_word_out_and_each_says_when_and_who(room: int) -> None:
    pieces = pieces_of(SOURCE, room, by_script)
    words = " ".join(pieces).split()
    for word in SOURCE.split():
        assert word in words
    assert all(piece.startswith("--- 2031-02-0") for piece in pieces)
    assert all("[#" in piece for piece in pieces)
    assert max(map(by_script, pieces)) <= room + 3
    assert (len(pieces) > 1) is (room < 1_000)


def test_one_endless_line_is_cut_between_words_and_keeps_its_author() -> None:
    source = f"--- 2031-02-03 ---\n[#7] person: {'bees and heather ' * 200}"
    pieces = pieces_of(source, 100, by_script)
    assert len(pieces) > 5
    assert all("[#7] person: " in piece for piece in pieces)
    assert sum(piece.count("heather") for piece in pieces) == 200
    assert max(map(by_script, pieces)) <= 103


def test_code_keeps_what_items_say_of_these_messages_with_their_authors() -> None:
    ledger = Ledger(
        items=(
            LedgerItem(id="f1", kind="fact", text="Hitra has 30 hives.", sources=(4,), author="tool"),
            LedgerItem(id="q2", kind="question", text="When do bees swarm?", sources=(4,)),
            LedgerItem(id="c3", kind="constraint", text="Never mention wasps.", sources=(3, 9)),
            LedgerItem(id="f4", kind="fact", text="Old news.", sources=(3,), closed="changed"),
            LedgerItem(id="f5", kind="fact", text="Elsewhere.", sources=(99,)),
        )
    )
    kept = wishes_of(ledger, frozenset({3, 4}))
    assert [(wish.kind, wish.text, wish.seq, wish.by_tool) for wish in kept] == [
        ("instruction", "Never mention wasps.", 3, False),
        ("fact", "Hitra has 30 hives.", 4, True),
    ]
    assert kept[0].call.input["importance"] < 5


def test_the_same_words_are_the_same_call_and_other_words_another() -> None:
    first, second = parse_note_lines("fact | One hive.\nfact | Two hives.") or ()
    assert first.call == first.call
    assert first.call.id != second.call.id


def test_notes_in_a_models_json_are_read_leniently() -> None:
    assert wishes_from([]) == ()
    raw = [{"kind": "plans", "text": " Swarm in  May ", "source": "#3"}, {"text": ""}, "x", {"text": "Yes."}]
    assert [(wish.kind, wish.text, wish.seq) for wish in wishes_from(raw)] == [
        ("plan", "Swarm in May", 3),
        ("fact", "Yes.", None),
    ]
