"""Content of one model call, computed from the view; the same state gives the same bytes.

`build_context` assembles it from top to bottom; `select` is its first step: sliding windows, rounds, turns by
channel, trimming.
"""

from __future__ import annotations

import math
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
    edited_block,
    operator_text,
    picture_text,
    pins_block,
    summary_block,
    system_text,
    volatile_block,
)
from shared.core.context.untrusted_text import FENCE, defuse
from shared.core.session.artifacts import LONG_CHARS, shorten_blocks
from shared.core.session.keep_strategy import KeepStrategy
from shared.core.session.policy import ContextPolicy
from shared.core.session.pruning import apply_pruning, places_to_change
from shared.core.session.session import (
    Compaction,
    Entry,
    View,
    drop_edited,
    find_unresolved_turns,
    is_correction,
    list_corrections,
    turns_of,
)
from shared.core.session.summary import render_summary
from shared.core.values.messages import (
    BEGINNERS,
    Author,
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
    repair,
    tool_results,
)
from shared.core.values.tokens import (
    RATIO_LEAST,
    Count,
    estimate_blocks,
    estimate_by_script,
    estimate_system,
    estimate_tools,
)
from shared.core.values.ttl_cache import ttl_cache

RENDERER_VERSION = 13
"""Version of the rendering, raised whenever the same state would give other bytes, for replays."""

_TOKENS: Callable[[Entry], int] = attrgetter("tokens")
_SEQ: Callable[[Entry], int] = attrgetter("seq")

MAX_MARKS = 3
"""Most cache marks of a request's messages."""
_LOOKBACK_BLOCKS = 15
"""Blocks before a cache mark in which the provider certainly finds an earlier mark."""

Part = Literal["system", "memory", "summary", "history", "tools"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltContext:
    """Content of one model call, with sizes in estimated tokens.

    `entry_seqs` and `pin_seqs` are the `seq` of the entries and pins in it.
    """

    system: tuple[SystemPart, ...]
    messages: tuple[Message, ...]
    cache_at: tuple[int, ...]
    """Indices of the messages that end a stable, cacheable prefix."""
    behind_mark: int
    """Number of blocks at the end of the last such message that only this call contains."""
    parts: Mapping[Part, int]
    """Estimated tokens of each part, before the model's factor."""
    fixed: int
    """Estimated tokens of the parts of every request: system text, memory and tools."""
    estimate: int
    """Estimated tokens of all parts together, before the model's factor."""
    entry_seqs: tuple[int, ...]
    pin_seqs: tuple[int, ...]
    volatile: int = 0
    """Estimated tokens after the newest message that are sent in this turn only."""
    facts: int = 0
    """Estimated tokens of `volatile` that are the program's own facts, such as the time."""
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
    count: Count = estimate_by_script,
) -> BuiltContext:
    """Return the content of a request for the open turn, or of a background call if `instruction` is not
    empty.

    `runtime_facts` and `recall` must stay the same in all rounds of a turn, since they stand before thinking
    that providers refuse after a change. `recall` must begin with a fenced passage for its fences to be kept.
    `zone` gives the dates of day marks; None adds none. The same arguments give the same bytes; nothing is
    stored.
    """
    system_parts = _system_parts(system, known.block)
    background, late_pins = background_of(view, zone), pins_since(view, zone)
    own_facts = defuse(runtime_facts)
    volatile = volatile_block(
        runtime_facts=own_facts, recall=defuse(recall, keep_fences=recall.startswith(FENCE))
    )
    through = find_last_described_turn(view, policy)
    live = [render_entry(entry, view.open_turn, policy, through=through) for entry in view.entries]
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
            _find_settled_ends(messages, view.entries, policy),
            has_background=bool(background),
            silent=bool(instruction),
        ),
        behind_mark=int(bool(newest) and messages[-1].blocks[-1] == Text(text=newest)),
        parts=parts,
        fixed=parts["system"] + parts["tools"] + core,
        estimate=sum(parts.values()),
        entry_seqs=tuple(map(_SEQ, view.entries)),
        pin_seqs=tuple(entry.seq for entry in view.pins if not is_correction(entry)),
        volatile=passing,
        facts=_text_tokens(volatile_block(runtime_facts=own_facts, recall=""), count) if recall else passing,
    )


