"""Plays a session call by call under one rule: real requests under the provider's cache rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

from shared.core.context.build_context import BuiltContext, build_context
from shared.core.context.prompts import SystemLayers
from shared.core.presets.catalog import preset
from shared.core.session.policy import ContextPolicy
from shared.core.session.pruning import PruneDecision, apply_decisions, count_saved_tokens, plan_pruning
from shared.core.session.session import Entry, View
from shared.core.values.messages import tool_results
from shared.core.values.money import SHORT_LIFE
from tests.bench.policies.caching import ProviderCache
from tests.bench.pruning.sessions import Session, count
from tests.kit.histories.validity import fault_of

STEADY = preset("steady")
_SYSTEM = SystemLayers(base="You work with tools for a person. " * 20)
Entries = tuple[Entry, ...]
Decisions = tuple[PruneDecision, ...]
Rule = Callable[[Entries, bool, int], Decisions]
"""What a call newly shortens: the log, whether the cache is cold, the open turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to shorten results."""

    rule: Rule
    policy: ContextPolicy = STEADY
    between_calls: bool = True
    """Whether the rule is asked before each call, or at the start of a turn only."""
    marks: Callable[[BuiltContext, Entries], tuple[int, ...]] = lambda built, entries: built.cache_at


@dataclass(slots=True)
class Played:
    cost_tokens: float = 0.0
    """Uncached + 1.25 × written + 0.1 × read."""
    sent: int = 0
    calls: int = 0
    batches: int = 0
    invalid: int = 0
    needed: int = 0
    missing: int = 0
    """Of the results that calls worked with, those that were shortened by then."""


def play(session: Session, way: Way) -> Played:
    done, cache, entries = Played(), ProviderCache(count), Entries()
    gaps = {later.seq: later.at - earlier.at for earlier, later in pairwise(session.entries)}
    for entry in session.entries:
        if entry.author == "assistant":
            newest = entries[-1]
            cold = not done.calls or gaps.get(newest.seq, SHORT_LIFE) > SHORT_LIFE
            asked = way.between_calls or newest.author == "person"
            made = way.rule(entries, cold, entry.turn) if asked else ()
            entries = apply_decisions(entries, made)
            done.batches += bool(made)
            _call(done, cache, _built(entries, entry.turn, way), newest)
            if entry.seq in session.needs:
                done.needed += 1
                done.missing += entries[session.needs[entry.seq] - 1].pruned is not None
        entries = (*entries, entry)
    return done


def _built(entries: Entries, turn: int, way: Way) -> BuiltContext:
    view = View(
        session_id=1, base_turn=0, flushed_turn=0, view_epoch=0, cycle=0, head=None, entries=entries,
        open_turn=turn,
    )  # fmt: skip
    built = build_context(view, policy=way.policy, system=_SYSTEM, count=count)
    return replace(built, cache_at=way.marks(built, entries))


def _call(done: Played, cache: ProviderCache, built: BuiltContext, newest: Entry) -> None:
    billed = cache.bill(built, (), now=newest.at.timestamp())
    done.calls += 1
    done.cost_tokens += billed.uncached + 1.25 * billed.written + 0.1 * billed.read
    done.sent += billed.total
    done.invalid += fault_of(built.messages) is not None


def by_policy(policy: ContextPolicy, *, between_calls: bool = True) -> Way:
    def rule(entries: Entries, cold: bool, turn: int) -> Decisions:
        return plan_pruning(entries, policy, cache_cold=cold, open_turn=turn)

    return Way(rule=rule, policy=policy, between_calls=between_calls)


def without_settled(built: BuiltContext, entries: Entries) -> tuple[int, ...]:
    """Marks as they were before pruning had any of its own: the end, and fifteen blocks before it."""
    end = built.cache_at[-1:]
    return tuple(sorted({*end, *(max(0, at - 7) for at in end)}))


def at_tenth_call(built: BuiltContext, entries: Entries) -> tuple[int, ...]:
    """The end, and the end of what is older than ten calls."""
    calls = [index for index, entry in enumerate(entries) if entry.author == "assistant"]
    old = [calls[-OLD] - 2] if len(calls) > OLD and calls[-OLD] > 1 else []
    return tuple(sorted({*built.cache_at[-1:], *old}))


NEW, OLD = 3, 10


def of_age(entries: Entries, cold: bool, turn: int) -> Decisions:
    """SPEC-008 as it is written: at every call, long results after 3 answers, all after 10."""
    made: list[PruneDecision] = []
    age = 0
    for entry in reversed(entries):
        chars = sum(len(result.text) for result in tool_results(entry.blocks))
        if age >= OLD and chars and entry.pruned != "clear":
            made.append(PruneDecision(seq=entry.seq, form="clear"))
        elif age >= NEW and chars > STEADY.pruning.prune_over_chars and entry.pruned is None:
            made.append(PruneDecision(seq=entry.seq, form="trim"))
        age += entry.author == "assistant"
    return tuple(made)


def in_batches_of(tokens: int) -> Way:
    """Whatever is ten calls old, as soon as it saves so much; a cold cache takes all."""

    def rule(entries: Entries, cold: bool, turn: int) -> Decisions:
        made = tuple(
            one
            for one in of_age(entries, cold, turn)
            if one.form == "clear"
            and entries[one.seq - 1].tokens > STEADY.pruning.prune_clear_over_chars // 4
        )
        return made if cold or count_saved_tokens(entries, made, STEADY) >= tokens else ()

    return Way(rule=rule)


WAYS: dict[str, Way] = {
    "none": by_policy(STEADY.with_settings(prune_rule="none")),
    "spec008, one mark": Way(
        rule=of_age,
        policy=preset("spec008"),
        marks=lambda built, entries: built.cache_at[-1:],
    ),
    "spec008, two marks": Way(rule=of_age, policy=preset("spec008"), marks=at_tenth_call),
    "by turns": replace(
        by_policy(STEADY.with_settings(prune_rule="age", prune_clear_over_chars=400), between_calls=False),
        marks=without_settled,
    ),
    "batches of 4,000": in_batches_of(4_000),
    "batches of 8,000": in_batches_of(8_000),
    "batches of 16,000": in_batches_of(16_000),
    "steady": by_policy(STEADY),
}
