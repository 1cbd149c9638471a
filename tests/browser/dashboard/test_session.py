"""A session's page in a real browser: replay, estimates and diff, over a conversation that was had."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from playwright.async_api import Browser, Locator, Page, expect

from shared.adapters.postgres.people.operator_auth import hash_secret
from shared.ports import DASHBOARD, ToolContext
from shared.services.compaction.flusher import MAX_FLUSH_ROUNDS
from shared.services.memory.memory_tools import SaveMemoryTool
from shared.services.turns.toolbox import Toolbox
from tests.acceptance.sent_requests import FILLER, Sent
from tests.browser.axe import look_for_faults, look_in_both_schemes
from tests.browser.dashboard.place import fits
from tests.browser.patience import WAIT_MS
from tests.kit.app_driver import LookUp, Visit, running_app, settings_for, visit, working
from tests.kit.dashboard.serve import served
from tests.kit.fakes.messages_api.harness import RunningFake
from web.dashboard.access import COOKIE

pytestmark = pytest.mark.browser
TURNS = 14


@dataclass(slots=True)
class Talk:
    """A conversation with tools and a summary, and the dashboard beside it."""

    url: str
    guest: Visit
    session: str
    browser: Browser
    complaints: list[str] = field(default_factory=list)
    pages: list[Page] = field(default_factory=list)

    async def page(self, query: str = "", *, role: str = "operator", **how: Any) -> Page:
        token = f"login-{role}-{len(self.pages)}"
        await self.guest.app.pool.execute(
            """WITH one AS (INSERT INTO operators (name, role) VALUES ($1, $2) RETURNING id)
               INSERT INTO operator_sessions (token_hash, operator_id, expires_at)
               SELECT $3, id, now() + interval '1 hour' FROM one""",
            token, role, hash_secret(token),
        )  # fmt: skip
        page = await self.browser.new_page(
            **{"viewport": {"width": 1360, "height": 900}, "locale": "en-GB", **how}
        )
        self.pages.append(page)
        page.set_default_timeout(WAIT_MS)
        page.on("console", lambda one: self.complaints.append(one.text) if one.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        await page.context.add_cookies([{"name": COOKIE, "value": token, "url": self.url}])
        await page.goto(f"{self.url}/dashboard/sessions/{self.session}{query}")
        await expect(page.locator("main h1")).to_be_visible()
        await expect(page.locator(".skeleton")).to_have_count(0)
        return page


@pytest.fixture
async def lookups(
    database_url: str,
    redis_url: str,
    provider: RunningFake,
    browser: Browser,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Talk]:
    await provider.reset()
    monkeypatch.setattr(
        "shared.bootstrap.build_turns.Toolbox", lambda tools, **more: Toolbox([*tools, LookUp()], **more)
    )
    settings = settings_for(
        database_url, redis_url, anthropic_api_key="test-key", anthropic_base_url=provider.base_url,
        max_output=1_000, cap_total_per_day_usd="100", soft_budget=25_000,
    )  # fmt: skip
    async with running_app(settings) as app:
        guest = await visit(app)
        sent = Sent(guest, provider)
        for number in range(TURNS):
            tools = [f"first {number}", f"second {number}"] if number % 2 == 0 else []
            await sent.ask(f"Please look up {number}. {FILLER if number > 8 else ''}", *tools)
            if number > 10:
                await guest.run_due_jobs()
        session = str(await guest.one("SELECT public_id FROM sessions"))
        serving = served(
            web.Application(), pool=app.pool, settings=app.settings, commands=app.commands,
            handovers=app.handover_service, inspecting=app.context_inspector, news=app.dashboard_announcer,
        )  # fmt: skip
        async with working(guest), serving as url:
            talk = Talk(url=url, guest=guest, session=session, browser=browser)
            yield talk
            for page in talk.pages:
                await page.close()
    assert talk.complaints == []


async def test_the_slider_shows_what_the_model_saw(lookups: Talk) -> None:
    page = await lookups.page("?tab=requests")
    assert await lookups.guest.one("SELECT count(*) FROM audit WHERE action = 'read.replay'") == 0
    await page.get_by_role("button", name="Show what the model saw").click()
    seen = page.get_by_role("region", name="What the model saw")
    await expect(page.get_by_text("as it was sent, byte for byte")).to_be_visible()
    await expect(seen.locator(".piece.said").last).to_contain_text(f"Please look up {TURNS - 1}.")
    await page.get_by_role("slider", name="Turn", exact=True).last.focus()
    await page.keyboard.press("Home")
    await expect(page.get_by_role("button", name="Call 2")).to_have_attribute("aria-pressed", "true")
    await expect(seen.get_by_text("Look first.")).to_be_visible()
    await expect(seen.locator("b", has_text="Tool result")).to_have_count(2)
    assert "turn=1" in page.url
    await page.get_by_role("button", name="Call 1").click()
    await expect(page.get_by_role("button", name="Call 1")).to_have_attribute("aria-pressed", "true")
    await expect(seen.locator("b", has_text="Tool result")).to_have_count(0)
    await page.get_by_role("spinbutton", name="Turn number").fill(str(TURNS))
    await page.keyboard.press("Tab")
    await expect(seen.locator("del").first).to_be_visible()
    for summary in await seen.locator("details.before > summary").all():
        await summary.click()
    assert await look_for_faults(page) == []
    again = await lookups.page("?turn=3&call=1")
    await expect(again.get_by_text("Turn 3, call 1 of 2")).to_be_visible()
    about = await lookups.guest.one("SELECT count(*) FROM audit WHERE action = 'read.replay'")
    assert about >= 5


async def test_the_request_is_saved_as_the_provider_received_it(lookups: Talk, provider: RunningFake) -> None:
    page = await lookups.page(f"?turn={TURNS}")
    async with page.expect_download() as saving:
        await page.get_by_role("button", name="Save the request").click()
    path = await (await saving.value).path()
    saved = json.loads(path.read_text(encoding="utf-8"))
    chats = [r for r in await provider.requests() if r["kind"] == "chat" and r["status"] == 200]
    assert saved == chats[-1]["body"]


async def pictures(page: Page, name: str) -> None:
    """For whoever wants to look."""
    if folder := os.environ.get("PICTURES_FOLDER"):
        for scheme, width in (("light", 1360), ("dark", 1360), ("light", 390)):
            await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            await page.set_viewport_size({"width": width, "height": 900})
            await page.screenshot(path=Path(folder) / f"{name}-{scheme}-{width}.png")
        await page.set_viewport_size({"width": 1360, "height": 900})


async def test_a_conversation_is_saved_as_a_file_in_either_form(lookups: Talk) -> None:
    page = await lookups.page(role="viewer")
    button = page.locator("summary", has_text="Export")
    await button.focus()
    await page.keyboard.press("Enter")
    await pictures(page, "export")
    assert await look_for_faults(page) == []
    for width in (1360, 390):
        await page.set_viewport_size({"width": width, "height": 900})
        await fits(page)
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("link", name="Markdown")).to_be_hidden()
    await expect(button).to_be_focused()
    saved = {}
    for name, form in (("JSON", "json"), ("Markdown", "md")):
        await button.click()
        async with page.expect_download() as saving:
            await page.get_by_role("link", name=name).click()
        file = await saving.value
        assert file.suggested_filename.startswith(f"conversation-{lookups.session[:8]}-")
        saved[form] = (await file.path()).read_text(encoding="utf-8")
    (conversation,) = json.loads(saved["json"])["conversations"]
    said = await lookups.guest.one("SELECT count(*) FROM turn_entries")
    assert (conversation["id"], len(conversation["messages"])) == (lookups.session, said)
    assert f"Please look up {TURNS - 1}." in saved["md"]
    assert await lookups.guest.one("SELECT count(*) FROM audit WHERE action = 'read.export'") == 2


async def nothing_is_done(_visit: Visit, _over: asyncio.Event | None) -> None:
    await asyncio.sleep(0.05)


async def told_of_progress(talk: Talk, dialog: Locator, percent: int) -> None:
    """As a worker tells it; again until the stream is there to hear it, and of another's job too."""
    bar, app = dialog.get_by_role("progressbar"), talk.guest.app
    async with asyncio.timeout(30):
        while await bar.get_attribute("aria-valuenow") is None:
            job = (
                await talk.guest.one("SELECT max(id) FROM jobs WHERE kind = 'compact' AND state = 'due'") or 0
            )
            for one, far in ((job, percent), (job + 1_000, 99)):
                told = {"t": "progress", "job": one, "percent": far, "stage": "summarising"}
                await app.announcer.announce(DASHBOARD, told)
            await asyncio.sleep(0.2)
    await expect(bar).to_have_attribute("aria-valuenow", str(percent))
    await expect(dialog.locator(".working")).to_contain_text(f"{percent} %")
    await pictures(dialog.page, "compact")