def _with_days(live: Sequence[Entry], zone: tzinfo) -> list[Entry]:
    """Return the entries with a day mark before the first message of each day; marks never change later."""
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


def find_last_described_turn(view: View, policy: ContextPolicy) -> int:
    """Return the number of the last turn whose pictures are replaced by descriptions; 0 or less if there is
    none.

    It advances by several turns at once, so that the cached prefix rarely changes.
    """
    newest = view.entries[-1].turn if view.entries else 0
    return _last_described_turn(newest, policy, is_open=newest == view.open_turn)


def _last_described_turn(newest: int, policy: ContextPolicy, *, is_open: bool = True) -> int:
    keep = policy.keeping.picture_turns
    if keep is None:
        return 0
    return ((newest - 1) // keep - 1) * keep if keep else newest - is_open


def count_replaced_pictures(view: View, policy: ContextPolicy, count: Count) -> int:
    """Return the estimated tokens saved by pictures that the newest turn is the first to replace by
    descriptions.
    """
    if not policy.keeping.picture_turns or not view.entries:
        return 0
    newest = view.entries[-1].turn
    gone = range(_last_described_turn(newest - 1, policy) + 1, _last_described_turn(newest, policy) + 1)
    return sum(
        entry.tokens - estimate_blocks(tuple(map(describe_block, entry.blocks)), count)
        for entry in view.entries
        if entry.turn in gone and any(isinstance(block, Image) for block in entry.blocks)
    )


def render_entry(entry: Entry, open_turn: int | None, policy: ContextPolicy, *, through: int) -> Entry:
    """Return an entry as requests show it: pruned, without thinking of ended turns, without imitated marks.

    People's messages above 16,000 characters are shortened, and pictures up to the turn `through` are
    replaced by descriptions. An operator's entry becomes one text that names its author.
    """
    if entry.author == "operator":
        return _operators(entry)
    first = entry.blocks[0] if len(entry.blocks) == 1 else None
    if isinstance(first, Text) and (entry.author == "assistant" or _is_plain(first.text, entry.author)):
        return entry  # nearly all entries: nothing to prune, no thinking, no mark
    blocks = apply_pruning(entry, policy)
    if entry.turn != open_turn:
        blocks = tuple(block for block in blocks if not isinstance(block, Thinking | ProviderBlock))
    if entry.turn <= through:
        blocks = tuple(map(describe_block, blocks))
    if entry.author != "assistant":
        blocks = tuple(_defuse_block(block, entry.author) for block in blocks)
    if entry.author == "person":
        blocks = shorten_blocks(blocks, entry.seq)
    return entry if blocks == entry.blocks else replace(entry, blocks=blocks)


def _operators(entry: Entry) -> Entry:
    """Return an operator's entry as one text that says who wrote it."""
    return replace(entry, blocks=(Text(text=operator_text(defuse(plain_text(entry.blocks)))),))


def count_fading(entries: Iterable[Entry], policy: ContextPolicy, count: Count) -> int:
    """Return the estimated tokens of a turn's entries that are sent only while the turn is open."""
    faded = 0
    for entry in entries:
        if any(isinstance(block, Thinking | Image | ProviderBlock) for block in entry.blocks):
            through = entry.turn if policy.keeping.picture_turns == 0 else 0
            later = render_entry(entry, None, policy, through=through)
            faded += max(0, entry.tokens - estimate_blocks(later.blocks, count))
    return faded


def quote_entry(entry: Entry, zone: tzinfo | None = None) -> str:
    """Return an entry as a quoted line, `[#12] person (2026-11-20): text`, which cannot imitate another line.

    `zone` gives the day; None leaves it out. Long messages of people are shortened.
    """
    blocks = shorten_blocks(entry.blocks, entry.seq) if entry.author == "person" else entry.blocks
    words = defuse(plain_text(blocks), foreign=entry.author != "person").replace("[#", "(#")
    day = "" if zone is None else f" ({entry.at.astimezone(zone):%Y-%m-%d})"
    return f"[#{entry.seq}] {entry.author}{day}: {words}"


def plain_text(blocks: Iterable[Block]) -> str:
    """Return the text of blocks, tool results included, joined by line ends, with pictures as descriptions.

    Thinking and tool calls are left out.
    """
    words: list[str] = []
    for block in blocks:
        match block:
            case Text(text=text) | ToolResult(text=text):
                words.append(text.strip())
            case Image():
                words.append(describe_block(block).text)
            case _:
                pass
    return "\n".join(word for word in words if word)


@overload
def describe_block(block: Image) -> Text: ...
@overload
def describe_block(block: Block) -> Block: ...
def describe_block(block: Block) -> Block:
    """Return a picture as a text with its number and description; other blocks unchanged."""
    if isinstance(block, Image):
        return Text(text=picture_text(block.attachment_id, defuse(block.description)))
    return block


@ttl_cache(64)
def _system_parts(layers: SystemLayers, notes: str) -> tuple[SystemPart, ...]:
    told = replace(
        layers,
        mode=defuse(layers.mode),
        goal=defuse(layers.goal),
        memory=defuse(layers.memory),
        person=defuse(layers.person),
    )
    return tuple(SystemPart(text=text, cache=True) for text in (system_text(told), notes) if text)


def background_of(view: View, zone: tzinfo | None = None) -> tuple[str, ...]:
    """Return the texts that replace hidden turns, in order: the summary, then pinned and edited messages
    literally.

    Items whose sources were all edited are left out of the summary. Messages pinned later are not included,
    see `pins_since`. `zone` gives their days; None adds none.
    """
    head = view.head
    summary = ""
    if head is not None and head.summary_text.strip():
        text = defuse(_corrected_summary(head, list_corrections(view)).strip())
        summary = summary_block(text, through_seq=head.through_seq, form=head.ledger.form)
    pins = _pins(view, zone, late=False)
    return tuple(text for text in (summary, pins) if text)


def pins_since(view: View, zone: tzinfo | None = None) -> str:
    """Return the text of hidden messages pinned or edited since this cycle's prefix was first sent.

    Empty if there are none. `zone` gives their days; None adds none.
    """
    return _pins(view, zone, late=True)


def _pins(view: View, zone: tzinfo | None, *, late: bool) -> str:
    shown = [entry for entry in view.pins if is_late_pin(entry, view) == late]
    pinned = "\n\n".join(quote_entry(entry, zone) for entry in shown if not is_correction(entry))
    edited = "\n\n".join(quote_entry(entry, zone) for entry in shown if is_correction(entry))
    blocks = (pins_block(pinned) if pinned else "", edited_block(edited) if edited else "")
    return "\n\n".join(block for block in blocks if block)


def _corrected_summary(head: Compaction, corrections: Sequence[Entry]) -> str:
    """Return the summary without items whose sources were all edited."""
    ledger = drop_edited(head.ledger, corrections)
    return head.summary_text if ledger is head.ledger else render_summary(ledger)


def is_late_pin(entry: Entry, view: View) -> bool:
    """Return whether a hidden message was pinned after this cycle's prefix was first sent.

    False if the prefix is not frozen.
    """
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
    """Return the index of the open turn's newest message to the model, tool results excluded; None if there
    is none.

    The volatile part is appended to this message.
    """
    for index in range(len(live) - 1, -1, -1):
        entry = live[index]
        if entry.turn == open_turn and entry.role == "user" and entry.author != "tool":
            return index
    return None


def _with_blocks(
    message: Message, *, before: tuple[Block, ...] = (), after: tuple[Block, ...] = ()
) -> Message:
    return replace(message, blocks=before + message.blocks + after)


def _find_settled_ends(
    messages: Sequence[Message], entries: Sequence[Entry], policy: ContextPolicy
) -> tuple[int, ...]:
    """Return the indices of the messages before the newest batch of shortened results and before the next
    one.

    Pruning leaves everything up to these indices unchanged, so cache marks can stand there.
    """
    firsts = [entries[index].blocks for index in places_to_change(entries, policy)]
    ids = {result.tool_use_id for blocks in firsts for result in tool_results(blocks)[:1]}
    return tuple(
        index - 1
        for index, message in enumerate(messages if ids else ())
        if index and any(result.tool_use_id in ids for result in tool_results(message.blocks))
    )


def _cache_marks(
    messages: Sequence[Message], settled: Sequence[int], *, has_background: bool, silent: bool
) -> tuple[int, ...]:
    """Return the message indices for cache marks: summary, unchanged parts before pruned results, newest
    message.

    If there is room, another mark is set within the provider's look-back. A background call's instruction
    comes after the marks.
    """
    end = len(messages) - 1 - silent
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
    return sum(map(partial(_count_entry, count=count), stored, shown))


def count_entry_tokens(view: View, policy: ContextPolicy, count: Count) -> dict[int, int]:
    """Return the estimated tokens of each entry of the view as the request shows it, by `seq`."""
    through = find_last_described_turn(view, policy)
    return {
        entry.seq: _count_entry(entry, render_entry(entry, view.open_turn, policy, through=through), count)
        for entry in view.entries
    }


def _count_entry(stored: Entry, shown: Entry, count: Count) -> int:
    return stored.tokens if stored is shown else estimate_blocks(shown.blocks, count)


def _text_tokens(text: str, count: Count) -> int:
    return count(text) if text else 0


def _defuse_block(block: Block, author: Author) -> Block:
    """Return a block with its text defused, so that only the program can open or close its marks."""
    match block:
        case Text(text=text) | ToolResult(text=text):
            shown = defuse(text, foreign=author == "tool")
            return block if shown == text else replace(block, text=shown)
        case _:
            return block


def _is_plain(text: str, author: Author) -> bool:
    return len(text) <= LONG_CHARS and defuse(text, foreign=author == "tool") == text


# -- selection of the live view -----------------------------------------------------------------------

WINDOW_SLACK = 50
"""Turns outside every coming request above which a `window` compaction hides them."""
WINDOW_WAITS = 200
"""Waiting turns above which an unresolved one no longer stops the `window` compaction."""

Turn = tuple[Entry, ...]
Chosen = frozenset[int]
LeftOut = Callable[[View], int]
"""Function that returns the stored tokens of a view that the next request would leave out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Result of selecting the entries that a request sends."""

    view: View
    """View for the request; pinned messages that were left out are among its pins."""
    left_out: tuple[Entry, ...] = ()
    """Live entries that are not sent, in order; the log and the next summary still contain them."""

    @property
    def slides(self) -> bool:
        """True if messages leave with each new one, so that a measured size still includes messages that have
        left.
        """
        return any(entry.pruned != "hide" for entry in self.left_out)

    @property
    def tokens_left_out(self) -> int:
        """Stored tokens of the entries in `left_out` together."""
        return sum(entry.tokens for entry in self.left_out)


def select(
    view: View,
    policy: ContextPolicy,
    *,
    channel: str | None = None,
    ratio: float = 1.0,
    unread: bool = False,
) -> Selection:
    """Return the part of the view that the policy sends; the same view if it sends all.

    Pins, the open turn and unresolved turns always stay; with `unread` also turns whose memory was not saved
    yet. `channel` chooses its limit of history, None has none; `ratio` is the model's tokens per estimated
    token.
    """
    if not _leaves_out(view, policy, channel):
        return Selection(view=view)
    chosen = _choose(view, policy, channel, ratio) | _list_always_sent(view, unread=unread)
    kept = tuple(entry for entry in view.entries if entry.seq in chosen)
    gone = tuple(entry for entry in view.entries if entry.seq not in chosen)
    if not gone:
        return Selection(view=view)
    pins = view.pins + tuple(entry for entry in gone if entry.pinned)
    left_out = tuple(entry for entry in gone if not entry.pinned)
    return Selection(view=replace(view, entries=kept, pins=pins), left_out=left_out)


def left_out_counter(policy: ContextPolicy, *, channel: str | None, ratio: float) -> LeftOut | None:
    """Return a function that counts the stored tokens that the policy would leave out of a view on this
    channel.

    None if the policy leaves out nothing by number or size there.
    """
    if not policy.keeping.limits(channel):
        return None
    return lambda view: select(view, policy, channel=channel, ratio=ratio).tokens_left_out


# ---- windows, rounds, turns, tokens


def _leaves_out(view: View, policy: ContextPolicy, channel: str | None) -> bool:
    if policy.keeping.limits(channel):
        return True
    return policy.keeping.hides_chatter and any(entry.pruned == "hide" for entry in view.entries)


def _choose(view: View, policy: ContextPolicy, channel: str | None, ratio: float) -> Chosen:
    keeping = policy.keeping
    kept = _without_hidden(view.entries, keeping)
    if keeping.max_rounds is not None:
        kept = _newest_turns(kept, keeping.max_rounds)
    history = keeping.turns_for(channel)
    if history is not None:
        ended = _newest_turns([e for e in kept if e.turn != view.open_turn], history)
        kept = [*ended, *(e for e in kept if e.turn == view.open_turn)]
    if keeping.window_messages is not None:
        kept = _newest_messages(kept, keeping.window_messages)
    if keeping.trim_tokens is not None:
        kept = _trim(kept, view, keeping, keeping.trim_tokens, ratio)
    return frozenset(entry.seq for entry in kept)


def _list_always_sent(view: View, *, unread: bool) -> Chosen:
    """Return the `seq` of entries that are always sent: those of the open turn and of unresolved turns.

    With `unread`, also those of turns that no memory flush has read.
    """
    stay = {view.open_turn} if view.open_turn is not None else set()
    stay |= find_unresolved_turns(view.entries, view.open_turn)
    return frozenset(
        entry.seq
        for entry in view.entries
        if entry.turn in stay or (unread and entry.turn > view.flushed_turn)
    )


def _without_hidden(entries: Iterable[Entry], keeping: KeepStrategy) -> list[Entry]:
    if not keeping.hides_chatter:
        return list(entries)
    return [entry for entry in entries if entry.pinned or entry.pruned != "hide"]


def _newest_turns(entries: Sequence[Entry], most: int) -> list[Entry]:
    numbers = sorted({entry.turn for entry in entries})[-most:]
    return [entry for entry in entries if numbers and entry.turn >= numbers[0]]


def _newest_messages(entries: Sequence[Entry], most: int) -> list[Entry]:
    """Return at most `most` newest messages with text, beginning with one that starts a turn.

    Tool calls thus keep their results.
    """
    start, counted = len(entries), 0
    for index in range(len(entries) - 1, -1, -1):
        counted += _is_said(entries[index])
        if counted > most:
            break
        if entries[index].author in BEGINNERS:
            start = index
    return list(entries[start:])


def _is_said(entry: Entry) -> bool:
    """Return whether an entry counts as a message: a person's, or an assistant's without tool calls."""
    if entry.author == "tool":
        return False
    return entry.author in BEGINNERS or not any(isinstance(block, ToolUse) for block in entry.blocks)


def _trim(
    entries: Sequence[Entry], view: View, keeping: KeepStrategy, most: int, ratio: float
) -> list[Entry]:
    """Return the messages from one end of the conversation that fit into `most` tokens with
    summary and pins.
    """
    beside = (view.head.tokens if view.head else 0) + _tokens(view.pins)
    room = most - math.ceil(beside * ratio)
    if keeping.trim_from == "last":
        return _last_that_fit(entries, room, ratio)
    return _first_that_fit(entries, view.open_turn, room, ratio)


def _last_that_fit(entries: Sequence[Entry], room: int, ratio: float) -> list[Entry]:
    start, tokens = len(entries), 0
    for index in range(len(entries) - 1, -1, -1):
        tokens += entries[index].tokens
        if math.ceil(tokens * ratio) > room:
            break
        if entries[index].author in BEGINNERS:
            start = index
    if start == len(entries):  # not even the newest message of the person fits, but it is sent in any case
        start = max((i for i, entry in enumerate(entries) if entry.author in BEGINNERS), default=start)
    return list(entries[start:])


def _first_that_fit(entries: Sequence[Entry], open_turn: int | None, room: int, ratio: float) -> list[Entry]:
    tokens = _tokens(entry for entry in entries if entry.turn == open_turn)
    kept: list[Entry] = []
    for unit in units_of([entry for entry in entries if entry.turn != open_turn]):
        tokens += _tokens(unit)
        if math.ceil(tokens * ratio) > room:
            break
        kept += unit
    return [*kept, *(entry for entry in entries if entry.turn == open_turn)]


def units_of(entries: Sequence[Entry]) -> list[Turn]:
    """Return groups of entries that stay together, in order: a tool call with its results, or another entry
    alone.
    """
    units: list[Turn] = []
    for entry in entries:
        belongs = units and entry.author == "tool" and _calls(units[-1][-1].blocks)
        if belongs:
            units[-1] = (*units[-1], entry)
        else:
            units.append((entry,))
    return units


def _calls(blocks: Iterable[Block]) -> bool:
    return any(isinstance(block, ToolUse) for block in blocks)


def _tokens(entries: Iterable[Entry]) -> int:
    return sum(entry.tokens for entry in entries)


# ---- compaction that limits the log of a sliding window


def window_through(view: View, policy: ContextPolicy) -> int | None:
    """Return the newest turn that a `window` compaction can hide, since no coming request can send it.

    None if at most 50 such turns wait, or if the policy may send any turn. An unresolved turn stops it,
    unless more than 200 turns wait from there on.
    """
    if not policy.keeping.is_bounded:
        return None
    ended = [turn for turn in turns_of(view.entries) if turn[0].turn != view.open_turn]
    kept = _turns_ever_sent(ended, policy.keeping)
    if kept is None:
        return None
    gone = ended[: len(ended) - kept]
    if len(gone) <= WINDOW_SLACK:
        return None
    return _before_unresolved(gone, find_unresolved_turns(view.entries, view.open_turn))


def _turns_ever_sent(ended: Sequence[Turn], keeping: KeepStrategy) -> int | None:
    """Return how many of the newest ended turns any coming request may send; None if all."""
    limits = [most for most in (keeping.max_rounds, keeping.turns_of_all_channels) if most is not None]
    flat = [entry for turn in ended for entry in turn]
    if keeping.window_messages is not None:
        limits.append(len(turns_of(_newest_messages(flat, keeping.window_messages))))
    if keeping.tokens_ever_sent is not None:
        limits.append(len(turns_of(_last_that_fit(flat, keeping.tokens_ever_sent, RATIO_LEAST))))
    return min(limits, default=None)


def _before_unresolved(gone: Sequence[Turn], unresolved: frozenset[int]) -> int | None:
    place = next((i for i, turn in enumerate(gone) if turn[0].turn in unresolved), None)
    if place is None or len(gone) - place > WINDOW_WAITS:
        return gone[-1][0].turn
    return gone[place - 1][0].turn if place > WINDOW_SLACK else None
