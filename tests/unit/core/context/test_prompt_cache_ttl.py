"""How long the provider shall keep a prefix, by how often its person writes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from shared.core.values.money import LONG_LIFE, SHORT_LIFE, cache_life, median_gap

START = datetime(2026, 5, 8, 9, 0, tzinfo=UTC)


def every(seconds: float, *, turns: int = 10) -> list[datetime]:
    return [START + timedelta(seconds=seconds * number) for number in range(turns)]


@pytest.mark.parametrize(
    ("seconds", "life"),
    [(20, SHORT_LIFE), (300, SHORT_LIFE), (301, LONG_LIFE), (1_800, LONG_LIFE), (3_600, LONG_LIFE),
     (3_601, SHORT_LIFE), (86_400, SHORT_LIFE)],
)  # fmt: skip
def test_the_long_life_is_for_those_who_come_back_within_the_hour(seconds: float, life: timedelta) -> None:
    assert cache_life(every(seconds)) == life


def test_without_a_rhythm_the_short_life_is_taken() -> None:
    assert cache_life([]) == SHORT_LIFE
    assert cache_life(every(600, turns=3)) == SHORT_LIFE
    assert cache_life(every(600, turns=4)) == LONG_LIFE


def test_one_long_night_changes_no_rhythm() -> None:
    times = [*every(60), *(time + timedelta(days=1) for time in every(60))]
    assert median_gap(times) == timedelta(minutes=1)


def test_only_the_last_twenty_turns_count_and_their_order_does_not() -> None:
    old, new = every(1_800, turns=50), [START + timedelta(days=9, seconds=30 * n) for n in range(30)]
    assert median_gap([*reversed(new), *old]) == timedelta(seconds=30)
