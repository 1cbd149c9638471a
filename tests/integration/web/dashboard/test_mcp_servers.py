"""Servers of tools on the dashboard: added by an address, tested by a real connection, no secret told."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from shared.adapters.mcp.tools import list_servers
from shared.adapters.postgres.operations.mcp_tool_lists import PostgresMcpToolLists
from shared.bootstrap.stored_settings import build_stored_settings
from shared.config.settings import BadSettings, load_settings
from shared.config.stored import load_with_stored
from shared.core.tools.mcp_approval import McpToolList
from tests.kit.dashboard.fixtures import SAME_ORIGIN
from tests.kit.dashboard.serve import served
from tests.kit.fakes.mcp_process import running_mcp
from tests.kit.web.callers import make_operator

SECRET = "Bearer canary-of-a-key"
FILES = {"url": "https://tools.example/mcp", "headers": {"Authorization": SECRET}}


class McpServersApi:
    def __init__(self, url: str, http: aiohttp.ClientSession, pool: Any, folder: Path) -> None:
        self._url, self._http, self.pool, self.folder = url, http, pool, folder
        self._known: dict[str, Any] = {}

    async def ask(
        self, method: str, path: str = "", *, role: str = "admin", match: int | None = None, body: Any = None
    ) -> tuple[int, Any]:
        if role not in self._known:
            self._known[role] = await make_operator(self.pool, role)
        headers = {**SAME_ORIGIN, **self._known[role]}
        headers |= {} if match is None else {"If-Match": f'"{match}"'}
        url = f"{self._url}/api/v1{'/mcp-test' if path == '/test' else f'/mcp-servers{path}'}"
        async with self._http.request(method, url, headers=headers, json=body) as response:
            text = await response.text()
            assert "canary" not in text
            return response.status, json.loads(text)

    async def stored(self) -> dict[str, str]:
        settings = load_settings(data_dir=self.folder, secret_key="k" * 40)
        return (await build_stored_settings(self.pool, settings).load()).values


@pytest.fixture
async def mcp_api(pool: Any, tmp_path: Path) -> AsyncIterator[McpServersApi]:
    settings = load_settings(data_dir=tmp_path, secret_key="k" * 40)
    async with (
        served(web.Application(), pool=pool, settings=settings, commands=None) as url,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as http,
    ):
        yield McpServersApi(url, http, pool, tmp_path)


async def test_a_server_is_added_changed_and_removed_and_its_key_stays_sealed(mcp_api: McpServersApi) -> None:
    status, told = await mcp_api.ask("PUT", "/files", match=0, body=FILES)
    assert status == 200
    (shown,) = told["servers"]
    assert (shown["name"], shown["where"], shown["headers"]) == ("files", FILES["url"], ["Authorization"])
    assert (shown["from"], shown["running"]) == ("stored", False)
    held = load_with_stored(await mcp_api.stored(), data_dir=mcp_api.folder)
    (server,), problems = list_servers(held)
    assert (server.url, server.headers, problems) == (FILES["url"], FILES["headers"], ())
    assert SECRET not in str(await mcp_api.pool.fetch("SELECT * FROM stored_settings"))

    assert (await mcp_api.ask("PUT", "/files", match=0, body=FILES))[0] == 409
    assert (await mcp_api.ask("PUT", "/files", body=FILES))[0] == 428
    elsewhere = {"url": "https://elsewhere.example/mcp"}
    assert (await mcp_api.ask("PUT", "/files", match=1, body=elsewhere))[1]["code"] == "headers_needed"
    tested = await mcp_api.ask("POST", "/test", body={"server": "files", **elsewhere})
    assert tested[1]["code"] == "headers_needed"
    status, told = await mcp_api.ask("PUT", "/files", match=1, body={"url": "https://tools.example/v2"})
    assert (status, told["servers"][0]["headers"]) == (200, ["Authorization"])
    assert (await mcp_api.ask("DELETE", "/nobody", match=2))[0] == 404
    status, told = await mcp_api.ask("DELETE", "/files", match=2)
    assert (status, told["servers"], await mcp_api.stored()) == (200, [], {})


async def test_servers_that_cannot_be_decrypted_are_not_overwritten(mcp_api: McpServersApi) -> None:
    store = build_stored_settings(mcp_api.pool, load_settings(data_dir=mcp_api.folder, secret_key="l" * 40))
    assert await store.change({"ANTHROPIC_API_KEY": SECRET}, seen=0, by="anna") == 1
    assert (await mcp_api.ask("PUT", "/files", match=1, body=FILES))[0] == 200
    servers = json.dumps({"mcpServers": {"mail": FILES}})
    assert await store.change({"EVERTALK_MCP_SERVERS": servers}, seen=2, by="anna") == 3
    for method, path, body in (("GET", "", None), ("PUT", "/files", FILES), ("DELETE", "/mail", None)):
        status, told = await mcp_api.ask(method, path, match=3, body=body)
        assert (status, told["code"]) == (503, "cannot_unseal")
    assert (await store.load()).values == {"ANTHROPIC_API_KEY": SECRET, "EVERTALK_MCP_SERVERS": servers}


async def test_an_address_as_it_is_shown_stands_for_the_whole_one(mcp_api: McpServersApi) -> None:
    whole = {**FILES, "url": "https://me:canary@tools.example/mcp?key=canary"}
    status, told = await mcp_api.ask("PUT", "/files", match=0, body=whole)
    assert (status, told["servers"][0]["where"]) == (200, "https://tools.example/mcp")
    status, _ = await mcp_api.ask("PUT", "/files", match=1, body={"url": "https://tools.example/mcp"})
    (server,), _ = list_servers(load_with_stored(await mcp_api.stored(), data_dir=mcp_api.folder))
    assert (status, server.url, server.headers) == (200, whole["url"], FILES["headers"])


@pytest.mark.parametrize(
    ("name", "url"), [("bad name", "https://x.example"), ("x", "ftp://x.example"), ("x", "http://${HOME}")]
)
async def test_what_is_no_server_is_refused_with_a_reason(
    mcp_api: McpServersApi, name: str, url: str
) -> None:
    status, told = await mcp_api.ask("PUT", f"/{name}", match=0, body={"url": url})
    assert (status, told["details"]["problems"][0]["name"]) == (422, "EVERTALK_MCP_SERVERS")
    assert (await mcp_api.ask("POST", "/test", body={"server": name, "url": url}))[0] == 422
    assert await mcp_api.stored() == {}


def test_no_program_is_started_by_what_is_stored() -> None:
    text = json.dumps({"mcpServers": {"shell": {"command": "/bin/sh"}}})
    with pytest.raises(BadSettings, match="a program is named in a file only"):
        load_settings(mcp_servers=text)


async def test_a_test_connects_and_lists_the_tools(mcp_api: McpServersApi) -> None:
    async with running_mcp() as url:
        status, told = await mcp_api.ask("POST", "/test", body={"server": "ours", "url": url})
        assert (status, told["ok"]) == (200, True)
        assert "mcp_ours_add" in told["tools"]
        assert await mcp_api.stored() == {}
    status, told = await mcp_api.ask(
        "POST", "/test", body={"server": "gone", "url": "http://127.0.0.1:1/mcp"}
    )
    assert (status, told["ok"], told["tools"]) == (200, False, [])
    assert told["problem"]


async def test_the_servers_of_the_file_are_shown_and_win(mcp_api: McpServersApi) -> None:
    servers = {"time": {"command": "mcp-server-time"}, "files": {"url": "https://file.example/mcp"}}
    (mcp_api.folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    await mcp_api.ask("PUT", "/files", match=0, body=FILES)
    _, told = await mcp_api.ask("GET", role="viewer")
    assert [(one["name"], one["from"]) for one in told["servers"]] == [
        ("files", "file"), ("time", "file"), ("files", "stored"),
    ]  # fmt: skip
    found, problems = list_servers(load_with_stored(await mcp_api.stored(), data_dir=mcp_api.folder))
    assert {server.name: server.url for server in found} == {"files": "https://file.example/mcp", "time": ""}
    assert problems == ("files: the file has one of this name",)


@pytest.mark.control("S56")
async def test_admin_approves_changed_tools_by_what_was_shown(mcp_api: McpServersApi) -> None:
    store = PostgresMcpToolLists(mcp_api.pool)
    await mcp_api.ask("PUT", "/files", match=0, body=FILES)
    for found in ("1", "2"):
        hashes = {"tell": found}
        listed = McpToolList(server="files", source="a" * 64, hashes=hashes, can_write=True)
        await store.review(listed, rule="writing")
    _, told = await mcp_api.ask("GET", role="viewer")
    (shown,) = told["servers"]
    assert (shown["waiting"], shown["changed"]) == (["tell"], ["tell"])
    given = {"mark": shown["mark"]}
    assert (await mcp_api.ask("POST", "/files/approval", role="operator", body=given))[0] == 403
    assert (await mcp_api.ask("POST", "/files/approval", body={"mark": "other"}))[1][
        "code"
    ] == "tools_changed"
    status, told = await mcp_api.ask("POST", "/files/approval", body=given)
    assert (status, told["servers"][0]["waiting"]) == (200, [])


async def test_only_admins_change_servers(mcp_api: McpServersApi) -> None:
    for role in ("viewer", "operator"):
        assert (await mcp_api.ask("PUT", "/files", role=role, match=0, body=FILES))[0] == 403
        assert (await mcp_api.ask("DELETE", "/files", role=role, match=0))[0] == 403
        assert (await mcp_api.ask("POST", "/test", role=role, body={"server": "x", **FILES}))[0] == 403
