"""Cuts what is to be summarised into portions that the summariser can read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, floor

from shared.core.compaction.transcript_lines import MESSAGE_TOKENS, TOOL_RESULT_TOKENS, whole_tokens
from shared.core.session.session import Entry, turns_of
from shared.core.values.messages import tool_results

CHUNK_TOKENS = 24_000
SUMMARY_ROOM = 4_096
SUMMARY_MOST = 2_000
RULES = 600
RULES_AND_FORMER = RULES + SUMMARY_MOST
"""Tokens of a summary request besides the log: the rules, and a former record at its largest."""
MIN_CHUNK = 500
CHUNK_SHARE = 0.6
"""Of the summariser's window; the rest is for the rules, the former record and the answer."""
NAMED_SHARE = 0.5
"""A message above this share of the summariser's window is named, not sent."""
_NAMED_TOKENS = 60

Portion = tuple[Entry, ...]


def summary_room(summariser_window: int, summary_most: int = SUMMARY_MOST) -> int:
    """The longest answer to a summary request, in tokens: a quarter of a small window."""
    return min(max(SUMMARY_ROOM, summary_most + summary_most // 4), summariser_window // 4)


def readable(summariser_window: int, summary_most: int = SUMMARY_MOST) -> int:
    """How much of the log fits into one request beside rules, former record and answer."""
    former = min(summary_most, summariser_window // 4)
    beside = summary_room(summariser_window, summary_most) + RULES + former
    return max(MIN_CHUNK, min(floor(CHUNK_SHARE * summariser_window), summariser_window - beside))


def chunk_limit(summariser_window: int, summary_most: int = SUMMARY_MOST) -> int:
    """How large a portion is where there have to be several."""
    return min(CHUNK_TOKENS, readable(summariser_window, summary_most))


def oversized(entries: Iterable[Entry], summariser_window: int, ratio: float = 1.0) -> frozenset[int]:
    """Seqs of the messages that are only named. Tool results never are: they are shown by head and tail."""
    most = floor(NAMED_SHARE * summariser_window)
    return frozenset(e.seq for e in entries if e.author != "tool" and ceil(whole_tokens(e) * ratio) > most)


def portions(
    entries: Sequence[Entry],
    *,
    whole: int,
    limit: int,
    ratio: float = 1.0,
    named: frozenset[int] = frozenset(),
    even: bool = False,
) -> tuple[Portion, ...]:
    """Everything at once if `whole` tokens are enough, else portions of at most `limit`.

    `even` makes them about equally large: each is summarised by itself, and none should weigh more.
    """
    total = source_tokens(entries, ratio, named)
    if total <= whole:
        return (tuple(entries),) if entries else ()
    if even:
        parts = ceil(total / limit)
        made = _even(entries, total / parts, ratio, named)
        if all(source_tokens(portion, ratio, named) <= limit for portion in made):
            return made
    return chunked(entries, limit, ratio, named)


def chunked(
    entries: Sequence[Entry], limit: int, ratio: float = 1.0, named: frozenset[int] = frozenset()
) -> tuple[Portion, ...]:
    """Portions of at most `limit` tokens, cut between turns; a turn is cut only if too large alone."""
    pieces: list[Portion] = []
    for turn in turns_of(entries):
        fits = source_tokens(turn, ratio, named) <= limit
        pieces.extend([turn] if fits else [(entry,) for entry in turn])
    chunks: list[Portion] = []
    room = 0
    for piece in pieces:
        size = source_tokens(piece, ratio, named)
        if chunks and size <= room:
            chunks[-1] += piece
            room -= size
        else:
            chunks.append(piece)
            room = limit - size
    return tuple(chunks)


def halves(portion: Portion) -> tuple[Portion, Portion] | None:
    """Two portions instead of one that was refused: cut between turns, else between messages, else not."""
    turns = turns_of(portion)
    pieces = turns if len(turns) > 1 else tuple((entry,) for entry in portion)
    if len(pieces) < 2:
        return None
    half = source_tokens(portion) / 2
    first: Portion = pieces[0]
    for place in range(1, len(pieces) - 1):
        if source_tokens(first) + source_tokens(pieces[place]) / 2 > half:
            break
        first += pieces[place]
    return first, portion[len(first) :]


def source_tokens(entries: Iterable[Entry], ratio: float = 1.0, named: frozenset[int] = frozenset()) -> int:
    """As `render_source` will show them."""
    return ceil(sum(_shown_tokens(entry, named) for entry in entries) * ratio)


def _shown_tokens(entry: Entry, named: frozenset[int]) -> int:
    if entry.seq in named:
        return _NAMED_TOKENS
    if entry.author == "tool":
        return min(entry.tokens, TOOL_RESULT_TOKENS * len(tool_results(entry.blocks)))
    return min(whole_tokens(entry), MESSAGE_TOKENS)


def _even(entries: Sequence[Entry], share: float, ratio: float, named: frozenset[int]) -> tuple[Portion, ...]:
    made: list[list[Entry]] = [[]]
    done = 0.0
    for turn in turns_of(entries):
        size = source_tokens(turn, ratio, named)
        if made[-1] and done + size / 2 > share * len(made):
            made.append([])
        made[-1].extend(turn)
        done += size
    return tuple(tuple(portion) for portion in made)
