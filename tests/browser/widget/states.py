"""States of an open chat, one after the other, for tests that look at each."""

from __future__ import annotations

from collections.abc import Iterator

from playwright.sync_api import Page, expect

from tests.browser.widget.conftest import Visitor
from tests.browser.widget.hands import log, say
from tests.browser.widget.picked_files import file, pick, png
from tests.browser.widget.stub import COMMANDS, Stub, ctx, note_of

SITE = {"welcome": "Hello from Acme", "starters": ["Where is my parcel?", "I want to send something back"]}


def states(visitor: Visitor, stub: Stub, page: Page) -> Iterator[str]:
    """Brings an open chat from one state into the next and says which it is."""
    box = page.get_by_role("textbox", name="Message")
    expect(page.locator(".gauge")).to_be_visible()
    expect(page.locator(".starters button")).to_have_count(2)
    yield "starters"
    yield from _files(visitor, stub, page)
    say(page, "md")
    expect(log(page).get_by_text("Done.")).to_be_visible()
    yield "conversation"
    page.get_by_role("button", name="Menu").click()
    expect(page.get_by_role("menu")).to_be_visible()
    yield "menu"
    page.get_by_role("menuitem", name="Continue on another device").click()
    expect(page.get_by_role("dialog", name="Continue on another device")).to_be_visible()
    yield "keeping"
    page.get_by_role("button", name="Back to the chat").click()
    stub.call(stub.hand_over(stub.only(), "waiting"))
    expect(page.locator(".bars").get_by_text("Waiting for a person…")).to_be_visible()
    yield "waiting for a person"
    stub.call(stub.hand_over(stub.only(), "bot"))
    box.press_sequentially("/")
    expect(page.get_by_role("option")).to_have_count(len(COMMANDS))
    yield "slash"
    box.fill("")
    stub.call(stub.send(stub.only(), {"t": "ctx"} | ctx(86_400)))
    page.locator(".gauge").click()
    expect(page.get_by_role("dialog", name="Context")).to_be_visible()
    yield "gauge"
    page.get_by_role("button", name="Summarise now").click()
    expect(page.locator(".card")).to_be_visible()
    yield "card"
    page.locator(".card").get_by_role("button", name="Earlier conversation").click()
    expect(page.get_by_role("tabpanel", name="Summary")).to_be_visible()
    yield "summary"
    page.get_by_role("tab", name="Original").click()
    expect(page.locator(".original").first).to_be_visible()
    yield "original"
    yield from _troubles(visitor, stub, page)


def _files(visitor: Visitor, stub: Stub, page: Page) -> Iterator[str]:
    """Chips that are there, on their way, waiting and refused; then a bubble with what was sent."""
    pick(page, file("there.txt", b"words"), file("shot.png", png(), "image/png"))
    expect(page.locator(".composer .file[data-state=ready]")).to_have_count(2)
    stub.hold_files.clear()
    pick(page, file("going.txt", b"more words"))
    expect(page.get_by_role("progressbar", name="Sending going.txt")).to_be_visible()
    yield "files on their way"
    stub.hold_files.set()
    expect(page.locator(".composer .file[data-state=ready]")).to_have_count(3)
    page.get_by_role("button", name="Remove going.txt").click()
    pick(page, file("empty.txt", b""))
    expect(page.locator(".composer .file[data-state=failed]")).to_have_count(1)
    yield "a file refused"
    page.get_by_role("button", name="Remove empty.txt").click()
    page.get_by_role("textbox", name="Message").fill("Look at these")
    page.keyboard.press("Enter")
    expect(log(page).get_by_text("You said: Look at these")).to_be_visible()
    expect(log(page).locator(".person canvas")).to_have_count(1)
    yield "files sent"
    event = {"t": "memory", "id": "n00000009", "text": "Ada drinks green tea.", "kind": "fact"}
    stub.call(stub.durable(stub.only(), event | {"change": "saved"}))
    expect(page.get_by_role("group", name="New notes")).to_be_visible()
    # For whoever is in it, it stays: to look at it may take longer than it would.
    page.get_by_role("button", name="Dismiss").focus()
    yield "toast"
    page.get_by_role("button", name="Dismiss").click()


def _troubles(visitor: Visitor, stub: Stub, page: Page) -> Iterator[str]:
    say(page, "limit")
    expect(page.locator("article.person[data-status=failed]")).to_be_visible()
    say(page, "fail")
    expect(log(page).get_by_text("The model is not reachable.")).to_be_visible()
    yield "errors"
    say(page, "slow one")
    expect(log(page).get_by_text("Line 5 of the answer")).to_be_visible()
    say(page, "and then")
    expect(page.locator("article.person").last).to_contain_text("Queued")
    yield "streaming"
    stub.release.set()
    expect(log(page).get_by_text("You said: and then")).to_be_visible()
    stub.only().notes = [
        note_of("Ada drinks green tea.", id="n00000001"),
        note_of("By train.", id="n00000002"),
    ]
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("menuitem", name="Memory").click()
    expect(page.get_by_role("dialog", name="Memory").get_by_role("listitem")).to_have_count(2)
    yield "sheet"
    page.keyboard.press("Escape")
    visitor.tolerated = ("ERR_INTERNET_DISCONNECTED", "WebSocket connection")
    visitor.lose_network(page)
    expect(page.locator(".link")).to_contain_text("You are offline.")
    say(page, "later")
    expect(log(page).get_by_text("Sending…")).to_be_visible()
    yield "offline"
    visitor.context.set_offline(False)
    expect(log(page).get_by_text("You said: later")).to_be_visible()
