"""What one model call gets, computed from the view: the same state gives the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, tzinfo
from functools import partial
from operator import attrgetter, is_
from typing import Literal, overload

from shared.core.context.memory import NOTHING_KNOWN, KnownNotes
from shared.core.context.prompts import (
    SystemLayers,
    day_mark,
    operator_words,
    picture_words,
    pins_block,
    summary_block,
    system_text,
    volatile_block,
)
from shared.core.context.untrusted_text import FENCE, defused
from shared.core.session.artifacts import LONG_CHARS, in_part
from shared.core.session.policy import ContextPolicy
from shared.core.session.pruning import apply_pruning, places_to_change
from shared.core.session.session import Entry, View
from shared.core.values.messages import (
    Author,
    Block,
    Image,
    Message,
    ProviderBlock,
    Text,
    Thinking,
    ToolResult,
    repair,
    tool_results,
)
from shared.core.values.model import SystemPart, ToolSpec
from shared.core.values.tokens import Count, by_script, estimate_blocks, estimate_system, estimate_tools
from shared.core.values.ttl_cache import recent

RENDERER_VERSION = 12
"""Raised whenever the same state would give other bytes than before, so that a replay can tell."""

_TOKENS: Callable[[Entry], int] = attrgetter("tokens")
_SEQ: Callable[[Entry], int] = attrgetter("seq")

MAX_MARKS = 3
_LOOKBACK_BLOCKS = 15
"""How many blocks the provider surely looks back from a mark for an earlier one, with some to spare."""

Part = Literal["system", "memory", "summary", "history", "tools"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltContext:
    system: tuple[SystemPart, ...]
    messages: tuple[Message, ...]
    cache_at: tuple[int, ...]
    """Indices of messages that end a stable prefix."""
    behind_mark: int
    """Blocks at the end of the last of them that belong to this call alone."""
    parts: Mapping[Part, int]
    """Estimated tokens of each part, in the counter's own unit (before a model's factor)."""
    fixed: int
    """Of these, what is part of every request: system, memory and tools."""
    estimate: int
    entry_seqs: tuple[int, ...]
    pin_seqs: tuple[int, ...]
    volatile: int = 0
    """Of the estimate, what stands behind the newest words and is not sent again."""
    renderer: int = RENDERER_VERSION


def build_context(
    view: View,
    *,
    policy: ContextPolicy,
    system: SystemLayers,
    known: KnownNotes = NOTHING_KNOWN,
    recall: str = "",
    runtime_facts: str = "",
    tools: Sequence[ToolSpec] = (),
    instruction: str = "",
    zone: tzinfo | None = None,
    count: Count = by_script,
) -> BuiltContext:
    """The request for the view's open turn, or, with `instruction`, for a ghost turn after it.

    `runtime_facts` and `recall` must stay the same between the tool rounds of one turn: they stand with the
    person's newest message, and a changed prefix would make the provider refuse the thinking behind it.
    `recall` begins with a passage made by `fencing.fenced`, or no fence in it is believed.
    `zone` is the person's: by its clock the first message of each day tells the day; None tells no days.
    """
    system_parts = _system_parts(system, known.block)
    background, late_pins = background_of(view, zone), pins_since(view, zone)
    volatile = volatile_block(
        runtime_facts=defused(runtime_facts), recall=defused(recall, keep_fences=recall.startswith(FENCE))
    )
    told = told_through(view, policy)
    live = [shown_entry(entry, view.open_turn, policy, told=told) for entry in view.entries]
    if zone is not None:
        live = _with_days(live, zone)
    newest = "\n\n".join(text for text in (late_pins, known.since, volatile) if text)
    messages = _messages(live, background, newest, instruction, view.open_turn)
    passing, core = _text_tokens(volatile, count), _text_tokens(known.block, count)
    parts: dict[Part, int] = {
        "system": estimate_system(system_parts[:1], count),
        "memory": core + _text_tokens(known.since, count) + passing,
        "summary": sum(_text_tokens(text, count) for text in (*background, late_pins)),
        "history": _history_tokens(view.entries, live, count) + _text_tokens(instruction, count),
        "tools": estimate_tools(tools, count),
    }
    return BuiltContext(
        system=system_parts,
        messages=messages,
        cache_at=_cache_marks(
            messages,
            _ends_of_settled(messages, view.entries, policy),
            has_background=bool(background),
            ghost=bool(instruction),
        ),
        behind_mark=int(bool(newest) and messages[-1].blocks[-1] == Text(text=newest)),
        parts=parts,
        fixed=parts["system"] + parts["tools"] + core,
        estimate=sum(parts.values()),
        entry_seqs=tuple(map(_SEQ, view.entries)),
        pin_seqs=tuple(map(_SEQ, view.pins)),
        volatile=passing,
    )


def _with_days(live: Sequence[Entry], zone: tzinfo) -> list[Entry]:
    """The day never changes once it is told: what stands before a new message stays as the cache has it."""
    told: date | None = None
    shown: list[Entry] = []
    for entry in live:
        if entry.role == "user" and entry.author != "tool":
            day = entry.at.astimezone(zone).date()
            if day != told:
                entry = replace(entry, blocks=(Text(text=day_mark(day)), *entry.blocks))
                told = day
        shown.append(entry)
    return shown


def told_through(view: View, policy: ContextPolicy) -> int:
    """The last turn whose pictures are told by their descriptions.

    It moves by several turns at once: what stands before a picture changes seldom.
    """
    newest = view.entries[-1].turn if view.entries else 0
    return _told_at(newest, policy, is_open=newest == view.open_turn)


def _told_at(newest: int, policy: ContextPolicy, *, is_open: bool = True) -> int:
    keep = policy.picture_turns
    if keep is None:
        return 0
    return ((newest - 1) // keep - 1) * keep if keep else newest - is_open


def newly_told(view: View, policy: ContextPolicy, count: Count) -> int:
    """Tokens of pictures that were still sent in the turn before the newest one."""
    if not policy.picture_turns or not view.entries:
        return 0
    newest = view.entries[-1].turn
    gone = range(_told_at(newest - 1, policy) + 1, _told_at(newest, policy) + 1)
    return sum(
        entry.tokens - estimate_blocks(tuple(map(told_block, entry.blocks)), count)
        for entry in view.entries
        if entry.turn in gone and any(isinstance(block, Image) for block in entry.blocks)
    )


def shown_entry(entry: Entry, open_turn: int | None, policy: ContextPolicy, *, told: int) -> Entry:
    """The entry as it is sent: pruned, without finished thinking, our own marks defused in foreign text.

    Long messages of people are shown in part, and pictures up to the turn `told` by their descriptions.
    """
    if entry.author == "operator":
        return _operators(entry)
    first = entry.blocks[0] if len(entry.blocks) == 1 else None
    if isinstance(first, Text) and (entry.author == "assistant" or _is_plain(first.text, entry.author)):
        return entry  # nearly every one: nothing to prune, nothing thought, no mark
    blocks = apply_pruning(entry, policy)
    if entry.turn != open_turn:
        blocks = tuple(block for block in blocks if not isinstance(block, Thinking | ProviderBlock))
    if entry.turn <= told:
        blocks = tuple(map(told_block, blocks))
    if entry.author != "assistant":
        blocks = tuple(_defused_block(block, entry.author) for block in blocks)
    if entry.author == "person":
        blocks = in_part(blocks, entry.seq)
    return entry if blocks == entry.blocks else replace(entry, blocks=blocks)


def _operators(entry: Entry) -> Entry:
    """A human's words stand on the side of the one who hears the model, and say whose they are."""
    return replace(entry, blocks=(Text(text=operator_words(defused(plain_words(entry.blocks)))),))


