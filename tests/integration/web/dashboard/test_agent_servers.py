"""Which MCP servers an agent uses: chosen in its config, counted in its numbers, not removed unseen."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.bootstrap.stored_settings import open_stored_settings
from shared.config.settings import load_settings
from shared.diagnostics.row_checks import check_agents
from tests.integration.web.dashboard.agent_api import AgentApi, opened
from tests.kit.app_driver import running_app
from tests.kit.fakes.mcp_process import mcp_servers

FILES = {"url": "https://tools.example/mcp"}
WEB = ("mcp_web_add", "mcp_web_draw")


@pytest.fixture
async def agent_api(database_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[AgentApi]:
    """With the servers `web` and `more` in the file."""
    settings = load_settings(
        database_url=database_url, redis_url=redis_url, data_dir=tmp_path, secret_key="k" * 40
    )
    async with (
        mcp_servers(tmp_path, "web", "more"),
        running_app(settings) as app,
        opened(app) as api,
    ):
        yield api


async def test_only_the_tools_of_chosen_servers_are_counted(agent_api: AgentApi) -> None:
    _, agent = await agent_api.ask("GET", "/agents/default")
    assert agent["servers"] == ["more", "web"]
    by_server = {tool["name"]: tool["server"] for tool in agent["tools"]}
    assert (by_server["mcp_web_add"], by_server["mcp_more_add"], by_server["calculate"]) == (
        "web",
        "more",
        "",
    )

    both = (await agent_api.judged(search_above=100))["effective"]
    assert {*WEB, "mcp_more_add", "calculate"} <= set(both["tools"])
    one = (await agent_api.judged(search_above=100, servers=["web"]))["effective"]
    assert set(WEB) <= set(one["tools"])
    assert not [name for name in one["tools"] if name.startswith("mcp_more")]
    none = (await agent_api.judged(servers=[]))["effective"]
    assert not [name for name in none["tools"] if name.startswith("mcp_")]
    assert both["budget"]["fixed"] > one["budget"]["fixed"] > none["budget"]["fixed"]
    named = (await agent_api.judged())["effective"]
    assert {"mcp_find_tools", "mcp_use_tool"} <= set(named["tools"]), "22 tools are searched"
    assert "mcp_find_tools" not in (await agent_api.judged(servers=["web"]))["effective"]["tools"]


async def test_an_unknown_server_is_refused_with_advice_and_nothing_changes(agent_api: AgentApi) -> None:
    found = await agent_api.judged(servers=["web", "mroe"])
    assert found["problems"] == ['tools.servers[1]: there is no server "mroe"; did you mean more?']
    config = {"tools": {"servers": ["gone"]}}
    status, told = await agent_api.ask("PUT", "/agents/default", match=1, config=config)
    assert (status, told["code"]) == (422, "bad_agent_config")
    assert "add it under MCP servers" in told["details"]["problems"][0]
    assert await agent_api.app.pool.fetchval("SELECT config FROM agents WHERE name = 'default'") == {}


async def test_a_server_that_agents_name_is_not_removed_unseen(agent_api: AgentApi) -> None:
    assert (await agent_api.ask("PUT", "/mcp-servers/files", match=0, **FILES))[0] == 200
    status, saved = await agent_api.ask(
        "PUT", "/agents/default", match=1, config={"tools": {"servers": ["files", "web"]}}
    )
    assert (status, saved["config"]["tools"]["servers"]) == (200, ["files", "web"])
    status, told = await agent_api.ask("DELETE", "/mcp-servers/files", match=1)
    assert (status, told["code"], told["details"]["agents"]) == (409, "server_in_use", ["default"])
    assert [one["name"] for one in (await agent_api.ask("GET", "/mcp-servers"))[1]["servers"]] == [
        "more", "web", "files",
    ]  # fmt: skip

    status, _ = await agent_api.ask("PUT", "/agents/default", match=2, config={"tools": {"servers": ["web"]}})
    _, version = await agent_api.ask("GET", "/agents/default/versions/2")
    removed = [line["text"].strip() for line in version["lines"] if line["change"] == "removed"]
    assert (status, removed) == (200, ['"files",'])
    assert (await agent_api.ask("DELETE", "/mcp-servers/files", match=1))[0] == 200
    status, told = await agent_api.ask("PUT", "/agents/default", match=3, config=version["config"])
    assert status == 422, "a version that names what is gone is not put in force"


async def test_the_doctor_tells_of_agents_that_name_what_is_gone(agent_api: AgentApi) -> None:
    settings, url = agent_api.app.settings, agent_api.app.settings.database_url
    assert url is not None
    assert (await agent_api.ask("PUT", "/mcp-servers/files", match=0, **FILES))[0] == 200
    config = {"tools": {"servers": ["files", "web", "more"]}}
    assert (await agent_api.ask("PUT", "/agents/default", match=1, config=config))[0] == 200
    said = "\n".join(map(str, await check_agents(settings, url.get_secret_value())))
    assert "there is no server" not in said
    path = settings.data_dir / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"web": FILES}}))
    async with open_stored_settings(url.get_secret_value(), settings) as stored:
        await stored.change({"EVERTALK_MCP_SERVERS": None}, seen=1, by="anna")
    said = "\n".join(map(str, await check_agents(settings, url.get_secret_value())))
    for name in ("files", "more"):
        assert f'there is no server "{name}"' in said
    assert '"web"' not in said
