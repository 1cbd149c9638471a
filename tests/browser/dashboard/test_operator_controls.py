"""Operators and a visitor in real browsers: who waits is seen, taken, answered and given back."""

from __future__ import annotations

import asyncio
import io
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from PIL import Image
from playwright.async_api import FilePayload, Page, Route, expect

from tests.browser.axe import look_for_faults, look_in_both_schemes
from tests.browser.dashboard.house import House
from tests.browser.dashboard.news import without_news
from tests.browser.dashboard.place import fits
from tests.kit.dashboard import seed

pytestmark = pytest.mark.browser


@pytest.fixture
def house_options() -> dict[str, Any]:
    return {"handover": "on"}


async def say(page: Page, text: str) -> None:
    box = page.get_by_role("textbox", name="Message")
    await box.fill(text)
    await box.press("Enter")


async def answered(page: Page, count: int) -> None:
    await expect(page.locator("article.assistant[data-status=sent]")).to_have_count(count)


async def one_who_waits(house: House) -> Page:
    """Has talked, and asked for a human."""
    visitor = await house.visitor()
    await say(visitor, "Hello, where is my parcel?")
    await answered(visitor, 1)
    await say(visitor, "/human my parcel is lost")
    await expect(visitor.get_by_text("Waiting for", exact=False).first).to_be_visible()
    return visitor


def picture(wide: int, high: int) -> bytes:
    found = io.BytesIO()
    Image.effect_noise((wide, high), 90).convert("RGB").save(found, "PNG")
    return found.getvalue()


def line(page: Page) -> Any:
    return page.get_by_role("group", name="Who has this conversation")


def reply_box(page: Page) -> Any:
    return page.get_by_role("textbox", name="Your reply")


async def test_who_asks_is_seen_taken_answered_and_given_back(house: House) -> None:
    page = await house.operator("Anna", path="/dashboard/account")
    await page.get_by_label("Display name").fill("Mrs. Berger")
    await page.get_by_role("button", name="Set the name").click()
    await expect(page.get_by_text("People see you as Mrs. Berger.")).to_be_visible()
    portrait = FilePayload(name="me.png", mimeType="image/png", buffer=picture(900, 600))
    await page.get_by_label("Picture", exact=True).set_input_files(portrait)
    await expect(page.get_by_role("img", name="Your picture")).to_be_visible()
    await page.goto(f"{house.url}/dashboard")
    await expect(page).to_have_title("Overview · Evertalk")
    visitor = await one_who_waits(house)
    await expect(page).to_have_title("(1) Overview · Evertalk")
    await expect(page.locator("#say")).to_have_text("One person is waiting for a human.")
    await expect(page.get_by_role("link", name="Inbox 1 waiting")).to_be_visible()
    await page.keyboard.type("gw")
    row = page.locator(".inbox-list li")
    await expect(row).to_contain_text("is waiting for a human")
    await expect(row).to_contain_text("Web")
    await row.get_by_role("link").click()
    await expect(line(page)).to_contain_text("my parcel is lost")
    await page.get_by_role("button", name="Take").click()
    await expect(reply_box(page)).to_be_focused()
    await expect(line(page)).to_contain_text("You have this conversation")
    await expect(visitor.get_by_text("Mrs. Berger", exact=False).first).to_be_visible()
    await expect(page).not_to_have_title(re.compile(r"^\("))
    await page.keyboard.type("Good day, I look for it.")
    await page.keyboard.press("Shift+Enter")
    await page.keyboard.type("One moment!")
    await expect(visitor.get_by_text("Mrs. Berger is writing…")).to_be_visible()
    await page.keyboard.press("Enter")
    await expect(visitor.locator("article").last).to_contain_text("I look for it.")
    await expect(visitor.get_by_text("is writing…")).to_have_count(0)
    await expect(visitor.locator("article").last).to_contain_text("Mrs. Berger")
    await expect(visitor.locator("article").last.locator("img.face")).to_have_js_property("naturalWidth", 256)
    await visitor.reload()
    await expect(visitor.get_by_text("You are talking with Mrs. Berger.")).to_be_visible()
    await expect(visitor.locator("article").last).to_contain_text("Mrs. Berger")
    await expect(visitor.get_by_text("Anna")).to_have_count(0)
    own = page.locator(".message.operator")
    await expect(own).to_contain_text("I look for it.\nOne moment!")
    await expect(own.locator(".by")).to_contain_text("Anna")
    await expect(reply_box(page)).to_have_value("")
    await expect(reply_box(page)).to_be_focused()
    await visitor.get_by_role("textbox", name="Message").fill("Thank you")
    await expect(page.get_by_text("The person is writing…")).to_be_visible()
    await say(visitor, "Thank you!")
    await expect(page.locator(".message.person").last).to_contain_text("Thank you!")
    await expect(line(page)).to_contain_text("Waiting for your reply")
    await page.get_by_role("link", name="Session", exact=True).click()
    await page.get_by_role("button", name="Return to the assistant").click()
    await expect(line(page)).to_contain_text("Handled by the assistant.")
    await answered(visitor, 2)
    await expect(page.locator(".message.assistant")).to_have_count(2)
    await expect(page.locator(".divider.hand")).to_contain_text(
        ["A human was asked for by the person", "Anna took the conversation", "Returned to the assistant"]
    )
    await expect(reply_box(page)).to_be_hidden()
    audit = [one["action"] for one in await house.app.pool.fetch("SELECT action FROM audit ORDER BY id")]
    assert [one for one in audit if one.startswith("handover")] == [
        "handover.take", "handover.reply", "handover.return",
    ]  # fmt: skip


