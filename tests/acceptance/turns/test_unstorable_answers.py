"""A model says what no database can hold: the answer arrives, is paid for once, and the talk goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kit.app_driver import Visit, working
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.telegram.deployment import deployment

WORDS = "Line one\x00 and a half \ud83d of it, then \ude00 the rest."
SHOWN = "Line one\ufffd and a half \ufffd of it, then \ufffd the rest."


@pytest.fixture
def app_options() -> dict[str, Any]:
    """Choose a window that a few results of tools fill."""
    return {"max_output": 1_000, "soft_budget": 25_000}


async def test_an_answer_with_nul_and_halves_of_characters_arrives(
    guest: Visit, provider: RunningFake
) -> None:
    await provider.script([{"match": {"kind": "chat"}, "times": 1, "action": {"text": WORDS}}])
    assert await guest.ask("Read me the file") == SHOWN
    assert await guest.one("SELECT state FROM turns") == "answered"
    assert await guest.ask("And now?")
    assert len([one for one in await provider.requests() if one["kind"] == "chat"]) == 2


async def test_what_a_tool_is_called_with_is_kept_and_answered(guest: Visit, provider: RunningFake) -> None:
    call = {"name": "save_memory", "input": {"text": "Miso is a cat\x00", "kind": "fact"}}
    calls = {"match": {"kind": "chat"}, "times": 1, "action": {"tool_use": [call]}}
    await provider.script([calls, {"match": {"kind": "chat"}, "times": 1, "action": {"text": "Kept."}}])
    assert await guest.ask("Please remember that Miso is a cat") == "Kept."
    assert await guest.one("SELECT status FROM turn_steps WHERE status <> 'done'") is None


async def test_a_summary_with_nul_is_kept(guest: Visit, provider: RunningFake) -> None:
    for number in range(8):
        await guest.ask(f"Message {number} of a talk about the garden and the river." + " It rains." * 200)
    fact = {"kind": "fact", "text": "They talk about the garden\x00 and the river", "sources": [1]}
    ledger = json.dumps(
        {"narrative": "A talk about the garden.\x00", "add": [fact], "replace": [], "close": []}
    )
    await provider.script([{"match": {"kind": "summary"}, "times": -1, "action": {"text": ledger}}])
    async with working(guest):
        done = await guest.app.commands.run(
            session_id=guest.session_id, address_id=None, name="compact", args="--force"
        )
    assert done.success, done
    summary = await guest.one("SELECT summary_text FROM session_summaries")
    assert "the garden\ufffd and the river" in summary


async def test_the_same_on_telegram(database_url: str, redis_url: str, tmp_path: Path) -> None:
    answers = {"the file": {"text": WORDS}, "And now": {"text": "All is well."}}
    async with deployment(answers, database_url, redis_url, tmp_path) as place:
        ada = await place.house.person(7, first_name="Ada")
        await ada.say("Read me the file")
        await ada.sees("the rest.")
        await ada.say("And now?")
        screen = await ada.sees("All is well.")
        assert sum("half" in line.text for line in screen.answers) == 1
