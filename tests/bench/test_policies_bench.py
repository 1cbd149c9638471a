"""The replay of presets counts everything, is the same twice, and finds what it should."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shared.adapters.models.token_counter import VocabularyCounter
from shared.core.context.build_context import build_context
from shared.core.context.prompts import default_layers
from shared.core.presets.catalog import PRESETS, preset
from tests.bench.engine import as_table as engine_table
from tests.bench.engine import measure_core, measure_long
from tests.bench.policies.__main__ import as_table, conversations, replay, replay_all
from tests.bench.policies.caching import ProviderCache
from tests.bench.policies.chart import svg
from tests.bench.policies.reach import Recall, holds
from tests.bench.policies.workload import recorded, telegram
from tests.kit.builders import exchanges, view

COUNT = VocabularyCounter().count_tokens
KEYS = {
    "uncached", "cached", "written", "out", "cost_tokens", "usd_per_1000_turns", "usd_per_compaction",
    "turns_per_compaction", "usd_per_flush", "background_pct", "saved_pct", "refused", "invalid", "reachable",
}  # fmt: skip


def test_every_preset_has_every_figure() -> None:
    talks = conversations(turns=30, tool_turns=8, data=None, seed=3)
    found = replay_all(talks, presets=tuple(PRESETS), jobs=1)
    assert set(found) == set(PRESETS)
    for name, row in found.items():
        assert row.keys() >= KEYS, name
        assert (row["turns"], row["refused"], row["invalid"]) == (38, 0, 0), name
        assert row["cost_tokens"] == round(row["uncached"] + 1.25 * row["written"] + 0.1 * row["cached"])
    json.dumps(found)
    assert "steady" in as_table(found)
    assert svg(found, title="Presets").count("<rect") == 1 + len(PRESETS)


def test_the_same_seed_gives_the_same_figures() -> None:
    talks = conversations(turns=25, tool_turns=5, data=None, seed=5)
    assert replay("steady", talks) == replay("steady", talks)
    other = conversations(turns=25, tool_turns=5, data=None, seed=6)
    assert replay("steady", talks) != replay("steady", other)


def test_a_prefix_is_read_again_until_the_provider_forgets_it() -> None:
    long = view(exchanges(200), open_turn=None)
    built = build_context(long, policy=preset("steady"), system=default_layers(), count=COUNT)
    cache = ProviderCache(COUNT)
    first = cache.bill(built, (), now=0.0)
    assert (first.read, first.written > 0) == (0, True)
    again = cache.bill(built, (), now=299.0)
    assert (again.read, again.written) == (first.written, 0)
    assert cache.bill(built, (), now=598.0).read == first.written, "reading has renewed it"
    assert cache.bill(built, (), now=900.0).read == 0


def test_recall_finds_the_message_that_speaks_of_the_thing() -> None:
    recall = Recall(["The cat is called Miso.", "We went to the beach.", "The dog is called Bertil."], COUNT)
    assert recall.found("What is the cat called?").startswith("The cat")
    assert recall.found("What is the cat called?", tokens=1) == ""
    assert holds("It costs 42 dollars", "42")
    assert not holds("It costs 420 dollars", "42")


def test_recorded_conversations_keep_their_dates_and_their_literal_answers(tmp_path: Path) -> None:
    sample = {
        "sample_id": "one",
        "conversation": {
            "speaker_a": "Ann", "speaker_b": "Bob",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ann", "text": "I moved to Tromsø."},
                {"speaker": "Ann", "text": "In winter!", "blip_caption": "snow"},
                {"speaker": "Bob", "text": "How cold is it?"},
                {"speaker": "Ann", "text": "Very."},
            ],
        },
        "qa": [
            {"question": "Where did Ann move?", "answer": "Tromsø"},
            {"question": "Why did Ann move?", "answer": "for love"},
        ],
    }  # fmt: skip
    path = tmp_path / "talk.json"
    path.write_text(json.dumps([sample]))
    (talk,) = recorded(path)
    assert [turn.person for turn in talk.turns] == [
        "I moved to Tromsø.\nIn winter! [a picture: snow]",
        "Very.",
    ]
    assert talk.turns[0].at.year == 2023
    assert [fact.literal for fact in talk.facts] == ["Tromsø"]


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_share_of_tool_turns_is_what_is_asked_for(share: float) -> None:
    talk = telegram(20, seed=1, tool_turns=share)
    assert all(bool(turn.rounds) is bool(share) for turn in talk.turns)


@pytest.mark.night
async def test_the_bench_of_the_engine_runs() -> None:
    found = measure_core(repeats=1)
    found |= await measure_long(entries=400, turns=2, blocks=1)
    assert found["million_entries"] == 400
    assert found["build_200k_tokens"] > 190_000
    assert "million_ratio" in engine_table(found)