async def test_button_of_the_page_that_was_left_works_after_return(house: House) -> None:
    await one_who_waits(house)
    page = await house.operator("Anna", path="/dashboard/inbox")
    await page.locator(".inbox-list a").click()
    await page.get_by_role("button", name="Take").click()
    await expect(reply_box(page)).to_be_focused()
    asked_for = asyncio.Event()

    async def come_late(route: Route) -> None:
        asked_for.set()
        await asyncio.sleep(1)
        await route.continue_()

    await page.route("**/session.js*", come_late)
    await page.get_by_role("link", name="Session", exact=True).click()
    await asked_for.wait()
    await page.get_by_role("button", name="Return to the assistant").click()
    await expect(line(page)).to_contain_text("Handled by the assistant.")


async def test_one_visitor_has_one_name_everywhere(house: House) -> None:
    await one_who_waits(house)
    name = f"Visitor {str(await house.one('SELECT public_id FROM contacts'))[:6]}"
    page = await house.operator("Anna", path="/dashboard/sessions")
    for path in ("sessions", "inbox", "people"):
        await page.goto(f"{house.url}/dashboard/{path}")
        await expect(page.locator("main tbody, .inbox-list")).to_contain_text(name)
    await page.goto(house.url + await house.session_path())
    await expect(page.get_by_role("heading", level=1)).to_have_text(name)


