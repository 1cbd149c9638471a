"""Choice of a session's background job: due flush or compaction, and pauses of automatic compaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import ceil, floor, inf

from shared.core.compaction.plan import CompactionPlan, NothingToCompact, plan_compaction
from shared.core.context.build_context import window_through
from shared.core.session.budget import ContextBudget, pressure
from shared.core.session.policy import ContextPolicy
from shared.core.session.pruning import is_clearing_enough
from shared.core.session.session import BackoffReason, CompactionBackoff, View, turns_of
from shared.core.session.session_state import JobEnd
from shared.core.session.turns import JobOrder, Spending

CACHE_SECONDS = 300.0
"""Seconds after which a provider forgets an unused prefix, unless the session is cached for longer."""
IDLE_MARGIN_SECONDS = 60.0
"""Seconds before the cache expires at which an idle session is compacted."""
NEAR_LIMIT = "near_limit"
"""Name of the single flush threshold of presets without `flush_shares`."""
LATE = "late"
"""Trigger of a flush that reads turns which were hidden before a flush had read them."""
WITH_COMPACTION = "compaction"
"""Trigger of the flush inside a compaction, made even if another flush has just ended."""
BACKOFF_FAILURES = 3
"""Failed attempts at compaction in a row after which it pauses."""
BACKOFF_SECONDS = 900.0
"""Seconds that automatic compaction of a session pauses after `BACKOFF_FAILURES` failures in a row."""
THRASH_TIMES = 3
"""Compactions by size in a row, each close to the next, that count as thrashing."""
THRASH_TURNS = 3
"""Most turns between two compactions by size that count as thrashing.

`THRASH_TIMES` of them in a row pause automatic compaction.
"""
THRASH_LEAST_BUDGET = 4_000
"""Smallest token limit at which thrashing is detected; smaller limits always need a summary every few turns.
"""
BACKOFF_TURNS = 20
"""Turns after which a pause of compaction ends, because the conversation has changed."""
NOTHING_TURNS = 5
"""Turns after which compaction is tried again if nothing could be hidden."""
_TURNS_LOOKED_AT = 5
"""Newest turns whose average size is the estimate of the next turn."""
_AHEAD_SHARE = 0.25
"""Largest share of the limit by which a compaction may come early, since single turns can be very long."""
BY_SIZE = frozenset({"limit", "overflow"})
"""Triggers of compactions that the size of the context caused."""
MANUAL = "manual"
"""Trigger of a compaction or flush by a person's command."""


def find_reached_mark(budget: ContextBudget, policy: ContextPolicy, context_tokens: int) -> str | None:
    """Return the name of the highest flush threshold that a context of this size has reached; None if none.

    With `flush_shares`, a context of exactly a share has reached it. Without them, the name is `near_limit`,
    and the context must exceed `flush_at`.
    """
    timing = policy.timing
    if timing.flush_shares:
        return timing.find_reached_mark(context_tokens, window=budget.window)
    early = timing.flush_threshold > 0 and pressure(budget, context_tokens) != "calm"
    return NEAR_LIMIT if early else None


def was_flushed(threshold: str, tried: Iterable[str], policy: ContextPolicy) -> bool:
    """Return whether memory was already flushed at this threshold, given the names `tried` in this cycle.

    A flush at a higher threshold counts for the lower ones.
    """
    marks = policy.timing.flush_marks
    if threshold not in marks:
        return threshold in tried
    return bool(set(marks[marks.index(threshold) :]) & set(tried))


def due_threshold(
    view: View, *, budget: ContextBudget, policy: ContextPolicy, context_tokens: int
) -> str | None:
    """Return the name of the flush threshold that is due; None if none is.

    A threshold is due until a flush has succeeded at it in this cycle, and only if an ended turn has not been
    read by a flush.
    `context_tokens` is the size of the context.
    """
    threshold = find_reached_mark(budget, policy, context_tokens)
    if threshold is None or newest_ended(view) <= view.flushed_turn:
        return None
    return None if was_flushed(threshold, view.flush_thresholds, policy) else threshold


