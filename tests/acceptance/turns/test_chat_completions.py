"""A conversation over Chat Completions: tools, notes, a summary and recall, with no request refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.long_talks import WINDOW, talk_with_upkeep
from tests.kit.app_driver import Visit
from tests.kit.fakes.messages_api import RunningFake

MODEL = "claude-sonnet-5-5"
QUESTION = "What is the invoice number of the piano?"


@pytest.fixture(scope="module")
def wire() -> str:
    return "openai"


@pytest.fixture
async def model_options(module_provider: RunningFake, tmp_path: Path) -> dict[str, Any]:
    await module_provider.reset()
    models = tmp_path / "models.json"
    prices = {"input": 2, "output": 9}
    models.write_text(
        json.dumps(
            [{"name": MODEL, "wire": "openai", "base_url": module_provider.base_url, "prices": prices}]
        )
    )
    return {"models_file": models, "model": MODEL, "summary_model": MODEL, "cap_total_per_day_usd": "100"}


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"context_window": WINDOW, "max_output": 1_000}


async def test_a_conversation_outlives_its_window_over_the_other_wire(
    guest: Visit, module_provider: RunningFake
) -> None:
    await talk_with_upkeep(guest, 10)
    assert await guest.one("SELECT base_turn FROM sessions") > 2
    await guest.ask(QUESTION)
    requests = await module_provider.requests()
    assert {one["outcome"] for one in requests} == {"answered"}, [one["error"] for one in requests]
    assert {"chat", "summary"} <= {one["kind"] for one in requests}
    assert "The invoice number of the piano is PX-4471." in json.dumps(requests[-1]["body"])
    assert not await module_provider.warnings()


async def test_saved_note_is_in_next_chat_completions_request(
    guest: Visit, module_provider: RunningFake
) -> None:
    note: dict[str, Any] = {"kind": "fact", "text": "Drinks tea with milk."}
    await module_provider.script(
        [{"times": 1, "action": {"tool_use": [{"name": "save_memory", "input": note}]}}]
    )
    await guest.ask("I drink tea with milk.")
    await guest.ask("And now?")
    bodies = [one["body"] for one in await module_provider.requests()]
    roles = [message["role"] for message in bodies[1]["messages"]]
    assert roles[-2:] == ["assistant", "tool"] or roles[-3:] == ["assistant", "tool", "user"]
    assert "Drinks tea with milk." in json.dumps(bodies[-1])
    assert await guest.one("SELECT count(*) FROM notes") == 1


async def test_what_it_cost_is_booked_with_what_the_cache_gave(
    guest: Visit, module_provider: RunningFake
) -> None:
    await guest.ask("Hello " * 1_300)
    await guest.ask("And again?")
    assert await guest.one("SELECT sum(cache_read_tokens) FROM usage") > 1_000
