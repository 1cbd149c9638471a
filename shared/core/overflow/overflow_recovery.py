"""Shrinking of a request without a model until it fits, or naming its largest parts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from shared.core.compaction.digest import digest
from shared.core.compaction.plan import MIN_SUMMARY
from shared.core.context.build_context import BuiltContext, count_entry_tokens, describe_block
from shared.core.session.artifacts import Artifact, artifact_of, excerpt, head_and_tail, reference_in
from shared.core.session.ledger import Ledger
from shared.core.session.policy import ContextPolicy
from shared.core.session.session import Compaction, Entry, View, find_unresolved_turns, turns_of
from shared.core.session.summary import render_summary
from shared.core.values.errors import ContextBudgetExceeded
from shared.core.values.messages import Image, Text, Thinking, ToolResult
from shared.core.values.tokens import Count, estimate_blocks

TAIL_TURNS = 2
"""Newest ended turns that a digest never replaces."""
_SMALLEST_CHARS = 1_200
"""Fewest characters to which a text is cut, so that it still shows its subject."""

HIDDEN_AT_ONCE = 0.25
"""Share of the hard limit that a digest replaces in one step, so that the next requests fit and share a
prefix.
"""

Build = Callable[[View], BuiltContext]
"""Function that builds a request from a view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutShort:
    """Text of a message that the request shows only by head and tail.

    `seq` is its message, `block` the index of its block in it.
    """

    seq: int
    block: int
    chars_left_out: int
    text: str
    """Full text of the block."""
    artifact: Artifact | None = None
    """Artifact to store before the request is sent; None if the request names none, or one that is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """View and content of a request after shrinking; the stored view is unchanged."""

    view: View
    context: BuiltContext
    digested_through: int | None = None
    """Last turn that a digest replaces in this request only; None if no turn is replaced."""
    cut_short: tuple[CutShort, ...] = ()


def fit(
    view: View,
    *,
    hard: int,
    build: Build,
    count: Count,
    policy: ContextPolicy,
    ratio: float = 1.0,
    step: int | None = None,
    opens: bool = False,
) -> Shrunk:
    """Return the request of the view, or of a smaller copy of the view that fits into `hard` tokens; nothing
    is stored.

    First, the oldest turns are replaced by a digest, about `step` estimated tokens at a time (None: a quarter
    of `hard`); then pictures by descriptions; then the longest texts are cut. The result depends on the view
    alone. `ratio` is the model's tokens per estimated token; `opens` says that the model can read artifacts.
    Raises ContextBudgetExceeded if nothing more can be cut.
    """
    shrunk = Shrunk(view=view, context=build(view))
    if _fits(shrunk, hard, ratio):
        return shrunk
    # Messages before the open turn change, so providers would refuse its thinking.
    bare = _without_open_thinking(view, count)
    shrunk = Shrunk(view=bare, context=build(bare))
    step = max(1, step or math.floor(HIDDEN_AT_ONCE * hard / ratio))
    room = min(policy.writing.summary_most, max(MIN_SUMMARY, step // 2))
    former = bare.head.tokens if bare.head else 0
    needed = math.ceil(shrunk.context.estimate - former + room - hard / ratio)
    for through, unresolved in _list_cuts(bare, policy, count, step=step, needed=needed):
        hidden = replace_with_digest(bare, through=through, count=count, most=room, unresolved=unresolved)
        if hidden is None or hidden == shrunk.view:
            continue
        shrunk = Shrunk(view=hidden, context=build(hidden), digested_through=through)
        if _fits(shrunk, hard, ratio):
            return shrunk
    if not _fits(shrunk, hard, ratio):
        told = _without_old_pictures(shrunk.view, count)
        shrunk = replace(shrunk, view=told, context=build(told))
    while not _fits(shrunk, hard, ratio):
        smaller = _cut_largest(shrunk, build, count, opens=opens)
        if smaller is None:
            raise ContextBudgetExceeded(hard=hard, largest=largest_contributors(shrunk, ratio))
        shrunk = smaller
    return shrunk


def _list_cuts(
    view: View, policy: ContextPolicy, count: Count, *, step: int, needed: int
) -> list[tuple[int, bool]]:
    """Return which turns to replace, the fewest first: the last turn, and whether unresolved turns stay.

    Cuts lie at multiples of `step` tokens, so that they stay the same while the conversation grows. `needed`
    are the tokens to save.
    """
    ended = [turn for turn in turns_of(view.entries) if turn[0].turn != view.open_turn][:-TAIL_TURNS]
    staying = find_unresolved_turns(view.entries, view.open_turn)
    sizes = count_entry_tokens(view, policy, count)
    cuts: list[tuple[int, bool]] = []
    total = steps = 0
    for turn in ended:
        total += sum(sizes[entry.seq] for entry in turn if not entry.pinned and entry.turn not in staying)
        if total // step > steps:
            steps = total // step
            if total >= needed:
                cuts.append((turn[0].turn, True))
    if ended:
        last = ended[-1][0].turn
        cuts += [cut for cut in ((last, True), (last, False)) if cut not in cuts]
    return cuts


def replace_with_digest(
    view: View, *, through: int, count: Count, most: int, unresolved: bool = True
) -> View | None:
    """Return a copy of the view with turns up to `through` replaced by a digest of at most `most` tokens.

    None if there are no such turns, or all their messages are pinned. With `unresolved`, turns without an
    answer or with a failed last step stay; pinned messages become pins.
    """
    hidden = tuple(entry for entry in view.entries if entry.turn <= through)
    source = tuple(entry for entry in hidden if not entry.pinned)
    if not source:
        return None
    ledger = digest(source, view.head.ledger if view.head else Ledger(), count, budget_tokens=most)
    text = render_summary(ledger)
    head = Compaction(
        id=0,
        kind="digest",
        from_turn=view.base_turn + 1,
        through_turn=through,
        through_seq=max(view.head.through_seq if view.head else 0, *(entry.seq for entry in hidden)),
        summary_text=text,
        ledger=ledger,
        tokens=count(text),
    )
    staying = find_unresolved_turns(view.entries, view.open_turn) if unresolved else frozenset()
    pinned = tuple(e for e in hidden if e.pinned and e.turn not in staying)
    return replace(
        view,
        base_turn=through,
        head=head,
        entries=tuple(e for e in view.entries if e.turn > through or e.turn in staying),
        pins=view.pins + pinned,
        frozen=view.frozen and replace(view.frozen, pins=view.frozen.pins.union(e.seq for e in pinned)),
    )


def largest_contributors(shrunk: Shrunk, ratio: float = 1.0) -> tuple[tuple[str, int], ...]:
    """Return the three largest parts or messages of a request, the largest first, with their tokens.

    Tokens are as the model counts them, by `ratio`.
    """
    parts = [(name, tokens) for name, tokens in shrunk.context.parts.items() if name != "history"]
    messages = [(f"message {entry.mid}", entry.tokens) for entry in (*shrunk.view.entries, *shrunk.view.pins)]
    largest = sorted((*parts, *messages), key=lambda part: (-part[1], part[0]))[:3]
    return tuple((name, round(tokens * ratio)) for name, tokens in largest)


def _fits(shrunk: Shrunk, hard: int, ratio: float) -> bool:
    return shrunk.context.estimate * ratio <= hard


def _without_open_thinking(view: View, count: Count) -> View:
    if view.open_turn is None:
        return view
    entries = tuple(_without_thinking(entry, view.open_turn, count) for entry in view.entries)
    return replace(view, entries=entries)


def _without_old_pictures(view: View, count: Count) -> View:
    def told(entry: Entry) -> Entry:
        if entry.turn == view.open_turn or not any(isinstance(block, Image) for block in entry.blocks):
            return entry
        blocks = tuple(map(describe_block, entry.blocks))
        return replace(entry, blocks=blocks, tokens=estimate_blocks(blocks, count))

    return replace(view, entries=tuple(map(told, view.entries)))


def _cut_largest(shrunk: Shrunk, build: Build, count: Count, *, opens: bool) -> Shrunk | None:
    """Return the request with its longest text halved, tool results before messages; None if none is long
    enough.
    """
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
    text, left_out, artifact = _halve(old_block.text, whole, count, opens=opens)
    block = replace(old_block, text=text)
    # Providers refuse thinking after a changed text, so the turn continues without it.
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


def _halve(shown: str, whole: str, count: Count, *, opens: bool) -> tuple[str, int, Artifact | None]:
    """Return head and tail of `whole`, together half as long as `shown`; the characters left out; the
    artifact.

    The artifact is None unless the model can read artifacts and the text names none yet.
    """
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
