"""What a model was sent, piece by piece: its words, its sources, and what was kept out."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from shared.core.context.build_context import build_context
from shared.core.context.prompts import SystemLayers
from shared.core.overflow.request_trace import Piece, calls_of, entries_before_call, pieces_of
from shared.core.presets.catalog import PRESETS
from shared.core.session.session import Compaction, Entry, View
from shared.core.values.messages import Author, Block, Role, Text, Thinking, ToolResult, ToolUse

AT = datetime(2026, 11, 21, tzinfo=UTC)
POLICY = PRESETS["steady"]
LONG = "\n".join(f"line {number} of a long result" for number in range(400))


def entry(seq: int, turn: int, author: Author, *blocks: Block, **more: Any) -> Entry:
    role: Role = "assistant" if author == "assistant" else "user"
    made = Entry(seq=seq, turn=turn, step=seq, role=role, author=author, blocks=blocks, tokens=10, at=AT)
    return replace(made, **more)


OLD = (
    entry(1, 2, "person", Text(text="Look it up.")),
    entry(
        2,
        2,
        "assistant",
        Thinking(text="Hm.", signature="s"),
        ToolUse(id="u1", name="look_up", input={"q": 1}),
    ),
    entry(3, 2, "tool", ToolResult(tool_use_id="u1", text=LONG), pruned="trim"),
    entry(4, 2, "assistant", Text(text="Found.")),
)
OPEN = (
    entry(5, 3, "person", Text(text="And now?")),
    entry(6, 3, "assistant", ToolUse(id="u2", name="look_up", input={"q": 2})),
    entry(7, 3, "tool", ToolResult(tool_use_id="u2", text="short")),
)


def view(entries: tuple[Entry, ...]) -> View:
    head = Compaction(
        id=1, kind="summary", from_turn=1, through_turn=1, through_seq=0, summary_text="They talked."
    )
    return View(
        session_id=1, base_turn=1, flushed_turn=1, view_epoch=1, cycle=1, head=head, entries=entries,
        open_turn=3,
    )  # fmt: skip


def seen(entries: tuple[Entry, ...]) -> list[Piece]:
    looked_at = view(entries)
    built = build_context(
        looked_at, policy=POLICY, system=SystemLayers(base="Be kind."), runtime_facts="It is noon."
    )
    pieces = pieces_of(
        system=built.system, tools=(), messages=built.messages, view=looked_at, policy=POLICY,
        runtime_facts="It is noon.",
    )  # fmt: skip
    said = [block for message in built.messages for block in message.blocks]
    sent = [piece for piece in pieces if piece.sent and piece.part == "messages"]
    assert len(said) == len(sent)
    return list(pieces)


def test_each_piece_says_where_it_comes_from() -> None:
    told = [(piece.source, piece.kind, piece.seq) for piece in seen(OLD + OPEN) if piece.sent]
    assert told == [
        ("system", "text", None),
        ("summary", "text", None),
        ("history", "text", 1),
        ("tools", "tool_use", 2),
        ("tools", "tool_result", 3),
        ("history", "text", 4),
        ("history", "text", 5),
        ("memory", "text", None),
        ("tools", "tool_use", 6),
        ("tools", "tool_result", 7),
    ]


def test_a_shortened_result_stands_beside_its_original() -> None:
    short = next(piece for piece in seen(OLD + OPEN) if piece.seq == 3)
    assert (short.how, short.whole, short.whole_chars) == ("trim", LONG, len(LONG))
    assert len(short.text) < len(LONG)


def test_finished_thinking_stands_where_it_would_have_stood() -> None:
    pieces = seen(OLD + OPEN)
    place = next(at for at, piece in enumerate(pieces) if not piece.sent)
    assert (pieces[place].how, pieces[place].whole, pieces[place].text) == ("thinking", "Hm.", "")
    assert (pieces[place - 1].seq, pieces[place + 1].seq) == (1, 2)


def test_a_call_is_what_stood_there_before_its_round() -> None:
    entries = OLD + OPEN
    assert calls_of(entries, 3) == 2
    assert entries_before_call(entries, 3, 2) == entries
    assert entries_before_call(entries, 3, 1) == entries[:5]
    assert [piece.seq for piece in seen(entries_before_call(entries, 3, 1)) if piece.sent][-2:] == [5, None]
