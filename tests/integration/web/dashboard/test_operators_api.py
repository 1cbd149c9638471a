"""Admins let operators in and out over the API; everybody ends their own logins, and nobody else's."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import aiohttp
import pytest
from aiohttp import web

from shared.adapters.postgres.people.operator_admin import OperatorAdmin
from shared.adapters.postgres.people.operator_auth import Operators
from shared.config.settings import load_settings
from tests.kit.dashboard.fixtures import SAME_ORIGIN, Dashboard, RunCommands
from tests.kit.dashboard.serve import served


async def ask(at: Dashboard, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    async with at.http.request(
        method, f"{at.url}/api/v1{path}", json=body, headers={**SAME_ORIGIN, **headers}
    ) as answer:
        return answer.status, await answer.json()


async def other_browser(at: Dashboard, link: str) -> Dashboard:
    """Somebody who came by a link, in a browser of their own; the caller closes it."""
    http = aiohttp.ClientSession(
        cookie_jar=aiohttp.CookieJar(unsafe=True), timeout=aiohttp.ClientTimeout(total=20)
    )
    other = Dashboard(url=at.url, database_url=at.database_url, pool=at.pool, http=http, commands=at.commands)
    token = parse_qs(urlsplit(link).query)["token"][0]
    form, headers = {"token": token}, {**SAME_ORIGIN, "User-Agent": "Firefox/140.0 (Windows NT)"}
    assert await other.status("POST", "/dashboard/login", data=form, headers=headers) == 303
    return other


async def test_who_is_invited_comes_in_and_is_listed(dashboard: Dashboard) -> None:
    status, invited = await ask(dashboard, "POST", "/operators", {"name": "Grace", "role": "viewer"})
    assert status == 201
    assert invited["link"].startswith(f"{dashboard.url}/dashboard/login?token=")
    grace = await other_browser(dashboard, invited["link"])
    assert (await grace.get("/me"))["role"] == "viewer"
    _, page = await ask(dashboard, "GET", "/operators")
    assert invited["link"].partition("token=")[2] not in str(page)
    admin, listed = page["operators"]
    assert (admin["name"], listed["name"], listed["locked"]) == ("admin", "Grace", False)
    count = (
        "SELECT count(*) FROM operator_sessions s JOIN operators o ON o.id = s.operator_id WHERE name = $1"
    )
    for one in (admin, listed):
        assert len(one["logins"]) == await dashboard.pool.fetchval(count, one["name"])
    assert listed["logins"][0]["browser"] == "Firefox on Windows"
    assert listed["logins"][0]["source"] == "127.0.0.1"
    await grace.http.close()


async def test_refused_invitation_names_the_reason(dashboard: Dashboard) -> None:
    await ask(dashboard, "POST", "/operators", {"name": "Grace", "role": "viewer"})
    for body, status, code in (
        ({"name": "grace", "role": "viewer"}, 409, "operator_exists"),
        ({"name": "<b>", "role": "viewer"}, 400, "bad_operator"),
        ({"name": "Eve", "role": "root"}, 400, "bad_operator"),
        ({"name": 7, "role": "viewer"}, 400, "bad_input"),
        ([], 400, "bad_input"),
        ({"name": "x" * 9_000, "role": "viewer"}, 413, "too_large"),
    ):
        answered, told = await ask(dashboard, "POST", "/operators", body)
        assert (answered, told["code"]) == (status, code)
    assert await dashboard.pool.fetchval("SELECT count(*) FROM operators") == 2


async def test_a_stale_change_is_refused_with_both_versions(dashboard: Dashboard) -> None:
    _, invited = await ask(dashboard, "POST", "/operators", {"name": "Grace", "role": "viewer"})
    path = f"/operators/{invited['id']}"
    assert (await ask(dashboard, "PATCH", path, {"version": 1, "role": "operator"}))[0] == 200
    status, told = await ask(dashboard, "PATCH", path, {"version": 1, "locked": True})
    assert (status, told["code"]) == (409, "stale")
    assert told["details"]["current"]["role"] == "operator"
    assert told["details"]["yours"] == {"version": 1, "locked": True}
    assert await dashboard.pool.fetchval("SELECT disabled_at FROM operators WHERE name = 'Grace'") is None


async def test_the_last_admin_cannot_lock_themselves_out(dashboard: Dashboard) -> None:
    _, page = await ask(dashboard, "GET", "/operators")
    path = f"/operators/{page['operators'][0]['id']}"
    refused: tuple[dict[str, object], ...] = (
        {"version": 1, "role": "viewer"}, {"version": 1, "locked": True},
    )  # fmt: skip
    for body in refused:
        status, told = await ask(dashboard, "PATCH", path, body)
        assert (status, told["code"]) == (409, "last_admin")
    for wrong in ({"role": "viewer"}, {"version": "1"}, {"version": 1, "locked": "yes"}, {"version": True}):
        assert (await ask(dashboard, "PATCH", path, wrong))[0] == 400


@pytest.mark.control("S11")
async def test_a_locked_operator_and_an_ended_login_are_out_at_once(dashboard: Dashboard) -> None:
    _, invited = await ask(dashboard, "POST", "/operators", {"name": "Grace", "role": "operator"})
    path = f"/operators/{invited['id']}"
    grace = await other_browser(dashboard, invited["link"])
    (login,) = (await grace.get("/me/logins"))["logins"]
    assert login["this"] is True
    assert (await ask(dashboard, "DELETE", f"{path}/logins/{login['id']}"))[0] == 200
    assert await grace.status("GET", "/api/v1/me") == 401
    _, again = await ask(dashboard, "POST", f"{path}/link")
    await grace.http.close()
    grace = await other_browser(dashboard, again["link"])
    assert (await ask(dashboard, "PATCH", path, {"version": 1, "locked": True}))[0] == 200
    assert await grace.status("GET", "/api/v1/me") == 401
    assert (await ask(dashboard, "POST", f"{path}/link"))[1]["code"] == "operator_locked"
    await grace.http.close()


async def test_everybody_ends_their_own_logins_and_no_other(dashboard: Dashboard) -> None:
    _, invited = await ask(dashboard, "POST", "/operators", {"name": "Grace", "role": "viewer"})
    grace = await other_browser(dashboard, invited["link"])
    (foreign,) = (await dashboard.get("/me/logins"))["logins"]
    assert (await ask(grace, "DELETE", f"/me/logins/{foreign['id']}"))[0] == 404
    (own,) = (await grace.get("/me/logins"))["logins"]
    assert (await ask(grace, "DELETE", f"/me/logins/{own['id']}"))[0] == 404
    _, again = await ask(dashboard, "POST", f"/operators/{invited['id']}/link")
    second = await other_browser(dashboard, again["link"])
    assert (await ask(grace, "DELETE", "/me/logins"))[1] == {"ended": 1}
    assert await second.status("GET", "/api/v1/me") == 401
    assert (await grace.get("/me"))["name"] == "Grace"
    await grace.http.close()
    await second.http.close()


async def test_a_picture_is_shown_to_all_until_another_takes_its_place(dashboard: Dashboard) -> None:
    first, second = (b"\x89PNG\r\n\x1a\n" + bytes(60), b"\xff\xd8\xff" + bytes(40_957))
    keys = []
    for content in (first, second):
        body = {"picture": base64.b64encode(content).decode()}
        status, told = await ask(dashboard, "PUT", "/me/picture", body)
        assert status == 200
        keys.append(told["picture"])
        assert (await dashboard.get("/me"))["picture"] == told["picture"]
    async with aiohttp.ClientSession() as nobody:
        async with nobody.get(f"{dashboard.url}/pictures/{keys[0]}") as gone:
            assert gone.status == 404
        async with nobody.get(f"{dashboard.url}/pictures/{keys[1]}") as shown:
            assert (shown.status, await shown.read()) == (200, second)
            assert shown.headers["X-Content-Type-Options"] == "nosniff"
            assert shown.headers["Content-Type"] == "image/jpeg"
            assert "immutable" in shown.headers["Cache-Control"]
    for wrong in (b"", b"GIF", b"<svg/>", first + bytes(40_960)):
        body = {"picture": base64.b64encode(wrong).decode()}
        status, told = await ask(dashboard, "PUT", "/me/picture", body)
        assert (status, told["code"]) == (400, "bad_operator")
    assert (await ask(dashboard, "PUT", "/me/picture", {"picture": "no base64 ÿ"}))[0] == 400
    assert (await dashboard.get("/me"))["picture"] == keys[1]
    assert (await ask(dashboard, "DELETE", "/me/picture"))[0] == 200
    assert (await dashboard.get("/me"))["picture"] == ""
    actions = await dashboard.pool.fetch("SELECT action FROM audit WHERE action = 'operator.picture'")
    assert len(actions) == 3


async def test_address_that_is_no_picture_key_is_not_found(stranger: Dashboard) -> None:
    for key in ("%00", "0" * 31 + "%00", "0" * 33, "A" * 32, "0" * 32):
        assert await stranger.status("GET", f"/pictures/{key}") == 404, key


@pytest.mark.control("S13")
async def test_a_viewer_and_an_operator_see_no_operator(dashboard: Dashboard) -> None:
    for role in ("viewer", "operator"):
        _, invited = await ask(dashboard, "POST", "/operators", {"name": role, "role": role})
        other = await other_browser(dashboard, invited["link"])
        for method, path in (
            ("GET", "/operators"), ("POST", "/operators"), ("PATCH", f"/operators/{uuid4()}"),
            ("DELETE", f"/operators/{uuid4()}/logins"), ("GET", "/audit"), ("GET", "/audit/csv"),
        ):  # fmt: skip
            assert (await ask(other, method, path))[0] == 403
        for page in ("/dashboard/operators", "/dashboard/audit"):
            assert await other.status("GET", page) == 403
        await other.http.close()


async def test_what_is_not_there_is_not_found(dashboard: Dashboard) -> None:
    for method, path in (
        ("PATCH", f"/operators/{uuid4()}"), ("POST", f"/operators/{uuid4()}/link"),
        ("DELETE", f"/operators/{uuid4()}/logins"), ("DELETE", f"/operators/x/logins/{uuid4()}"),
        ("DELETE", "/me/logins/1"),
    ):  # fmt: skip
        body = {"version": 1} if method == "PATCH" else None
        assert (await ask(dashboard, method, path, body))[0] == 404


@pytest.mark.control("S14")
async def test_every_change_is_in_the_audit_under_who_made_it(dashboard: Dashboard) -> None:
    _, invited = await ask(dashboard, "POST", "/operators", {"name": "Grace", "role": "viewer"})
    path = f"/operators/{invited['id']}"
    await ask(dashboard, "PATCH", path, {"version": 1, "role": "operator", "locked": True})
    await ask(dashboard, "PATCH", path, {"version": 2, "locked": False})
    await ask(dashboard, "POST", f"{path}/link")
    rows = await dashboard.pool.fetch(
        "SELECT actor, action FROM audit WHERE object = $1 ORDER BY id", f"operator:{invited['id']}"
    )
    assert [tuple(row) for row in rows] == [
        ("admin", "operator.invited"), ("admin", "operator.locked"), ("admin", "operator.changed"),
        ("admin", "operator.unlocked"), ("admin", "login_link.made"),
    ]  # fmt: skip


@pytest.mark.control("S10")
async def test_an_address_behind_a_trusted_proxy_locks_out_itself_alone(dashboard: Dashboard) -> None:
    settings = load_settings(trusted_proxies="127.0.0.1")
    async with (
        served(web.Application(), pool=dashboard.pool, settings=settings, commands=RunCommands()) as url,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as http,
    ):

        async def tried(address: str) -> int:
            headers = {**SAME_ORIGIN, "X-Forwarded-For": address}
            form = {"name": "admin", "password": "wrong"}
            async with http.post(f"{url}/dashboard/login", data=form, headers=headers) as answer:
                return answer.status

        assert [await tried("192.0.2.1") for _ in range(6)] == [401] * 5 + [429]
        assert await tried("192.0.2.2") == 401


async def test_provider_operator_has_no_password(dashboard: Dashboard) -> None:
    operator = await OperatorAdmin(dashboard.pool).upsert_from_provider(
        issuer="https://id.example", subject="1", name="Ida", role="viewer"
    )
    operators = Operators(dashboard.pool)
    assert operator is not None
    token = await operators.begin(operator, how="provider", source="a")
    await operators.close()
    headers = {"Cookie": f"evertalk_operator={token}"}
    async with aiohttp.ClientSession() as http:
        ida = Dashboard(
            url=dashboard.url, database_url="", pool=dashboard.pool, http=http, commands=dashboard.commands
        )
        status, told = await ask(ida, "POST", "/me/password", {"password": "a long password"}, **headers)
        assert (status, told["code"]) == (409, "of_the_provider")


@pytest.mark.parametrize("path", ["/api/v1/sessions/{}", "/api/v1/sessions/{}/messages"])
async def test_a_refreshing_screen_hides_no_reading(dashboard: Dashboard, path: str) -> None:
    public_id = await dashboard.pool.fetchval(
        """WITH p AS (INSERT INTO contacts (display_name) VALUES ('x') RETURNING id),
                a AS (SELECT id FROM agents ORDER BY id LIMIT 1)
           INSERT INTO sessions (contact_id, agent_id) SELECT p.id, a.id FROM p, a RETURNING public_id"""
    )
    headers = {"X-Evertalk-Refresh": "1"}
    for _ in range(3):
        assert await dashboard.status("GET", path.format(public_id), headers=headers) == 200
    reads = "SELECT count(*) FROM audit WHERE action LIKE 'read.%' AND object = $1"
    assert await dashboard.pool.fetchval(reads, str(public_id)) == 1
