"""Which job is due: by size alone, once per cycle and range, silent after an undo until it must be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.core.compaction.jobs import NEAR_LIMIT, estimate_ahead, next_job
from shared.core.compaction.plan import CompactionPlan, NothingToCompact, plan_compaction
from shared.core.presets.catalog import PRESETS, preset
from shared.core.session.budget import budget_for
from shared.core.session.policy import with_overrides
from shared.core.session.session import View
from shared.core.session.turns import JobOrder
from tests.kit.builders import budget, exchanges, view

STEADY = preset("steady")
STATE = view(exchanges(20, tokens=200), cycle=3)
FLUSH_AT, LIMIT, HARD = budget().flush_at, budget().limit, budget().hard


def due(state: View, tokens: int) -> JobOrder | None:
    return next_job(state, budget=budget(), policy=STEADY, context_tokens=tokens)


@pytest.mark.parametrize(
    ("tokens", "kind", "trigger"),
    [
        (FLUSH_AT, None, None),
        (FLUSH_AT + 1, "flush", NEAR_LIMIT),
        (LIMIT, "flush", NEAR_LIMIT),
        (LIMIT + 1, "compact", "limit"),
        (HARD + 1, "compact", "overflow"),
    ],
)
def test_the_size_alone_decides(tokens: int, kind: str | None, trigger: str | None) -> None:
    wish = due(STATE, tokens)
    assert (wish and wish.kind, wish and wish.trigger) == (kind, trigger)


@pytest.mark.parametrize(
    ("tokens", "trigger"),
    [(LIMIT - 301, None), (LIMIT - 300, None), (LIMIT - 299, "limit"), (LIMIT, "limit")],
)
def test_compaction_is_due_when_the_next_turn_crosses_the_limit(tokens: int, trigger: str | None) -> None:
    flushed = replace(STATE, flushed_turn=20)
    wish = next_job(flushed, budget=budget(), policy=STEADY, context_tokens=tokens, ahead=300)
    assert (wish and wish.trigger) == trigger


def test_looking_ahead_makes_no_overflow() -> None:
    flushed = replace(STATE, flushed_turn=20)
    wish = next_job(flushed, budget=budget(), policy=STEADY, context_tokens=LIMIT, ahead=HARD)
    assert wish is not None
    assert wish.trigger == "limit"


def test_early_flush_comes_before_a_compaction_ahead() -> None:
    wish = next_job(STATE, budget=budget(), policy=STEADY, context_tokens=LIMIT, ahead=300)
    assert wish is not None
    assert (wish.kind, wish.trigger) == ("flush", NEAR_LIMIT)


@pytest.mark.parametrize(("limit", "expected"), [(20_000, 600), (2_400, 600), (2_399, 599), (400, 100)])
def test_tokens_ahead_are_one_turn_but_never_a_large_share(limit: int, expected: int) -> None:
    assert estimate_ahead(STATE, STEADY, limit=limit, ratio=1.5) == expected


def test_tokens_ahead_are_the_average_of_the_newest_turns() -> None:
    grown = view((*exchanges(20, tokens=10), *exchanges(5, tokens=100, first=21)))
    assert estimate_ahead(grown, STEADY, limit=20_000, ratio=1.0) == 200
    assert estimate_ahead(view(()), STEADY, limit=20_000, ratio=1.0) == 0


@pytest.mark.parametrize("name", sorted({*PRESETS} - {"steady"}))
def test_other_presets_look_at_what_is_there_alone(name: str) -> None:
    assert estimate_ahead(STATE, preset(name), limit=20_000, ratio=1.0) == 0


def test_asking_twice_gives_the_same_natural_key() -> None:
    wish = due(STATE, LIMIT + 1)
    assert wish == due(STATE, LIMIT + 500)
    assert wish is not None
    assert wish.key == "compact:7:3"
    assert wish.payload["through_turn"] == 15
    assert wish.payload["flush_first"] is True


def test_a_flush_is_tried_once_per_threshold_and_cycle() -> None:
    tried = replace(STATE, flush_thresholds=frozenset({NEAR_LIMIT}))
    assert due(tried, FLUSH_AT + 1) is None
    wish = due(STATE, FLUSH_AT + 1)
    assert wish is not None
    assert wish.key == f"flush:7:3:{NEAR_LIMIT}"


def test_what_was_read_by_a_flush_is_not_read_again() -> None:
    assert due(replace(STATE, flushed_turn=20), FLUSH_AT + 1) is None
    wish = due(replace(STATE, flushed_turn=12), FLUSH_AT + 1)
    assert wish is not None
    assert (wish.payload["from_turn"], wish.payload["through_turn"]) == (13, 20)


def test_after_an_undo_compaction_waits_for_an_overflow() -> None:
    held = replace(STATE, hold_compaction=True, flushed_turn=20)
    assert due(held, LIMIT + 1) is None
    wish = due(held, HARD + 1)
    assert wish is not None
    assert wish.kind == "compact"


def test_nothing_to_compact_is_no_job() -> None:
    assert due(view(exchanges(2), flushed_turn=2), LIMIT + 1) is None


def test_person_may_compact_at_any_size_or_gets_a_reason() -> None:
    held = replace(STATE, hold_compaction=True)
    asked = plan_compaction(held, budget=budget(), policy=STEADY, now_tokens=6_000)
    assert isinstance(asked, CompactionPlan)
    few = view(exchanges(2))
    refused = plan_compaction(few, budget=budget(), policy=STEADY, now_tokens=500, force=True)
    assert isinstance(refused, NothingToCompact)


def test_turns_hidden_from_one_channel_are_summarised() -> None:
    """Else a log would be read whole at every turn, however little of it is sent."""
    one = with_overrides(STEADY, history_turns=(("telegram", 2),))
    wish = next_job(STATE, budget=budget(), policy=one, context_tokens=2_000)
    assert wish is not None
    assert (wish.kind, wish.trigger) == ("compact", "limit"), "twenty turns of 400 are above the limit"
    assert next_job(replace(STATE, hold_compaction=True, flushed_turn=20), budget=budget(), policy=one,
                    context_tokens=2_000) is None  # fmt: skip
    both = with_overrides(STEADY, history_turns=(("telegram", 2), ("web", 2)))
    assert next_job(STATE, budget=budget(), policy=both, context_tokens=2_000) is None


def test_policy_without_automatic_summaries_requests_none() -> None:
    quiet = with_overrides(STEADY, compact_auto=False)
    for tokens in (LIMIT + 1, HARD + 1):
        wish = next_job(replace(STATE, flushed_turn=20), budget=budget(), policy=quiet, context_tokens=tokens)
        assert wish is None


def test_messages_outside_window_are_hidden_when_nothing_else_is_due() -> None:
    narrow = with_overrides(STEADY, max_rounds=3)
    long = view(exchanges(60, tokens=10), cycle=4, flushed_turn=10)
    wish = next_job(long, budget=budget(), policy=narrow, context_tokens=500)
    assert wish is not None
    assert (wish.kind, wish.trigger, wish.key) == ("compact", "window", "compact:7:4")
    assert wish.payload == {"cycle": 4, "through_turn": 57, "flush_first": True}


LARGE = view(exchanges(20, tokens=1_000), cycle=3, flushed_turn=20)
ROOMY = budget_for(replace(preset("steady"), soft_budget=40_000), 200_000, 8_192, 1_000)


def idle(
    state: View, tokens: int, *, policy: str = "steady", cache_seconds: float = 300.0
) -> JobOrder | None:
    return next_job(
        state, budget=ROOMY, policy=preset(policy), context_tokens=tokens, cache_seconds=cache_seconds
    )


def test_a_large_conversation_is_compacted_shortly_before_the_provider_forgets_it() -> None:
    assert idle(LARGE, ROOMY.fixed + 24_000) is None
    wish = idle(LARGE, ROOMY.fixed + 24_001)
    assert wish is not None
    assert (wish.kind, wish.trigger, wish.key) == ("compact", "idle", "idle:7:3")
    assert (wish.delay_seconds, wish.payload["cache_seconds"]) == (240.0, 300.0)
    hour = idle(LARGE, ROOMY.fixed + 24_001, cache_seconds=3_600.0)
    assert hour is not None
    assert hour.delay_seconds == 3_540.0


def test_idle_compaction_is_for_presets_that_ask_and_never_after_an_undo() -> None:
    assert idle(LARGE, 30_000, policy="spec008") is None
    assert idle(replace(LARGE, hold_compaction=True), 30_000) is None
    assert idle(view(exchanges(2), flushed_turn=2), 30_000) is None


def test_the_turn_that_is_being_answered_is_never_planned_away() -> None:
    """Asked for before the call, the job must see the same turns as the worker that does it."""
    for count in range(1, 12):
        state = view(exchanges(count, tokens=900), open_turn=count)
        asked = next_job(state, budget=budget(), policy=STEADY, context_tokens=LIMIT + 1)
        if asked is not None and asked.kind == "compact":
            worker = plan_compaction(state, budget=budget(), policy=STEADY, now_tokens=LIMIT + 1)
            assert isinstance(worker, CompactionPlan)
            assert asked.payload["through_turn"] == worker.through_turn < count
