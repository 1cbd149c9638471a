"""Tools in whole conversations: bad arguments, pictures, stopping, searches of the provider's own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from shared.adapters.postgres.operations.invariants import check_invariants
from shared.core.session.turns import ReplyEvent, RunEnded, ToolRunning
from shared.core.values.messages import ToolSpec
from shared.ports import ToolContext, ToolImage, ToolOutput
from tests.kit.app_driver import Visit, running_app, settings_for, visit
from tests.kit.fakes.mcp_process import mcp_servers
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.sample_pictures import image

SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}


@dataclass
class Drawing:
    spec: ToolSpec = field(
        default_factory=lambda: ToolSpec(name="draw", description="", input_schema={"type": "object"})
    )
    idempotent: bool = True
    timeout_seconds: float = 10.0

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> ToolOutput:
        return ToolOutput(text="Drawn.", images=(ToolImage(body=image(3_136, 1_568)),))


@dataclass
class Waiting:
    """Runs until it is ended."""

    name: str
    idempotent: bool
    timeout_seconds: float = 60.0
    began: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(name=self.name, description="", input_schema={"type": "object"})

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()
        return "never"


@dataclass
class Room:
    guest: Visit
    provider: RunningFake
    reading: Waiting
    sending: Waiting

    async def scripted(self, *actions: dict[str, Any]) -> None:
        await self.provider.script(
            [{"match": {"kind": "chat"}, "times": 1, "action": action} for action in actions]
        )

    async def sent(self) -> list[dict[str, Any]]:
        """The bodies of all chat requests, which the strict fake has accepted."""
        requests = [one for one in await self.provider.requests() if one["kind"] == "chat"]
        assert all(one["status"] == 200 for one in requests), requests
        return [one["body"] for one in requests]

    async def configure(self, **config: Any) -> None:
        await self.guest.app.pool.execute("UPDATE agents SET config = $1", config)

    async def results(self) -> list[str]:
        rows = await self.guest.app.pool.fetch(
            "SELECT blocks FROM entries WHERE author = 'tool' ORDER BY seq"
        )
        return [b["text"] for row in rows for b in row["blocks"] if b["type"] == "tool_result"]

    async def holds(self) -> None:
        address = self.guest.app.settings.database_url
        assert address is not None
        connection = await asyncpg.connect(address.get_secret_value(), timeout=60)
        try:
            assert await check_invariants(connection) == []
        finally:
            await connection.close(timeout=30)


@pytest.fixture
async def room(database_url: str, redis_url: str, provider: RunningFake) -> AsyncIterator[Room]:
    await provider.reset()
    settings = settings_for(
        database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url,
        cap_total_per_day_usd="100",
    )  # fmt: skip
    reading, sending = Waiting("read_slowly", idempotent=True), Waiting("send_slowly", idempotent=False)
    async with running_app(settings, tools=[Drawing(), reading, sending]) as app:
        yield Room(await visit(app), provider, reading, sending)


@pytest.mark.control("S25")
async def test_call_with_bad_arguments_is_returned_to_model_and_retried(room: Room) -> None:
    bad = {
        "tool_use": [{"name": "calculate", "input": {"expression": 5}}, {"name": "calculate", "input": {}}]
    }
    good = {"tool_use": [{"name": "calculate", "input": {"expression": "0.1+0.2"}}]}
    await room.scripted(bad, good, {"text": "0.3"})
    assert await room.guest.ask("What is a tenth and two tenths?") == "0.3"
    assert [text.splitlines()[-1] for text in await room.results()] == [
        '- `expression`: 5 is not a text. Allowed: {"type": "string", "minLength": 1, "maxLength": 500}',
        "- `expression` is missing. It takes `expression`.",
        "0.1+0.2 = 0.3",
    ]
    running = [event for event in room.guest.heard if isinstance(event, ToolRunning)]
    assert [event.name for event in running] == ["calculate"] * 3
    await room.holds()


@pytest.mark.control("S25")
async def test_an_agent_is_offered_only_its_own_tools(room: Room) -> None:
    await room.configure(tools={"allow": ["c*"], "deny": ["current_time"]})
    await room.scripted({"tool_use": [{"name": "draw", "input": {}}]}, {"text": "I cannot."})
    await room.guest.ask("Draw!")
    assert [tool["name"] for tool in (await room.sent())[0]["tools"]] == ["calculate"]
    assert (await room.results())[0] == "There is no tool called 'draw'."


@pytest.mark.control("S25")
async def test_an_agents_turns_are_offered_only_the_servers_that_it_names(
    database_url: str, redis_url: str, provider: RunningFake, tmp_path: Path
) -> None:
    await provider.reset()
    settings = settings_for(
        database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url,
        cap_total_per_day_usd="100", data_dir=tmp_path,
    )  # fmt: skip
    waiting = Waiting("read_slowly", idempotent=True)
    async with mcp_servers(tmp_path, "web", "more"), running_app(settings) as app:
        room = Room(await visit(app), provider, waiting, waiting)
        call = {"name": "mcp_web_add", "input": {"a": 20, "b": 22}}
        await room.configure(tools={"servers": ["web"]})
        await room.scripted({"tool_use": [call]}, {"text": "42"})
        await room.guest.ask("Add!")
        offered = [tool["name"] for tool in (await room.sent())[0]["tools"]]
        assert {name.split("_")[1] for name in offered if name.startswith("mcp_")} == {"web"}
        assert await room.results() == ["42"]

        await room.configure(tools={"servers": []})
        await room.scripted({"tool_use": [call]}, {"text": "I cannot."})
        await room.guest.ask("Again!")
        assert not [tool for tool in (await room.sent())[-1]["tools"] if tool["name"].startswith("mcp_")]
        assert (await room.results())[-1] == "There is no tool called 'mcp_web_add'."
        await room.holds()


async def test_tool_picture_stays_visible_or_is_described_in_text(room: Room) -> None:
    await room.scripted(
        {"tool_use": [{"name": "draw", "input": {}}]}, {"text": "A picture."}, {"text": "Yes."}
    )
    await room.guest.ask("Draw!")
    await room.guest.ask("Did you?")
    _, with_picture, later = await room.sent()
    kinds = [block["type"] for block in with_picture["messages"][-1]["content"]]
    assert kinds == ["tool_result", "image"]
    assert "A picture of 1568×784 was returned" in with_picture["messages"][-1]["content"][0]["content"]
    assert '"image"' in json.dumps(later["messages"])
    await room.guest.app.pool.execute("""UPDATE agents SET config = '{"context": {"picture_turns": 0}}'""")
    await room.scripted({"text": "Yes."})
    await room.guest.ask("Really?")
    last = (await room.sent())[-1]
    assert '"image"' not in json.dumps(last["messages"])
    assert "a picture of 1568×784 that draw returned" in json.dumps(last["messages"], ensure_ascii=False)
    await room.holds()


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [("read_slowly", "failed", "ended before it was done"), ("send_slowly", "unknown", "outcome unknown")],
)
async def test_stop_ends_a_running_tool_at_once(room: Room, name: str, status: str, words: str) -> None:
    tool = room.reading if name == "read_slowly" else room.sending
    calls = [{"name": name, "input": {}}, {"name": "calculate", "input": {"expression": "6*7"}}]
    await room.scripted({"tool_use": calls}, {"text": "Go on."})
    await room.guest.say("Take your time.")
    answering = asyncio.ensure_future(room.guest.answered())
    async with asyncio.timeout(30):
        await tool.began.wait()
        await asyncio.sleep(0.2)
        await room.guest.app.sessions.stop(room.guest.session_id)
        await tool.ended.wait()
        await answering
    ends: list[ReplyEvent] = [event for event in room.guest.heard if isinstance(event, RunEnded)]
    assert ends == [RunEnded(turn=1, state="stopped")]
    stopped, done = await room.results()
    assert words in stopped
    assert done == "6*7 = 42"
    outcome = "SELECT status FROM turn_steps WHERE call_id = $1"
    blocks = await room.guest.one(
        "SELECT blocks FROM entries WHERE author = 'assistant' ORDER BY seq LIMIT 1"
    )
    call_id = next(block["id"] for block in blocks if block.get("name") == name)
    assert await room.guest.one(outcome, call_id) == status
    await room.guest.ask("And now?")
    await room.sent()
    await room.holds()


async def test_provider_search_stays_valid_in_later_rounds_and_turns(room: Room) -> None:
    await room.configure(tools={"provider": [SEARCH]})
    both = {"web_search": "tides", "text": "Let me see.", "tool_use": [{"name": "draw", "input": {}}]}
    await room.scripted(both, {"web_search": "more tides", "text": "The moon."}, {"text": "Good night."})
    assert "The moon." in await room.guest.ask("Why are there tides?")
    await room.guest.ask("Thanks.")
    first, second, later = await room.sent()
    assert first["tools"][-1] | {"cache_control": None} == SEARCH | {"cache_control": None}
    assert [b["type"] for b in second["messages"][-2]["content"]] == [
        "server_tool_use", "web_search_tool_result", "text", "tool_use",
    ]  # fmt: skip
    assert "server_tool_use" not in json.dumps(later["messages"])
    assert "The moon." in json.dumps(later["messages"])
    await room.holds()


async def test_unknown_block_never_loses_the_answer(room: Room) -> None:
    await room.scripted(
        {"odd_block": {"type": "hologram", "data": "…"}, "text": "Here I am."}, {"text": "Still."}
    )
    assert await room.guest.ask("Hello?") == "Here I am."
    assert await room.guest.ask("Really?") == "Still."
    assert "hologram" not in json.dumps((await room.sent())[1]["messages"])


async def test_an_answer_that_the_provider_paused_is_gone_on_with(room: Room) -> None:
    await room.configure(tools={"provider": [SEARCH]})
    await room.scripted(
        {"web_search": "tides", "pause": True}, {"web_search": "more", "pause": True}, {"text": "The moon."}
    )
    assert await room.guest.ask("Why are there tides?") == "The moon."
    requests = [one for one in await room.provider.requests() if one["kind"] == "chat"]
    assert [one["stop_reason"] for one in requests] == ["pause_turn", "pause_turn", "end_turn"]
    assert [block["type"] for block in requests[2]["body"]["messages"][-1]["content"]] == [
        "server_tool_use", "web_search_tool_result", "server_tool_use",
    ]  # fmt: skip
    paid = await room.guest.app.pool.fetchval("SELECT count(*) FROM usage WHERE purpose = 'chat'")
    assert paid == len(requests)
    await room.holds()
