"""A long conversation with tools on the whole system: pruned, summarised, and nothing early is forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import asyncpg
import pytest

from shared.adapters.postgres.operations.invariants import check_invariants
from shared.ports import ToolContext, ToolSpec
from shared.services.turns.toolbox import Toolbox
from tests.kit.app_driver import Visit
from tests.kit.fakes.messages_api.harness import RunningFake

TURNS = 26
EARLY = (
    ("My sister Ingrid lives in Tromsø.", "Where does my sister Ingrid live?", "Tromsø"),
    ("The invoice number of the piano is PX-4471.", "What is the invoice number of the piano?", "PX-4471"),
    ("My dog Bertil is allergic to chicken.", "What is my dog Bertil allergic to?", "chicken"),
)
FILLER = "We walked along the river, looked at the boats and talked of this and that. " * 30
PAGE = "Row {row}: departure 1{row}:40, pier {row}, {number} seats are left on the boat to Moss. "


class Timetable:
    """Returns a long page, another one for each question."""

    spec = ToolSpec(
        name="timetable",
        description="Look up boats.",
        input_schema={
            "type": "object",
            "properties": {"day": {"type": "integer"}},
            "required": ["day"],
            "additionalProperties": False,
        },
    )
    idempotent = True
    timeout_seconds = 5.0

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str:
        day = int(arguments["day"])
        self.asked.append(day)
        return "".join(PAGE.format(row=row, number=day * 100 + row) for row in range(120))


@pytest.fixture
def timetable(monkeypatch: pytest.MonkeyPatch) -> Timetable:
    """One more tool, through the same door as ours: the toolbox that the app is put together with."""
    tool = Timetable()
    monkeypatch.setattr(
        "shared.bootstrap.build_turns.Toolbox", lambda tools, **more: Toolbox([*tools, tool], **more)
    )
    return tool


@pytest.fixture
def app_options(timetable: Timetable) -> dict[str, Any]:
    return {
        "context_window": 60_000,
        "soft_budget": 40_000,
        "max_output": 1_000,
        "cap_total_per_day_usd": "1000",
    }


async def turn(guest: Visit, provider: RunningFake, number: int) -> None:
    """Every second turn looks something up, sometimes twice at once."""
    early = EARLY[number][0] if number < len(EARLY) else ""
    text = f"{early} Message {number}: tell me about day {number} please."
    if number % 2:
        calls = [{"name": "timetable", "input": {"day": number * 10 + n}} for n in range(1 + number % 3)]
        rule = {"match": {"kind": "chat", "contains": f"day {number} please"}, "action": {"tool_use": calls}}
        await provider.script([rule])
    await guest.ask(text)
    await guest.run_due_jobs()


async def test_a_long_run_with_tools_stays_valid_and_remembers(
    guest: Visit, provider: RunningFake, timetable: Timetable
) -> None:
    for number in range(TURNS):
        await turn(guest, provider, number)
    assert len(timetable.asked) >= TURNS // 2
    assert await guest.one("SELECT count(*) FROM prune_decisions") > 0, "old results were shortened"
    await talk_until_summarised(guest, provider)
    assert await guest.one("SELECT base_turn FROM sessions") > len(EARLY)
    for _, question, answer in EARLY:
        assert answer in await guest.ask(question)
    requests = await provider.requests()
    assert {r["status"] for r in requests} == {200}, [r["error"] for r in requests if r["status"] != 200]
    assert await provider.warnings() == []
    assert await guest.one("SELECT count(*) FROM turns WHERE state <> 'answered'") == 0
    over = "SELECT count(*) FROM turn_context_audit WHERE reported_input_tokens > hard_limit"
    assert await guest.one(over) == 0
    await invariants_hold(guest)


async def talk_until_summarised(guest: Visit, provider: RunningFake) -> None:
    for number in range(TURNS, 3 * TURNS):
        if await guest.one("SELECT count(*) FROM compactions WHERE active"):
            return
        await turn(guest, provider, number)
        await guest.ask(f"And this happened on day {number}. {FILLER}")
    raise AssertionError("nothing was summarised")


async def invariants_hold(guest: Visit) -> None:
    url = guest.app.settings.database_url
    assert url is not None
    connection = await asyncpg.connect(url.get_secret_value(), timeout=60)
    try:
        assert await check_invariants(connection) == []
    finally:
        await connection.close(timeout=30)
