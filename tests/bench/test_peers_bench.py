"""The bench of whole runs plays through the real system, counts every call and keeps its word."""

from __future__ import annotations

import json
from functools import partial

import pytest

from shared.core.presets.catalog import preset
from shared.core.session.budget import budget_for
from tests.bench.ground import CAPS
from tests.bench.peers.__main__ import as_table, main
from tests.bench.peers.bill import Bill
from tests.bench.peers.ideal_loop import play_ideal
from tests.bench.peers.ideal_mind import IdealMind
from tests.bench.peers.play import FIXED, MAX_OUTPUT, Course, play, window_for
from tests.bench.peers.talks import everyday, planted
from tests.kit.app_driver import settings_for
from tests.kit.fakes.messages_api.cache import InputUsage

SHORT = everyday(None, turns=60, every=12, seed=3)


async def test_a_short_talk_is_played_through_the_whole_system(database_url: str, redis_url: str) -> None:
    found = await play(
        Course(preset="steady", trigger=5_000),
        SHORT,
        settings_with=partial(settings_for, database_url, redis_url, **CAPS),
    )
    json.dumps(found)
    assert (found["turns"], found["unanswered"], found["refusals"]) == (60, 0, {})
    assert (found["facts"], found["asked"]) == (5, 5)
    assert found["calls_by_kind"]["turn"] == 60
    assert found["calls_by_kind"]["summary"] >= 1, "the window is small enough for a compaction"
    cost = found["uncached"] + 1.25 * found["written"] + 0.1 * found["read"]
    assert found["cost_tokens"] == pytest.approx(cost, abs=2)
    assert sum(found["cost_by_kind"].values()) == pytest.approx(cost, abs=5)
    assert sum(found["cost_by_part"].values()) == pytest.approx(cost, abs=15)
    floor = play_ideal(SHORT, trigger=5_000)
    assert floor["facts"] == 5
    assert floor["cost_tokens"] < found["cost_tokens"]
    assert "steady" in as_table({"everyday": {"ideal": floor, "steady": found}})


@pytest.mark.parametrize("name", ["steady", "lobechat", "arawn", "openclaw"])
def test_a_window_is_the_smallest_with_the_wanted_limit(name: str) -> None:
    window = window_for(preset(name), 8_000)
    assert budget_for(preset(name), window, MAX_OUTPUT, FIXED).limit == 8_000
    assert budget_for(preset(name), window - 1, MAX_OUTPUT, FIXED).limit < 8_000


def test_rewritten_cache_is_counted_separately() -> None:
    body = {
        "model": "m",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a" * 360}]},
            {"role": "assistant", "content": [{"type": "text", "text": "b" * 360}]},
        ],
    }
    bill = Bill()
    bill.add("chat", body, InputUsage(fresh=104, written_5m=104))
    bill.add("chat", body, InputUsage(fresh=0, written_5m=208))
    assert bill.by_part == {"messages": 130 + 104 + 130, "rewritten": 130}


def test_facts_are_distinct_and_each_is_said_once() -> None:
    known = planted(50, seed=7)
    assert len({fact.literal for fact in known}) == len({fact.question for fact in known}) == 50
    talk = everyday(None, turns=500, every=10, seed=7)
    said = " ".join(exchange.person for exchange in talk.exchanges)
    assert all(said.count(fact.literal) == 1 for fact in talk.facts)
    assert len(talk.facts) == 50


def test_the_ideal_mind_says_only_what_it_sees() -> None:
    fact = planted(1, seed=1)[0]
    mind = IdealMind([fact])
    mind.asked = fact
    ask = {"role": "user", "content": fact.question}
    assert fact.literal not in str(mind({"messages": [ask]}).blocks)
    told = {"role": "user", "content": f"{fact.sentence} {fact.question}"}
    assert fact.literal in str(mind({"messages": [told]}).blocks)
    assert mind.in_prompt == {fact.literal}


def test_what_is_missing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", "/nowhere"]) == 2
    assert "locomo-dev.json" in capsys.readouterr().err
