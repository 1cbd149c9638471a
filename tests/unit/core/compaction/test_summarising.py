"""Who summarises: the cheaper of two ways by prices and the cache's age, and who is asked in which order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.core.compaction.summary_prompts import (
    Costs,
    cheaper_way,
    saves_together,
    stays_with_chat,
)
from shared.core.presets.catalog import PRESETS, preset
from shared.core.session.summary_strategy import SummaryStrategy
from shared.core.values.money import Prices
from shared.ports import ModelCard
from shared.services.turns.request_builder import RequestBuilder

SONNET = Prices(input=2.0, output=10.0, cache_read=0.10, cache_write=2.5, dated="2026-11")
HAIKU_45 = Prices(input=1.0, output=5.0, cache_read=0.10, cache_write=1.25, dated="2026-11")
HAIKU_55 = Prices(input=0.10, output=0.50, cache_read=0.01, cache_write=0.125, dated="2026-11")
COSTS = Costs(
    prefix_tokens=40_000,
    instruction_tokens=1_000,
    source_tokens=36_000,
    answer_tokens=1_500,
    cache_age_seconds=10.0,
    cache_seconds=300.0,
)


def test_cached_prefix_of_chat_model_can_beat_a_small_model() -> None:
    assert cheaper_way(COSTS, cheap=HAIKU_45, chat=SONNET) == "warm"
    assert cheaper_way(COSTS, cheap=HAIKU_55, chat=SONNET) == "cheap"


def test_a_forgotten_prefix_is_dear() -> None:
    assert cheaper_way(replace(COSTS, cache_age_seconds=300.0), cheap=HAIKU_45, chat=SONNET) == "cheap"
    assert cheaper_way(replace(COSTS, cache_age_seconds=299.9), cheap=HAIKU_45, chat=SONNET) == "warm"
    hour = replace(COSTS, cache_age_seconds=1_800.0, cache_seconds=3_600.0)
    assert cheaper_way(hour, cheap=HAIKU_45, chat=SONNET) == "warm"


def test_with_an_unknown_price_the_summary_model_writes() -> None:
    assert cheaper_way(COSTS, cheap=None, chat=SONNET) == "cheap"
    assert cheaper_way(COSTS, cheap=HAIKU_45, chat=None) == "cheap"


def test_two_ways_at_the_same_price_are_the_summary_model() -> None:
    free = Prices(input=0.0, output=0.0, cache_read=0.0, cache_write=0.0, dated="")
    assert cheaper_way(COSTS, cheap=free, chat=free) == "cheap"


def test_who_is_asked_first_and_who_stands_in() -> None:
    names = {"summary_model": "haiku", "own_model": "sonnet"}
    assert SummaryStrategy(summariser="cheap").list_models(**names) == ("haiku", "sonnet")
    assert SummaryStrategy(summariser="own").list_models(**names) == ("sonnet", "haiku")
    alone = SummaryStrategy(summariser="own", summary_falls_back=False)
    assert alone.list_models(**names) == ("sonnet",)
    assert SummaryStrategy().list_models(summary_model="one", own_model="one") == ("one",)


def test_spec008_never_falls_back_to_the_main_model() -> None:
    policy = PRESETS["spec008"]
    asked = policy.writing.list_models(summary_model="haiku", own_model="sonnet")
    assert asked == ("haiku",)
    assert preset("steady").writing.summary_falls_back


@pytest.mark.parametrize(
    ("cycle_micro", "together"), [(105_499.0, False), (105_500.0, True), (105_501.0, True)]
)
def test_second_model_writes_only_if_it_saves_more_than_a_tenth(cycle_micro: float, together: bool) -> None:
    # 17,000 for the answer behind the chat, 4,350 for a separate one, 4,000 to read the chat once more.
    costs = replace(COSTS, cycle_micro=cycle_micro)
    assert saves_together(costs, writer=HAIKU_55, chat=SONNET, same=False) is together
    free = Prices(input=0.0, output=0.0, cache_read=0.0, cache_write=0.0, dated="")
    assert not saves_together(costs, writer=free, chat=SONNET, same=False), "a local model costs nothing"


@pytest.mark.parametrize(("cycle_micro", "stays"), [(145_499.0, False), (145_500.0, True)])
def test_chat_model_writes_a_late_summary_unless_the_second_saves_a_tenth(
    cycle_micro: float, stays: bool
) -> None:
    costs = replace(COSTS, cycle_micro=cycle_micro)
    assert stays_with_chat(costs, writer=HAIKU_55, chat=SONNET) is stays
    assert not stays_with_chat(replace(costs, cache_age_seconds=300.0), writer=HAIKU_55, chat=SONNET)
    assert not stays_with_chat(costs, writer=None, chat=SONNET)


def test_joint_notes_and_summary_are_cheaper_unless_writer_is_cheap() -> None:
    assert saves_together(COSTS, writer=HAIKU_45, chat=SONNET, same=False)
    assert not saves_together(COSTS, writer=HAIKU_55, chat=SONNET, same=False)
    assert not saves_together(COSTS, writer=None, chat=SONNET, same=False)
    for known in (SONNET, None):
        assert saves_together(COSTS, writer=known, chat=known, same=True)
    short = replace(COSTS, source_tokens=1_250)
    assert not saves_together(short, writer=SONNET, chat=SONNET, same=True)
    assert saves_together(replace(short, source_tokens=1_251), writer=SONNET, chat=SONNET, same=True)


@pytest.mark.parametrize(
    ("name", "summary_model", "threshold"),
    [("steady", "one", 0), ("steady", "two", 4_000), ("spec008", "one", 4_000)],
)
def test_who_saves_memory_with_the_summary_does_not_save_it_before(
    name: str, summary_model: str, threshold: int
) -> None:
    requests = RequestBuilder(
        policy=preset(name), chat_model="one", summary_model=summary_model, max_output=1_000, counter=Words(),
    )  # fmt: skip
    card = ModelCard(
        name="one", window=200_000, window_known=True, max_output=8_000, capabilities=frozenset(), prices=None
    )
    assert requests.policy_for({}, card).timing.flush_threshold == threshold


class Words:
    def count_tokens(self, text: str) -> int:
        return len(text.split())
