"""Who writes the summaries of a deployment whose models file names the model that answers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.kit.app_driver import running_app, settings_for, visit, working
from tests.kit.deployment.person import WALK
from tests.kit.fakes.messages_api.harness import RunningFake

PRICE = {"input": 2.0, "output": 10.0, "cache_read": 0.1, "dated": "2026-11"}


async def test_chat_model_price_does_not_make_it_write_summaries(
    database_url: str, redis_url: str, provider: RunningFake, tmp_path: Path
) -> None:
    await provider.reset()
    path = tmp_path / "models.json"
    path.write_text(json.dumps([{"name": "claude-sonnet-5-5", "prices": PRICE}]))
    settings = settings_for(
        database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url,
        models_file=str(path),
    )  # fmt: skip
    async with running_app(settings) as app:
        guest = await visit(app)
        for number in range(6):
            await guest.ask(f"Number {number}: {WALK}")
        async with working(guest):
            await asyncio.wait_for(
                app.commands.run(
                    session_id=guest.session_id, address_id=guest.address_id, name="compact", args="--force"
                ),
                60,
            )
        assert await guest.one("SELECT model FROM compactions WHERE kind = 'summary'") == "claude-haiku-5-5"
    asked = [request["model"] for request in await provider.requests() if request["kind"] == "summary"]
    assert set(asked) == {"claude-haiku-5-5"}
