"""The chat page and its cookie, files and their caching, health."""

from __future__ import annotations

import json

import asyncpg
import pytest
from aiohttp import CookieJar

from tests.kit.web.fixtures import Server, Starter


async def test_the_chat_page_makes_the_browser_a_visitor(server: Server) -> None:
    async with server.client.get(f"{server.url}/chat") as answer:
        page = await answer.text()
        cookie = answer.cookies["evertalk_visitor"]
    assert answer.headers["Cache-Control"] == "no-store"
    assert f"static-{server.process.files.digest}/widget/page.js" in page
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"
    assert not cookie["secure"], "Safari drops secure cookies on loopback http"
    assert int(cookie["max-age"]) == 365 * 24 * 3600
    screen, welcome = await server.greet(cookie=f"evertalk_visitor={cookie.value}")
    assert "token" not in welcome
    await screen.say("Hi")
    await screen.until("ack")
    _, again = await server.greet(cookie=f"evertalk_visitor={cookie.value}")
    assert again["session"] == welcome["session"]


async def test_a_cookie_slides_and_keeps_its_value(server: Server) -> None:
    server.client._cookie_jar = CookieJar(unsafe=True)
    values = []
    for _ in range(2):
        async with server.client.get(f"{server.url}/chat") as answer:
            values.append(answer.cookies["evertalk_visitor"].value)
    assert values[0] == values[1]


async def test_behind_https_the_cookie_is_bound_to_the_host(starter: Starter) -> None:
    server = await starter.start(public_url="https://chat.example")
    async with server.client.get(f"{server.url}/chat", headers={"Host": "chat.example"}) as answer:
        cookie = answer.cookies["__Host-evertalk_visitor"]
    assert cookie["secure"]
    assert cookie["path"] == "/"


async def test_a_cookie_is_not_taken_from_a_foreign_page(starter: Starter) -> None:
    server = await starter.start(allowed_origins=("https://shop.example",))
    cookie = f"evertalk_visitor={'c' * 43}"
    _, own = await server.greet(cookie=cookie)
    _, foreign = await server.greet(cookie=cookie, origin="https://shop.example")
    assert foreign["session"] != own["session"]
    assert foreign["token"]


async def test_each_site_has_its_own_cookie(server: Server) -> None:
    async with server.client.get(f"{server.url}/chat?site=shop") as answer:
        assert list(answer.cookies) == ["evertalk_visitor_shop"]
    async with server.client.get(f"{server.url}/chat?site=<script>") as answer:
        assert answer.status == 404


async def test_files_under_their_digest_are_kept_for_ever(server: Server) -> None:
    digest = server.process.files.digest
    async with server.client.get(f"{server.url}/static-{digest}/widget/main.js") as answer:
        assert answer.status == 200
        assert answer.content_type == "text/javascript"
        assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "cross-origin"
    async with server.client.get(f"{server.url}/static-0123456789abcdef/widget/main.js") as answer:
        assert answer.status == 200
        assert answer.headers["Cache-Control"] == "no-cache"


async def test_language_files_are_cached_forever_and_readable_from_other_origins(server: Server) -> None:
    for name in ("chat", "chat_parts"):
        path = f"/static-{server.process.files.digest}/locales/de/{name}.json"
        async with server.client.get(server.url + path) as answer:
            assert (answer.status, answer.content_type) == (200, "application/json")
            assert "immutable" in answer.headers["Cache-Control"]
            assert answer.headers["Access-Control-Allow-Origin"] == "*"
    async with server.client.get(f"{server.url}/static/locales/de/commands.json") as answer:
        assert answer.status == 404, "only what the chat says is given out"