def newest_ended(view: View) -> int:
    """Return the number of the newest ended turn among the view's entries; 0 if there is none."""
    return max((entry.turn for entry in view.entries if entry.turn != view.open_turn), default=0)


def next_portion(view: View, *, through: int, room: int) -> tuple[View, int]:
    """Return the view that one flush reads, and the number of the last turn in it.

    The whole view and `through` are returned if it fits into `room` estimated tokens, since the provider has
    it cached. Otherwise the view holds the oldest unread turns up to `through` that fit, at least one.
    """
    if _tokens(view) <= room:
        return view, through
    fresh: dict[int, int] = {}
    for entry in view.entries:
        if view.flushed_turn < entry.turn <= through:
            fresh[entry.turn] = fresh.get(entry.turn, 0) + entry.tokens
    left, last = room, through
    for number, turn in enumerate(sorted(fresh)):
        if number and fresh[turn] > left:
            break
        left -= fresh[turn]
        last = turn
    entries = tuple(entry for entry in view.entries if view.flushed_turn < entry.turn <= last)
    return replace(view, entries=entries), last


def retry_seconds(faults: int) -> float:
    """Return the seconds before a late flush is retried: 30, doubled with each fault, at most 3,600."""
    return float(min(3_600, 30 * 2 ** min(faults, 10)))


def _tokens(view: View) -> int:
    return sum(entry.tokens for entry in view.entries)


def next_job(
    view: View,
    *,
    budget: ContextBudget,
    policy: ContextPolicy,
    context_tokens: int,
    ratio: float = 1.0,
    model: str = "",
    cache_seconds: float = CACHE_SECONDS,
    ahead: int = 0,
) -> JobOrder | None:
    """Return the compaction or flush that is due, to be stored by the caller; None if there is none.

    Checked in order: compaction by turns or size, early flush, compaction of an idle session, hiding of turns
    outside a sliding window. `ahead` is the estimated size of the next turn in tokens; the context counts as
    if it were added. `ratio` is the model's tokens per estimated token; `cache_seconds` is how long the
    provider caches.
    """
    due = _choose_job(
        view, budget=budget, policy=policy, context_tokens=context_tokens, ratio=ratio, model=model,
        cache_seconds=cache_seconds, ahead=ahead,
    )  # fmt: skip
    through = window_through(view, policy) if due is None else None
    return due if through is None else _window(view, through)


def _choose_job(
    view: View,
    *,
    budget: ContextBudget,
    policy: ContextPolicy,
    context_tokens: int,
    ratio: float,
    model: str,
    cache_seconds: float,
    ahead: int,
) -> JobOrder | None:
    context_tokens = _count_context(view, budget, policy, context_tokens, ratio)
    in_backoff = is_in_backoff(view, limit=budget.limit, model=model) and not ends_delay(
        view, budget, context_tokens
    )
    held = view.hold_compaction or not policy.timing.compact_auto
    threshold = due_threshold(view, budget=budget, policy=policy, context_tokens=context_tokens)
    # While a flush is due, no compaction is ordered ahead of its size, so that the flush gets its turn.
    sight = 0 if threshold is not None else ahead
    by_size = partial(_by_size, view, budget, policy, context_tokens, ratio, held=held, ahead=sight)
    if not in_backoff:
        wish = _by_turns(view, budget, policy, context_tokens, ratio, held=held) or by_size()
        if wish is not None:
            return wish
    elif hides_without_model(view, budget, context_tokens) and (wish := by_size()) is not None:
        return wish
    if threshold is not None:
        return _flush(view, threshold=threshold)
    if in_backoff or held or not policy.timing.idle_compaction:
        return None
    return _idle(
        view,
        budget=budget,
        policy=policy,
        context_tokens=context_tokens,
        ratio=ratio,
        cache_seconds=cache_seconds,
    )


def _by_turns(
    view: View, budget: ContextBudget, policy: ContextPolicy, context_tokens: int, ratio: float, *, held: bool
) -> JobOrder | None:
    if held or turns_since_summary(view, policy) < (policy.timing.compact_after_turns or inf):
        return None
    plan = plan_compaction(
        view, budget=budget, policy=policy, now_tokens=context_tokens, force=True, ratio=ratio
    )
    return _compaction(view, plan, trigger="turns", force=True) if isinstance(plan, CompactionPlan) else None


