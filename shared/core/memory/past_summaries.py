"""Decisions about summaries of an imported chat: the next range, its plan, the budget, and passages for
recall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from math import ceil
from typing import Any

from shared.core.compaction.plan import (
    RULES,
    CompactionPlan,
    chunk_limit,
    find_oversized,
    portions,
    readable,
    source_tokens,
    summary_room,
)
from shared.core.memory.past import SummariesState
from shared.core.session.ledger import Ledger
from shared.core.session.session import Entry
from shared.core.session.turns import Caps
from shared.core.values.money import Prices, worst_case_micro
from shared.core.values.searching import pieces

RANGE_TOKENS = 12_000
"""Most tokens of messages that one summary covers; a longer range would lose short conversations."""
RANGE_TURNS = 400
"""Most turns that one summary covers; chats have many turns of few words."""
SUMMARY_TOKENS = 1_000
"""Most tokens of the summary of one range."""
CONVERSATION_PAUSE = timedelta(hours=3)
"""Silence after which a chat's next message begins another conversation."""
BUDGET_SHARE = 4
"""Divisor of the smallest daily cap that gives one import's budget: a quarter."""
BUDGET_MICRO = 1_250_000
"""Budget of an import in micro-dollars if no daily cap is set: a quarter of the default cap."""
SUMMARY = "summary"
"""Author name of passages made from summaries."""
FIRST_PART = 10_000
"""Part number of a summary's first passage; parts of messages have smaller numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSize:
    """Estimated tokens of a turn, and the time of its first message."""

    turn: int
    tokens: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSpending:
    """Cost of an import's summaries so far: micro-dollars of priced calls, and tokens of all calls."""

    micro: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportToSummarise:
    """Import with the progress of its summaries, as a worker loads it.

    `searchable_turns` is the number of turns that recall can find already.
    """

    session_id: int
    contact_id: int
    state: SummariesState
    covered: int
    """Number of turns that summaries cover, counted from the newest."""
    turns: int
    searchable_turns: int
    is_newest_first: bool
    """True if the file begins with the newest conversation."""
    agent_config: Mapping[str, Any]
    timezone: str | None
    anonymous: bool
    spent: ImportSpending

    @property
    def candidates(self) -> tuple[int, int]:
        """Numbers of the first and last turn that the next range may cover, at most 400 turns.

        Ranges go from the newest turns to the oldest. The first exceeds the last if none is left.
        """
        if self.is_newest_first:
            return self.covered + 1, min(self.turns, self.covered + RANGE_TURNS)
        through = self.turns - self.covered
        return max(1, through - RANGE_TURNS + 1), through


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportBudget:
    """Micro-dollars and tokens that the summaries of one import may cost."""

    micro: int
    visitor_micro: int
    """Micro-dollars for the import of an anonymous visitor."""
    tokens: int
    """Tokens for models without a price; an output token counts as `output_weight` tokens."""
    output_weight: int

    def allows(
        self, spent: ImportSpending, next_calls: Sequence[tuple[int, int, Prices | None]], *, anonymous: bool
    ) -> bool:
        """Return whether the worst case of these calls fits into the budget, after what was spent.

        Each call is its input tokens, output tokens, and prices (None if unknown); with an unknown price the
        limit of tokens applies, too. `anonymous` uses the budget of a visitor.
        """
        micro = spent.micro
        tokens = spent.input_tokens + self.output_weight * spent.output_tokens
        is_priced = True
        for input_tokens, output_tokens, prices in next_calls:
            tokens += input_tokens + self.output_weight * output_tokens
            is_priced = is_priced and prices is not None
            micro += 0 if prices is None else worst_case_micro(input_tokens, output_tokens, prices)
        fits = micro <= (self.visitor_micro if anonymous else self.micro)
        return fits and (is_priced or tokens <= self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryPassage:
    """Passage of a summary that recall can find, with `seq` and `turn` of the message that it cites."""

    seq: int
    turn: int
    part: int
    at: datetime
    text: str


def budget_of(caps: Caps, *, day_tokens: int, output_weight: int) -> ImportBudget:
    """Return the budget of one import: a quarter of the smallest daily cap that applies to its person.

    `day_tokens` is the daily limit of tokens for models without a price, of which it also gets a quarter.
    """
    return ImportBudget(
        micro=_share(caps.total, caps.person, caps.session),
        visitor_micro=_share(caps.total, caps.visitor, caps.session),
        tokens=day_tokens // BUDGET_SHARE,
        output_weight=output_weight,
    )


def _share(*caps: int | None) -> int:
    return min((cap // BUDGET_SHARE for cap in caps if cap is not None), default=BUDGET_MICRO)


def choose_range(turns: Sequence[TurnSize]) -> int:
    """Return how many of the first turns one summary covers; 0 without turns.

    They have at most 12,000 tokens, except for a single larger turn. The range ends with a conversation if
    one ends in its second half.
    """
    size, taken = 0, 0
    for turn in turns:
        if taken and size + turn.tokens > RANGE_TOKENS:
            break
        size += turn.tokens
        taken += 1
    if taken == len(turns):
        return taken
    left = size
    for place in range(taken, 0, -1):
        if left < size / 2:
            break
        if abs(turns[place].at - turns[place - 1].at) > CONVERSATION_PAUSE:
            return place
        left -= turns[place - 1].tokens
    return taken


def measure_turns(entries: Iterable[Entry]) -> tuple[TurnSize, ...]:
    """Return the estimated tokens of each turn, in the order of the entries."""
    sizes: dict[int, TurnSize] = {}
    for entry in entries:
        former = sizes.get(entry.turn)
        tokens = entry.tokens + (former.tokens if former else 0)
        sizes[entry.turn] = TurnSize(turn=entry.turn, tokens=tokens, at=former.at if former else entry.at)
    return tuple(sizes.values())


def plan_range(entries: tuple[Entry, ...], *, window: int, factor: float, zone: tzinfo) -> CompactionPlan:
    """Return the plan of a summary of these entries alone, for a model with a window of `window` tokens.

    `factor` is the model's tokens per estimated token. Raises ValueError without entries.
    """
    most = min(SUMMARY_TOKENS, window // 4)
    named = find_oversized(entries, window, factor)
    size = source_tokens(entries, factor, named)
    return CompactionPlan(
        from_turn=min(entry.turn for entry in entries),
        through_turn=max(entry.turn for entry in entries),
        through_seq=max(entry.seq for entry in entries),
        entries=entries,
        former=Ledger(),
        tokens_before=size,
        expected_after=most,
        summary_limit=most,
        chunks=portions(
            entries, whole=readable(window, most), limit=chunk_limit(window, most), ratio=factor, named=named
        ),
        summary_most=most,
        named=named,
        replaced=size,
        ratio=factor,
        zone=zone,
    )


def estimate_calls(
    plan: CompactionPlan, *, window: int, most_output: int, factor: float
) -> tuple[tuple[int, int], ...]:
    """Return pairs of the most input and output tokens of each portion's call, in order.

    `most_output` is the model's longest answer, `factor` its tokens per estimated token.
    """
    out = min(most_output, summary_room(window, plan.summary_most))
    beside = ceil(factor * (2 * RULES + plan.summary_most))
    return tuple((beside + source_tokens(chunk, factor, plan.named), out) for chunk in plan.chunks)


def make_passages(ledger: Ledger, entries: Sequence[Entry]) -> tuple[SummaryPassage, ...]:
    """Return the passages of a summary: its text, then its open items, each with the message that it cites.

    The text, and items without a source among `entries`, cite the first entry.
    """
    by_seq = {entry.seq: entry for entry in entries}
    texts = [(entries[0], text) for text in pieces(ledger.narrative)]
    for item in ledger.items:
        if item.closed is None and item.text.strip():
            cited = next((by_seq[seq] for seq in item.sources if seq in by_seq), entries[0])
            texts.append((cited, item.text.strip()))
    return tuple(
        SummaryPassage(seq=entry.seq, turn=entry.turn, part=FIRST_PART + number, at=entry.at, text=text)
        for number, (entry, text) in enumerate(texts)
    )


def with_counted_tokens(entries: Iterable[Entry], count: Callable[[Entry], int]) -> tuple[Entry, ...]:
    """Return copies of the entries with `tokens` set to the result of `count`; nothing is stored."""
    return tuple(replace(entry, tokens=count(entry)) for entry in entries)
