"""Twenty bad summaries of one conversation change nothing for the others, whatever was bad about them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.bootstrap.app import App
from tests.kit.app_driver import Visit, visit, working
from tests.kit.deployment.person import WALK
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.night import rest_at_night

pytestmark = pytest.mark.timeout(300)
TIMES = 20
BAD: dict[str, dict[str, Any]] = {
    "prose": {"prose": True},
    "empty": {"empty": True},
    "call of a tool": {"tool_use": [{"name": "save_memory", "input": {"content": "Nothing."}}]},
    "refusal of the content": {"refusal": True},
    "rejected request": {"status": 400, "message": "messages.3: no such call"},
    "rejected content": {"status": 400, "message": "Output blocked by content filtering policy"},
    "fault of the server": {"status": 500},
    "overload": {"status": 529},
    "page": {"malformed": 0},
    "half a stream": {"cut": 1},
}
"""What the server answers when it is asked for a summary."""
BY_DAY = ("prose", "rejected content")


async def compact(guest: Visit) -> str:
    command = guest.app.commands.run(
        session_id=guest.session_id, address_id=guest.address_id, name="compact", args="--force", language=""
    )
    async with working(guest):
        return (await asyncio.wait_for(command, 120)).result


async def talk(guest: Visit, turns: int) -> None:
    for number in range(turns):
        await guest.ask(f"Number {number}: {WALK}")


@pytest.mark.parametrize("bad", rest_at_night(BAD, by_day=BY_DAY))
async def test_twenty_bad_summaries_of_one_session_change_nothing_for_others(
    app: App, provider: RunningFake, bad: str
) -> None:
    odd, other = await visit(app), await visit(app)
    await talk(other, 6)
    await talk(odd, 6)
    await provider.script([{"match": {"kind": "summary"}, "times": -1, "action": BAD[bad]}])
    for _ in range(TIMES):
        await compact(odd)
        await talk(odd, 1)
    await provider.script([])
    before = len(await provider.requests())

    assert "Summarised" in await compact(other)

    asked = [one["model"] for one in (await provider.requests())[before:] if one["kind"] == "summary"]
    assert asked == [app.models.summary], "the summary model is asked first, and once"
    sql = "SELECT model FROM compactions WHERE session_id = $1 ORDER BY id DESC LIMIT 1"
    assert await other.one(sql, other.session_id) == app.models.summary
    assert await other.ask("And now?")