@asynccontextmanager
async def shop_with_the_chat(house: House) -> AsyncIterator[str]:
    """A page of somebody else, which its owner has forgotten to add."""
    tag = f'<script src="{house.url}/widget.js" data-site="default" data-open="true" async></script>'

    async def page(_request: web.Request) -> web.Response:
        return web.Response(
            text=f"<!doctype html><link rel=icon href='data:,'>{tag}", content_type="text/html"
        )

    app = web.Application()
    app.router.add_get("/", page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_a_page_that_was_refused_is_allowed_with_one_press(house: House) -> None:
    house.tolerated = ("403", "may not use the chat", "WebSocket")
    async with shop_with_the_chat(house) as shop:
        visitor = await house.visitor()
        await visitor.goto(shop)
        await expect(visitor.get_by_text("The chat is not available on this page.").first).to_be_visible()
        page = await house.operator("Anna", role="admin", path="/dashboard/sites/default")
        card = page.get_by_role("region", name="Refused pages")
        await expect(card).to_contain_text(re.compile(rf"{re.escape(shop)} \d ×, last"))
        for scheme, width in (("light", 1360), ("dark", 390)):
            await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            await page.set_viewport_size({"width": width, "height": 900})
            await fits(page)
            assert await look_for_faults(page) == []
            if folder := os.environ.get("PICTURES_FOLDER"):
                await page.screenshot(path=Path(folder) / f"refused-{scheme}.png", full_page=True)
        await card.get_by_role("button", name=f"Allow {shop}").click()
        await expect(page.get_by_text(f"{shop} is allowed.", exact=False).first).to_be_visible()
        await expect(card).to_have_count(0)
        assert await house.one("SELECT allowed_origins FROM sites WHERE name = 'default'") == [shop]
        told = await house.one("SELECT detail FROM audit WHERE action = 'site.origin_allowed'")
        assert told == {"origin": shop}
        house.process.visitors.forget_sites()
        await visitor.reload()
        await say(visitor, "Where is my parcel?")
        await answered(visitor, 1)


async def test_slower_operator_sees_who_took_the_conversation(house: House) -> None:
    house.tolerated = ("409", "503")
    await one_who_waits(house)
    anna = await house.operator("Anna", path="/dashboard/inbox")
    bert = await house.operator("Bert", path="/dashboard/inbox")
    for page in (anna, bert):
        await page.locator(".inbox-list a").click()
        await expect(page.get_by_role("button", name="Take")).to_be_visible()
    stale = without_news()
    await bert.route("**/api/v1/**", stale)
    await anna.get_by_role("button", name=re.compile("Take")).click()
    await expect(line(anna)).to_contain_text("You have this conversation")
    await bert.get_by_role("button", name=re.compile("Take")).click()
    await expect(bert.get_by_role("alert")).to_contain_text("Anna has this conversation.")
    await bert.unroute("**/api/v1/**", stale)
    await bert.reload()
    await expect(bert.locator(".inbox-list li")).to_contain_text("with Anna")
    await expect(bert.get_by_role("button", name=re.compile("Take"))).to_have_count(0)
    await bert.goto(house.url + await house.session_path())
    await expect(line(bert)).to_contain_text("Anna has this conversation")
    for name in ("Take", "Resolve", "Snooze", "Return to the assistant"):
        await expect(line(bert).get_by_role("button", name=name)).to_have_count(0)
    await expect(reply_box(bert)).to_be_hidden()
    await house.app.pool.execute("UPDATE operators SET role = 'admin' WHERE name = 'Bert'")
    await bert.reload()
    await bert.get_by_role("button", name="Return to the assistant").click()
    await expect(line(anna)).to_contain_text("Handled by the assistant.")


async def test_words_are_kept_when_the_conversation_was_taken_away(house: House) -> None:
    house.tolerated = ("409", "503")
    await one_who_waits(house)
    page = await house.operator("Anna", path=await house.session_path())
    await page.keyboard.press("t")
    await expect(reply_box(page)).to_be_focused()
    await reply_box(page).fill("It is on its way.")
    stale = without_news()
    await page.route("**/api/v1/**", stale)
    session_id = await house.one("SELECT session_id FROM handovers")
    await house.app.handover_service.release(session_id, operator_id=0, any_ones=True)
    await reply_box(page).press("Control+Enter")
    await expect(page.get_by_role("alert")).to_contain_text("Take this conversation first.")
    await page.unroute("**/api/v1/**", stale)
    await expect(line(page)).to_contain_text("Handled by the assistant.")
    await expect(reply_box(page)).to_have_value("It is on its way.")
    await page.reload()
    await expect(reply_box(page)).to_have_value("It is on its way.")
    await expect(page.locator("#reply-note")).to_contain_text("Your text is kept")
    await line(page).get_by_role("button", name="Take").click()
    await expect(reply_box(page)).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator(".message.operator")).to_contain_text("It is on its way.")


