"""Every form of a summary end to end: asked for, audited, stored, shown to the model, taken back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.kit.app_driver import Visit, running_app, settings_for, visit
from tests.kit.fakes.messages_api.harness import RunningFake

FILLER = "Then we talked about the weather, the garden and the long way home along the river. " * 24
PRESETS = {"lobechat": "sections", "opencode": "handover", "langmem": "running", "openclaw": "ledger"}


@pytest.fixture(params=sorted(PRESETS))
async def guest(
    database_url: str, redis_url: str, provider: RunningFake, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[Visit, str]]:
    await provider.reset()
    settings = settings_for(
        database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url,
        preset=request.param, context_window=9_000, max_output=1_000, cap_total_per_day_usd="100",
    )  # fmt: skip
    async with running_app(settings) as app:
        yield await visit(app), request.param


async def test_a_talk_is_summarised_in_the_form_of_its_preset(guest: tuple[Visit, str]) -> None:
    visitor, preset = guest
    await visitor.ask(f"Never call me before 9. My sister Ingrid lives in Oslo. {FILLER}")
    for number in range(13):
        await visitor.ask(f"Message {number} about the piano PX-4471. {FILLER}")
        await visitor.run_due_jobs()
    rows = await visitor.app.pool.fetch("SELECT kind, ledger, contract, audit, summary_text FROM links")
    assert rows
    assert {row["kind"] for row in rows} == {"summary"}, [row["audit"] for row in rows]
    for row in rows:
        ledger, audit = _json(row["ledger"]), _json(row["audit"])
        assert ledger.get("form", "ledger") == PRESETS[preset]
        assert audit["scores"]["grounded"] == 1.0
        assert len(_json(row["contract"])) >= 5
        assert "call me before 9" in row["summary_text"]
    state = await visitor.app.stores.jobs.load_state(visitor.session_id)
    assert state.view.head is not None
    assert state.view.head.ledger.form == PRESETS[preset]
    undone = await visitor.app.commands.run(session_id=visitor.session_id, address_id=None, name="undo")
    assert undone.success or "is the most" in undone.result, undone


def _json(raw: Any) -> dict[str, Any]:
    found = json.loads(raw) if isinstance(raw, str) else raw
    assert isinstance(found, dict)
    return found
