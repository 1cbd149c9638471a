"""The last steps of the ladder: make a request fit without a model, or name what is too large."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from shared.core.context.build_context import BuiltContext
from shared.core.context.prompts import left_out_notice
from shared.core.session.artifacts import Artifact, artifact_of, excerpt, head_and_tail, reference_in
from shared.core.session.session import Entry, View, unresolved_turns
from shared.core.values.errors import ContextBudgetExceeded
from shared.core.values.messages import Text, Thinking, ToolResult
from shared.core.values.tokens import estimate_blocks

TAIL_TURNS = 2
_SMALLEST_CHARS = 1_200
"""A text is not cut below this: what is left must still say what it is about."""

Build = Callable[[View], BuiltContext]
Hide = Callable[[View, int, bool], View | None]
"""`hide(view, keep, unresolved)`: all but the last turns behind a digest, None when none can be hidden.

Unresolved turns stay word for word if the last argument says so; else the digest alone tells of them.
"""
Count = Callable[[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CutShort:
    """A message that is shown by head and tail only; the caller keeps the whole as an artifact."""

    seq: int
    block: int
    chars_left_out: int
    text: str
    """The whole."""
    artifact: Artifact | None = None
    """To be kept before the request is sent; None where nothing names one, or the text named it already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    view: View
    context: BuiltContext
    turns_left_out: int = 0
    digested_through: int | None = None
    """The last turn that a digest stands in for in this request; nothing of that is stored."""
    cut_short: tuple[CutShort, ...] = ()


def shrink_to_fit(
    view: View,
    *,
    hard: int,
    build: Build,
    count: Count,
    ratio: float = 1.0,
    hide: Hide | None = None,
    keep: Sequence[int] = (TAIL_TURNS,),
    opens: bool = False,
) -> Shrunk:
    """The same view if it fits into `hard` tokens, else a smaller copy of it for this one request.

    Turns go behind a digest before any is left out; `keep` says how many stay, tried in this order.
    `ratio` turns the counter's unit into the model's. `opens`: the model can open artifacts in this request.
    Raises `ContextBudgetExceeded`.
    """
    shrunk = Shrunk(view=view, context=build(view))
    if _fits(shrunk, hard, ratio):
        return shrunk
    # What stands before the open turn changes now: its thinking would be refused.
    bare = _without_open_thinking(view, count)
    shrunk = _behind_digest(bare, build, hide, keep, hard, ratio) or _to_short_tail(bare, build)
    while not _fits(shrunk, hard, ratio):
        smaller = _cut_largest(shrunk, build, count, opens=opens)
        if smaller is None:
            raise ContextBudgetExceeded(hard=hard, largest=largest_contributors(shrunk, ratio))
        shrunk = smaller
    return shrunk


def largest_contributors(shrunk: Shrunk, ratio: float = 1.0) -> tuple[tuple[str, int], ...]:
    """The three largest parts by name, in the model's tokens."""
    parts = [(name, tokens) for name, tokens in shrunk.context.parts.items() if name != "history"]
    messages = [(f"message {entry.mid}", entry.tokens) for entry in (*shrunk.view.entries, *shrunk.view.pins)]
    largest = sorted((*parts, *messages), key=lambda part: (-part[1], part[0]))[:3]
    return tuple((name, round(tokens * ratio)) for name, tokens in largest)


def _fits(shrunk: Shrunk, hard: int, ratio: float) -> bool:
    return shrunk.context.estimate * ratio <= hard


def _behind_digest(
    view: View, build: Build, hide: Hide | None, keep: Sequence[int], hard: int, ratio: float
) -> Shrunk | None:
    """The first digest that fits, else the one that hides most; None when there is none."""
    smallest = None
    for turns, unresolved in [*((turns, True) for turns in keep), (keep[-1], False)]:
        hidden = hide(view, turns, unresolved) if hide is not None else None
        if hidden is None or (smallest is not None and hidden == smallest.view):
            continue
        smallest = Shrunk(view=hidden, context=build(hidden), digested_through=hidden.base_turn)
        if _fits(smallest, hard, ratio):
            break
    return smallest


