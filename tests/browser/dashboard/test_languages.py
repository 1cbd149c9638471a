"""The dashboard in another language: no page keeps an English word, and the operator chooses."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Route, expect

from shared.config.settings import load_settings
from tests.browser.axe import look_for_faults
from tests.browser.dashboard.full_house import fill_house
from tests.browser.dashboard.people_dashboard import Parts, PeopleDashboard
from tests.browser.dashboard.place import fits
from tests.kit.dashboard import seed_work, words
from tests.kit.dashboard.fixtures import make_job_admin
from tests.kit.midday import MIDDAY
from tests.kit.web.inspector import inspecting_over
from web.server.words import COOKIE, dashboard_languages, load_texts

pytestmark = pytest.mark.browser

NO_WORDS = (
    "Evertalk|Telegram|Anthropic|OpenAI|Webhook|Markdown|JSON|CSV|GiB|KB|MB|p95|Support|https?|UTC|Mio|Sek|Std|Min"
    "|und|[0-9a-f]{6,}|EVERTALK_[A-Z_]*|default|shop.example.org|shop|steady|claude-[a-z0-9-]*|local|offline-demo|ever_bot"
    "|other_bot|The Shop|Nadia|Late|Owner|login-admin-0|api.anthropic.com|soft|late|daily|read[a-z.]*"
    "|The summary was empty|Busy|chat not found|the connection broke"
)
"""Names, units and formats that every language writes so, and names that were seeded."""
DATA = (
    "code, pre, kbd, q, bdi, time, del, ins, mark, textarea, iframe, [dir=auto], [translate=no],"
    " option[lang], .about, .detail, .meaning, .words, .settings-grid, .numbers-grid, .skip"
)
"""Where words of people and of programs stand: names, addresses, settings, texts that somebody wrote."""
GO = """(path) => {
  if (location.pathname === path) return;  // it is drawn there, or will be, and nobody draws it again
  document.getElementById("main").replaceChildren();
  history.pushState(null, "", path);
  dispatchEvent(new PopStateEvent("popstate"));
}"""
UNFOLD = "() => document.querySelectorAll('details').forEach((fold) => { fold.open = true; })"
FIGURES = """async () => {
  const packed = document.querySelector("script[type=module]").src;
  const { duration, number, percent, tokens, usd } = await import(packed);
  return [number(12345), tokens(8500), percent(90.1), usd(1234.5), duration(4200)];
}"""
SCAN = """([data, allowed, said]) => {
  const strange = new RegExp(`(?:\\\\b|@)(?:${allowed})\\\\b`, "g");
  // A sentence with a link in it is several texts.
  const marked = /⟦[^⟦⟧]*(⟧|$)|^[^⟦⟧]*⟧/g;
  const left = (text) => said.reduce((rest, one) => rest.replaceAll(one, " "), text.replace(marked, " "))
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
def people_parts() -> Parts:
    """All that a page may offer: looking into requests, acting on jobs."""
    return lambda pool: {
        "settings": load_settings(timezone=MIDDAY), "inspecting": inspecting_over(pool),
        "job_admin": make_job_admin(pool, []),
    }  # fmt: skip


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
    await context.add_cookies(
        [{"name": COOKIE, "value": "de", "domain": login["domain"], "path": "/dashboard"}]
    )
    await context.route("**/dashboard/words/de", answer)


async def test_no_page_keeps_an_english_word(people_dashboard: PeopleDashboard) -> None:
    pages = await fill_house(people_dashboard)
    page = await people_dashboard.operator("admin")
    await speak(page.context, marked_words())
    found: dict[str, list[str]] = {}
    rows = await people_dashboard.pool.fetch("SELECT text FROM notes UNION SELECT display_name FROM contacts")
    said = sorted((row[0] for row in rows if row[0]), key=len, reverse=True)
    await page.goto(f"{people_dashboard.url}/dashboard")
    for name, path in pages.items():
        await page.evaluate(GO, f"/dashboard{path}")
        await expect(page.locator("h1")).not_to_have_count(0)
        await expect(page.locator(".skeleton:visible")).to_have_count(0)
        await page.evaluate(UNFOLD)
        await expect(page.locator(".skeleton:visible")).to_have_count(0)
        found[name] = await page.evaluate(SCAN, [DATA, NO_WORDS, said])
    people_dashboard.complaints = [
        line for line in people_dashboard.complaints if "404" not in line and "503" not in line
    ]
    assert {name: left for name, left in found.items() if left} == {}


async def test_what_is_asked_and_answered_is_said_in_the_language_too(
    people_dashboard: PeopleDashboard,
) -> None:
    """Dialogs, errors of the server, and what became of a change."""
    await seed_work.jobs(people_dashboard.pool)
    page = await people_dashboard.operator("admin")
    await speak(page.context, marked_words())
    await page.goto(f"{people_dashboard.url}/dashboard/jobs?state=dead")
    await page.get_by_role("button", name="⟦Retry all ⟧3").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("heading")).to_have_text("⟦Retry ⟧3⟦ jobs?⟧")
    await dialog.get_by_role("button", name="⟦Retry ⟧3⟦ jobs⟧").click()
    await expect(page.locator(".told")).to_contain_text("⟦ jobs will run again.⟧")
    await page.goto(f"{people_dashboard.url}/dashboard/agents")
    await page.get_by_text("⟦New agent⟧").click()
    await page.get_by_label("⟦Name⟧").fill("default")
    await page.get_by_role("button", name="⟦Create agent⟧").click()
    await expect(page.get_by_role("alert")).to_contain_text("⟦An agent with that name already exists.⟧")
    await page.goto(f"{people_dashboard.url}/dashboard/account")
    await page.get_by_role("textbox", name="⟦Password⟧").fill("1234567890ab")
    await page.get_by_role("button", name="⟦Set the password⟧").click()
    await expect(page.get_by_role("alert")).to_contain_text("⟦This password is too easy")
    people_dashboard.complaints.clear()


