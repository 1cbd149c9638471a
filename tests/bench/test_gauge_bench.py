"""The bench of the gauge plays through the real system, and the gauge keeps its word in it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from shared.core.presets.catalog import preset
from tests.bench.gauge import MODEL, Run, play, talk_of
from tests.bench.ground import CAPS
from tests.bench.peers.ideal_mind import IdealMind
from tests.bench.peers.play import window_for
from tests.bench.peers.provider import listening
from tests.kit.app_driver import settings_for
from tests.kit.fakes.messages_api.server import MessagesApi


async def test_gauge_says_what_the_provider_counts_with_recall_on(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    one = Run(preset="steady", talk="short", wire="messages")
    talk = talk_of(one.talk, 60, seed=3)
    mind = IdealMind(talk.facts)
    api = MessagesApi(mind=mind)
    api.models.set_window(MODEL, window_for(preset(one.preset), 5_000))
    async with listening(api) as url:
        settings = partial(settings_for, database_url, redis_url, data_dir=tmp_path, **CAPS)(
            preset=one.preset, model=MODEL, summary_model=MODEL, anthropic_api_key="bench",
            anthropic_base_url=url,
        )  # fmt: skip
        found = (await play(talk, settings, api, mind)).as_json()
    assert found["just_after"]["readings"] >= 1, "the window is small enough for a compaction"
    assert found["before"]["p95_pct"] <= 1.0
    assert found["after"]["mean_pct"] <= 1.0
