"""Every form of a summary end to end: asked for, audited, stored, shown to the model, taken back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.kit.app_driver import Visit

FILLER = "Then we talked about the weather, the garden and the long way home along the river. " * 24
PRESETS = {"lobechat": "sections", "opencode": "handover", "langmem": "running", "openclaw": "ledger"}


@pytest.fixture(params=sorted(PRESETS))
def app_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"preset": request.param, "context_window": 9_000, "max_output": 1_000}


async def test_a_talk_is_summarised_in_the_form_of_its_preset(guest: Visit) -> None:
    preset = guest.app.settings.preset
    await guest.ask(f"Never call me before 9. My sister Ingrid lives in Oslo. {FILLER}")
    for number in range(13):
        await guest.ask(f"Message {number} about the piano PX-4471. {FILLER}")
        await guest.run_due_jobs()
    rows = await guest.app.pool.fetch("SELECT kind, ledger, contract, audit, summary_text FROM compactions")
    assert rows
    assert {row["kind"] for row in rows} == {"summary"}, [row["audit"] for row in rows]
    for row in rows:
        ledger, audit = _json(row["ledger"]), _json(row["audit"])
        assert ledger.get("form", "ledger") == PRESETS[preset]
        assert audit["scores"]["grounded"] == 1.0
        assert len(_json(row["contract"])) >= 5
        assert "call me before 9" in row["summary_text"]
    state = await guest.app.stores.jobs.load_state(guest.session_id)
    assert state.view.head is not None
    assert state.view.head.ledger.form == PRESETS[preset]
    undone = await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="undo")
    assert undone.success or "is the most" in undone.result, undone


def _json(raw: Any) -> dict[str, Any]:
    found = json.loads(raw) if isinstance(raw, str) else raw
    assert isinstance(found, dict)
    return found
