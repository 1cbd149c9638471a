"""Pairing, agents, sites and settings: the checks of the command line, and nobody overwritten."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest
from aiohttp import web

from shared.adapters.encryption import Encryption, Sealed
from shared.adapters.postgres.operations.invariants import check_invariants
from shared.adapters.postgres.people.agents import PostgresAgents
from shared.adapters.postgres.telegram.access import PostgresTelegramAccess
from shared.config.settings import list_setting_names, load_settings, resolve_secret_key
from shared.config.sites import build_secret_context
from tests.integration.web.dashboard.operator_calls import ask
from tests.kit.dashboard.fixtures import Dashboard, RunCommands
from tests.kit.dashboard.people_seed import a_bot, a_site
from tests.kit.dashboard.seed import a_session
from tests.kit.dashboard.serve import served
from tests.kit.web.callers import make_operator

TOKEN = "123456789:" + "A" * 35
KEY = "k" * 40


@pytest.fixture
async def setup(
    database_url: str, pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Dashboard]:
    """With secrets of its own, an agent, a site and a bot."""
    monkeypatch.setenv("EVERTALK_SOFT_BUDGET", "33000")
    settings = load_settings(
        data_dir=tmp_path, telegram_bot_token=TOKEN, secret_key=KEY, public_url="https://bot.example.org"
    )
    async with pool.acquire() as connection:
        await a_bot(connection)
        await a_site(connection)
    commands = RunCommands()
    async with (
        served(web.Application(), pool=pool, settings=settings, commands=commands) as url,
        aiohttp.ClientSession(
            cookie_jar=aiohttp.CookieJar(unsafe=True), timeout=aiohttp.ClientTimeout(total=20)
        ) as http,
    ):
        yield Dashboard(url=url, database_url=database_url, pool=pool, http=http, commands=commands)


async def test_a_request_is_approved_by_its_code_and_decided_once(setup: Dashboard) -> None:
    _, page = await ask(setup, "GET", "/pairing")
    rows = await setup.pool.fetch("SELECT chat_id FROM telegram_access")
    assert {one["chat"] for one in page["requests"]} == {row["chat_id"] for row in rows}
    states = {one["chat"]: (one["state"], one["code"]) for one in page["requests"]}
    assert states[4001] == ("pending", "ABCD2345")
    assert states[4002] == ("lapsed", None)
    move = {"action": "approve", "code": "abcd2345"}
    status, told = await ask(setup, "POST", "/pairing", json=move)
    assert (status, told["request"]["state"]) == (200, "allowed")
    assert (await ask(setup, "POST", "/pairing", json=move))[0] == 409
    assert (await ask(setup, "POST", "/pairing", json={"action": "refuse", "code": "WXYZ6789"}))[0] == 409
    assert await setup.pool.fetchval("SELECT state FROM telegram_access WHERE chat_id = 4002") == "pending"
    audit = await setup.pool.fetchrow("SELECT actor, object FROM audit WHERE action = 'pairing.approve'")
    assert audit is not None
    assert tuple(audit) == ("admin", "telegram:777:4001")


@pytest.mark.parametrize(
    ("action", "place"),
    [
        ("approve", {"code": "ABCD2345"}), ("refuse", {"code": "ABCD2345"}),
        ("block", {"bot": 777, "chat": 4001}), ("allow", {"bot": 777, "chat": 4001}),
    ],
)  # fmt: skip
async def test_pairing_decision_that_cannot_be_recorded_is_not_made(
    setup: Dashboard, action: str, place: dict[str, Any]
) -> None:
    await setup.pool.execute("ALTER TABLE audit ADD CHECK (action NOT LIKE 'pairing.%')")
    with pytest.raises(aiohttp.ContentTypeError):
        await ask(setup, "POST", "/pairing", json={"action": action, **place})
    assert await setup.pool.fetchval("SELECT state FROM telegram_access WHERE chat_id = 4001") == "pending"


async def test_who_may_write_is_blocked_and_allowed_again(setup: Dashboard) -> None:
    place = {"bot": 777, "chat": 4003}
    for action, state in (("block", "refused"), ("allow", "allowed")):
        status, told = await ask(setup, "POST", "/pairing", json={"action": action, **place})
        assert (status, told["request"]["state"], told["request"]["owner"]) == (200, state, False)
    unknown = {"action": "allow", "bot": 777, "chat": 9}
    assert (await ask(setup, "POST", "/pairing", json=unknown))[0] == 404
    assert await setup.pool.fetchval("SELECT count(*) FROM telegram_access WHERE chat_id = 9") == 0


@pytest.mark.parametrize(
    "body",
    [
        {}, {"action": "own"}, {"action": "approve"}, {"action": "approve", "code": "x\x00"},
        {"action": "block", "bot": "777", "chat": 4001}, {"action": "block", "bot": True, "chat": 1},
        {"action": "allow", "bot": 2**70, "chat": 1},
    ],
)  # fmt: skip
async def test_pairing_decision_without_a_chat_is_refused(setup: Dashboard, body: Any) -> None:
    assert (await ask(setup, "POST", "/pairing", json=body))[0] == 400


async def test_owner_link_makes_the_first_person_an_owner(setup: Dashboard) -> None:
    _, page = await ask(setup, "GET", "/pairing")
    (bot,) = page["owned_bots"]
    assert bot["bot"] == 777
    status, made = await ask(setup, "POST", "/pairing/777/owner-link", json={})
    assert (status, made["minutes"]) == (200, 60)
    link, code = made["link"].split("?start=")
    assert link == f"https://t.me/{bot['username']}"
    access = PostgresTelegramAccess(setup.pool)
    assert [await access.become_owner(777, chat, code=code, name="Ada") for chat in (4009, 4010)] == [
        True,
        False,
    ]
    _, page = await ask(setup, "GET", "/pairing")
    assert page["owned_bots"][0]["owners"] == bot["owners"] + 1
    audit = await setup.pool.fetchrow(
        "SELECT actor, object, detail::text FROM audit WHERE action = 'pairing.owner_link'"
    )
    assert audit is not None
    assert tuple(audit)[:2] == ("admin", "telegram:777")
    assert code not in audit["detail"]


async def test_owner_link_needs_an_admin_and_a_known_bot(setup: Dashboard) -> None:
    assert (await ask(setup, "POST", "/pairing/777/owner-link", role="operator", json={}))[0] == 403
    assert (await ask(setup, "POST", "/pairing/778/owner-link", json={}))[0] == 404
    assert (await ask(setup, "POST", "/pairing/0/owner-link", json={}))[0] == 404
    assert await setup.pool.fetchval("SELECT count(*) FROM one_time_codes WHERE bot_id IS NOT NULL") == 0


async def test_codes_are_for_those_who_may_use_them(setup: Dashboard) -> None:
    status, page = await ask(setup, "GET", "/pairing", role="viewer")
    assert status == 200
    assert {one["code"] for one in page["requests"]} == {None}
    move = {"action": "approve", "code": "ABCD2345"}
    assert (await ask(setup, "POST", "/pairing", role="viewer", json=move))[0] == 403


async def test_an_agents_numbers_are_those_that_hold(setup: Dashboard) -> None:
    await setup.pool.execute(
        """UPDATE agents SET config = '{"preset": "steady", "context": {"reserve": 25000}}'
            WHERE name = 'default'"""
    )
    _, found = await ask(setup, "GET", "/agents/default", role="viewer")
    numbers = {one["name"]: one for one in found["effective"]["settings"]}
    assert (numbers["reserve"]["value"], numbers["reserve"]["from"]) == (25_000, "agent")
    assert (numbers["soft_budget"]["value"], numbers["soft_budget"]["from"]) == (33_000, "deployment")
    budget = found["effective"]["budget"]
    assert budget["limit"] == 33_000 + budget["fixed"]


async def test_former_versions_of_an_agent_are_kept_and_compared(setup: Dashboard) -> None:
    await setup.pool.execute("UPDATE agents SET config = $1 WHERE name = 'default'", {"name": "Ada"})
    for version, config in ((1, {"name": "Eve"}), (2, {"name": "Eve", "preset": "steady"})):
        change = {"config": config}
        status, _ = await ask(setup, "PUT", "/agents/default", match=f'"{version}"', json=change)
        assert status == 200
    _, found = await ask(setup, "GET", "/agents/default/versions", role="viewer")
    told = [(one["version"], one["by"]) for one in found["versions"]]
    assert told == [(3, "admin"), (2, "admin"), (1, None)]
    _, first = await ask(setup, "GET", "/agents/default/versions/1", role="viewer")
    assert first["config"] == {"name": "Ada"}
    assert {(line["change"], line["text"].strip(" ,")) for line in first["lines"]} >= {
        ("removed", '"name": "Ada"'), ("added", '"name": "Eve"'), ("added", '"preset": "steady"'),
    }  # fmt: skip
    assert (await ask(setup, "GET", "/agents/default/versions/4"))[0] == 404
    assert (await ask(setup, "GET", "/agents/nobody/versions"))[0] == 404
    back = {"config": first["config"]}
    assert (await ask(setup, "PUT", "/agents/default", match='"2"', json=back))[0] == 409
    status, saved = await ask(setup, "PUT", "/agents/default", match='"3"', json=back)
    assert (status, saved["version"], saved["config"]) == (200, 4, {"name": "Ada"})


async def test_of_an_agents_versions_the_newest_hundred_are_kept(setup: Dashboard) -> None:
    store = PostgresAgents(setup.pool)
    for seen in range(1, 103):
        assert (
            await store.change("default", {"caps": {"session_usd": seen}}, seen=seen, by="test") == seen + 1
        )
    row = await store.find("default")
    assert row is not None
    kept = [version for version, _, _ in await store.list_versions(row.id)]
    assert kept == list(range(103, 3, -1))
    connection = await asyncpg.connect(setup.database_url)
    assert await check_invariants(connection) == []
    await connection.close()
    await store.create("gone", {}, by="test")
    assert await store.delete("gone", by="test")


async def test_an_agent_is_given_a_site_with_its_conversations(setup: Dashboard) -> None:
    await PostgresAgents(setup.pool).create("ada", {}, by="test")
    async with setup.pool.acquire() as connection:
        await a_session(connection, channel="web")
    await setup.pool.execute("UPDATE addresses SET account = 'shop'")
    _, before = await ask(setup, "GET", "/agents/ada", role="viewer")
    assert "shop" in before["other_sites"]
    give = {"site": "shop", "existing": True}
    assert (await ask(setup, "POST", "/agents/ada/sites", role="operator", json=give))[0] == 403
    assert (await ask(setup, "POST", "/agents/ada/sites", json={"site": "nowhere"}))[0] == 404
    assert await ask(setup, "POST", "/agents/ada/sites", json=give) == (200, {"site": "shop", "moved": 1})
    _, after = await ask(setup, "GET", "/agents/ada", role="viewer")
    assert (after["sites"], "shop" in after["other_sites"], after["sessions"]) == (["shop"], False, 1)
    by = await setup.pool.fetch("SELECT actor FROM audit WHERE action IN ('site.changed', 'agent.took_over')")
    assert [row["actor"] for row in by] == ["admin", "admin"]


async def test_agent_form_shows_inherited_values_and_the_whole_prompt(setup: Dashboard) -> None:
    config = {"name": "Ada", "preset": "steady", "context": {"keep_turns": 9}, "tools": {"deny": ["recall"]}}
    await setup.pool.execute("UPDATE agents SET config = $1 WHERE name = 'default'", config)
    _, found = await ask(setup, "GET", "/agents/default", role="viewer")
    keep = next(one for one in found["effective"]["settings"] if one["name"] == "keep_turns")
    assert (keep["value"], keep["from"]) == (9, "agent")
    assert keep["inherited"] != 9
    assert "You are Ada" in found["effective"]["prompt"]
    assert 0 < found["effective"]["prompt_tokens"] < found["effective"]["budget"]["fixed"]
    assert "recall" not in found["effective"]["tools"]
    assert "recall" in {tool["name"] for tool in found["tools"]}
    assert "claude-sonnet-5-5" in found["models"]
    assert "save_memory" in found["effective"]["tools"]
    _, page = await ask(setup, "GET", "/agents")
    listed = next(one for one in page["agents"] if one["name"] == "default")
    assert (listed["overrides"], listed["sites"], listed["bots"]) == (1, ["default", "shop"], ["@ever_bot"])


async def test_an_agent_is_refused_as_at_the_command_line_and_never_overwritten(setup: Dashboard) -> None:
    path = "/agents/default"
    _, found = await ask(setup, "GET", path)
    seen = f'"{found["version"]}"'
    wrong = {"presett": "steady", "caps": {"session_usd": -1}}
    _, judged = await ask(setup, "POST", f"{path}/check", json={"config": wrong})
    assert len(judged["problems"]) == 2
    assert "did you mean preset" in "\n".join(judged["problems"])
    status, told = await ask(setup, "PUT", path, match=seen, json={"config": wrong})
    assert (status, told["details"]["problems"]) == (422, judged["problems"])
    assert (await ask(setup, "PUT", path, json={"config": {}}))[0] == 428
    assert (await ask(setup, "PUT", path, match="x", json={"config": {}}))[0] == 400
    status, saved = await ask(setup, "PUT", path, match=seen, json={"config": {"name": "Ada"}})
    assert (status, saved["version"], saved["config"]) == (200, found["version"] + 1, {"name": "Ada"})
    status, told = await ask(setup, "PUT", path, match=seen, json={"config": {"name": "Bob"}})
    assert (status, told["code"]) == (409, "stale")
    assert told["details"]["yours"] == {"name": "Bob"}
    assert told["details"]["theirs"]["config"] == {"name": "Ada"}
    row = await PostgresAgents(setup.pool).find("default")
    assert row is not None
    assert row.config == {"name": "Ada"}
    for role in ("viewer", "operator"):
        assert (await ask(setup, "PUT", path, role=role, match=seen, json={"config": {}}))[0] == 403
    audited = await setup.pool.fetch("SELECT actor, detail FROM audit WHERE action = 'agent.changed'")
    assert [(row["actor"], row["detail"]["version"]) for row in audited] == [("admin", saved["version"])]


@pytest.mark.parametrize(("things", "page"), [("agents", "/agents/{}"), ("sites", "/sites/{}/settings")])
async def test_an_agent_and_a_site_are_made_once_by_admins(setup: Dashboard, things: str, page: str) -> None:
    count = f"SELECT count(*) FROM {things}"
    before = await setup.pool.fetchval(count)
    bad = ("", "Ada", "-a", "a b", "a" * 41, "ü", 7, None)
    for body in (*({"name": name} for name in bad), {}, {"name": "ada", "config": {}}, []):
        status, told = await ask(setup, "POST", f"/{things}", json=body)
        assert (status, told["code"]) == (400, "bad_input"), body
    for role in ("viewer", "operator"):
        assert (await ask(setup, "POST", f"/{things}", role=role, json={"name": "ada"}))[0] == 403
    assert await setup.pool.fetchval(count) == before
    assert await ask(setup, "POST", f"/{things}", json={"name": "ada"}) == (201, {"name": "ada"})
    status, found = await ask(setup, "GET", page.format("ada"))
    assert (status, found["name"], found["version"]) == (200, "ada", 1)
    status, told = await ask(setup, "POST", f"/{things}", json={"name": "ada"})
    assert (status, told["code"]) == (409, "name_taken")
    made = await setup.pool.fetch("SELECT actor FROM audit WHERE action LIKE '%.made'")
    assert [row["actor"] for row in made] == ["admin"]


async def test_a_site_is_checked_whole_and_never_overwritten(setup: Dashboard) -> None:
    path = "/sites/shop"
    _, found = await ask(setup, "GET", f"{path}/settings", role="viewer")
    seen, settings = f'"{found["version"]}"', found["settings"]
    assert settings["origins"] == ["https://shop.example.org"]
    assert found["snippet"] == (
        '<script src="https://bot.example.org/widget.js" data-site="shop" async></script>'
    )
    wrong = {**settings, "accent": "red", "origins": ["not an origin"], "agent": "default"}
    _, judged = await ask(setup, "POST", f"{path}/check", json={"settings": wrong})
    assert len(judged["problems"]) == 2
    assert (await ask(setup, "PUT", f"{path}/settings", match=seen, json={"settings": wrong}))[0] == 422
    nobody = {**settings, "agent": "nobody"}
    _, judged = await ask(setup, "POST", f"{path}/check", json={"settings": nobody})
    assert judged["problems"] == ["agent: there is no such agent"]
    new = {**settings, "welcome": "Hallo", "uploads": True, "texts": {"de": {"title": "Der Laden"}}}
    _, judged = await ask(setup, "POST", f"{path}/check", json={"settings": new, "language": "de-AT"})
    assert (judged["look"]["title"], judged["look"]["welcome"]) == ("Der Laden", "Hallo")
    status, saved = await ask(setup, "PUT", f"{path}/settings", match=seen, json={"settings": new})
    assert (status, saved["settings"]) == (200, new)
    status, told = await ask(setup, "PUT", f"{path}/settings", match=seen, json={"settings": settings})
    assert (status, told["details"]["theirs"]["settings"]) == (409, new)
    row = await setup.pool.fetchrow("SELECT config, allowed_origins FROM sites WHERE name = 'shop'")
    assert row is not None
    assert (row["config"]["uploads"], row["allowed_origins"]) == (True, ["https://shop.example.org"])
    assert (await ask(setup, "PUT", f"{path}/settings", role="operator", json={"settings": new}))[0] == 403


@pytest.mark.control("S37")
async def test_a_secret_is_shown_once_and_two_may_hold_at_once(setup: Dashboard, tmp_path: Path) -> None:
    path = "/sites/shop/secrets"
    status, made = await ask(setup, "POST", path)
    assert status == 200
    row = await setup.pool.fetchrow(
        "SELECT key_id, sealed FROM site_secrets WHERE secret_id = $1", made["id"]
    )
    assert row is not None
    encryption = Encryption(resolve_secret_key(load_settings(data_dir=tmp_path, secret_key=KEY)))
    sealed = Sealed(key_id=row["key_id"], data=row["sealed"])
    assert encryption.open(sealed, about=build_secret_context("shop", made["id"])).decode() == made["secret"]
    assert (await ask(setup, "POST", path))[0] == 200
    assert (await ask(setup, "POST", path))[0] == 409
    _, found = await ask(setup, "GET", "/sites/shop/settings")
    assert made["id"] in {one["id"] for one in found["secrets"]}
    assert made["secret"] not in str(found)
    assert (await ask(setup, "DELETE", f"{path}/{made['id']}", role="operator"))[0] == 403
    assert (await ask(setup, "DELETE", f"{path}/{made['id']}"))[0] == 200
    assert (await ask(setup, "DELETE", f"{path}/{made['id']}"))[0] == 404
    assert made["secret"] not in str(await setup.pool.fetch("SELECT * FROM audit"))


@pytest.mark.control("S37")
async def test_a_secret_is_refused_with_another_key_than_stored_ones(setup: Dashboard) -> None:
    await setup.pool.execute(
        """INSERT INTO site_secrets (site, slot, secret_id, key_id, sealed)
           VALUES ('shop', 1, 'aa', 'another-key1', '\\x01')"""
    )
    status, told = await ask(setup, "POST", "/sites/shop/secrets")
    assert (status, told["code"]) == (409, "other_secret_key")
    assert "another-key1" in told["message"]
    assert await setup.pool.fetchval("SELECT count(*) FROM site_secrets WHERE site = 'shop'") == 1


@pytest.mark.control("S37")
async def test_every_setting_has_its_source_and_secrets_stay_hidden(setup: Dashboard) -> None:
    status, told = await ask(setup, "GET", "/settings", role="operator")
    assert status == 200
    rows = {one["name"]: one for one in told["settings"]}
    assert set(rows) == set(list_setting_names().values())
    assert (rows["EVERTALK_SOFT_BUDGET"]["value"], rows["EVERTALK_SOFT_BUDGET"]["from"]) == (
        "33000", "environment",
    )  # fmt: skip
    assert rows["EVERTALK_HTTP_PORT"]["from"] == "default"
    assert rows["EVERTALK_HTTP_PORT"]["meaning"].startswith("port to listen on")
    assert (rows["TELEGRAM_BOT_TOKEN"]["value"], rows["TELEGRAM_BOT_TOKEN"]["from"]) == ("set", "start")
    assert rows["EVERTALK_METRICS_TOKEN"]["value"] == "not set"
    assert all(one["meaning"] for one in rows.values())
    assert TOKEN not in str(told)
    assert KEY not in str(told)
    assert (await ask(setup, "GET", "/settings", role="viewer"))[0] == 403


async def test_the_preview_may_stand_in_our_own_frames_only(setup: Dashboard) -> None:
    cookie = (await make_operator(setup.pool, "viewer"))["Cookie"]
    async with setup.http.get(f"{setup.url}/dashboard/preview", headers={"Cookie": cookie}) as response:
        policy = response.headers["Content-Security-Policy"]
    assert "frame-ancestors 'self'" in policy
    assert f"connect-src {setup.url}/static/locales/" in policy
    assert policy.count("connect-src") == 1
    assert "unsafe" not in policy
