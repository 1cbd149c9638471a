"""The widget before the real server: Postgres, Valkey, the offline model and a real browser."""

from __future__ import annotations

import asyncio
import re

import asyncpg
import pytest
from playwright.async_api import FilePayload, Page, expect

from tests.browser.patience import WAIT_MS
from tests.browser.real.hands import ask, choose, give
from tests.kit.fakes.tcp_proxy import Cut, Link, TcpProxy

pytestmark = pytest.mark.browser
ALL_READ = """SELECT bool_and(read_seq = next_event_seq - 1)
                FROM addresses a JOIN sessions s ON s.id = a.session_id"""
"""What a page has yet to say would meet the break in place of what is meant to."""


async def test_an_answer_is_given_again_and_the_earlier_one_is_kept(chat: Page) -> None:
    await ask(chat, "My cat is called Miso.")
    await ask(chat, "What is my cat called?")
    await chat.get_by_role("button", name="Answer again").click()
    await chat.locator("summary").click()
    await expect(chat.locator("details .md")).to_contain_text("Miso")
    await expect(chat.locator("article.assistant")).to_have_count(2)
    await chat.reload()
    await expect(chat.locator("details")).to_have_count(1)
    await expect(chat.locator("article")).to_have_count(4)
    await choose(chat, "New conversation")
    await chat.get_by_role("button", name="Start a new conversation").click()
    await expect(chat.locator(".result")).to_contain_text("A new conversation starts")
    await expect(chat.get_by_role("button", name="Answer again")).to_have_count(0)


async def test_unknown_command_names_the_nearest_and_calls_no_model(chat: Page, database_url: str) -> None:
    await ask(chat, "Hello")
    box = chat.get_by_role("textbox", name="Message")
    for typed, told in (
        ("/forgt everything", "Did you mean /forget?"),
        ("/etc is a folder", "/help shows what I know."),
    ):
        await box.fill(typed)
        await box.press("Enter")
        await expect(chat.locator(".result").last).to_contain_text(told)
    for told in (
        "A new conversation starts",
        "already a new conversation",
    ):  # an answer, nothing to be alarmed by
        before = await chat.locator(".result").count()
        await box.fill("/new")
        await box.press("Enter")
        await expect(chat.locator(".result")).to_have_count(before + 1)
        await expect(chat.locator(".result").last).to_contain_text(told)
    await expect(chat.locator(".result[data-broken=true]")).to_have_count(0)
    await ask(chat, "/etc is a folder,\nand /usr is one too.")
    connection = await asyncpg.connect(database_url)
    assert await connection.fetchval("SELECT count(*) FROM turns") == 2
    await connection.close()


async def test_a_line_shows_where_the_conversation_was_cut(chat: Page) -> None:
    await ask(chat, "Before all of it")
    await give(chat, "/separator")
    await expect(chat.locator(".mark")).to_have_count(1)
    await ask(chat, "In between")
    await give(chat, "/new")
    await expect(chat.locator(".mark")).to_have_count(2)
    await ask(chat, "After all of it")
    rows = chat.locator(".items").locator("article.person, .mark")
    shown: list[str | re.Pattern[str]] = [
        "Before all of it", "The assistant no longer sees what is above", "In between",
        re.compile("New conversation"), "After all of it",
    ]  # fmt: skip
    await expect(rows).to_contain_text(shown)
    await chat.reload()
    await expect(rows).to_contain_text(shown)


async def test_what_a_command_asks_is_answered_with_a_button(chat: Page) -> None:
    await ask(chat, "Hello")
    await give(chat, "/mode")
    await chat.get_by_role("button", name="thorough").click()
    await expect(chat.locator(".result").last).to_contain_text("From now on I answer in the mode thorough.")
    await expect(chat.locator(".result").get_by_role("button")).to_have_count(0)
    await give(chat, "/forget everything")
    await chat.get_by_role("button", name="Delete everything").click()
    await expect(chat.locator("article.person")).to_have_count(0)


async def test_commands_stand_in_groups(chat: Page) -> None:
    box = chat.get_by_role("textbox", name="Message")
    await box.press_sequentially("/")
    await expect(chat.get_by_role("group", name="Memory").get_by_role("option")).to_contain_text(
        ["/memory", "/remember", "/forget"]
    )
    await box.press("ArrowUp")
    last = chat.get_by_role("option").last
    await expect(last).to_have_attribute("aria-selected", "true")
    await box.fill("")
    await ask(chat, "Hello")
    await give(chat, "/help")
    await expect(chat.locator(".result").last.locator("strong")).to_contain_text(["Talking", "What I see"])


