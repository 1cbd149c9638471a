"""The doctor tells operators when a day's money runs out, and of prices that nobody knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shared.cli.model_discovery import describe_models
from shared.config.settings import load_settings
from shared.diagnostics.row_checks import build_spending_finding, check_spending
from tests.kit.fakes.messages_api.harness import RunningFake


def test_most_of_the_cap_is_a_warning_with_what_to_do() -> None:
    settings = load_settings(cap_total_per_day_usd="5")
    fine = build_spending_finding(settings, used_micro=1_000_000, warned=0)
    assert (fine.level, fine.what) == ("ok", "$1.00 of today's $5.00 used (20 %)")
    near = build_spending_finding(settings, used_micro=4_000_000, warned=2)
    assert near.level == "warn"
    assert "(80 %); 2 people" in near.what
    assert "EVERTALK_CAP_TOTAL_PER_DAY_USD" in near.advice


async def test_a_day_without_spending_is_well(database_url: str) -> None:
    (found,) = await check_spending(load_settings(), database_url)
    assert found.level == "ok"


async def test_unknown_and_old_prices_are_named(tmp_path: Path) -> None:
    path = tmp_path / "models.json"
    path.write_text(
        '[{"name": "a", "base_url": "http://127.0.0.1:9", "window": 9000},'
        ' {"name": "b", "base_url": "http://127.0.0.1:9", "window": 9000,'
        '  "prices": {"input": 1, "output": 2, "dated": "2020-01"}}]'
    )
    lines = await describe_models(load_settings(models_file=str(path), model="a", summary_model="b"))
    said = " ".join(line for _, line in lines)
    assert "the price of a is unknown" in said
    assert "the price of b is from 2020-01" in said


async def test_a_summary_model_that_the_provider_does_not_serve_is_named(provider: RunningFake) -> None:
    await provider.reset()
    asked: dict[str, Any] = {"anthropic_api_key": "test-key", "anthropic_base_url": provider.base_url}
    said = [line for _, line in await describe_models(load_settings(**asked, summary_model="gone"))]
    assert any("gone is not served: claude-sonnet-5-5 writes the summaries" in line for line in said)
    assert not [line for _, line in await describe_models(load_settings(**asked)) if "not served" in line]


@pytest.mark.parametrize(
    ("window", "capabilities", "said"),
    [
        (32_000, '["tools"]', None),
        (
            4_000,
            '["tools"]',
            "memory is saved by a request of its own: a window of 4,000 tokens is",
        ),
        (32_000, "[]", "memory is saved from lines of text: a cannot call tools"),
        (700, "[]", "memory is saved as excerpts, without a model: a cannot call tools"),
    ],
)
async def test_how_memory_is_saved_is_named_where_no_tool_can_be_offered(
    tmp_path: Path, window: int, capabilities: str, said: str | None
) -> None:
    path = tmp_path / "models.json"
    path.write_text(
        f'[{{"name": "a", "base_url": "http://127.0.0.1:9", "window": {window}, "max_output": 500,'
        f' "capabilities": {capabilities}}}]'
    )
    settings = load_settings(models_file=str(path), model="a", summary_model="a")
    told = [line for _, line in await describe_models(settings) if "memory is saved" in line]
    assert len(told) == (said is not None)
    assert said is None or told[0].startswith(said)