def fading(entries: Iterable[Entry], policy: ContextPolicy, count: Count) -> int:
    """Tokens of a turn that are sent only while it is open: its thinking, and pictures where none stay."""
    faded = 0
    for entry in entries:
        if any(isinstance(block, Thinking | Image | ProviderBlock) for block in entry.blocks):
            told = entry.turn if policy.picture_turns == 0 else 0
            later = shown_entry(entry, None, policy, told=told)
            faded += max(0, entry.tokens - estimate_blocks(later.blocks, count))
    return faded


def quoted(entry: Entry, zone: tzinfo | None = None) -> str:
    """A line of a record, `[#12] person (2026-11-20): words`; its words cannot begin another."""
    told = in_part(entry.blocks, entry.seq) if entry.author == "person" else entry.blocks
    words = defused(plain_words(told), foreign=entry.author != "person").replace("[#", "(#")
    day = "" if zone is None else f" ({entry.at.astimezone(zone):%Y-%m-%d})"
    return f"[#{entry.seq}] {entry.author}{day}: {words}"


def plain_words(blocks: Iterable[Block]) -> str:
    """What a reader without pictures and tools can be told; thinking and calls are left out."""
    words: list[str] = []
    for block in blocks:
        match block:
            case Text(text=text) | ToolResult(text=text):
                words.append(text.strip())
            case Image():
                words.append(told_block(block).text)
            case _:
                pass
    return "\n".join(word for word in words if word)


@overload
def told_block(block: Image) -> Text: ...
@overload
def told_block(block: Block) -> Block: ...
def told_block(block: Block) -> Block:
    """What stands for a picture that is not sent any more; its number lets the model look at it again."""
    if isinstance(block, Image):
        return Text(text=picture_words(block.attachment_id, defused(block.description)))
    return block


@recent(64)
def _system_parts(layers: SystemLayers, notes: str) -> tuple[SystemPart, ...]:
    told = replace(
        layers,
        mode=defused(layers.mode),
        goal=defused(layers.goal),
        memory=defused(layers.memory),
        person=defused(layers.person),
    )
    rules = SystemPart(text=system_text(told), cache=not notes)
    return (rules, SystemPart(text=notes, cache=True)) if notes else (rules,)


