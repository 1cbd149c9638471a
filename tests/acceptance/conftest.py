"""A strict fake of the provider answers the visitors of these tests."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.fakes.messages_api.harness import RunningFake


@pytest.fixture
async def model_options(provider: RunningFake) -> dict[str, Any]:
    await provider.reset()
    return {
        "anthropic_api_key": "test-key", "anthropic_base_url": provider.base_url,
        "cap_total_per_day_usd": "100",
    }  # fmt: skip