def _without_open_thinking(view: View, count: Count) -> View:
    if view.open_turn is None:
        return view
    entries = tuple(_without_thinking(entry, view.open_turn, count) for entry in view.entries)
    return replace(view, entries=entries)


def _to_short_tail(view: View, build: Build) -> Shrunk:
    """Keeps the last turns, unresolved ones and pins; says in the first kept message how many are missing."""
    turns = sorted({entry.turn for entry in view.entries})
    keep = {*turns[-TAIL_TURNS:], *unresolved_turns(view.entries, view.open_turn)}
    kept = tuple(entry for entry in view.entries if entry.turn in keep)
    gone = tuple(entry for entry in view.entries if entry.turn not in keep)
    left_out = len(turns) - len(keep)
    if left_out == 0:
        return Shrunk(view=view, context=build(view))
    notice = Text(text=left_out_notice(left_out))
    kept = (replace(kept[0], blocks=(notice, *kept[0].blocks)), *kept[1:])
    pins = view.pins + tuple(entry for entry in gone if entry.pinned)
    smaller = replace(view, entries=kept, pins=pins)
    return Shrunk(view=smaller, context=build(smaller), turns_left_out=left_out)


def _cut_largest(shrunk: Shrunk, build: Build, count: Count, *, opens: bool) -> Shrunk | None:
    """Halves the longest text of the live messages, tool results before words; None when nothing is left."""
    best: tuple[tuple[bool, int, int], Entry, int] | None = None
    for entry in shrunk.view.entries:
        for place, block in enumerate(entry.blocks):
            if not isinstance(block, Text | ToolResult) or len(block.text) < 2 * _SMALLEST_CHARS:
                continue
            rank = (isinstance(block, ToolResult), len(block.text), -entry.seq)
            if best is None or rank > best[0]:
                best = (rank, entry, place)
    if best is None:
        return None
    _, entry, place = best
    return _with_cut(shrunk, entry, place, build, count, opens=opens)


def _with_cut(shrunk: Shrunk, entry: Entry, place: int, build: Build, count: Count, *, opens: bool) -> Shrunk:
    earlier = next((c for c in shrunk.cut_short if (c.seq, c.block) == (entry.seq, place)), None)
    old_block = entry.blocks[place]
    assert isinstance(old_block, Text | ToolResult)
    whole = earlier.text if earlier else old_block.text
    text, left_out, artifact = _halved(old_block.text, whole, count, opens=opens)
    block = replace(old_block, text=text)
    # Thinking behind a changed text would be refused, so the whole turn goes on without it.
    blocks = tuple(block if i == place else old for i, old in enumerate(entry.blocks))
    cut = replace(entry, blocks=blocks, tokens=estimate_blocks(blocks, count))
    entries = tuple(
        _without_thinking(cut if old.seq == entry.seq else old, entry.turn, count)
        for old in shrunk.view.entries
    )
    smaller = replace(shrunk.view, entries=entries)
    marker = CutShort(seq=entry.seq, block=place, chars_left_out=left_out, text=whole, artifact=artifact)
    others = tuple(c for c in shrunk.cut_short if c is not earlier)
    return replace(shrunk, view=smaller, context=build(smaller), cut_short=(*others, marker))


def _without_thinking(entry: Entry, turn: int, count: Count) -> Entry:
    blocks = tuple(block for block in entry.blocks if not isinstance(block, Thinking))
    if entry.turn < turn or blocks == entry.blocks:
        return entry
    return replace(entry, blocks=blocks, tokens=estimate_blocks(blocks, count))


def _halved(shown: str, whole: str, count: Count, *, opens: bool) -> tuple[str, int, Artifact | None]:
    """Head and tail of the whole, half as long as what was shown; how many characters that leaves out."""
    part = count(shown) // 4
    reference = reference_in(whole)
    body = whole.removeprefix(reference).lstrip("\n")
    begin, end = head_and_tail(body, head=part, tail=part, count=count)
    left_out = len(body) - len(begin) - len(end)
    if opens and not reference:
        artifact = artifact_of(whole, count)
        return excerpt(artifact, head=part, tail=part, count=count), left_out, artifact
    mark = f"[… {left_out:,} characters are left out here; the whole message is kept …]"
    return "\n".join(filter(None, (reference, begin, mark, end))), left_out, None