async def test_visitor_who_only_looks_leaves_no_row(chat: Page, database_url: str) -> None:
    connection = await asyncpg.connect(database_url)

    async def kept() -> list[int]:
        tables = ("sessions", "addresses", "contacts", "visitors")
        return [await connection.fetchval(f"SELECT count(*) FROM {table}") for table in tables]

    before = await kept()
    box = chat.get_by_role("textbox", name="Message")
    await box.press_sequentially("/hel")
    await expect(chat.get_by_role("option")).to_have_count(1)
    await chat.reload()
    await expect(chat.get_by_role("button", name="Menu")).to_be_visible()
    other = await chat.context.new_page()
    await other.goto(chat.url)
    await expect(other.get_by_role("button", name="Menu")).to_be_visible()
    assert await kept() == before
    await box.fill("")
    await ask(chat, "Hello")
    assert await kept() == [one + 1 for one in before]
    await ask(other, "Hello again")
    await expect(other.locator("article")).to_have_count(4)
    await chat.reload()
    await expect(chat.locator("article")).to_have_count(4)
    assert await kept() == [one + 1 for one in before]
    await connection.close()


async def test_a_file_may_be_the_first_that_is_said(chat: Page) -> None:
    await chat.get_by_role("button", name="Attach files").click()
    file: FilePayload = {"name": "list.txt", "mimeType": "text/plain", "buffer": b"Bread, milk"}
    await chat.locator("input[type=file]").set_input_files(file)
    await expect(chat.locator(".composer .file[data-state=ready]")).to_have_count(1)
    await ask(chat, "What is on my list?")
    await expect(chat.locator(".sent-file")).to_have_count(1)


async def test_a_printed_page_holds_the_whole_conversation(chat: Page) -> None:
    for number in range(12):
        await ask(chat, f"The {number}th of many questions.")
    cut = "node => node.scrollHeight - node.clientHeight"
    log = chat.get_by_role("log")
    assert await log.evaluate(cut) > 100, "more than the screen holds"
    await chat.emulate_media(media="print")
    assert await log.evaluate(cut) <= 1
    tall = await log.evaluate("node => node.getBoundingClientRect().height")
    assert await chat.evaluate("document.documentElement.scrollHeight") >= tall > 800
    await expect(chat.get_by_role("textbox", name="Message")).to_be_hidden()


async def test_a_person_pins_saves_and_has_everything_forgotten(chat: Page) -> None:
    await ask(chat, "Hello")
    await ask(chat, "The door code is 4711.")
    await chat.get_by_role("button", name="Pin", exact=True).last.click()
    await expect(chat.get_by_role("button", name="Unpin")).to_be_visible()
    await choose(chat, "Pinned messages")
    await expect(chat.get_by_role("dialog").get_by_role("listitem")).to_contain_text("4711")
    await chat.keyboard.press("Escape")
    async with chat.expect_download() as saved:
        await choose(chat, "Download (Markdown)")
    path = await (await saved.value).path()
    assert "The door code is 4711." in path.read_text()
    await choose(chat, "Delete my data")
    await chat.get_by_role("button", name="Delete everything").click()
    await chat.get_by_role("button", name="Close").click()
    await expect(chat.locator("article")).to_have_count(0)
    await ask(chat, "Hello again.")
    await expect(chat.locator("article")).to_have_count(2)


async def test_a_long_talk_is_read_to_its_beginning_until_it_is_forgotten(chat: Page) -> None:
    for number in range(27):
        await ask(chat, f"Number {number} of many.")
    await chat.reload()
    log = chat.get_by_role("log")
    await expect(log.get_by_text("Number 26 of many.", exact=True)).to_be_visible()
    await expect(log.get_by_text("Number 0 of many.", exact=True)).to_have_count(0)
    await log.press("Home")
    await expect(log.get_by_text("Beginning of the conversation")).to_be_in_viewport()
    await expect(log.get_by_text("Number 0 of many.", exact=True)).to_be_in_viewport()
    await choose(chat, "Delete my data")
    await chat.get_by_role("button", name="Delete everything").click()
    await chat.get_by_role("button", name="Close").click()
    await expect(chat.locator("article")).to_have_count(0)
    await chat.reload()
    await ask(chat, "Hello again.")
    await log.press("Home")
    await expect(log.get_by_text("Beginning of the conversation")).to_be_visible()
    await expect(chat.locator("article:not(.result)")).to_have_count(2)
    await expect(log.get_by_text("of many.")).to_have_count(0)


