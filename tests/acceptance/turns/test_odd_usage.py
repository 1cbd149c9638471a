"""Usage that a provider leaves out or counts too low: the cap holds all the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kit.app_driver import running_app, settings_for, visit
from tests.kit.dialects.server import Answer, dialect_server, events

TEXT = "The shop opens at nine, and on Sundays at ten. " * 20
COUNTS: dict[str, Any] = {
    "none": None,
    "zeros": {"prompt_tokens": 0, "completion_tokens": 0},
    "a tenth": {"prompt_tokens": 150, "completion_tokens": 25},
    "negative": {"prompt_tokens": -5, "completion_tokens": -5},
    "absurd": {"prompt_tokens": 10**15, "completion_tokens": 10**15},
    "output left out": {"prompt_tokens": 2_000},
}


@pytest.mark.parametrize("name", COUNTS)
async def test_cap_closes_whatever_a_provider_reports(
    database_url: str, redis_url: str, tmp_path: Path, name: str
) -> None:
    def reply(_: Any) -> Answer:
        usage = COUNTS[name]
        end = {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": usage}
        return Answer(body=events({"choices": [{"delta": {"content": TEXT}}]}, end))

    async with dialect_server(reply) as server:
        models = tmp_path / "models.json"
        entry = {
            "name": "odd", "wire": "openai", "base_url": server.url, "window": 100_000, "max_output": 512,
            "prices": {"input": 10, "output": 40},
        }  # fmt: skip
        models.write_text(json.dumps([entry]))
        settings = settings_for(
            database_url, redis_url, models_file=models, model="odd", summary_model="odd",
            cap_total_per_day_usd="0.4",
        )  # fmt: skip
        async with running_app(settings) as app:
            guest = await visit(app)
            for number in range(40):
                await guest.ask(f"When does it open, number {number}?")
            spent = await guest.one("SELECT sum(cost_micro) FROM usage")
            refused = await guest.one("SELECT count(*) FROM turns WHERE state = 'refused'")
            estimated = await guest.one("SELECT count(*) FROM usage WHERE NOT known")
            calls = await guest.one("SELECT count(*) FROM usage")
    assert 200_000 < spent <= 408_000, "within two hundredths above the cap"
    assert refused > 0
    assert estimated == calls
