"""Which turns a compaction hides, in which portions they are read; the door to its source and its text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from math import ceil, floor
from typing import Literal

from shared.core.compaction.transcript_lines import (
    CHUNK_TOKENS,
    RULES_AND_FORMER,
    SUMMARY_MOST,
    Portion,
    chunk_limit,
    chunked,
    oversized,
    portions,
    readable,
    render_source,
    summary_room,
)
from shared.core.session.budget import ContextBudget
from shared.core.session.ledger import Ledger
from shared.core.session.policy import ContextPolicy, SummaryForm
from shared.core.session.session import Entry, View, turns_of, unresolved_turns
from shared.core.session.summary import (
    LedgerPatch,
    Unreadable,
    apply_patch,
    fit_ledger,
    five_fields,
    parse_ledger_patch,
    render_summary,
)
from shared.core.values.identifiers import identifiers_of

__all__ = [
    "plan_compaction", "why_not_committed", "smaller_summary",
    "CompactionPlan", "NothingToCompact", "chunked", "chunk_limit", "summary_room",
    "render_source", "parse_ledger_patch", "LedgerPatch", "Unreadable", "apply_patch", "fit_ledger",
    "identifiers_of", "render_summary", "five_fields", "CHUNK_TOKENS", "RULES_AND_FORMER",
]  # fmt: skip

NoReason = Literal["nothing_old", "open_turn_too_big", "pins", "unanswered", "gain_too_small", "grows"]
Turn = tuple[Entry, ...]

MIN_SUMMARY = 64
"""No summary says anything in less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    from_turn: int
    through_turn: int
    through_seq: int
    entries: tuple[Entry, ...]
    """What is summarised: the hidden turns without pinned messages."""
    former: Ledger
    """The record of what was hidden before; the new one replaces it."""
    tokens_before: int
    expected_after: int
    summary_limit: int
    """The most estimated tokens of the new summary, so that the conversation lands where it should."""
    chunks: tuple[Portion, ...]
    form: SummaryForm = "ledger"
    merged: bool = False
    """Portions are summarised each by itself and merged by the model, instead of folded one into the next."""
    summary_most: int = SUMMARY_MOST
    """What the record may take between two portions."""
    named: frozenset[int] = frozenset()
    """Seqs of messages that the summariser could not read; they are named to it."""
    stays: int = 0
    """What a request holds beside the new summary, in the model's tokens."""
    replaced: int = 0
    """What the new summary stands in for, in the model's tokens."""
    ratio: float = 1.0
    """The model's tokens per estimated one."""
    zone: tzinfo = UTC
    """By whose clock the days of it are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingToCompact:
    reason: NoReason
    detail: str
    sizes: tuple[int, ...] = ()
    """Of what it would replace and of the summary, in tokens, where one was written and is longer."""


def plan_compaction(
    view: View,
    *,
    budget: ContextBudget,
    policy: ContextPolicy,
    now_tokens: int,
    force: bool = False,
    keep_turns: int | None = None,
    summariser_window: int = 200_000,
    ratio: float = 1.0,
    zone: tzinfo = UTC,
) -> CompactionPlan | NothingToCompact:
    """`ratio` turns stored estimates into the model's tokens; `force` asks for no gain.

    The open turn and pins are never touched. An explicit `keep_turns` is obeyed however little that keeps,
    down to the policy's least.
    """
    ended = tuple(turn for turn in turns_of(view.entries) if turn[0].turn != view.open_turn)
    open_tokens = _tokens((e for e in view.entries if e.turn == view.open_turn), ratio)
    most, patience = _rooms_of_tail(view, budget, policy, ratio, asked=keep_turns is not None)
    wanted = _tail_length(ended, open_tokens, most, budget, policy, keep_turns, ratio, relaxed=force)
    unresolved = unresolved_turns(view.entries, view.open_turn)
    kept = _with_unresolved(ended, unresolved, wanted, patience, ratio, relaxed=force)
    hidden = ended[: len(ended) - kept]
    source = tuple(entry for turn in hidden for entry in turn if not entry.pinned)
    if not source:
        return _why_nothing(hidden, open_tokens, budget, kept, wanted)
    tail_tokens = open_tokens + _tokens((e for turn in ended[len(hidden) :] for e in turn), ratio)
    pin_tokens = _tokens((*view.pins, *(e for turn in hidden for e in turn if e.pinned)), ratio)
    summary_limit = _summary_limit(budget, policy, tail_tokens + pin_tokens, summariser_window, ratio)
    summary_tokens = _expected_summary(view, source, summary_limit, ratio)
    expected = budget.beside + tail_tokens + pin_tokens + summary_tokens
    if not force and not _gains(now_tokens, expected, budget, policy):
        detail = f"{now_tokens:,} tokens now, about {expected:,} after"
        return NothingToCompact(reason="gain_too_small", detail=detail)
    former_seq = view.head.through_seq if view.head else 0
    margin = ratio * policy.summary_margin
    named = oversized(source, summariser_window, margin)
    return CompactionPlan(
        from_turn=view.base_turn + 1,
        through_turn=hidden[-1][0].turn,
        through_seq=max(former_seq, *(entry.seq for turn in hidden for entry in turn)),
        entries=source,
        former=view.head.ledger if view.head else Ledger(),
        tokens_before=now_tokens,
        expected_after=expected,
        summary_limit=summary_limit,
        chunks=portions(
            source,
            whole=readable(summariser_window, policy.summary_most),
            limit=chunk_limit(summariser_window, policy.summary_most),
            ratio=margin,
            named=named,
            even=policy.summary_merged,
        ),
        form=policy.summary_form,
        merged=policy.summary_merged,
        summary_most=min(policy.summary_most, summariser_window // 4),
        named=named,
        stays=budget.beside + tail_tokens + pin_tokens,
        replaced=_tokens(source, ratio) + (ceil(view.head.tokens * ratio) if view.head else 0),
        ratio=ratio,
        zone=zone,
    )


def why_not_committed(
    plan: CompactionPlan, summary_tokens: int, *, budget: ContextBudget, policy: ContextPolicy, force: bool
) -> NothingToCompact | None:
    """Measured on the summary that was written: the plan could only expect one. None when it may be used.

    A summary that is larger than what it replaces is never used; `force` asks for nothing more.
    """
    summary = ceil(plan.ratio * summary_tokens)
    after = plan.stays + summary
    if summary > plan.replaced:
        detail = f"{plan.replaced:,} → {summary:,} tokens"
        reason: NoReason = "grows" if force else "gain_too_small"
        return NothingToCompact(reason=reason, detail=detail, sizes=(plan.replaced, summary))
    lands = after - budget.beside <= floor(policy.land_at * budget.conversation)
    helps = _gains(plan.tokens_before, after, budget, policy) and (
        lands or summary_tokens <= policy.summary_least
    )
    if force or helps:
        return None
    detail = f"{plan.tokens_before:,} tokens now, {after:,} with the summary that was written"
    return NothingToCompact(reason="gain_too_small", detail=detail)


def smaller_summary(plan: CompactionPlan, *, budget: ContextBudget, policy: ContextPolicy) -> int | None:
    """The most estimated tokens that a summary may take to be used; None where none would help."""
    gain = budget.fixed + floor(policy.gain_at_most * (plan.tokens_before - budget.fixed))
    landing = budget.beside + floor(policy.land_at * budget.conversation)
    room = min(plan.replaced, min(gain, landing) - plan.stays)
    most = floor(room / plan.ratio)
    return most if most >= MIN_SUMMARY else None


def _rooms_of_tail(
    view: View, budget: ContextBudget, policy: ContextPolicy, ratio: float, *, asked: bool
) -> tuple[int, int]:
    """The most tokens of a tail, and of one that reaches back to what nobody answered.

    The second is half the budget, and so is the first where somebody `asked` for so many turns. Less where a
    summary of the least length would not fit beside it any more. Every pin counts, hidden or not, so that
    the same conversation has the same tail before and after.
    """
    half = budget.conversation // 2
    most = max(floor(policy.tail_share_most * budget.conversation), min(policy.tail_room, half))
    most = max(most, half) if asked else most
    pins = _tokens((*view.pins, *(entry for entry in view.entries if entry.pinned)), ratio)
    landing = max(0, floor(policy.land_at * budget.conversation) - policy.summary_least - pins)
    return min(most, landing), min(max(most, half) if most else 0, landing)


def _tail_length(
    ended: Sequence[Turn],
    open_tokens: int,
    most: int,
    budget: ContextBudget,
    policy: ContextPolicy,
    keep_turns: int | None,
    ratio: float,
    *,
    relaxed: bool,
) -> int:
    """How many ended turns stay: enough turns, enough tokens, but not too many tokens."""
    wanted = max(policy.keep_turns_least, policy.keep_turns if keep_turns is None else keep_turns)
    least = 0 if relaxed or keep_turns is not None else _least_tail(budget, policy)
    tokens = open_tokens
    kept = 0
    for turn in reversed(ended):
        size = _tokens(turn, ratio)
        enough = kept >= wanted and tokens >= least
        too_much = kept >= policy.keep_turns_least and tokens + size > most
        if enough or too_much:
            break
        kept += 1
        tokens += size
    return kept


def _least_tail(budget: ContextBudget, policy: ContextPolicy) -> int:
    share = floor(policy.tail_share * budget.conversation)
    return min(max(share, policy.tail_least), policy.tail_most)


def _with_unresolved(
    ended: Sequence[Turn],
    unresolved: frozenset[int],
    kept: int,
    most: int,
    ratio: float,
    *,
    relaxed: bool,
) -> int:
    """Unresolved turns stay live as long as the tail does not outgrow its share of the budget for them.

    Beyond that they are summarised, marked as unanswered: one lost answer must not end all compaction. Nor
    must it end one that a person insists on.
    """
    for place, turn in enumerate(ended[: len(ended) - kept]):
        if turn[0].turn in unresolved and (place > 0 or not relaxed):
            longer = ended[place:]
            if _tokens((entry for t in longer for entry in t), ratio) <= most:
                return len(longer)
    return kept


def _why_nothing(
    hidden: Sequence[Turn], open_tokens: int, budget: ContextBudget, kept: int, wanted: int
) -> NothingToCompact:
    if hidden:
        return NothingToCompact(reason="pins", detail="all older messages are pinned")
    if open_tokens > budget.conversation // 2:
        detail = f"the message that is being answered takes {open_tokens:,} tokens"
        return NothingToCompact(reason="open_turn_too_big", detail=detail)
    if kept > wanted:
        detail = "the oldest message that is left was not answered, or what it asked for failed"
        return NothingToCompact(reason="unanswered", detail=detail)
    return NothingToCompact(
        reason="nothing_old", detail=f"only the last {kept} turns are there, and they stay"
    )


def _summary_limit(
    budget: ContextBudget, policy: ContextPolicy, stays: int, summariser_window: int, ratio: float
) -> int:
    """In estimated tokens, which is what a summary is cut by."""
    left = floor((floor(policy.land_at * budget.conversation) - stays) / ratio)
    most = min(policy.summary_most, max(MIN_SUMMARY, summariser_window // 4))
    return min(most, max(policy.summary_least, left))


def _expected_summary(view: View, source: Sequence[Entry], summary_limit: int, ratio: float) -> int:
    former = ceil(view.head.tokens * ratio) if view.head else 0
    return min(ceil(summary_limit * ratio), former + _tokens(source, ratio) // 4)


def _gains(before: int, after: int, budget: ContextBudget, policy: ContextPolicy) -> bool:
    """Measured on the conversation: system and tools cannot become smaller."""
    return after - budget.fixed <= policy.gain_at_most * (before - budget.fixed)


def _tokens(entries: Iterable[Entry], ratio: float) -> int:
    return ceil(sum(entry.tokens for entry in entries) * ratio)