@pytest.mark.parametrize("arrives", [False, True], ids=["it never arrives", "it arrives, and nobody says so"])
async def test_a_pin_that_dies_with_its_line_is_kept_once(
    chat: Page, url: str, database_url: str, arrives: bool
) -> None:
    async def breaks(_link: Link, data: bytes) -> bytes:
        line.heal()
        raise Cut(data if arrives else b"")

    connection = await asyncpg.connect(database_url)
    async with TcpProxy(upstream=("127.0.0.1", int(url.rpartition(":")[2]))) as line:
        await chat.goto(f"http://127.0.0.1:{line.port}/chat")
        await ask(chat, "The door code is 4711.")
        async with asyncio.timeout(30):
            while not await connection.fetchval(ALL_READ):
                await asyncio.sleep(0.05)
        line.requests = breaks
        await chat.get_by_role("button", name="Pin", exact=True).click()
        await expect(chat.get_by_role("button", name="Unpin")).to_be_visible()
        await expect(chat.locator("[aria-live=polite]")).to_contain_text("Pinned")
        assert await connection.fetchval("SELECT count(*) FROM pins") == 1
        assert await connection.fetchval("SELECT count(*) FROM events WHERE kind = 'pin'") == 1
        await chat.goto("about:blank")  # its line would else be looked for where the proxy no longer is
    await connection.close()


async def test_the_gauge_explains_itself_to_the_last_token(chat: Page) -> None:
    await ask(chat, "Hello")
    await chat.locator(".gauge").click()
    await expect(chat.locator(".stack .part").first).to_be_attached()
    async with asyncio.timeout(WAIT_MS / 1_000):
        while not await _sums_up(chat):  # the number that the answer brings about may still be on its way
            await asyncio.sleep(0.05)


async def _sums_up(page: Page) -> bool:
    """Whether the gauge says of its parts what they are, both seen at one moment."""
    shares, label = await page.locator(".panel").evaluate(
        """panel => [
            [...panel.querySelectorAll(".stack .part")].map(
                one => [one.className, Number(getComputedStyle(one).getPropertyValue("--share"))]),
            panel.querySelector(".gauge").ariaLabel]"""
    )
    used = sum(count for name, count in shares if "free" not in name)
    free = sum(count for name, count in shares if "free" in name)
    shown, whole = (f"{count / 1000:.1f}".removesuffix(".0") for count in (used, used + free))
    return f"~{shown}k/{whole}k" in label


async def test_noted_fact_is_shown_and_can_be_undone(chat: Page) -> None:
    await ask(chat, "Hello")
    box = chat.get_by_role("textbox", name="Message")
    await box.fill("/remember I drink green tea.")
    await box.press("Escape")
    await box.press("Enter")
    toast = chat.get_by_role("group", name="New notes")
    await expect(toast).to_contain_text("Saved: I drink green tea.")
    await toast.get_by_role("button", name="Undo").click()
    await expect(toast).to_have_count(0)
    await choose(chat, "Memory")
    await expect(chat.get_by_text("Nothing yet.")).to_be_visible()


async def test_where_no_socket_gets_through_the_talk_goes_by_stream(chat: Page) -> None:
    await chat.route_web_socket("**/ws", lambda socket: socket.close())
    async with chat.expect_response("**/api/v1/stream"):
        await chat.reload()
    await ask(chat, "By the stream")
    await chat.reload()
    await expect(chat.locator("article")).to_have_count(2)


async def test_a_long_paste_is_kept_whole_and_shown_folded(chat: Page) -> None:
    lines = [
        f"2026-11-{day:02d} 12:00:{second:02d} worker {second} says 😀 <b>"
        for day in (1, 2)
        for second in range(60)
    ]
    log = "\n".join(lines * 10) + "\nThe very end."
    await ask(chat, "Hello")
    await ask(chat, log)
    mine = chat.locator("article.person").last
    unfold = mine.get_by_role("button", name="Show all")
    await expect(unfold).to_be_visible()
    await expect(chat.locator("article.assistant").last).not_to_contain_text("Shown in part")
    await expect(mine).not_to_contain_text("The very end.")
    await unfold.click()
    await expect(mine).to_contain_text("The very end.")
    await chat.reload()
    await expect(mine).not_to_contain_text("The very end.")
    await mine.get_by_role("button", name="Show all").click()
    await expect(mine).to_contain_text("The very end.")
    shown = await mine.locator(".body").evaluate("node => node.firstChild.data")
    assert shown == log
    await mine.get_by_role("button", name="Edit", exact=True).click()
    await expect(chat.get_by_role("textbox", name="Edit message")).to_have_value(log)
