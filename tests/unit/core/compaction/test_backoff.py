"""Automatic compaction rests after failures, stops where it does not help, and never for ever."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from shared.core.compaction.jobs import (
    BACKOFF_SECONDS,
    backoff_from_now,
    backoff_seconds,
    is_in_backoff,
    is_thrashing,
    next_job,
)
from shared.core.presets.catalog import preset
from shared.core.session.session import backoff_from_json
from shared.core.session.session_state import JobEnd
from tests.kit.builders import budget, exchanges, view

STEADY = preset("steady")
STATE = view(exchanges(20, tokens=200), cycle=3)
LIMIT, HARD = budget().limit, budget().hard


def end(
    age: float = 0.0, *, trigger: str = "limit", state: str = "done", faults: int = 0, **outcome: Any
) -> JobEnd:
    return JobEnd(trigger=trigger, state=state, faults=faults, outcome=outcome, age_seconds=age)


def committed(at_turn: int, **more: Any) -> JobEnd:
    return end(compaction=1, kind="summary", at_turn=at_turn, **more)


DIGEST: dict[str, Any] = {"compaction": 1, "kind": "digest"}


@pytest.mark.parametrize(
    ("ends", "backoff"),
    [
        ([], 0.0),
        ([end(10, **DIGEST), end(20, **DIGEST)], 0.0),
        ([end(10, **DIGEST), end(20, **DIGEST), end(30, **DIGEST)], BACKOFF_SECONDS - 10),
        ([end(901, **DIGEST), end(920, **DIGEST), end(930, **DIGEST)], 0.0),
        ([end(10, state="dead", faults=3, advice="x")], BACKOFF_SECONDS - 10),
        ([committed(9), end(20, **DIGEST), end(30, **DIGEST), end(40, **DIGEST)], 0.0),
        ([end(1, trigger="manual", **DIGEST), *[end(5, **DIGEST)] * 3], BACKOFF_SECONDS - 5),
        ([end(1, in_backoff=True, **DIGEST), *[end(5, **DIGEST)] * 3], BACKOFF_SECONDS - 5),
        ([end(1, nothing="nothing_old"), *[end(5, **DIGEST)] * 3], BACKOFF_SECONDS - 5),
    ],
)
def test_three_failures_in_a_row_are_fifteen_minutes_of_rest(ends: list[JobEnd], backoff: float) -> None:
    """claude-code: sessions with fifty and more failures in a row, and no breaker."""
    assert backoff_seconds(ends) == backoff


def test_three_refills_within_three_turns_are_thrashing() -> None:
    assert is_thrashing([committed(30), committed(27), committed(24)], now_turn=33)
    assert not is_thrashing([committed(30), committed(27), committed(24)], now_turn=34)
    assert not is_thrashing([committed(30), committed(26), committed(24)], now_turn=33)
    assert not is_thrashing([committed(30), committed(27)], now_turn=33)


def test_a_compaction_by_hand_or_for_another_reason_breaks_the_row() -> None:
    assert not is_thrashing(
        [committed(30), committed(29, trigger="manual"), committed(28), committed(27)], now_turn=31
    )
    assert not is_thrashing([committed(30, trigger="idle"), committed(29), committed(28)], now_turn=31)


def test_jobs_that_found_nothing_do_not_hide_the_thrashing() -> None:
    ends = [
        end(nothing="nothing_old"),
        committed(30),
        committed(28),
        end(state="dead", faults=1),
        committed(27),
    ]
    assert is_thrashing(ends, now_turn=31)


def test_rest_ends_when_limit_model_pins_or_turns_change() -> None:
    """hermes 93022: two no-ops disabled compaction for ever."""
    backoff = backoff_from_now(STATE, reason="thrashing", limit=LIMIT, model="m", turns=20)
    assert backoff_from_json(json.loads(json.dumps(asdict(backoff)))) == backoff
    delayed = replace(STATE, backoff=backoff)
    assert is_in_backoff(delayed, limit=LIMIT, model="m")
    assert is_in_backoff(delayed, limit=round(1.05 * LIMIT), model="m"), (
        "a ratio is learned anew with every turn"
    )
    assert not is_in_backoff(delayed, limit=round(1.2 * LIMIT), model="m")
    assert not is_in_backoff(delayed, limit=LIMIT, model="other")
    pinned = (replace(STATE.entries[0], pinned=True), *STATE.entries[1:])
    assert not is_in_backoff(replace(delayed, entries=pinned), limit=LIMIT, model="m")
    later = view(exchanges(40, tokens=200), backoff=backoff)
    assert not is_in_backoff(later, limit=LIMIT, model="m")


def test_resting_session_requests_no_compaction_but_still_flushes() -> None:
    """hermes 40803: a plan that finds nothing was asked for again and again."""
    backoff = backoff_from_now(STATE, reason="nothing", limit=LIMIT, model="m", turns=5)
    delayed = replace(STATE, backoff=backoff)
    for tokens in (LIMIT + 1, HARD + 1):
        wish = next_job(delayed, budget=budget(), policy=STEADY, context_tokens=tokens, model="m")
        assert wish is not None
        assert wish.kind == "flush"
    read = replace(delayed, flushed_turn=20)
    assert next_job(read, budget=budget(), policy=STEADY, context_tokens=HARD + 1, model="m") is None
    wish = next_job(delayed, budget=budget(), policy=STEADY, context_tokens=LIMIT + 1, model="changed")
    assert wish is not None
    assert wish.kind == "compact"


def test_while_thrashing_rests_only_what_no_longer_fits_is_hidden() -> None:
    backoff = backoff_from_now(STATE, reason="thrashing", limit=LIMIT, model="m", turns=20)
    delayed = replace(STATE, backoff=backoff, flushed_turn=20)
    wishes = [
        next_job(delayed, budget=budget(), policy=STEADY, context_tokens=tokens, model="m")
        for tokens in (LIMIT + 1, HARD, HARD + 1)
    ]
    assert [wish and wish.trigger for wish in wishes] == [None, None, "overflow"]


def test_a_gain_of_half_a_percent_is_no_reason_to_compact() -> None:
    """hermes 53008 and 79540: compactions that gained nothing, or grew, were made again every half hour."""
    pins = tuple(replace(entry, pinned=True) for entry in exchanges(10, tokens=800))
    heavy = view([*pins, *exchanges(10, first=11, tokens=10)], flushed_turn=20)
    assert next_job(heavy, budget=budget(), policy=STEADY, context_tokens=LIMIT + 1) is None


def test_a_conversation_that_fits_its_tail_is_not_asked_about() -> None:
    short = view(exchanges(2, tokens=200), flushed_turn=2)
    assert next_job(short, budget=budget(), policy=STEADY, context_tokens=LIMIT + 1) is None
