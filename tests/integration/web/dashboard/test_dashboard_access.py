"""Nobody reads a word without a login, nothing changes from a foreign page, and previews use up no link."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
from aiohttp import ClientSession, CookieJar, web
from aiohttp.test_utils import make_mocked_request

from shared.adapters.postgres.people.operator_auth import Operators, create_login_link
from shared.config.settings import load_settings
from tests.kit.dashboard.fixtures import SAME_ORIGIN, Dashboard
from web.dashboard import OPERATIONS, build_dashboard, requests
from web.dashboard.access import HEADERS, cookie_name, is_own_origin, is_secure
from web.server.origins import Proxies

ROUTES = [(one.method, re.sub(r"\{\w+\}", str(uuid4()), one.path), one.role) for one in OPERATIONS]
GUARDED = [(method, path) for method, path, role in ROUTES if role is not None]
OPEN = {
    "/dashboard/login", "/dashboard/login/code", "/dashboard/logout", "/dashboard/oidc",
    "/dashboard/oidc/back", "/metrics",
}  # fmt: skip
FOREIGN: tuple[dict[str, str], ...] = (
    {},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1"},
)


@pytest.mark.control("S13")
async def test_a_stranger_gets_nothing(stranger: Dashboard) -> None:
    opened = {path for _, path, role in ROUTES if role is None}
    assert {path for path in opened if not path.startswith("/pictures/")} == OPEN
    for method, path in GUARDED:
        async with stranger.http.request(
            method, stranger.url + path, headers=SAME_ORIGIN, allow_redirects=False
        ) as response:
            assert response.status == (401 if path.startswith("/api") else 303), path
            assert {name: response.headers[name] for name in HEADERS} == HEADERS


@pytest.mark.control("S12")
async def test_what_changes_something_must_come_from_our_own_page(dashboard: Dashboard) -> None:
    for headers in FOREIGN:
        for method, path, _ in ROUTES:
            if method != "GET":
                assert await dashboard.status(method, path, headers=headers) == 403, (path, headers)
    assert (await dashboard.get("/me"))["name"] == "admin"


@pytest.mark.control("S12")
async def test_an_old_browser_proves_its_origin_by_the_header(dashboard: Dashboard) -> None:
    assert await dashboard.status("POST", "/dashboard/logout", headers={"Origin": dashboard.url}) == 303
    assert await dashboard.status("GET", "/api/v1/me") == 401


async def test_looking_at_a_link_does_not_use_it_up(stranger: Dashboard) -> None:
    token = await create_login_link(stranger.database_url)
    page = ""
    for _ in range(3):
        async with stranger.http.get(f"{stranger.url}/dashboard/login?token={token}") as response:
            page = await response.text()
            assert response.status == 200
    assert token in page
    assert "password" not in page.lower()
    form = {"token": token, "next": "/dashboard/jobs"}
    async with stranger.http.post(
        f"{stranger.url}/dashboard/login", data=form, headers=SAME_ORIGIN, allow_redirects=False
    ) as response:
        assert (response.status, response.headers["Location"]) == (303, "/dashboard/jobs")
    assert await stranger.status("POST", "/dashboard/login", data=form, headers=SAME_ORIGIN) == 401


@pytest.mark.control("S12")
async def test_a_login_leads_only_into_the_dashboard(stranger: Dashboard) -> None:
    for following in (
        "https://evil.example",
        "//evil.example",
        "/dashboard@evil",
        "/dashboard\r\nX: y",
        "/api/v1/me",
    ):
        form = {"token": await create_login_link(stranger.database_url), "next": following}
        async with stranger.http.post(
            f"{stranger.url}/dashboard/login", data=form, headers=SAME_ORIGIN, allow_redirects=False
        ) as response:
            assert response.headers["Location"] == "/dashboard"


@pytest.mark.control("S17")
async def test_a_hostile_token_is_not_put_into_the_page(stranger: Dashboard) -> None:
    async with stranger.http.get(
        f"{stranger.url}/dashboard/login",
        params={"token": '"><script>alert(1)</script>', "m": "<b>", "next": '"<'},
    ) as response:
        page = await response.text()
    assert "<script" not in page
    assert '"<' not in page


@pytest.mark.control("S11")
async def test_each_login_gets_a_new_number_and_the_old_one_ends(dashboard: Dashboard) -> None:
    old = _cookie(dashboard)
    await dashboard.log_in()
    assert _cookie(dashboard) != old
    assert await dashboard.pool.fetchval("SELECT count(*) FROM operator_sessions") == 1


@pytest.mark.control("S11")
async def test_on_loopback_the_cookie_is_plain_and_closed_to_scripts(stranger: Dashboard) -> None:
    form = {"token": await create_login_link(stranger.database_url)}
    async with stranger.http.post(
        f"{stranger.url}/dashboard/login", data=form, headers=SAME_ORIGIN, allow_redirects=False
    ) as response:
        cookie = response.headers["Set-Cookie"]
    assert cookie.startswith("evertalk_operator=")
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert "Secure" not in cookie


@pytest.mark.control("S11")
def test_on_https_the_cookie_is_bound_to_the_host() -> None:
    settings = load_settings(public_url="https://bot.example")
    public = make_mocked_request("POST", "/dashboard/login", headers={"Host": "bot.example"})
    local = make_mocked_request("POST", "/dashboard/login", headers={"Host": "127.0.0.1:8080"})
    proxied = make_mocked_request(
        "POST", "/dashboard/login", headers={"Host": "127.0.0.1:8080", "Origin": "https://bot.example"}
    )
    assert cookie_name(public, settings) == "__Host-evertalk_operator"
    assert is_secure(public, settings)
    assert cookie_name(local, settings) == "evertalk_operator"
    assert cookie_name(proxied, settings) == "__Host-evertalk_operator"
    assert is_own_origin(proxied, settings)


@pytest.mark.control("S11")
async def test_plain_http_from_elsewhere_cannot_log_in(stranger: Dashboard) -> None:
    form = {"token": await create_login_link(stranger.database_url)}
    headers = {"Host": "192.168.1.20:8080", **SAME_ORIGIN}
    assert await stranger.status("POST", "/dashboard/login", data=form, headers=headers) == 403
    assert await stranger.pool.fetchval("SELECT used_at FROM login_links") is None


@pytest.mark.control("S10", "S50")
async def test_wrong_names_and_wrong_passwords_look_the_same_and_wear_out(stranger: Dashboard) -> None:
    operators = Operators(stranger.pool)
    ada = await stranger.pool.fetchval("INSERT INTO operators (name) VALUES ('ada') RETURNING id")
    await operators.set_password(ada, "correct horse battery", by="test")
    await operators.close()
    answers = []
    for name in ("ada", "nobody"):
        form = {"name": name, "password": "wrong"}
        async with stranger.http.post(
            f"{stranger.url}/dashboard/login", data=form, headers=SAME_ORIGIN
        ) as response:
            answers.append((response.status, await response.text()))
    assert answers[0] == answers[1]
    assert answers[0][0] == 401
    form = {"name": "ada", "password": "wrong"}
    for _ in range(4):
        assert await stranger.status("POST", "/dashboard/login", data=form, headers=SAME_ORIGIN) == 401
    right = {"name": "ada", "password": "correct horse battery"}
    async with stranger.http.post(
        f"{stranger.url}/dashboard/login", data=right, headers=SAME_ORIGIN
    ) as response:
        assert response.status == 429
        assert int(response.headers["Retry-After"]) > 0


async def test_a_password_set_on_the_account_page_logs_in(dashboard: Dashboard) -> None:
    weak = {"json": {"password": "short"}, "headers": SAME_ORIGIN}
    assert await dashboard.status("POST", "/api/v1/me/password", **weak) == 422
    unusable: tuple[dict[str, Any], ...] = (
        {"json": {"password": 5}},
        {"json": []},
        {"data": b"\xff"},
        {"data": b'{"password": "\\ud800 long enough to be one"}'},
        {"data": b"[" * 8_000},
    )
    for junk in unusable:
        assert await dashboard.status("POST", "/api/v1/me/password", headers=SAME_ORIGIN, **junk) == 400
    good = {"json": {"password": "correct horse battery"}, "headers": SAME_ORIGIN}
    assert await dashboard.status("POST", "/api/v1/me/password", **good) == 200
    form = {"name": "admin", "password": "correct horse battery"}
    async with (
        ClientSession(cookie_jar=CookieJar(unsafe=True)) as other,
        other.post(f"{dashboard.url}/dashboard/login", data=form, headers=SAME_ORIGIN) as response,
    ):
        assert response.status == 200
        assert response.url.path == "/dashboard"


@pytest.mark.control("S13")
async def test_a_viewer_reads_and_changes_nothing(dashboard: Dashboard) -> None:
    await dashboard.pool.execute("UPDATE operators SET role = 'viewer'")
    assert (await dashboard.get("/me"))["can_run_commands"] is False
    for verb in ("undo", "restore"):
        path = f"/api/v1/compactions/{uuid4()}/{verb}"
        assert await dashboard.status("POST", path, headers=SAME_ORIGIN) == 403
    assert dashboard.commands.asked == []


@pytest.mark.control("S13")
async def test_metrics_are_for_this_machine_or_for_the_token(stranger: Dashboard) -> None:
    assert await stranger.status("GET", "/metrics") == 200
    assert await stranger.status("GET", "/metrics", headers={"X-Forwarded-For": "127.0.0.1"}) == 403


async def test_a_metrics_token_is_asked_of_everybody() -> None:
    from web.dashboard.access import check_scraper
    from web.security import HttpRefusal

    settings: Any = load_settings(metrics_token="s3cret-metrics")
    access = cast("Any", SimpleNamespace(settings=settings, proxies=Proxies((), public_url=None)))
    with pytest.raises(HttpRefusal):
        check_scraper(make_mocked_request("GET", "/metrics"), access)
    with pytest.raises(HttpRefusal):
        check_scraper(make_mocked_request("GET", "/metrics", headers={"Authorization": "Bearer no"}), access)
    check_scraper(
        make_mocked_request("GET", "/metrics", headers={"Authorization": "Bearer s3cret-metrics"}), access
    )


@pytest.mark.control("S13")
async def test_every_route_of_the_application_is_in_the_table(stranger: Dashboard) -> None:
    app = web.Application()
    build_dashboard(pool=stranger.pool, settings=load_settings(), commands=None).add_to(app)
    served = {(route.method, route.resource.canonical) for route in app.router.routes() if route.resource}
    table = {(one.method, one.path) for one in OPERATIONS}
    assert {pair for pair in served if pair[0] != "HEAD"} == table


def _cookie(dashboard: Dashboard) -> str:
    return next(cookie.value for cookie in dashboard.http.cookie_jar)


async def test_a_form_that_cannot_be_read_is_refused(stranger: Dashboard) -> None:
    kind = {"Content-Type": "application/x-www-form-urlencoded", **SAME_ORIGIN}
    for body, status in ((b"name=%00&password=x", 401), (b"name=\xff&password=x", 400), (b"x" * 9000, 413)):
        assert await stranger.status("POST", "/dashboard/login", data=body, headers=kind) == status


@pytest.mark.control("S33")
async def test_half_a_login_is_not_waited_for_for_ever(
    dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "SECONDS", 0.1)

    async def slowly() -> AsyncIterator[bytes]:
        yield b'{"password'
        await asyncio.sleep(30)

    form = {"Content-Type": "application/x-www-form-urlencoded", **SAME_ORIGIN}
    assert await dashboard.status("POST", "/dashboard/login", data=slowly(), headers=form) == 408
    said = {"Content-Type": "application/json", **SAME_ORIGIN}
    assert await dashboard.status("POST", "/api/v1/me/password", data=slowly(), headers=said) == 408
