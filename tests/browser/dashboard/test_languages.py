"""The dashboard in another language: no page keeps an English word, and the operator chooses."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from playwright.async_api import Browser, BrowserContext, Page, Route, expect

from shared.adapters.postgres.db.pool import open_pool
from shared.config.settings import load_settings
from tests.browser.dashboard.test_alerts import SEED
from tests.browser.dashboard.test_remembered import Desk
from tests.kit.dashboard import seed, seed_work, words
from tests.kit.dashboard.fixtures import NobodyListens, RunCommands, work_desk_of
from tests.kit.dashboard.money_seed import a_month
from tests.kit.dashboard.people_seed import a_bot, a_site, people, public_id_of
from tests.kit.dashboard.serve import served
from tests.kit.midday import MIDDAY
from tests.kit.web.inspector import inspecting_over
from web.server.words import COOKIE

pytestmark = pytest.mark.browser

NO_WORDS = (
    "Evertalk|Telegram|Webhook|Markdown|JSON|CSV|GiB|KB|MB|p95|Support|HTTPS?|Mio|Sek|Std|und|[0-9a-f]{6,}"
    "|EVERTALK_[A-Z_]*|login-admin-0|default|shop|steady|claude-[a-z0-9-]*|local|ever_bot|other_bot|The Shop"
    "|api.anthropic.com|https?://[a-z./]*|soft|late|daily|UTC|image/png|Nadia|Late|Owner|worker|text/[a-z]*"
)
"""Names, units and formats that every language writes so, and names that were seeded."""
DATA = (
    "code, pre, kbd, q, bdi, time, del, ins, mark, textarea, iframe, [dir=auto], [translate=no], option[lang],"
    " .about, .detail, .meaning, .words, .settings-grid, .numbers-grid, .skip"
)
"""Where words of people and of programs stand: names, addresses, settings, texts that somebody wrote."""
GO = """(path) => {
  document.getElementById("main").replaceChildren();
  history.pushState(null, "", path);
  dispatchEvent(new PopStateEvent("popstate"));
}"""
SCAN = """([data, allowed, said]) => {
  const strange = new RegExp(`(?:\\\\b|@)(?:${allowed})\\\\b`, "g");
  const left = (text) => said.reduce((rest, one) => rest.replaceAll(one, " "), text.replace(/⟦[^⟦⟧]*⟧/g, " "))
    .replace(strange, " ").match(/[A-Za-z]{3,}.*/)?.[0];
  const found = new Set();
  const nodes = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = nodes.nextNode(); node; node = nodes.nextNode()) {
    if (node.parentElement.closest(`${data}, script, style, noscript`)) continue;
    const rest = left(node.data);
    if (rest) found.add(rest);
  }
  for (const node of document.querySelectorAll("[aria-label], [title], [placeholder], [aria-valuetext]")) {
    if (node.closest(data)) continue;
    for (const name of ["aria-label", "title", "placeholder", "aria-valuetext"]) {
      const rest = left(node.getAttribute(name) ?? "");
      if (rest) found.add(`${name}: ${rest}`);
    }
  }
  return [...found];
}"""


@pytest.fixture
async def desk(browser: Browser, database_url: str) -> AsyncIterator[Desk]:
    """With all that a page may offer: looking into requests, acting on jobs, handing over."""
    pool = await open_pool(database_url, size=4)
    async with pool.acquire() as connection:
        crowd = await people(connection)
    async with served(
        web.Application(), pool=pool, settings=load_settings(timezone=MIDDAY), commands=RunCommands(),
        news=NobodyListens(), inspecting=inspecting_over(pool), work_desk=work_desk_of(pool, []),
    ) as url:  # fmt: skip
        desk = Desk(url=url, pool=pool, crowd=crowd, browser=browser)
        yield desk
        for context in desk.contexts:
            await context.close()
    await pool.close()
    assert desk.complaints == []


def marked(text: str) -> str:
    """`since {time}` → `⟦since ⟧{time}`: what is filled in stands outside of the marks."""
    return "".join(
        part if part.startswith("{") or not part.strip() else f"⟦{part}⟧"
        for part in re.split(r"(\{\w+\})", text)
    )


def marked_words() -> dict[str, Any]:
    plurals = {other: {"one": marked(one), "other": marked(other)} for one, other in words.plural_texts()}
    return {text: marked(text) for text in sorted(words.keys())} | plurals


async def speak(context: BrowserContext, spoken: dict[str, Any]) -> None:
    """The dashboard in German, as a browser asks for it, with these words."""

    async def answer(route: Route) -> None:
        await route.fulfill(body=json.dumps(spoken), content_type="application/json")

    [login] = await context.cookies()
    await context.add_cookies([{**login, "name": COOKIE, "value": "de", "path": "/dashboard"}])
    await context.route("**/dashboard/words/de", answer)


async def a_full_house(desk: Desk) -> dict[str, str]:
    """Something on every page; by its name the address of each page."""
    async with desk.pool.acquire() as connection:
        long, links = await seed.a_long_session(connection, turns=412, person="Berta")
        await a_month(connection, long)
        await a_bot(connection)
        await a_site(connection)
        await connection.execute(SEED)
        person = await public_id_of(connection, desk.crowd.maria)
        await connection.execute(
            "INSERT INTO telegram_bots (bot_id, username, agent_id, mode, access)"
            " VALUES (778, 'other_bot', $1, 'webhook', 'open')", await seed.an_agent(connection),
        )  # fmt: skip
    await seed_work.jobs(desk.pool)
    await seed_work.doubts(desk.pool)
    pages = (
        "sessions", "waiting", "people", "memory", "jobs", "deliveries", "alerts", "costs", "costs?group=purpose",
        "agents", "sites", "pairing", "operators", "operators?who=1", "audit", "settings", "account", "search",
        "sessions?q=nobody", "jobs?state=done&kind=tidy", "memory?q=nothing", "search#Lisbon",
    )  # fmt: skip
    return {"": "", **{name: f"/{name}" for name in pages}} | {
        "session": f"/sessions/{long.public_id}#c-{links[-1]}",
        "person": f"/people/{person}",
        "agent": "/agents/default",
        "site": "/sites/shop",
        "no session": f"/sessions/{person}",
        "no agent": "/agents/nobody",
        "notes of one": f"/memory?person={person}",
    }


async def opened(page: Page) -> None:
    """All that stands folded, and the dialogs, are part of the page."""
    await page.evaluate("() => { for (const fold of document.querySelectorAll('details')) fold.open = true; }")


async def test_no_page_keeps_an_english_word(desk: Desk) -> None:
    pages = await a_full_house(desk)
    page = await desk.operator("admin")
    await speak(page.context, marked_words())
    found: dict[str, list[str]] = {}
    rows = await desk.pool.fetch("SELECT text FROM notes UNION SELECT display_name FROM parties")
    said = sorted((row[0] for row in rows if row[0]), key=len, reverse=True)
    await page.goto(f"{desk.url}/dashboard")
    for name, path in pages.items():
        await page.evaluate(GO, f"/dashboard{path}")
        await expect(page.locator("h1")).not_to_have_count(0)
        await expect(page.locator(".skeleton:visible")).to_have_count(0)
        await opened(page)
        await expect(page.locator(".skeleton:visible")).to_have_count(0)
        found[name] = await page.evaluate(SCAN, [DATA, NO_WORDS, said])
    desk.complaints = [line for line in desk.complaints if "404" not in line]
    print(*sorted({(f, n) for n, every in found.items() for f in every}), sep="\n", flush=True)
    assert {name: left for name, left in found.items() if left} == {}
