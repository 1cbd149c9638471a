"""The playground: a draft answers as an agent would, and what it cost is all that stays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest
from aiohttp import web

from shared.adapters.postgres.operations.invariants import check_invariants
from shared.bootstrap.stores import build_stores
from shared.config.settings import load_settings
from shared.core.memory.knowledge import Passage
from shared.core.presets.catalog import PRESETS
from shared.core.session.turns import Caps
from shared.core.values.errors import ModelUnavailable
from shared.core.values.messages import ToolResult, ToolUse
from shared.core.values.money import Prices
from shared.ports import ModelCard, ModelRequest, ToolContext, ToolSpec
from shared.services.admin.playground import PLAYGROUND_TIMEOUTS, Playground
from shared.services.compaction.silent_requests import OneShotCompletion
from shared.services.tools.calculator import CalculatorTool
from shared.services.turns.request_builder import RequestBuilder
from shared.services.turns.toolbox import Toolbox
from tests.kit.dashboard.fixtures import SAME_ORIGIN
from tests.kit.dashboard.serve import served
from tests.kit.scripted_model import MAIN, Say, ScriptedModel, Words, replied
from tests.kit.web.callers import make_operator

DEAR = Prices(input=10.0, output=50.0, cache_read=1.0, cache_write=12.0, dated="2026-11")
DRAFT: dict[str, Any] = {"persona": "You are Ada.", "preset": "steady"}


class RemindTool:
    """Would write; it fails the test that runs it."""

    spec = ToolSpec(name="remind_me", description="Remind.", input_schema={"type": "object"})
    idempotent = False
    timeout_seconds = 5.0

    async def run(self, arguments: Any, *, context: ToolContext) -> str:
        raise AssertionError("a tool that writes was carried out")


class HandyModel(ScriptedModel):
    async def load_card(self, model: str) -> ModelCard:
        return replace(await ScriptedModel.load_card(self, model), capabilities=frozenset({"tools"}))


class FixedClock:
    def now(self) -> datetime:
        return datetime(2026, 11, 20, 9, 30, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Tried:
    url: str
    http: aiohttp.ClientSession
    pool: asyncpg.Pool[asyncpg.Record]
    model: ScriptedModel
    known: dict[str, Any] = field(default_factory=dict)
    """Operators by role."""

    async def ask(self, body: Any, *, role: str = "admin", agent: str = "default") -> tuple[int, Any]:
        if role not in self.known:
            self.known[role] = await make_operator(self.pool, role)
        headers = {**SAME_ORIGIN, **self.known[role]}
        url = f"{self.url}/api/v1/agents/{agent}/try"
        async with self.http.post(url, json=body, headers=headers) as response:
            return response.status, await response.json()

    async def say(self, *texts: str, config: Any = None) -> tuple[int, Any]:
        said = [{"role": ("user", "assistant")[at % 2], "text": text} for at, text in enumerate(texts)]
        return await self.ask({"config": DRAFT if config is None else config, "messages": said})


Opened = Callable[..., AbstractAsyncContextManager[Tried]]


@pytest.fixture
async def playground(database_url: str, pool: Any, tmp_path: Path) -> AsyncIterator[Opened]:
    """Afterwards the money is in order."""

    @asynccontextmanager
    async def open_it(say: Say, *, total: int | None = None) -> AsyncIterator[Tried]:
        model = HandyModel(say, prices=DEAR)
        policy = PRESETS["steady"]
        requests = RequestBuilder(
            policy=policy, chat_model=MAIN, summary_model=MAIN, max_output=policy.max_output, counter=Words()
        )
        playground = Playground(
            asking=OneShotCompletion(model, Words(), bounds=PLAYGROUND_TIMEOUTS), requests=requests,
            toolbox=Toolbox([CalculatorTool(), RemindTool()]), ledger=build_stores(pool).playground,
            knowledge=build_stores(pool).knowledge,
            caps=Caps(total=total, person=1, visitor=1, session=1), clock=FixedClock(),
        )  # fmt: skip
        settings = load_settings(data_dir=tmp_path)
        async with (
            served(
                web.Application(), pool=pool, settings=settings, commands=None, playground=playground
            ) as url,
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as http,
        ):
            yield Tried(url, http, pool, model)

    yield open_it
    connection = await asyncpg.connect(database_url)
    assert await check_invariants(connection) == []
    await connection.close()


async def spent(tried: Tried) -> list[tuple[str, str, int]]:
    rows = await tried.pool.fetch("SELECT purpose, status, cost_micro FROM usage ORDER BY id")
    return [tuple(row) for row in rows]


async def test_a_draft_answers_as_a_turn_would_and_only_its_cost_stays(playground: Opened) -> None:
    async with playground(lambda _: "I am Ada.", total=10_000_000) as tried:
        status, told = await tried.say("Hello", "Hi!", "Who are you?")
        assert (status, told["text"], told["model"], told["tools"]) == (200, "I am Ada.", MAIN, [])
        (request,) = tried.model.asked
        assert "You are Ada." in request.system[0].text
        assert {tool.name for tool in request.tools} == {"calculate", "remind_me"}
        assert [message.role for message in request.messages] == ["user", "assistant", "user"]
        assert "in the web chat" in str(request.messages[-1].blocks)
        assert await spent(tried) == [("playground", "done", told["cost_micro"])]
        assert await tried.pool.fetchval("SELECT count(*) FROM sessions") == 0
        assert await tried.pool.fetchval("SELECT spent_micro FROM spend_days") == told["cost_micro"] > 0
        assert await tried.pool.fetchval("SELECT config FROM agents WHERE name = 'default'") == {}
        assert await tried.pool.fetchval("SELECT count(*) FROM audit WHERE action = 'agent.tried'") == 1


async def test_playground_draft_reads_the_agents_files_for_the_message(playground: Opened) -> None:
    async with playground(lambda _: "Twice a week.") as tried:
        agent = await tried.pool.fetchval("SELECT id FROM agents WHERE name = 'default'")
        said = [Passage(heading="Roses", text="Water the roses twice a week."),
                Passage(heading="Cacti", text="A cactus wants little.")]  # fmt: skip
        store = build_stores(tried.pool).knowledge
        await store.upload(agent, "plants.md", sha256=b"1" * 32, passages=said, by="anna", most=10)
        assert (await tried.say("How often do I water my rose?"))[0] == 200
        told = str(tried.model.asked[-1].messages[-1].blocks)
        assert "[plants.md › Roses] Water the roses twice a week." in told
        assert "cactus" not in told
        await tried.say("How often?", config=DRAFT | {"memory": {"recall_tokens": 0}})
        assert "plants.md" not in str(tried.model.asked[-1].messages)


async def test_playground_reports_a_tool_with_effects_without_running_it(playground: Opened) -> None:
    calls = (ToolUse(id="1", name="remind_me", input={"at": "9"}),
             ToolUse(id="2", name="calculate", input={"expression": "6*7"}))  # fmt: skip

    def say(request: ModelRequest) -> Any:
        results = [block for block in request.messages[-1].blocks if isinstance(block, ToolResult)]
        if not results:
            return replied("", blocks=calls, stop_reason="tool_use")
        return " | ".join(one.text for one in results)

    async with playground(say) as tried:
        status, told = await tried.say("Remind me at nine, and what is 6*7?")
        assert status == 200
        rehearsed, counted = told["text"].split(" | ")
        assert "was not carried out" in rehearsed
        assert "42" in counted
        assert [one["name"] for one in told["tools"]] == ["remind_me", "calculate"]
        assert len(await spent(tried)) == 2


async def test_a_model_that_calls_tools_for_ever_is_asked_four_times(playground: Opened) -> None:
    call = ToolUse(id="1", name="remind_me", input={})
    async with playground(lambda _: replied("", blocks=(call,), stop_reason="tool_use")) as tried:
        status, told = await tried.say("Go on.")
        assert (status, told["text"], len(tried.model.asked)) == (200, "", 4)


async def test_playground_makes_no_call_at_the_cap(playground: Opened) -> None:
    async with playground(lambda _: "Never.", total=10) as tried:
        status, told = await tried.say("Hello")
        assert (status, told["code"]) == (409, "cap_reached")
        assert "spending limit" in told["message"]
        assert tried.model.asked == []
        assert await spent(tried) == []


async def test_failed_playground_call_is_reported_and_reserves_no_money(playground: Opened) -> None:
    async with playground(lambda _: ModelUnavailable("the line is dead"), total=10_000_000) as tried:
        status, told = await tried.say("Hello")
        assert (status, told["message"]) == (409, "The model did not answer.")
        assert "the line is dead" in told["details"]["reason"]
        assert await tried.pool.fetchval("SELECT reserved_micro FROM spend_days") == 0


async def test_only_admins_talk_with_a_draft_that_can_be_used(playground: Opened) -> None:
    async with playground(lambda _: "Hi.") as tried:
        said = [{"role": "user", "text": "Hello"}]
        for role in ("viewer", "operator"):
            assert (await tried.ask({"config": {}, "messages": said}, role=role))[0] == 403
        assert (await tried.ask({"config": {}, "messages": said}, agent="nobody"))[0] == 404
        assert (await tried.ask({"config": {}, "messages": []}))[0] == 400
        assert (await tried.ask({"config": {}, "messages": [{"role": "system", "text": "x"}]}))[0] == 400
        assert (await tried.say("Hello", "Hi!"))[0] == 422
        status, told = await tried.say("Hello", config={"presett": "steady"})
        assert (status, told["code"]) == (422, "bad_agent_config")
        assert tried.model.asked == []
