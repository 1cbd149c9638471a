"""Memory without a silent turn: which way is used, what is read of a model's lines, what code keeps."""

from __future__ import annotations

import json

import pytest

from shared.core.compaction.note_requests import (
    NOTES_SCHEMA,
    FlushWay,
    answer_tokens,
    drafts_from,
    drafts_of,
    flush_way,
    note_rules,
    parse_note_lines,
    parse_notes,
    pieces_of,
    room_for_words,
)
from shared.core.context.memory_tools import SAVE_MEMORY
from shared.core.context.prompts import MOST_NOTES, most_notes
from shared.core.session.ledger import Ledger, LedgerItem
from shared.core.values.tokens import estimate_by_script

SOURCE = """\
--- 2031-02-03 ---
[#1] person: My aunt Solveig keeps bees on Hitra.
[#2] assistant: How many hives has she?
--- 2031-02-04 ---
[#3] person: Eleven hives, and the honey is called Lynghonning.
It is sold at the quay of Sandstad."""


@pytest.mark.parametrize(
    ("allowed", "on_prefix", "can", "request_room", "line_room", "way"),
    [
        (True, True, "tools json", 9_000, 9_000, "prefix"),
        (True, False, "tools json", 250, 900, "request"),
        (True, False, "tools json", 249, 900, "json"),
        (True, False, "tools", 249, 900, "lines"),
        (True, False, "json", 900, 250, "json"),
        (True, False, "", 900, 250, "lines"),
        (True, False, "json", 900, 249, "code"),
        (False, True, "tools json", 9_000, 9_000, "off"),
    ],
)
def test_flush_way_is_simpler_for_small_windows_and_weak_models(
    allowed: bool, on_prefix: bool, can: str, request_room: int, line_room: int, way: FlushWay
) -> None:
    room: dict[FlushWay, int] = {"request": request_room, "json": line_room, "lines": line_room}
    assert flush_way(allowed=allowed, on_prefix=on_prefix, can=can.split(), room=room) == way


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
    pieces = pieces_of(SOURCE, room, estimate_by_script)
    words = " ".join(pieces).split()
    for word in SOURCE.split():
        assert word in words
    assert all(piece.startswith("--- 2031-02-0") for piece in pieces)
    assert all("[#" in piece for piece in pieces)
    assert max(map(estimate_by_script, pieces)) <= room + 3
    assert (len(pieces) > 1) is (room < 1_000)


def test_one_endless_line_is_cut_between_words_and_keeps_its_author() -> None:
    source = f"--- 2031-02-03 ---\n[#7] person: {'bees and heather ' * 200}"
    pieces = pieces_of(source, 100, estimate_by_script)
    assert len(pieces) > 5
    assert all("[#7] person: " in piece for piece in pieces)
    assert sum(piece.count("heather") for piece in pieces) == 200
    assert max(map(estimate_by_script, pieces)) <= 103


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
    kept = drafts_of(ledger, frozenset({3, 4}))
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
    assert drafts_from([]) == ()
    raw = [{"kind": "plans", "text": " Swarm in  May ", "source": "#3"}, {"text": ""}, "x", {"text": "Yes."}]
    assert [(wish.kind, wish.text, wish.seq) for wish in drafts_from(raw)] == [
        ("plan", "Swarm in May", 3),
        ("fact", "Yes.", None),
    ]


WHOLE = '{"notes": [{"kind": "fact", "text": "Solveig keeps bees.", "source": 1}, {"text": "Cut off'


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (
            '{"notes": [{"kind": "plan", "text": "Swarm in May.", "source": 3}]}',
            [("plan", "Swarm in May.", 3)],
        ),
        ('```json\n{"notes": []}\n```', []),
        (WHOLE, [("fact", "Solveig keeps bees.", 1)]),
        ('[{"kind": "fact", "text": "Bees."}]', [("fact", "Bees.", None)]),
        ("fact | Solveig says {bees}. | 1", [("fact", "Solveig says {bees}.", 1)]),
        ('{"notes": [7, null, {"kind": "fact"}, {"text": ["no"]}]}', []),
        ("SILENT", []),
        ("What a lovely talk about bees!", None),
        ('{"answer": "bees"}', None),
        ('{"notes": "bees"}', None),
    ],
)
def test_note_answer_is_read_as_json_or_lines_only(
    answer: str, kept: list[tuple[str, str, int | None]] | None
) -> None:
    found = parse_notes(answer)
    assert (None if found is None else [(wish.kind, wish.text, wish.seq) for wish in found]) == kept


def test_extra_note_fields_are_kept_where_the_tool_takes_them() -> None:
    good = {"subject": "Solveig", "importance": 7, "durability": "permanent", "event_date": "2031-05"}
    bad = {
        "subject": "",
        "importance": True,
        "durability": ["x"],
        "event_date": "in May",
        "authority": "operator",
    }
    first, second = drafts_from([{"kind": "fact", "text": "Bees.", **extra} for extra in (good, bad)])
    assert first.call.input == {"kind": "fact", "text": "Bees.", **good}
    assert second.call.input == {"kind": "fact", "text": "Bees."}


def test_the_schema_asks_for_the_fields_of_the_tool_and_a_line() -> None:
    item = NOTES_SCHEMA["properties"]["notes"]["items"]
    assert item["properties"].keys() == {*SAVE_MEMORY.input_schema["properties"], "source"}
    assert item["required"] == ["text", "kind", "source"]
    assert "maxLength" not in str(NOTES_SCHEMA), "not every server's dialect knows lengths"


@pytest.mark.parametrize("way", ["request", "json", "lines"])
def test_notes_apart_are_asked_for_in_proportion(way: FlushWay) -> None:
    assert "at most 8 notes" in note_rules(way).replace("\n", " ")
    assert "at most 30 notes" in note_rules(way, most=30).replace("\n", " ")


def test_answer_of_many_notes_is_read_whole() -> None:
    notes = [{"kind": "fact", "text": f"Hive {number} is blue."} for number in range(60)]
    assert len(parse_notes(json.dumps({"notes": notes})) or ()) == MOST_NOTES
    lines = "\n".join(f"fact | Hive {number} is blue. | {number}" for number in range(60))
    assert len(parse_notes(lines) or ()) == MOST_NOTES


def test_notes_picked_by_code_grow_with_what_is_hidden() -> None:
    items = tuple(
        LedgerItem(id=f"f{number}", kind="fact", text=f"Hive {number}.", sources=(number,), author="person")
        for number in range(1, 61)
    )
    drafts = drafts_of(Ledger(items=items), range(1, 61), most=most_notes(12_000))
    assert len(drafts) == 24


@pytest.mark.parametrize(("window", "tokens"), [(1_000, 200), (4_000, 800), (5_600, 800), (20_000, 3_200)])
def test_answer_has_room_for_notes_in_proportion(window: int, tokens: int) -> None:
    assert answer_tokens(window) == tokens
    assert room_for_words(window, fixed=0, ratio=1.0) + tokens <= window
