"""The bench of the gauge plays through the real system, and the gauge keeps its word in it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from shared.core.presets.catalog import PRESETS, preset
from tests.bench.gauge import MODEL, RUNS, WIRES, Readings, Run, connect, play, talk_of
from tests.bench.ground import CAPS
from tests.bench.peers.__main__ import DEFAULT
from tests.bench.peers.ideal_mind import IdealMind
from tests.bench.peers.play import window_for
from tests.bench.peers.provider import listening
from tests.kit.app_driver import settings_for
from tests.kit.fakes.chat_completions.server import ChatCompletionsApi
from tests.kit.fakes.messages_api.server import MessagesApi

MOST_UNCOUNTED_PCT = 2.5
"""Error without a count in advance: the bench measures 1 to 2 %, by talk and seed."""


async def played(
    one: Run, *, turns: int, trigger: int, database_url: str, redis_url: str, folder: Path
) -> Readings:
    talk = talk_of(one.talk, turns, seed=3)
    mind = IdealMind(talk.facts)
    api = (ChatCompletionsApi if one.wire == "completions" else MessagesApi)(mind=mind)
    window = window_for(preset(one.preset), trigger)
    api.models.set_window(MODEL, window)
    async with listening(api) as url:
        settings = partial(settings_for, database_url, redis_url, data_dir=folder, **CAPS)(
            **one.models, **connect(one, url, folder, window=window)
        )
        return await play(talk, settings, api, mind)


@pytest.mark.parametrize(
    ("name", "talk", "turns", "trigger", "wire"),
    [
        ("steady", "short", 60, 5_000, "messages"),
        ("steady", "short", 90, 4_000, "completions"),
        ("arawn", "long", 24, 16_000, "messages"),
        ("pantheon", "long", 30, 12_000, "messages"),
        ("spec008", "long", 24, 16_000, "messages"),
    ],
)
async def test_gauge_says_what_the_provider_counts_with_recall_on(
    database_url: str,
    redis_url: str,
    tmp_path: Path,
    name: str,
    talk: str,
    turns: int,
    trigger: int,
    wire: str,
) -> None:
    one = Run(preset=name, talk=talk, wire=wire)
    readings = await played(
        one, turns=turns, trigger=trigger, database_url=database_url, redis_url=redis_url, folder=tmp_path
    )
    found = readings.as_json()
    assert found["just_after"]["readings"] >= 1, "the window is small enough for a compaction"
    assert found["before"]["p95_pct"] <= 1.0
    assert found["after"]["p95_pct"] <= (1.0 if wire == "messages" else MOST_UNCOUNTED_PCT)
    if wire == "messages":
        assert found["just_after"]["most_pct"] <= 1.0
        assert found["saved"]["p95_pct"] <= 2.0


@pytest.mark.parametrize("wire", WIRES)
async def test_gauge_leaves_out_what_the_next_turn_pushes_out(
    database_url: str, redis_url: str, tmp_path: Path, wire: str
) -> None:
    readings = await played(
        Run(preset="chatbox", talk="short", wire=wire),
        turns=24, trigger=6_000, database_url=database_url, redis_url=redis_url, folder=tmp_path,
    )  # fmt: skip
    assert readings.as_json()["before"]["p95_pct"] <= 1.0


def test_gauge_is_measured_for_every_preset_on_both_wires() -> None:
    assert {(run.preset, run.wire) for run in RUNS} == {
        (name, wire) for name in (*PRESETS, DEFAULT) for wire in WIRES
    }
