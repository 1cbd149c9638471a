"""Trace of a request, piece by piece: the source of each piece, and what was left out."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from shared.core.context.build_context import find_last_described_turn, render_entry
from shared.core.context.prompts import NOTES_OPENED, PINS_TAG, SUMMARY_TAG, volatile_block
from shared.core.context.untrusted_text import FENCE, defuse
from shared.core.session.policy import ContextPolicy
from shared.core.session.session import Entry, View
from shared.core.session.summary import SECTIONS_TAG
from shared.core.values.messages import (
    Block,
    Image,
    Message,
    ProviderBlock,
    SystemPart,
    Text,
    Thinking,
    ToolResult,
    ToolSpec,
    ToolUse,
    tool_uses,
)

Source = Literal["system", "memory", "summary", "pins", "history", "tools", "program"]
"""Origins of a piece; `program` stands for marks that the program adds."""
Kind = Literal["text", "tool", "tool_use", "tool_result", "thinking", "picture", "sealed"]
"""Kinds of pieces; `sealed` is a block that only the provider reads."""
Part = Literal["system", "tools", "messages"]
"""Parts of a request in its order: system text, tools, messages."""

WHOLE_CHARS = 40_000
"""Most characters of an original shown for a shortened piece; a longer one is cut."""
UNSENT_ENTRIES = 60
"""Most live entries that a policy left out and that are shown before the first sent one; the older are
counted.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Block of a request, or one that was left out of it (`sent` is False).

    `seq`, `turn` and `author` are those of its entry; None or empty for a piece of no entry. `failed` is True
    for an error of a tool.
    """

    part: Part
    source: Source
    kind: Kind
    text: str
    role: str = ""
    message: int = -1
    """Index of the message in the request; -1 outside of messages."""
    sent: bool = True
    how: str = ""
    """Change or reason: `trim`, `clear`, `duplicate` or `cut` if shortened; `thinking`, `hide` or `left_out`
    if not sent.
    """
    whole: str = ""
    """Original text, if only a part of it was sent."""
    whole_chars: int = 0
    """Characters of the original text, also above the 40,000 of `whole`; 0 if all of it was sent."""
    name: str = ""
    """Name of the tool; empty for other pieces."""
    failed: bool = False
    seq: int | None = None
    turn: int | None = None
    author: str = ""


@dataclass(slots=True, kw_only=True)
class _Expected:
    """Block of the log, and its form in the request (None if it is not sent)."""

    entry: Entry
    stored: Block
    shown: Block | None
    used: bool = False


@dataclass(slots=True, kw_only=True)
class _ViewBlocks:
    """Blocks of the view in order, found by their form in a request."""

    blocks: list[_Expected]
    by_look: dict[tuple[Any, ...], deque[int]] = field(default_factory=lambda: defaultdict(deque))

    def __post_init__(self) -> None:
        for place, one in enumerate(self.blocks):
            if one.shown is not None:
                self.by_look[_look(one.shown)].append(place)

    def take(self, block: Block) -> int | None:
        """Mark the next unused block of the log that looks like `block` as used, and return its index; None
        if there is none.
        """
        places = self.by_look.get(_look(block))
        if not places:
            return None
        place = places.popleft()
        self.blocks[place].used = True
        return place


def pieces_of(
    *,
    system: Sequence[SystemPart],
    tools: Sequence[ToolSpec],
    messages: Sequence[Message],
    view: View,
    policy: ContextPolicy,
    recall: str = "",
    runtime_facts: str = "",
    left_out: Sequence[Entry] = (),
) -> tuple[Piece, ...]:
    """Return all pieces of a request in its order, unsent ones at the place where they would be.

    `system`, `tools` and `messages` are the request; `recall` and `runtime_facts` are texts in it, by which
    they are recognised. `left_out` are live entries that the policy did not send, of which the newest 60 are
    included.
    """
    return (
        *_system(system),
        *(_tool(tool) for tool in tools),
        *_unsent_entries(left_out),
        *_messages(messages, view, policy, _volatile(recall, runtime_facts)),
    )


def calls_of(entries: Iterable[Entry], open_turn: int | None) -> int:
    """Return the number of model calls of the open turn so far: one, plus one per tool round."""
    return 1 + sum(1 for entry in entries if entry.turn == open_turn and tool_uses(entry.blocks))


def entries_before_call(entries: Sequence[Entry], open_turn: int | None, number: int) -> tuple[Entry, ...]:
    """Return the entries that existed before the open turn's call number `number`, counted from 1.

    A number above that of the calls gives all entries.
    """
    rounds = 0
    kept: list[Entry] = []
    for entry in entries:
        rounds += entry.turn == open_turn and bool(tool_uses(entry.blocks))
        if rounds >= number:
            break
        kept.append(entry)
    return tuple(kept)


def _volatile(recall: str, runtime_facts: str) -> str:
    return volatile_block(
        runtime_facts=defuse(runtime_facts), recall=defuse(recall, keep_fences=recall.startswith(FENCE))
    )


def _system(parts: Sequence[SystemPart]) -> Iterator[Piece]:
    for place, part in enumerate(parts):
        yield Piece(
            part="system", source="memory" if place else "system", kind="text", text=part.text, role="system"
        )


def _tool(tool: ToolSpec) -> Piece:
    shape: Mapping[str, Any] = tool.provider if tool.provider is not None else tool.input_schema
    words = f"{tool.description}\n\n{json.dumps(dict(shape), ensure_ascii=False, indent=1)}"
    return Piece(part="tools", source="tools", kind="tool", text=words, name=tool.name)


def _unsent_entries(entries: Sequence[Entry]) -> Iterator[Piece]:
    for entry in entries[-UNSENT_ENTRIES:]:
        how = "hide" if entry.pruned == "hide" else "left_out"
        for block in entry.blocks:
            yield _trace_unsent(entry, block, how)


def _messages(
    messages: Sequence[Message], view: View, policy: ContextPolicy, volatile: str
) -> Iterator[Piece]:
    log = _ViewBlocks(blocks=[one for entry in view.entries for one in _expect(entry, view, policy)])
    matched = [[log.take(block) for block in message.blocks] for message in messages]
    next_unsent = 0
    for number, (message, places) in enumerate(zip(messages, matched, strict=True)):
        for block, place in zip(message.blocks, places, strict=True):
            if place is None:
                yield _trace_added(block, message, number, volatile)
                continue
            while next_unsent < place:
                yield from _trace_if_unsent(log.blocks[next_unsent])
                next_unsent += 1
            yield _trace_logged(log.blocks[place], block, message, number)
    for one in log.blocks[next_unsent:]:
        yield from _trace_if_unsent(one)


def _expect(entry: Entry, view: View, policy: ContextPolicy) -> Iterator[_Expected]:
    shown = render_entry(entry, view.open_turn, policy, through=find_last_described_turn(view, policy)).blocks
    if len(shown) == len(entry.blocks):
        for stored, block in zip(entry.blocks, shown, strict=True):
            yield _Expected(entry=entry, stored=stored, shown=block)
        return
    following = iter(shown)
    for stored in entry.blocks:
        kept = not isinstance(stored, Thinking | ProviderBlock)
        yield _Expected(entry=entry, stored=stored, shown=next(following, None) if kept else None)


def _trace_if_unsent(one: _Expected) -> Iterator[Piece]:
    if not one.used:
        passing = isinstance(one.stored, Thinking | ProviderBlock)
        yield _trace_unsent(one.entry, one.stored, "thinking" if passing else "left_out")


def _trace_unsent(entry: Entry, block: Block, how: str) -> Piece:
    words = _words(block)
    return Piece(
        part="messages", source=_source(block), kind=_kind(block), text="", role=entry.role, sent=False,
        how=how, whole=words[:WHOLE_CHARS], whole_chars=len(words), name=_name(block), seq=entry.seq,
        turn=entry.turn, author=entry.author,
    )  # fmt: skip


def _trace_logged(one: _Expected, block: Block, message: Message, number: int) -> Piece:
    entry, words, stored = one.entry, _words(block), _words(one.stored)
    shortened = isinstance(block, ToolResult) and words != stored
    whole = stored if shortened else ""
    return Piece(
        part="messages", source=_source(block), kind=_kind(block), text=words, role=message.role,
        message=number, how=(entry.pruned or "cut") if shortened else "", whole=whole[:WHOLE_CHARS],
        whole_chars=len(whole), name=_name(block), failed=isinstance(block, ToolResult) and block.is_error,
        seq=entry.seq, turn=entry.turn, author=entry.author,
    )  # fmt: skip


def _trace_added(block: Block, message: Message, number: int, volatile: str) -> Piece:
    """Return a piece that belongs to no entry: summary, pins, recalled passages, or an added mark."""
    words = _words(block)
    source: Source = "program"
    if (volatile and words.endswith(volatile)) or words.startswith(NOTES_OPENED):
        source = "memory"
    elif words.startswith(f"<{PINS_TAG}>"):
        source = "pins"
    elif number == 0 and words.startswith((f"<{SUMMARY_TAG}", f"<{SECTIONS_TAG}")):
        source = "summary"
    elif isinstance(block, ToolResult | ToolUse):
        source = "tools"
    return Piece(
        part="messages", source=source, kind=_kind(block), text=words, role=message.role, message=number,
        name=_name(block),
    )  # fmt: skip


def _look(block: Block) -> tuple[Any, ...]:
    match block:
        case ToolUse(id=id_):
            return ("use", id_)
        case ToolResult(tool_use_id=id_):
            return ("result", id_)
        case ProviderBlock(raw=raw):
            return ("sealed", json.dumps(dict(raw), sort_keys=True))
        case _:
            return (type(block).__name__, _words(block))


def _words(block: Block) -> str:
    match block:
        case Text(text=text) | ToolResult(text=text) | Thinking(text=text):
            return text
        case ToolUse(input=input_):
            return json.dumps(dict(input_), ensure_ascii=False, indent=1)
        case Image(description=description):
            return description
        case ProviderBlock(kind=kind):
            return kind


def _kind(block: Block) -> Kind:
    match block:
        case ToolUse():
            return "tool_use"
        case ToolResult():
            return "tool_result"
        case Thinking():
            return "thinking"
        case Image():
            return "picture"
        case ProviderBlock():
            return "sealed"
        case Text():
            return "text"


def _source(block: Block) -> Source:
    return "tools" if isinstance(block, ToolUse | ToolResult) else "history"


def _name(block: Block) -> str:
    return block.name if isinstance(block, ToolUse) else ""
