"""The corpus through widget, dashboard and Telegram: nothing runs, is loaded, or leads astray."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest
from aiohttp import web
from playwright.async_api import Browser, Page, expect
from pytest_aiohttp import AiohttpServer

from bot.telegram.markup.entity_text import render
from shared.adapters.postgres.people.operator_auth import create_login_link
from tests.integration.security.corpus import PIECES, SAMPLES
from tests.kit.dashboard.people_seed import a_bot, a_site, people
from tests.kit.dashboard.seed import a_long_session
from tests.kit.web.fixtures import Server

MIXED = 1_500
HARMLESS = re.compile(r"(https?://|mailto:|tel:|/|#)")
ACTIVE = "img, picture, video, audio, iframe, object, embed, link, style, script, svg image, form, meta, base"


@dataclass(slots=True)
class Canary:
    """A server that nobody may ask, and whoever did."""

    host: str = ""
    hits: list[str] = field(default_factory=list)

    async def hear(self, request: web.Request) -> web.Response:
        self.hits.append(request.path)
        return web.Response(headers={"Access-Control-Allow-Origin": "*"})

    def samples(self) -> list[str]:
        return [sample.replace("CANARY", self.host) for sample in SAMPLES]

    def mark_stored(self) -> str:
        """As one text that Postgres can hold."""
        return "\n\n".join(self.samples()).replace("\u0000", "")

    def mixtures(self) -> list[str]:
        draw = random.Random(8)
        return ["".join(draw.choices(PIECES, k=24)).replace("CANARY", self.host) for _ in range(MIXED)]


@pytest.fixture
async def canary(aiohttp_server: AiohttpServer) -> AsyncIterator[Canary]:
    canary = Canary()
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", canary.hear)
    server = await aiohttp_server(app)
    canary.host = f"127.0.0.1:{server.port}"
    yield canary
    assert canary.hits == []


@dataclass(slots=True)
class Watched:
    page: Page
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def settled(self, server: Server) -> None:
        """Nothing ran, nothing was refused by the policy, nobody else was asked."""
        own = (server.url, server.url.replace("http", "ws"), "data:")
        assert [url for url in self.asked if not url.startswith(own)] == []
        assert self.complaints == []


@pytest.fixture
async def watched(browser: Browser) -> AsyncIterator[Watched]:
    context = await browser.new_context(locale="en-GB", viewport={"width": 1300, "height": 900})
    context.set_default_timeout(15_000)
    seen = Watched(page=await context.new_page())
    seen.page.on("dialog", lambda dialog: seen.complaints.append(f"dialog {dialog.message}"))
    seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    seen.page.on("console", lambda line: seen.complaints.append(line.text) if line.type == "error" else None)
    seen.page.on("request", lambda request: seen.asked.append(request.url))
    yield seen
    await context.close()


LOOK = """(root) => [...document.querySelectorAll(root + ' *')].flatMap((one) => [
    ...(one.matches('ACTIVE') ? ['<' + one.localName + '>'] : []),
    ...[...one.attributes].filter((a) => a.name.startsWith('on') || a.name === 'srcdoc').map((a) => a.name),
    ...(one.localName === 'a' && one.href && !/^(https?|mailto|tel):/.test(one.href) ? [one.href] : []),
    ...(one.localName === 'a' && one.host !== location.host && !/noopener/.test(one.rel) ? [one.rel] : []),
])""".replace("ACTIVE", ACTIVE)
DRAW = """async (texts) => {
    const { render } = await import('/static/widget/md.js');
    const tools = { copy() {}, labels: { copy: 'Copy' } };
    const room = document.createElement('div');
    room.id = 'room';
    document.body.append(room);
    for (const text of texts) {
        const one = document.createElement('div');
        room.append(one);
        render(one, text.slice(0, text.length / 2), tools);
        render(one, text, tools);
    }
    await new Promise((done) => setTimeout(done, 300));
    return room.childElementCount;
}"""


@pytest.mark.browser
@pytest.mark.control("S15", "S16", "S17")
async def test_in_the_widget_nothing_of_an_answer_runs_loads_or_leads_astray(
    server: Server, canary: Canary, watched: Watched
) -> None:
    page, texts = watched.page, [*canary.samples(), *canary.mixtures()]
    server.conversation.script = [canary.mark_stored()]
    await page.goto(f"{server.url}/chat")
    box = page.get_by_role("textbox", name="Message")
    await box.fill(canary.samples()[4])
    await box.press("Enter")
    await expect(page.locator("article.assistant[data-status=sent]")).to_have_count(1)
    assert await page.evaluate(DRAW, texts) == len(texts)
    assert await page.evaluate(LOOK, "#room") == []
    assert await page.evaluate(LOOK, "article") == []
    watched.settled(server)


async def _everywhere(pool: asyncpg.Pool[asyncpg.Record], text: str) -> None:
    """The text wherever a row may hold words of others."""
    for statement in (
        "UPDATE contacts SET display_name = left($1, 200)",
        "UPDATE notes SET text = $1, subject = left($1, 60)",
        "UPDATE compactions SET summary_text = $1",
        "UPDATE jobs SET last_error = $1",
        "UPDATE telegram_bots SET problem = $1",
        "UPDATE telegram_access SET name = left($1, 100)",
        "UPDATE addresses SET title = left($1, 200)",
        "UPDATE attachments SET name = left($1, 100), description = $1",
        "UPDATE alerts SET detail = jsonb_build_object('what', $1::text)",
    ):
        async with pool.acquire() as connection:
            try:
                await connection.execute(statement, text)
            except (asyncpg.UndefinedColumnError, asyncpg.UndefinedTableError):
                continue


def _pages(session: Any, person: Any) -> Iterator[str]:
    yield from (
        "", "/sessions", f"/sessions/{session}", "/costs", "/inbox", "/jobs", "/deliveries", "/alerts",
        "/memory", "/people", f"/people/{person}", "/pairing", "/agents", "/agents/default", "/sites",
        "/sites/default", "/settings", "/operators", "/audit", "/account",
    )  # fmt: skip


@pytest.mark.browser
@pytest.mark.control("S16", "S17", "S19")
async def test_stored_text_stays_text_on_all_dashboard_pages(
    server: Server, canary: Canary, watched: Watched, database_url: str
) -> None:
    pool, page = server.services.pool, watched.page
    async with pool.acquire() as connection:
        crowd = await people(connection)
        await a_bot(connection)
        await a_site(connection)
        seeded = await a_long_session(connection)
    text = canary.mark_stored()
    await pool.execute("ALTER TABLE entry_rows DISABLE TRIGGER USER")
    await pool.execute(
        "UPDATE entries SET blocks = jsonb_build_array(jsonb_build_object('type', 'text', 'text', $1::text))",
        text,
    )
    await _everywhere(pool, text)
    token = await create_login_link(database_url)
    await page.goto(f"{server.url}/dashboard/login?token={token}")
    await page.get_by_role("button", name="Log in").click()
    await page.get_by_role("heading", level=1).wait_for()
    session = await pool.fetchval("SELECT public_id FROM sessions ORDER BY next_turn DESC LIMIT 1")
    person = await pool.fetchval("SELECT public_id FROM contacts WHERE id = $1", crowd.maria.contact_id)
    assert seeded is not None
    found: dict[str, Any] = {}
    shown = 0
    for path in _pages(session, person):
        await page.goto(f"{server.url}/dashboard{path}")
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        await expect(page.locator(".skeleton")).to_have_count(0)
        shown += canary.host in await page.locator("main").inner_text()
        own = await page.evaluate(LOOK, "main")
        if own := [one for one in own if one not in ("<form>", "<svg image>", "<iframe>")]:
            found[path] = own
    assert found == {}
    assert shown >= 5, "the words are to be seen"
    watched.settled(server)


@pytest.mark.control("S16", "S18")
def test_telegram_link_is_a_web_address_and_shows_its_target() -> None:
    canary = Canary(host="canary.example")
    for text in (*canary.samples(), *canary.mixtures()):
        rendered = render(text)
        for entity in rendered.entities:
            if entity.url is not None:
                assert re.match(r"(https?|tg|mailto|tel):", entity.url), (text, entity.url)
                assert not re.match(r"tg:", entity.url), (text, entity.url)