def estimate_ahead(view: View, policy: ContextPolicy, *, limit: int, ratio: float) -> int:
    """Return the estimated tokens of the next turn, the average of up to five newest turns, at most a quarter
    of `limit`.

    Returns 0 if the policy does not compact ahead or no turn is live.
    """
    newest = turns_of(view.entries)[-_TURNS_LOOKED_AT:] if policy.timing.compact_ahead else ()
    if not newest:
        return 0
    each = ratio * sum(entry.tokens for turn in newest for entry in turn) / len(newest)
    return min(floor(each), floor(_AHEAD_SHARE * limit))


def _by_size(
    view: View,
    budget: ContextBudget,
    policy: ContextPolicy,
    context_tokens: int,
    ratio: float,
    *,
    held: bool,
    ahead: int = 0,
) -> JobOrder | None:
    state = pressure(budget, context_tokens)
    if state in ("calm", "flush") and pressure(budget, context_tokens + ahead) in ("compact", "overflow"):
        state = "compact"
    if not ((state == "overflow" and policy.timing.compact_auto) or (state == "compact" and not held)):
        return None
    if is_clearing_enough(view, budget, policy, context_tokens, ratio=ratio):
        return None
    plan = plan_compaction(view, budget=budget, policy=policy, now_tokens=context_tokens, ratio=ratio)
    if not isinstance(plan, CompactionPlan):
        return None
    return _compaction(view, plan, trigger="overflow" if state == "overflow" else "limit")


def hides_without_model(view: View, budget: ContextBudget, context_tokens: int) -> bool:
    """Return whether turns must be hidden by a digest, without a model, although automatic compaction is
    paused.

    True if thrashing paused it and the context exceeds the hard limit: those turns fit into no request, and
    recall finds hidden turns only.
    """
    thrashes = view.backoff is not None and view.backoff.reason == "thrashing"
    return thrashes and pressure(budget, context_tokens) == "overflow"


def ends_delay(view: View, budget: ContextBudget, context_tokens: int) -> bool:
    """Return whether a hook's delay of the summary ends because the context exceeds the hard limit.

    False if no hook delays it.
    """
    delayed = view.backoff is not None and view.backoff.reason == "hook"
    return delayed and pressure(budget, context_tokens) == "overflow"


def is_in_backoff(view: View, *, limit: int, model: str) -> bool:
    """Return whether automatic compaction is paused and none of the changes that end a pause has happened.

    Such a change is another `model`, other pins, enough turns, or a `limit` that differs by more than a
    tenth.
    """
    backoff = view.backoff
    return backoff is not None and backoff.holds(
        limit=limit, model=model, pins=pinned_seqs(view), turn=newest_ended(view)
    )


def backoff_from_now(
    view: View, *, reason: BackoffReason, limit: int, model: str, turns: int
) -> CompactionBackoff:
    """Return a pause of automatic compaction from now until `turns` turns later, to be stored by the
    caller.
    """
    return CompactionBackoff(
        reason=reason, limit=limit, model=model, pins=pinned_seqs(view), until_turn=newest_ended(view) + turns
    )


def pinned_seqs(view: View) -> tuple[int, ...]:
    """Return the `seq` of all pinned entries, hidden or live, ascending."""
    return tuple(sorted({entry.seq for entry in (*view.pins, *view.entries) if entry.pinned}))


def _count_context(
    view: View, budget: ContextBudget, policy: ContextPolicy, context_tokens: int, ratio: float
) -> int:
    """Return the tokens to compare with the thresholds.

    If the policy leaves live turns out of requests, the whole live view counts, up to the hard limit.
    """
    if not policy.keeping.can_grow_unseen:
        return context_tokens
    live = budget.fixed + ceil(ratio * sum(entry.tokens for entry in view.entries))
    return max(context_tokens, min(live, budget.hard))