@pytest.mark.parametrize(
    ("accepted", "language", "words", "way"),
    [
        ("de-AT,en;q=0.5", "de", "Dieser Chat braucht JavaScript.", "Zum Chat"),
        ("tlh", "en", "This chat needs JavaScript.", "Go to the chat"),
    ],
)
async def test_pages_speak_the_language_of_the_browser(
    server: Server, accepted: str, language: str, words: str, way: str
) -> None:
    headers = {"Accept-Language": accepted, "Accept": "text/html"}
    for path, expected in (("/chat", words), ("/nowhere", way)):
        async with server.client.get(server.url + path, headers=headers) as answer:
            page = await answer.text()
        assert f'<html lang="{language}">' in page
        assert expected in page
        assert "[[" not in page


async def test_an_unchanged_file_is_not_sent_twice(server: Server) -> None:
    for path in ("/widget.js", "/static/widget/main.js"):
        async with server.client.get(server.url + path) as answer:
            etag = answer.headers["ETag"]
            assert answer.headers["Cache-Control"] == "no-cache"
        async with server.client.get(server.url + path, headers={"If-None-Match": etag}) as answer:
            assert answer.status == 304
            assert await answer.read() == b""
        async with server.client.get(server.url + path, headers={"If-None-Match": '"other"'}) as answer:
            assert answer.status == 200


async def test_the_loader_names_the_newest_modules(server: Server) -> None:
    async with server.client.get(
        f"{server.url}/widget.js", headers={"Accept-Encoding": "identity"}
    ) as answer:
        text = await answer.text()
    assert f"static-{server.process.files.digest}/widget/main.js" in text
    assert "Content-Encoding" not in answer.headers


async def test_nothing_outside_the_folder_can_be_reached(server: Server) -> None:
    for path in (
        "/static/",
        "/static/widget",
        "/static/..%2f__main__.py",
        "/static/%2Fetc%2Fpasswd",
        "/static/nope.js",
    ):
        async with server.client.get(server.url + path) as answer:
            assert answer.status == 404, path


async def test_dead_link_returns_page_to_people_and_json_to_programs(server: Server) -> None:
    for path, accepted, kind in (
        ("/nowhere", "text/html,*/*", "text/html"),
        ("/nowhere", "*/*", "application/json"),
        ("/api/v1/nowhere", "text/html", "application/json"),
    ):
        async with server.client.get(server.url + path, headers={"Accept": accepted}) as answer:
            assert (answer.status, answer.content_type) == (404, kind)
            assert ("Go to the chat" in await answer.text()) == (kind == "text/html")


async def test_the_page_has_an_icon_and_can_be_installed(server: Server) -> None:
    async with server.client.get(f"{server.url}/chat") as answer:
        page = await answer.text()
    for path, kind in (
        ("static/icon.svg", "image/svg+xml"),
        ("static/evertalk.webmanifest", "application/manifest+json"),
    ):
        assert f'href="{path}"' in page
        async with server.client.get(f"{server.url}/{path}") as answer:
            assert (answer.status, answer.content_type) == (200, kind)
    async with server.client.get(f"{server.url}/static/evertalk.webmanifest") as answer:
        assert json.loads(await answer.text())["start_url"] == "../chat"


async def test_readiness_follows_the_schema(starter: Starter) -> None:
    server = await starter.start()
    async with server.client.get(f"{server.url}/readyz") as answer:
        told = {"status": "ready", "database": "ok"}
        assert (answer.status, await answer.json()) == (200, told)
    pool: asyncpg.Pool[asyncpg.Record] = server.services.pool
    await pool.execute("UPDATE alembic_version SET version_num = '9999'")
    async with server.client.get(f"{server.url}/readyz") as answer:
        assert answer.status == 200, "works on while those of a newer version are started beside it"
    await pool.execute("UPDATE alembic_version SET version_num = '0000'")
    async with server.client.get(f"{server.url}/readyz") as answer:
        assert (answer.status, (await answer.json())["database"]) == (503, "not migrated")
    await pool.execute("DROP TABLE alembic_version")
    async with server.client.get(f"{server.url}/readyz") as answer:
        assert (answer.status, (await answer.json())["database"]) == (503, "not migrated")
    async with server.client.get(f"{server.url}/healthz") as answer:
        assert answer.status == 200