async def test_a_viewer_sees_the_state_and_cannot_act(house: House) -> None:
    await one_who_waits(house)
    path = await house.session_path()
    page = await house.operator("Vera", role="viewer", path="/dashboard/inbox")
    await expect(page.locator(".inbox-list li")).to_contain_text("is waiting for a human")
    await expect(page.get_by_role("button", name=re.compile("Take"))).to_have_count(0)
    await page.goto(house.url + path)
    await expect(line(page)).to_contain_text("Waits for a human")
    await expect(line(page)).to_contain_text("my parcel is lost")
    await expect(line(page).get_by_role("button")).to_have_count(0)
    await expect(reply_box(page)).to_be_hidden()
    house.tolerated = ("403",)
    status = await page.evaluate(
        """(id) => fetch(`/api/v1/sessions/${id}/handover`, { method: "POST", body: '{"action":"take"}',
             headers: { "Content-Type": "application/json" } }).then((answer) => answer.status)""",
        path.rsplit("/", 1)[-1],
    )
    assert status == 403
    assert await house.one("SELECT state FROM handovers") == "waiting"


async def test_a_reply_whose_answer_was_lost_is_stored_once(house: House) -> None:
    house.tolerated = ("ERR_FAILED", "Failed to load resource")
    visitor = await one_who_waits(house)
    page = await house.operator("Anna", path=await house.session_path())
    await line(page).get_by_role("button", name="Take").click()
    await expect(reply_box(page)).to_be_focused()
    cids: list[str] = []
    told = asyncio.Event()

    async def lose_the_first(route: Route) -> None:
        cids.append((route.request.post_data_json or {})["cid"])
        if len(cids) > 1:
            await told.wait()
            await route.fallback()
        else:
            await route.fetch()
            await route.abort()

    await page.route("**/replies", lose_the_first)
    await page.keyboard.type("It is in the shop.")
    await page.keyboard.press("Enter")
    await expect(page.locator("#reply-note")).to_contain_text("Your reply is kept")
    await expect(page.get_by_role("button", name="Cancel")).to_be_visible()
    told.set()
    await expect(reply_box(page)).to_have_value("")
    await expect(visitor.locator("article", has_text="It is in the shop.")).to_have_count(1)
    await expect(page.locator(".message.operator")).to_have_count(1)
    assert len(cids) == 2
    assert len(set(cids)) == 1
    assert await house.one("SELECT count(*) FROM entries WHERE author = 'operator'") == 1


async def test_while_the_assistant_answers_a_reply_waits_for_it(house: House) -> None:
    house.tolerated = ("409",)
    await one_who_waits(house)
    page = await house.operator("Anna", path=await house.session_path())
    await line(page).get_by_role("button", name="Take").click()
    await expect(reply_box(page)).to_be_focused()
    tries = 0
    told = asyncio.Event()

    async def busy(route: Route) -> None:
        nonlocal tries
        tries += 1
        body = {"code": "answer_runs", "message": "The assistant is finishing an answer."}
        if tries > 2:
            await told.wait()
            await route.fallback()
        else:
            await route.fulfill(status=409, headers={"Retry-After": "1"}, json=body)

    await page.route("**/replies", busy)
    await page.keyboard.type("I am here.")
    await page.keyboard.press("Enter")
    await expect(page.locator("#reply-note")).to_contain_text("The assistant is still answering")
    told.set()
    await expect(page.locator(".message.operator")).to_contain_text("I am here.")
    assert tries == 3


async def test_page_updates_continue_while_operator_types(house: House) -> None:
    visitor = await one_who_waits(house)
    page = await house.operator("Anna", path=await house.session_path())
    await line(page).get_by_role("button", name="Take").click()
    await expect(reply_box(page)).to_be_focused()
    await page.keyboard.type("I lok")
    await page.keyboard.press("ArrowLeft")
    await say(visitor, "Are you there?")
    await expect(page.locator(".message.person").last).to_contain_text("Are you there?")
    await expect(reply_box(page)).to_be_focused()
    await page.keyboard.type("o")
    await expect(reply_box(page)).to_have_value("I look")
    await reply_box(page).fill("x" * 8_001)
    await expect(page.locator("#reply-note")).to_contain_text("8,001 of 8,000 characters")
    await page.keyboard.press("Enter")
    await expect(reply_box(page)).to_have_value("x" * 8_001)