async def test_a_flush_says_how_far_it_is_while_it_saves(
    lookups: Talk, provider: RunningFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first of its calls of the model, and before what that one saves is kept."""
    goes_on = asyncio.Event()
    saved = SaveMemoryTool.run

    async def waits(tool: SaveMemoryTool, arguments: Any, *, context: ToolContext) -> str:
        await goes_on.wait()
        return await saved(tool, arguments, context=context)

    monkeypatch.setattr(SaveMemoryTool, "run", waits)
    monkeypatch.setattr(SaveMemoryTool, "timeout_seconds", 60.0)
    call = {"name": "save_memory", "input": {"text": "Looks up many things.", "kind": "fact"}}
    await provider.script(
        [
            {"match": {"kind": "flush"}, "times": 1, "action": {"tool_use": [call]}},
            {"match": {"kind": "flush"}, "times": 1, "action": {"text": "Saved one note."}},
        ]
    )
    page = await lookups.page("?tab=memory")
    async with page.expect_response("**/api/v1/live"):
        await page.reload()
    await expect(page.locator(".skeleton")).to_have_count(0)
    await page.get_by_role("button", name="Save memory now").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Save memory now").click()
    far, bar = round(100 / (MAX_FLUSH_ROUNDS + 1)), dialog.get_by_role("progressbar")
    await expect(bar).to_have_attribute("aria-valuenow", str(far))
    await expect(dialog.locator(".working")).to_contain_text(
        re.compile(rf"Saving to memory · {far} % · \d+ s")
    )
    await page.wait_for_function(
        """(share) => Math.abs(new DOMMatrix(getComputedStyle(
             document.querySelector('.bar.known'), '::after').transform).a - share) < 0.01""",
        arg=far / 100,
    )
    assert await look_for_faults(page) == []
    await pictures(page, "flush")
    goes_on.set()
    await expect(dialog.locator(".done")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_label("Memory saved").get_by_text("Looks up many things.")).to_be_visible()


async def test_a_summary_is_estimated_made_and_compared(lookups: Talk) -> None:
    page = await lookups.page("?tab=summaries")
    await page.get_by_role("button", name="Save memory now").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_text(re.compile("reads about .* tokens in one call"))).to_be_visible()
    await dialog.get_by_role("button", name="Save memory now").click()
    await expect(dialog.locator(".done")).to_be_visible()
    assert await lookups.guest.one("SELECT flushed_turn FROM sessions") == TURNS
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="Summarise now").click()
    force = dialog.get_by_label("Do it anyway")
    start = dialog.get_by_role("button", name="Summarise now")
    await expect(dialog.locator(".skeleton")).to_have_count(0)
    if await force.is_visible():
        await force.check()
    await expect(start).to_be_enabled()
    await expect(dialog.get_by_text("Summarises")).to_be_visible()
    await dialog.get_by_label("What matters most").fill("the river")
    assert await look_for_faults(page) == []
    before = await lookups.guest.one("SELECT count(*) FROM compactions WHERE kind = 'summary'")
    with pytest.MonkeyPatch.context() as paused:
        paused.setattr(Visit, "run_due_jobs", nothing_is_done)
        await start.click()
        await told_of_progress(lookups, dialog, 40)
    await expect(dialog.locator(".done")).to_contain_text("Summarised")
    await page.keyboard.press("Escape")
    await expect(page.locator(".fold-item")).to_have_count(before + 1)
    newest = page.locator(".fold-item").first
    await newest.locator("summary").first.click()
    await newest.get_by_role("tab", name="Diff").click()
    await expect(newest.get_by_role("heading", name="Facts that the summary does not say")).to_be_visible()
    await expect(newest.get_by_text("Text, compared with the previous summary")).to_be_visible()
    assert await look_for_faults(page) == []
    gauge = await lookups.guest.app.sessions.measure_context(lookups.guest.session_id)
    assert gauge is not None
    limit = await page.evaluate("async (n) => (await import('/static/shared/fmt.js')).tokens(n)", gauge.limit)
    await page.get_by_role("tab", name="Context").click()
    rest = page.get_by_label("Context breakdown").locator(".fills.rest dd span:first-child")
    await expect(rest.first).to_have_text(limit)


async def test_a_viewer_looks_and_cannot_act(lookups: Talk) -> None:
    page = await lookups.page("?tab=context", role="viewer")
    await expect(page.get_by_role("button", name="Summarise now")).to_have_count(0)
    await expect(page.get_by_label("Preset", exact=True)).to_contain_text("steady")
    await expect(page.get_by_label("Preset", exact=True)).to_contain_text("soft budget: 25,000")


async def test_the_chart_leads_to_what_the_model_saw_by_keyboard(lookups: Talk) -> None:
    page = await lookups.page("?tab=context")
    await page.locator(".stage").focus()
    await page.keyboard.press("Home")
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Turn 2, call 1 of 1")).to_be_visible()


async def test_transcript_stands_beside_the_chart_below_the_strip(lookups: Talk) -> None:
    page = await lookups.page(viewport={"width": 1280, "height": 860})
    strip = page.locator("dl.strip")
    names = ["Context now", "Lifetime tokens", "Cost", "Summaries"]
    await expect(strip.locator("dt")).to_have_text(names)
    chart, messages = page.locator(".stage"), page.locator(".transcript")
    for mark in ("line.mark-line.whole", "g.fold"):
        await expect(chart.locator(mark).first).to_be_attached()
    boxes = [await one.bounding_box() for one in (strip, messages, chart)]
    above, left, right = [one for one in boxes if one is not None]
    assert above["y"] + above["height"] <= min(left["y"], right["y"])
    assert left["x"] + left["width"] <= right["x"]
    await fits(page)
    if folder := os.environ.get("PICTURES_FOLDER"):
        await page.screenshot(path=Path(folder) / "session-1280.png")
    await page.get_by_role("tab", name="Context").click()
    await expect(page.locator(".stage:visible")).to_have_count(1)
    await page.get_by_role("tab", name="Conversation").click()
    await expect(page.locator(".stage:visible")).to_have_count(1)
    assert await look_in_both_schemes(page) == []
    await strip.get_by_role("button", name="Summaries").click()
    await expect(page.get_by_role("tab", name="Summaries")).to_have_attribute("aria-selected", "true")
    await expect(page.locator(".fold-item").first).to_be_visible()


@pytest.mark.parametrize("width", [1360, 390])
async def test_no_width_scrolls_sideways(lookups: Talk, width: int) -> None:
    page = await lookups.page(f"?turn={TURNS}", viewport={"width": width, "height": 844})
    await expect(page.get_by_text("byte for byte")).to_be_visible()
    await fits(page)


async def test_the_gauge_of_the_list_and_of_the_page_is_the_same(lookups: Talk) -> None:
    """Also where the next request would be measured by another limit than the last one was."""
    await lookups.guest.app.pool.execute("UPDATE sessions SET context_limit = 2 * context_limit")
    page = await lookups.page("?tab=context")
    shown = await page.locator(".kpi", has_text="Context now").locator("b").inner_text()
    assert shown.endswith("\u202f%")
    await page.goto(f"{lookups.url}/dashboard/sessions")
    row = page.locator("tr", has=page.locator(f"a[href$='{lookups.session}']"))
    await expect(row).to_contain_text(shown)


async def test_summary_title_is_on_page_list_and_person(lookups: Talk) -> None:
    hostile = "<b onclick=x>Tea</b> & سلام, and a trip to Lisbon with a dog"
    await lookups.guest.app.pool.execute(
        "UPDATE compactions SET ledger = ledger || jsonb_build_object('title', $1::text) WHERE active",
        hostile,
    )
    page = await lookups.page()
    await expect(page.locator("main h1 + p")).to_have_text(hostile)
    await pictures(page, "title-session")
    await page.goto(f"{lookups.url}/dashboard/sessions")
    await expect(page.locator("a.row-link")).to_contain_text(hostile)
    await pictures(page, "title-list")
    person = await lookups.guest.one(
        "SELECT p.public_id FROM contacts p JOIN sessions s ON s.contact_id = p.id"
    )
    await page.goto(f"{lookups.url}/dashboard/people/{person}")
    await expect(page.locator("a.row-link")).to_have_text(hostile)
    assert await look_for_faults(page) == []
    await pictures(page, "title-person")