def background_of(view: View, zone: tzinfo | None = None) -> tuple[str, ...]:
    """What stands in for hidden turns: the summary, then pins word for word."""
    head = view.head
    summary = ""
    if head is not None and head.summary_text.strip():
        text = defused(head.summary_text.strip())
        summary = summary_block(text, through_seq=head.through_seq, form=head.ledger.form)
    pins = _pins(view, zone, late=False)
    return tuple(text for text in (summary, pins) if text)


def pins_since(view: View, zone: tzinfo | None = None) -> str:
    """Hidden messages that were pinned after the prefix of this cycle had been sent."""
    return _pins(view, zone, late=True)


def _pins(view: View, zone: tzinfo | None, *, late: bool) -> str:
    chosen = "\n\n".join(quoted(entry, zone) for entry in view.pins if is_late_pin(entry, view) == late)
    return pins_block(chosen) if chosen else ""


def is_late_pin(entry: Entry, view: View) -> bool:
    return view.frozen is not None and entry.seq not in view.frozen.pins


def _messages(
    live: Sequence[Entry], background: Sequence[str], behind: str, instruction: str, open_turn: int | None
) -> tuple[Message, ...]:
    newest = _newest_words(live, open_turn)
    messages = [entry.message for entry in live]
    if behind and newest is not None:
        messages[newest] = _with_blocks(messages[newest], after=(Text(text=behind),))
    if background:
        blocks = tuple(Text(text=text) for text in background)
        if not messages or messages[0].role == "assistant":
            messages.insert(0, Message(role="user", blocks=blocks))
        else:
            messages[0] = _with_blocks(messages[0], before=blocks)
    if instruction:
        told = (Text(text=behind),) if behind and newest is None else ()
        messages.append(Message(role="user", blocks=(*told, Text(text=instruction))))
    return repair(messages)


def _newest_words(live: Sequence[Entry], open_turn: int | None) -> int | None:
    """Where the volatile part stands: behind the last message of the person in the open turn."""
    for index in range(len(live) - 1, -1, -1):
        entry = live[index]
        if entry.turn == open_turn and entry.role == "user" and entry.author != "tool":
            return index
    return None


def _with_blocks(
    message: Message, *, before: tuple[Block, ...] = (), after: tuple[Block, ...] = ()
) -> Message:
    return replace(message, blocks=before + message.blocks + after)


def _ends_of_settled(
    messages: Sequence[Message], entries: Sequence[Entry], policy: ContextPolicy
) -> tuple[int, ...]:
    """Where what the newest batch left alone ends, and what no later batch will change."""
    firsts = [entries[index].blocks for index in places_to_change(entries, policy)]
    ids = {result.tool_use_id for blocks in firsts for result in tool_results(blocks)[:1]}
    return tuple(
        index - 1
        for index, message in enumerate(messages if ids else ())
        if index and any(result.tool_use_id in ids for result in tool_results(message.blocks))
    )


def _cache_marks(
    messages: Sequence[Message], settled: Sequence[int], *, has_background: bool, ghost: bool
) -> tuple[int, ...]:
    """End of the summary's message, ends of what pruning leaves alone, the newest words or results.

    Where there is room, a step within the provider's look-back, too. A ghost's instruction is said once: the
    mark stands before it.
    """
    end = len(messages) - 1 - ghost
    if end < 0:
        return ()
    marks = {end, *(at for at in settled if at < end)}
    if len(marks) < MAX_MARKS:
        marks.add(_step_back(messages, end))
    if has_background and end > 0:
        marks.add(0)
    return tuple(sorted(marks))[-MAX_MARKS:]


def _step_back(messages: Sequence[Message], end: int) -> int:
    blocks = 0
    for index in range(end, -1, -1):
        blocks += len(messages[index].blocks)
        if blocks > _LOOKBACK_BLOCKS:
            return index
    return end


def _history_tokens(stored: Sequence[Entry], shown: Sequence[Entry], count: Count) -> int:
    if all(map(is_, stored, shown)):
        return sum(map(_TOKENS, stored))
    return sum(map(partial(_tokens_shown, count=count), stored, shown))


def shown_tokens(view: View, policy: ContextPolicy, count: Count) -> dict[int, int]:
    """What each entry takes in a request, by its seq."""
    told = told_through(view, policy)
    return {
        entry.seq: _tokens_shown(entry, shown_entry(entry, view.open_turn, policy, told=told), count)
        for entry in view.entries
    }


def _tokens_shown(stored: Entry, shown: Entry, count: Count) -> int:
    return stored.tokens if stored is shown else estimate_blocks(shown.blocks, count)


def _text_tokens(text: str, count: Count) -> int:
    return count(text) if text else 0


def _defused_block(block: Block, author: Author) -> Block:
    """Nobody but us can open or close one of our marks, or speak as the program."""
    match block:
        case Text(text=text) | ToolResult(text=text):
            shown = defused(text, foreign=author == "tool")
            return block if shown == text else replace(block, text=shown)
        case _:
            return block


def _is_plain(text: str, author: Author) -> bool:
    return len(text) <= LONG_CHARS and defused(text, foreign=author == "tool") == text