async def test_an_operator_chooses_a_language_that_the_login_page_speaks_too(
    people_dashboard: PeopleDashboard,
) -> None:
    page = await people_dashboard.operator()
    await page.goto(f"{people_dashboard.url}/dashboard/account")
    await expect(page.locator("html")).to_have_attribute("lang", "en")
    choice = page.get_by_label("Language of the dashboard")
    await expect(choice).to_have_value("")
    await choice.select_option(label="Deutsch")
    await expect(page.get_by_role("heading", name="Konto", level=1)).to_be_visible()
    await expect(page.locator("html")).to_have_attribute("lang", "de")
    await expect(page).to_have_title("Konto · Evertalk")
    assert await look_for_faults(page) == []
    await page.get_by_role("link", name="Gespräche").click()
    await expect(page.locator("td time").first).to_contain_text("vor")
    assert [one.replace("\xa0", " ") for one in await page.evaluate(FIGURES)] == [
        "12.345", "8,5k", "90,1 %", "1.234,50 $", "4,2 Sek."
    ]  # fmt: skip
    await page.get_by_role("button", name="Abmelden").click()
    await expect(page.get_by_role("alert")).to_have_text("Abgemeldet.")
    await expect(page.get_by_role("button", name="Anmelden")).to_be_visible()
    assert await look_for_faults(page) == []


async def test_right_to_left_page_is_mirrored_and_fits(people_dashboard: PeopleDashboard) -> None:
    """With English words, for whoever looks; the direction is all that counts here."""
    pages = await fill_house(people_dashboard)
    page = await people_dashboard.operator("admin")

    async def mirrored(route: Route) -> None:
        answer = await route.fetch()
        await route.fulfill(response=answer, body=(await answer.text()).replace('dir="ltr"', 'dir="rtl"'))

    await page.route(f"{people_dashboard.url}/dashboard", mirrored)
    await page.goto(f"{people_dashboard.url}/dashboard")
    for width in (1360, 390):
        await page.set_viewport_size({"width": width, "height": 900})
        for name in ("", "sessions", "session", "costs?group=purpose", "site", "jobs"):
            await page.evaluate(GO, f"/dashboard{pages[name]}")
            await expect(page.locator("h1")).not_to_have_count(0)
            await expect(page.locator(".skeleton:visible")).to_have_count(0)
            await fits(page)
            side = await page.locator("#side").bounding_box()
            assert side is not None
            assert side["x"] + side["width"] == pytest.approx(width, abs=20), "the menu stands on the right"
    people_dashboard.complaints = [line for line in people_dashboard.complaints if "503" not in line]


async def test_every_language_has_a_text_for_each_of_its_plurals(people_dashboard: PeopleDashboard) -> None:
    page = await people_dashboard.operator()
    await page.goto(f"{people_dashboard.url}/dashboard/login")
    categories = "(language) => new Intl.PluralRules(language).resolvedOptions().pluralCategories"
    for language in dashboard_languages():
        wanted = set(await page.evaluate(categories, language))
        counted = [entry for entry in load_texts(language).values() if not isinstance(entry, str)]
        assert [entry for entry in counted if set(entry) != wanted] == [], language
