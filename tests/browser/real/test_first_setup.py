"""From a fresh `up` to the answers of an agent of one's own on Telegram and on a page, without a shell.

Clicks are counted.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from aiohttp import web
from playwright.async_api import Browser, BrowserContext, Locator, Page, expect

from tests.browser.axe import look_for_faults
from tests.browser.dashboard.place import fits
from tests.browser.patience import WAIT_MS
from tests.kit.deployment.up_process import environment, start_up, stopped
from tests.kit.fakes.bot_api import TOKEN, USERNAME, RunningBotApi, running_bot_api
from tests.kit.fakes.messages_api import running_fake
from tests.kit.fakes.messages_api.harness import RunningFake

__all__ = ["environment", "stopped"]
pytestmark = pytest.mark.browser
KEY = "sk-typed-in-the-form"
WORKS = re.compile(r"It works: claude-\S+ and claude-\S+ answered")
PERSONA = "You know every plant in our shop."
MOST_CLICKS = 25
MOST_TABS = 120
COUNT = """addEventListener("click", (event) => {
  if (event.isTrusted && event.detail) window.counted?.();
}, true)"""
"""A click of the mouse has a number; what Enter does to a button has none."""
HAS_FOCUS = "(one) => one.getRootNode().activeElement === one"


@dataclass(slots=True)
class Installed:
    """A running Evertalk that knows no key, and the link of its first login."""

    link: str
    url: str
    provider: RunningFake
    telegram: RunningBotApi
    clicks: int = 0

    async def browser(self, browser: Browser, *, width: int = 1360) -> BrowserContext:
        context = await browser.new_context(locale="en-GB", viewport={"width": width, "height": 900})
        context.set_default_timeout(WAIT_MS)

        def count() -> None:
            self.clicks += 1

        await context.expose_function("counted", count)
        await context.add_init_script(COUNT)
        return context


@pytest.fixture
async def installed(
    environment: dict[str, str], stopped: list[subprocess.Popen[str]]
) -> AsyncIterator[Installed]:
    async with running_fake() as provider, running_bot_api() as telegram:
        told = {**environment, "EVERTALK_TELEGRAM_API_URL": telegram.base_url}
        process, lines = await asyncio.to_thread(start_up, told)
        stopped.append(process)
        assert process.stdout is not None
        reading = asyncio.create_task(asyncio.to_thread(process.stdout.read))
        words = "\n".join(lines)
        link, url = re.search(r"Dashboard +(\S+)", words), re.search(r"Chat +(\S+)/chat", words)
        assert link is not None
        assert url is not None
        yield Installed(link=link[1], url=url[1], provider=provider, telegram=telegram)
        process.terminate()
        await reading
        assert await asyncio.to_thread(process.wait, 60) == 0


@asynccontextmanager
async def page_of_ones_own() -> AsyncIterator[tuple[str, list[str]]]:
    """At another origin; what is put into the list stands in it."""
    snippets: list[str] = []

    async def page(_request: web.Request) -> web.Response:
        text = f"<!doctype html><link rel=icon href='data:,'><h1>Shop</h1>{''.join(snippets)}"
        return web.Response(text=text, content_type="text/html")

    app = web.Application()
    app.router.add_get("/", page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}", snippets
    await runner.cleanup()


async def seen_by_everybody(page: Page) -> None:
    await fits(page)
    assert await look_for_faults(page) == []


def step(page: Page, name: str) -> Locator:
    return page.locator(".checklist li").filter(has_text=name)


async def ask(page: Page, text: str) -> None:
    before = await page.locator("article.assistant[data-status=sent]").count()
    box = page.get_by_role("textbox", name="Message")
    await box.fill(text)
    await box.press("Enter")
    await expect(page.locator("article.assistant[data-status=sent]")).to_have_count(before + 1)
    await expect(page.locator("article.assistant").last).to_contain_text(text)


async def overview(page: Page) -> None:
    await page.get_by_role("link", name="Overview", exact=True).click()
    await expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()


async def test_a_new_operator_gets_to_answers_everywhere_without_a_shell(
    installed: Installed, browser: Browser
) -> None:
    context = await installed.browser(browser)
    page = await context.new_page()
    await page.goto(installed.link)
    await page.get_by_role("button", name="Log in").click()
    await expect(step(page, "Enter a model key")).to_contain_text("to do")
    await set_a_model(installed, page)
    await try_it(installed, page)
    web_clicks = installed.clicks
    await make_an_agent(page)
    await connect_telegram(installed, page)
    async with page_of_ones_own() as (shop, snippets):
        await put_it_on_a_page(page, shop, snippets)
        visitor = await (await installed.browser(browser)).new_page()
        await visitor.goto(shop)
        await visitor.get_by_role("button", name="Open chat").click()
        await ask(visitor, "My parcel is a green one")
        await visitor.context.close()
    assert await asked_as_ada(installed) == ["It rains in Porto today", "My parcel is a green one"]
    await overview(page)
    for name in ("Enter a model key", "Try it", "Connect a Telegram bot", "Add the chat to a page"):
        await expect(step(page, name)).to_contain_text("done")
    await expect(page.get_by_text("4 of 6 done")).to_be_visible()
    await context.close()
    assert (web_clicks, installed.clicks) == (5, 20)
    assert installed.clicks <= MOST_CLICKS


async def set_a_model(installed: Installed, page: Page) -> None:
    await page.get_by_role("link", name="Enter a model key").click()
    await page.get_by_label("Anthropic: key", exact=True).fill(KEY)
    await page.get_by_label("Anthropic: address").fill(installed.provider.base_url)
    await page.get_by_role("button", name="Test").click()
    await expect(page.get_by_text(WORKS)).to_be_visible()
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Saved, and in force.")).to_be_visible()


async def try_it(installed: Installed, page: Page) -> None:
    async with page.context.expect_page() as opened:
        await page.get_by_role("link", name="Open the chat").click()
    chat = await opened.value
    await ask(chat, "Good morning to you")
    await chat.close()
    assert await installed.provider.requests()


async def make_an_agent(page: Page) -> None:
    await page.get_by_role("link", name="Agents", exact=True).click()
    await page.get_by_text("New agent").click()
    await page.get_by_label("Name", exact=True).fill("ada")
    await page.keyboard.press("Enter")
    await page.get_by_label("Display name").fill("Ada")
    await page.get_by_label("Persona").fill(PERSONA)
    await expect(page.locator(".prompt")).to_contain_text(PERSONA)
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_text("Saved", exact=False).first).to_be_visible()
    await overview(page)


async def asked_as_ada(installed: Installed) -> list[str]:
    """What people have said to the agent, as its provider was told."""
    bodies = [str(one["body"]) for one in await installed.provider.requests() if one["kind"] == "chat"]
    said = ("Good morning to you", "It rains in Porto today", "My parcel is a green one")
    return [words for words in said if any(PERSONA in body and words in body for body in bodies)]


async def connect_telegram(installed: Installed, page: Page) -> None:
    """The person asks, and is let in on the page that the form leads to."""
    await page.get_by_role("link", name="Connect a Telegram bot").click()
    await page.get_by_role("textbox", name="Token of the bot").fill(TOKEN)
    await page.get_by_role("textbox", name="Agent", exact=True).fill("ada")
    await page.get_by_role("button", name="Test").click()
    await expect(page.get_by_text(f"It works: the bot is @{USERNAME}.")).to_be_visible()
    await page.get_by_role("region", name="Telegram", exact=True).get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Saved", exact=False).first).to_be_visible()
    person = await installed.telegram.person(4242)
    await person.say("Hello bot")
    await person.sees("code")
    await page.get_by_role("link", name="Access requests").click()
    await page.get_by_role("button", name=re.compile("^Approve")).click()
    await person.sees("You can talk with me now.")
    await person.say("It rains in Porto today")
    await person.sees("It rains in Porto today")
    await overview(page)


async def put_it_on_a_page(page: Page, shop: str, snippets: list[str]) -> None:
    await page.get_by_role("link", name="Add the chat to a page").click()
    await page.get_by_text("New site").click()
    await page.get_by_label("Name").fill("shop")
    await page.get_by_label("Name").press("Enter")
    await page.get_by_label("Allowed origins, one per line").fill(shop)
    await page.get_by_role("combobox", name="Agent").select_option("ada")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Saved. A running Evertalk")).to_be_visible()
    snippets.append(await page.locator("code.secret").filter(has_text="widget.js").inner_text())


async def reach(page: Page, target: Locator) -> None:
    """By the tabulator alone, from wherever the focus is."""
    await expect(target).to_be_visible()
    for _ in range(MOST_TABS):
        if await target.evaluate(HAS_FOCUS):
            return
        await page.keyboard.press("Tab")
    raise AssertionError(f"{target} cannot be reached by the keyboard")


async def press(page: Page, target: Locator) -> None:
    await reach(page, target)
    await page.keyboard.press("Enter")


async def write(page: Page, target: Locator, text: str) -> None:
    await reach(page, target)
    await page.keyboard.type(text)


async def test_the_keyboard_and_a_telephone_are_enough(installed: Installed, browser: Browser) -> None:
    context = await installed.browser(browser, width=390)
    page = await context.new_page()
    await page.goto(installed.link)
    await press(page, page.get_by_role("button", name="Log in"))
    await expect(step(page, "Enter a model key")).to_contain_text("to do")
    await seen_by_everybody(page)
    await press(page, page.get_by_role("link", name="Enter a model key"))
    await write(page, page.get_by_label("Anthropic: key", exact=True), KEY)
    await write(page, page.get_by_label("Anthropic: address"), "nonsense")
    await page.keyboard.press("Enter")
    address = page.get_by_label("Anthropic: address")
    await expect(address).to_be_focused()
    await expect(address).to_have_accessible_description(re.compile("must begin with http"))
    await seen_by_everybody(page)
    await page.keyboard.press("Control+A")
    await page.keyboard.type(installed.provider.base_url)
    await press(page, page.get_by_role("button", name="Test"))
    await expect(page.get_by_text(WORKS)).to_be_visible()
    await seen_by_everybody(page)
    await press(page, page.get_by_role("button", name="Save"))
    await expect(page.get_by_text("Saved, and in force.")).to_be_visible()
    await press(page, page.get_by_role("button", name="Menu"))
    await press(page, page.get_by_role("link", name="Overview", exact=True))
    await expect(step(page, "Enter a model key")).to_contain_text("done")
    await seen_by_everybody(page)
    async with context.expect_page() as opened:
        await press(page, page.get_by_role("link", name="Try it"))
    chat = await opened.value
    await write(chat, chat.get_by_role("textbox", name="Message"), "Good morning to you")
    await chat.keyboard.press("Enter")
    answer = chat.locator("article.assistant[data-status=sent]").last
    await expect(answer).to_contain_text("Good morning to you")
    assert await installed.provider.requests()
    await context.close()
    assert installed.clicks == 0