async def test_a_file_of_an_operator_reaches_the_person_once(house: House) -> None:
    house.tolerated = ("409", "Failed to load resource")
    visitor = await one_who_waits(house)
    page = await house.operator("Anna", path=await house.session_path())
    await line(page).get_by_role("button", name="Take").click()
    await expect(reply_box(page)).to_be_focused()
    async with page.expect_file_chooser() as chooser:
        await page.get_by_role("button", name="Attach a file").click()
    bill = FilePayload(name="bill <1>.txt", mimeType="text/plain", buffer=b"You owe us nothing.")
    await (await chooser.value).set_files(bill)
    await expect(page.locator(".reply .file")).to_contain_text("bill 1.txt")
    await page.reload()
    await expect(page.locator(".reply .file")).to_contain_text("bill 1.txt")
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator(".reply .file")).to_have_count(0)
    await expect(page.locator(".message.operator .file")).to_contain_text("bill 1.txt")
    await expect(visitor.locator("article").last).to_contain_text("bill 1.txt")
    found = await house.one("SELECT body FROM attachments")
    assert found == b"You owe us nothing."
    other = await house.operator("Bert", path=await house.session_path())
    status = await other.evaluate(
        """(id) => fetch(`/api/v1/sessions/${id}/uploads`, { method: "POST", body: "x",
             headers: { "Content-Type": "application/octet-stream" } }).then((answer) => answer.status)""",
        (await house.session_path()).rsplit("/", 1)[-1],
    )
    assert status == 409


async def test_files_and_opinions_are_shown_as_words(house: House) -> None:
    visitor = await house.visitor()
    async with visitor.expect_file_chooser() as chooser:
        await visitor.get_by_role("button", name="Attach files").click()
    hostile = FilePayload(name="<img src=x>.txt", mimeType="text/plain", buffer=b"what the file says")
    await (await chooser.value).set_files(hostile)
    await expect(visitor.locator(".composer")).to_contain_text("src=x")
    await say(visitor, "Please read this")
    await answered(visitor, 1)
    await house.app.pool.execute(
        "INSERT INTO feedback (session_id, turn_no, opinion, words) SELECT id, 1, 'bad', $1 FROM sessions",
        seed.HOSTILE,
    )
    page = await house.operator("Anna", path=await house.session_path())
    chip = page.locator("a.file")
    await expect(chip).to_contain_text("img src=x.txt")
    await expect(page.locator(".judged")).to_contain_text("Rated not helpful")
    await expect(page.locator(".judged")).to_contain_text(seed.HOSTILE)
    assert await page.locator("main script, main img").count() == 0
    given = await page.request.get(house.url + str(await chip.get_attribute("href")))
    assert (given.status, await given.text()) == (200, "what the file says")


async def test_inbox_is_empty_without_waiting_people(house: House) -> None:
    page = await house.operator("Anna", path="/dashboard/inbox")
    await expect(page.get_by_text("Nobody is waiting for a human.")).to_be_visible()
    await expect(page).to_have_title("Inbox · Evertalk")


@pytest.mark.parametrize("width", [1360, 390])
async def test_axe_finds_nothing_in_operator_controls(house: House, width: int) -> None:
    await one_who_waits(house)
    page = await house.operator("Anna", path="/dashboard/inbox", viewport={"width": width, "height": 844})
    found: dict[str, Any] = {}

    async def look(state: str) -> None:
        found[state] = await look_in_both_schemes(page)
        await fits(page)

    await expect(page.locator(".inbox-list li")).to_be_visible()
    await look("list")
    await page.goto(house.url + await house.session_path())
    await expect(page.locator("main h1")).to_be_visible()
    await expect(page.locator(".skeleton")).to_have_count(0)
    await look("waits")
    await line(page).get_by_role("button", name="Take").click()
    await expect(reply_box(page)).to_be_focused()
    await look("taken")
    await page.keyboard.type("Good day!")
    await page.keyboard.press("Enter")
    await expect(page.locator(".message.operator")).to_be_visible()
    await reply_box(page).fill("A second one")
    await look("writes")
    await line(page).get_by_role("button", name="Return to").click()
    await expect(line(page)).to_contain_text("Handled by the assistant.")
    await look("given back")
    assert {state: some for state, some in found.items() if some} == {}
