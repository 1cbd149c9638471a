"""A helper works in a fresh window, is paid for, and leaves nothing behind but its result."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from shared.ports import Tool, ToolContext, ToolImage, ToolOutput, ToolSpec
from tests.kit.app_driver import Visit
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.sample_pictures import image

SECRET = "The safe is behind the painting of the harbour."
TASK = {"task": "Count the ships in the report.", "context": "Report 7 of the harbour master."}


class Ships:
    """A tool that an agent may have."""

    spec = ToolSpec(
        name="look_up_ships",
        description="Says which ships lie in a harbour.",
        input_schema={"type": "object", "properties": {"harbour": {"type": "string"}}},
    )
    idempotent = True
    timeout_seconds = 5.0

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.says: str | ToolOutput = "Three ships lie there: Ada, Bo and Cyd."

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str | ToolOutput:
        self.keys.append(context.key)
        return self.says


@pytest.fixture
def ships() -> Ships:
    return Ships()


@pytest.fixture
def app_tools(ships: Ships) -> list[Tool]:
    return [ships]


def says(*blocks: tuple[str, Mapping[str, Any]], text: str = "", **match: Any) -> dict[str, Any]:
    action: dict[str, Any] = {"text": text} if text else {}
    if blocks:
        action["tool_use"] = [{"name": name, "input": dict(given)} for name, given in blocks]
    return {"match": match or {"kind": "chat"}, "times": 1, "action": action}


LOOKS = ("look_up_ships", {"harbour": "Oslo"})


async def bodies(provider: RunningFake) -> list[Any]:
    return [request["body"] for request in await provider.requests()]


async def test_a_helper_sees_its_task_alone_and_only_its_result_comes_back(
    guest: Visit, provider: RunningFake, ships: Ships
) -> None:
    await guest.ask(SECRET)
    before = len(await bodies(provider))
    await provider.script([
        says(("delegate", TASK)), says(LOOKS), says(text="There are three ships."),
        says(text="The helper counted three."),
    ])  # fmt: skip
    assert await guest.ask("How many ships are there?") == "The helper counted three."
    outer, first, second, last = (await bodies(provider))[before:]
    assert "You do one task" in str(first["system"])
    assert "You do one task" not in str(outer["system"])
    assert "Count the ships in the report." in str(first["messages"])
    assert "Report 7 of the harbour master." in str(first["messages"])
    assert len(first["messages"]) == 1
    assert SECRET not in str(first)
    names = {tool["name"] for tool in first["tools"]}
    assert names & {"delegate", "save_memory", "remind_me"} == set()
    assert "look_up_ships" in names
    assert {"delegate", "remind_me"} <= {tool["name"] for tool in outer["tools"]}
    assert "Three ships lie there" in str(second["messages"][-1])
    assert "There are three ships." in str(last["messages"][-1])
    assert "Three ships lie there" not in str(last["messages"])
    assert len(ships.keys) == 1
    assert await guest.one("SELECT count(*) FROM turn_steps") == 1
    assert await guest.one("SELECT count(*) FROM entries WHERE blocks::text LIKE '%Three ships lie%'") == 0


async def test_helper_reads_that_it_cannot_see_a_tools_picture(
    guest: Visit, provider: RunningFake, ships: Ships
) -> None:
    ships.says = ToolOutput(text="A photo.", images=(ToolImage(body=image(60, 40)),))
    await provider.script([
        says(("delegate", TASK)), says(LOOKS), says(text="I could not see it."), says(text="Not seen."),
    ])  # fmt: skip
    assert await guest.ask("How many ships are there?") == "Not seen."
    told = str((await bodies(provider))[2]["messages"][-1])
    assert "A picture was returned, which cannot be shown here." in told
    assert "shown after the results" not in told
    assert await guest.one("SELECT count(*) FROM attachments") == 0


async def test_every_call_of_a_helper_is_in_the_ledger_of_its_turn(
    guest: Visit, provider: RunningFake
) -> None:
    await provider.script([
        says(("delegate", TASK)), says(LOOKS), says(text="There are three ships."), says(text="Three."),
    ])  # fmt: skip
    await guest.ask("How many ships are there?")
    rows = await guest.app.pool.fetch("SELECT purpose, turn_no, contact_id FROM usage ORDER BY id")
    contact = await guest.one("SELECT contact_id FROM sessions")
    assert sorted(row["purpose"] for row in rows) == ["chat", "chat", "delegate", "delegate"]
    assert {(row["turn_no"], row["contact_id"]) for row in rows} == {(1, contact)}
    counted = await provider.usage()
    ledger = await guest.app.pool.fetchrow(
        "SELECT sum(input_tokens)::bigint AS i, sum(output_tokens)::bigint AS o, sum(cost_micro)::bigint AS c"
        "  FROM usage"
    )
    assert ledger is not None
    assert (ledger["i"], ledger["o"]) == (counted["input_tokens"], counted["output_tokens"])
    assert await guest.one("SELECT spent_micro FROM spend_days WHERE scope = 'total'") == ledger["c"]
    assert await guest.one("SELECT cost_micro FROM session_totals") == ledger["c"]
    assert await guest.one("SELECT count(*) FROM reservations WHERE state = 'held'") == 0
    figures = await guest.app.commands.run(session_id=guest.session_id, address_id=None, name="usage")
    assert "$0.00 for summaries" in figures.result


async def test_helper_must_answer_in_its_last_round(
    guest: Visit, provider: RunningFake, ships: Ships
) -> None:
    await provider.script([
        says(("delegate", TASK)), *[says(LOOKS)] * 5, says(text="I saw three."), says(text="Three."),
    ])  # fmt: skip
    assert await guest.ask("How many ships are there?") == "Three."
    asked = [body for body in await bodies(provider) if "You do one task" in str(body["system"])]
    assert [bool(body.get("tools")) for body in asked] == [True] * 5 + [False]
    assert len(set(ships.keys)) == 5
    assert "I saw three." in str((await bodies(provider))[-1]["messages"][-1])


async def test_a_provider_that_refuses_a_helper_is_a_clear_result(
    guest: Visit, provider: RunningFake
) -> None:
    refused = {"match": {"kind": "chat"}, "times": 1, "action": {"status": 400, "message": "No."}}
    await provider.script([says(("delegate", TASK)), says(LOOKS), refused, says(text="It did not work.")])
    assert await guest.ask("How many ships are there?") == "It did not work."
    told = str((await bodies(provider))[-1]["messages"][-1])
    assert "The helper did not finish. Its model could not answer (model_rejected_request)." in told


async def test_a_helper_whose_window_is_too_small_clears_its_old_results(
    guest: Visit, provider: RunningFake, ships: Ships
) -> None:
    ships.says = "The Ada, the Bo and the Cyd lie at pier 4. " * 500
    too_long = {
        "match": {"kind": "chat"}, "times": 1,
        "action": {"status": 400, "message": "prompt is too long: 9000 tokens > 6000 maximum"},
    }  # fmt: skip
    await provider.script([
        says(("delegate", TASK)), says(LOOKS), says(LOOKS), too_long,
        says(text="I saw three."), says(text="Three."),
    ])  # fmt: skip
    assert await guest.ask("How many ships are there?") == "Three."
    helped = [body for body in await bodies(provider) if "You do one task" in str(body["system"])]
    assert "[cleared to make room]" in str(helped[-1]["messages"])
    assert "[cleared to make room]" not in str(helped[-2]["messages"])


async def test_a_cancelled_helper_is_paid_for(guest: Visit, provider: RunningFake) -> None:
    """However its tool is ended: its last call is charged by our own estimate."""
    await provider.script([
        says(("delegate", TASK)),
        {"match": {"kind": "chat"}, "times": 1, "action": {"text": "slow " * 400, "pace_ms": 200}},
    ])  # fmt: skip
    await guest.say("How many ships are there?")
    answering = asyncio.ensure_future(guest.app.sessions.answer(guest.session_id, guest.hear))
    async with asyncio.timeout(30):
        while len(await bodies(provider)) < 2:
            await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)
    answering.cancel()
    await asyncio.wait([answering])
    assert await guest.one("SELECT status FROM usage WHERE purpose = 'delegate'") == "aborted"
    assert await guest.one("SELECT count(*) FROM reservations WHERE state = 'held'") == 0
    await provider.script([says(text="I do not know what became of it.")])
    await guest.app.pool.execute("UPDATE sessions SET retry_at = NULL")
    assert await guest.answered() == "I do not know what became of it."
    assert "outcome unknown" in str((await bodies(provider))[-1]["messages"][-1])