def turns_since_summary(view: View, policy: ContextPolicy) -> int:
    """Return the number of ended turns since the newest summary or digest, or since `base_turn` if there is
    none.

    The turns that the policy keeps live besides a summary do not count.
    """
    # Entries are in the order of their turns.
    ended = next((entry.turn for entry in reversed(view.entries) if entry.turn != view.open_turn), 0)
    head = view.head
    if head is None or head.kind not in ("summary", "digest"):
        return max(0, ended - view.base_turn)
    return max(0, ended - head.through_turn - policy.keeping.keep_turns)


def _compaction(view: View, plan: CompactionPlan, *, trigger: str, force: bool = False) -> JobOrder:
    return JobOrder(
        kind="compact",
        key=f"compact:{view.session_id}:{view.cycle}",
        trigger=trigger,
        payload={
            "cycle": view.cycle,
            "through_turn": plan.through_turn,
            "flush_first": view.flushed_turn < plan.through_turn,
            "focus": None,
            "force": force,
        },
    )


def _window(view: View, through: int) -> JobOrder:
    return JobOrder(
        kind="compact",
        key=f"compact:{view.session_id}:{view.cycle}",
        trigger="window",
        payload={
            "cycle": view.cycle, "through_turn": through, "flush_first": view.flushed_turn < through,
        },
    )  # fmt: skip


def _flush(view: View, *, threshold: str) -> JobOrder:
    return JobOrder(
        kind="flush",
        key=f"flush:{view.session_id}:{view.cycle}:{threshold}",
        trigger=threshold,
        payload={
            "cycle": view.cycle,
            "threshold": threshold,
            "from_turn": view.flushed_turn + 1,
            "through_turn": newest_ended(view),
        },
    )


def _idle(
    view: View,
    *,
    budget: ContextBudget,
    policy: ContextPolicy,
    context_tokens: int,
    ratio: float,
    cache_seconds: float,
) -> JobOrder | None:
    """Return the job that compacts a large idle session 60 seconds before its cache expires.

    Returns None if the session is too small or nothing can be hidden.
    """
    if context_tokens - budget.fixed <= policy.timing.idle_over:
        return None
    plan = plan_compaction(view, budget=budget, policy=policy, now_tokens=context_tokens, ratio=ratio)
    if isinstance(plan, NothingToCompact):
        return None
    wish = _compaction(view, plan, trigger="idle")
    return replace(
        wish,
        key=f"idle:{view.session_id}:{view.cycle}",
        # Workers of the former version read `cache_seconds`; the compactor computes them again.
        payload={**wish.payload, "cache_seconds": cache_seconds},
        delay_seconds=max(0.0, cache_seconds - IDLE_MARGIN_SECONDS),
    )


def backoff_seconds(ends: Sequence[JobEnd]) -> float:
    """Return for how many more seconds automatic compaction pauses after failures; 0 if it does not pause.

    `ends` are the ended jobs of the session, newest first. It pauses for 900 seconds after 3 failures in a
    row. Jobs of a person's command do not count.
    """
    failures, newest = 0, None
    for end in ends:
        if end.trigger == MANUAL or end.is_inconclusive:
            continue
        if not end.failures:
            break
        newest = end.age_seconds if newest is None else newest
        failures += end.failures
    if newest is None or failures < BACKOFF_FAILURES:
        return 0.0
    return max(0.0, BACKOFF_SECONDS - newest)


def is_thrashing(ends: Sequence[JobEnd], *, now_turn: int) -> bool:
    """Return whether each of the last three compactions by size was followed by the next within three turns.

    `ends` are the ended jobs of the session, newest first; `now_turn` is its present turn. Jobs that
    committed nothing are skipped; a compaction of another trigger gives False.
    """
    later = now_turn
    times = 0
    for end in ends:
        if not end.committed:
            continue
        at = end.outcome.get("at_turn")
        if end.trigger not in BY_SIZE or not isinstance(at, int) or later - at > THRASH_TURNS:
            return False
        times += 1
        later = at
        if times == THRASH_TIMES:
            return True
    return False


def total_cost(calls: Sequence[Spending]) -> int | None:
    """Return the cost of all calls in micro-dollars, 0 without calls; None if the cost of any call is
    unknown.
    """
    costs = [call.cost_micro for call in calls]
    return None if None in costs else sum(cost or 0 for cost in costs)
