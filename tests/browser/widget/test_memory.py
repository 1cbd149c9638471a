"""“Memory” and earlier conversations: read, searched, corrected and put away by the person."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.widget.conftest import Visitor
from tests.browser.widget.hands import becomes, log, say
from tests.browser.widget.stub import Stub, note_of
from tests.kit.night import rest_at_night

pytestmark = pytest.mark.browser
LONG = "Ada’s sister Ingrid lives in Tromsø, where the sun does not rise between November and January. " * 4


def sheet(page: Page) -> Locator:
    return page.get_by_role("dialog", name="Memory")


def look(page: Page, *, menu: str = "Menu", item: str = "Memory") -> None:
    """Opens the sheet by the menu."""
    page.get_by_role("button", name=menu).click()
    page.get_by_role("menuitem", name=item).click()


def remembering(visitor: Visitor, stub: Stub, *notes: dict[str, Any], query: str = "") -> Page:
    """The full page with its sheet open."""
    page = visitor.chat(query)
    expect(page.locator(".gauge")).to_be_visible()
    texts = ("Ada drinks green tea.", "Ada goes by train.", LONG)
    usual = [note_of(text, id=f"n0000000{at}") for at, text in enumerate(texts)]
    stub.only().notes = list(notes) or usual
    look(page)
    expect(sheet(page)).to_be_visible()
    return page


def news(stub: Stub, **values: Any) -> None:
    stub.call(stub.durable(stub.only(), {"t": "memory", "id": "n1", "text": "", "kind": "fact"} | values))


def test_the_sheet_lists_what_is_remembered_and_where_it_came_from(visitor: Visitor, stub: Stub) -> None:
    page = remembering(
        visitor,
        stub,
        note_of("Ada lives in Linz.", id="n00000001", kind="profile", event_date="2026-05"),
        note_of("<img src=x onerror=alert(1)> is a *page*.", id="n00000002", authority="tool"),
    )
    items = sheet(page).get_by_role("listitem")
    expect(items).to_have_count(2)
    expect(items.first).to_contain_text("Ada lives in Linz.")
    expect(items.first).to_contain_text("Profile · May 4, 2026 · about 2026-05")
    expect(items.first).not_to_contain_text("from a tool")
    expect(items.last).to_contain_text("<img src=x onerror=alert(1)> is a *page*.")
    expect(items.last).to_contain_text("from a tool")
    expect(sheet(page).get_by_text("2 notes")).to_be_visible()


def test_a_note_is_put_away_and_had_back(visitor: Visitor, stub: Stub) -> None:
    page = remembering(visitor, stub)
    sheet(page).get_by_role("button", name="Delete: Ada drinks green tea.").click()
    expect(sheet(page).get_by_role("listitem")).to_have_count(2)
    undo = sheet(page).get_by_role("button", name="Undo")
    expect(undo).to_be_focused()
    expect(sheet(page).get_by_text("You can restore it for 30 days")).to_be_visible()
    page.keyboard.press("Enter")
    expect(sheet(page).get_by_role("listitem")).to_have_count(3)
    expect(undo).to_have_count(0)
    expect(sheet(page).get_by_role("button", name="Edit: Ada drinks green tea.")).to_be_focused()
    sheet(page).get_by_role("button", name="Delete: Ada drinks green tea.").click()
    expect(sheet(page).get_by_role("listitem")).to_have_count(2)
    stub.only().away.clear()
    visitor.tolerated = ("status of 410",)
    undo.click()
    expect(sheet(page).get_by_text("It is too late to restore this note.")).to_be_visible()


def test_a_note_that_comes_back_over_a_slow_line_has_the_focus(visitor: Visitor, stub: Stub) -> None:
    """The list is looked at for being had back, and again for the news of it, before either comes."""
    page = remembering(visitor, stub)
    sheet(page).get_by_role("button", name="Delete: Ada drinks green tea.").click()
    expect(sheet(page).get_by_role("button", name="Undo")).to_be_focused()
    held: list[Route] = []
    page.route("**/api/v1/memory", lambda route: held.append(route) if len(held) < 2 else route.continue_())
    page.keyboard.press("Enter")
    becomes(page, lambda: len(held) == 2)
    for route in held:
        route.continue_()
    expect(sheet(page).get_by_role("listitem")).to_have_count(3)
    expect(sheet(page).get_by_role("button", name="Edit: Ada drinks green tea.")).to_be_focused()


def test_a_note_is_corrected_in_its_place(visitor: Visitor, stub: Stub) -> None:
    page = remembering(visitor, stub)
    sheet(page).get_by_role("button", name="Edit: Ada goes by train.").click()
    area = sheet(page).get_by_role("textbox", name="Edit")
    expect(area).to_be_focused()
    expect(area).to_have_value("Ada goes by train.")
    area.fill("Ada goes by boat.")
    page.keyboard.press("Control+Enter")
    expect(area).to_have_count(0)
    expect(sheet(page).get_by_role("listitem").nth(1)).to_contain_text("Ada goes by boat.")
    expect(sheet(page).get_by_role("button", name="Edit: Ada goes by boat.")).to_be_focused()
    expect(sheet(page).get_by_role("listitem")).to_have_count(3)
    sheet(page).get_by_role("button", name="Delete: Ada goes by boat.").click()
    expect(sheet(page).get_by_role("listitem")).to_have_count(2)


def test_newer_words_are_shown_before_they_are_replaced(visitor: Visitor, stub: Stub) -> None:
    visitor.tolerated = ("status of 409", "status of 400")
    newer = note_of("Ada lives in Linz.", id="n0000000b")
    page = remembering(visitor, stub, note_of("Ada lives in Graz.", id="n0000000a", newer=newer))
    sheet(page).get_by_role("button", name="Edit").click()
    area = sheet(page).get_by_role("textbox", name="Edit")
    area.fill("Ada lives in Wels.")
    sheet(page).get_by_role("button", name="Save").click()
    expect(sheet(page).get_by_role("alert")).to_contain_text("Somebody changed this note meanwhile")
    expect(sheet(page).get_by_role("listitem")).to_contain_text("Ada lives in Linz.")
    expect(area).to_have_value("Ada lives in Wels.")
    area.fill("password: hunter2")
    sheet(page).get_by_role("button", name="Save").click()
    expect(sheet(page).get_by_role("alert")).to_contain_text("Such things are never kept.")
    area.fill("Ada lives in Wels.")
    sheet(page).get_by_role("button", name="Save").click()
    expect(area).to_have_count(0)
    expect(sheet(page).get_by_role("listitem")).to_have_count(1)
    expect(sheet(page).get_by_role("listitem")).to_contain_text("Ada lives in Wels.")


def test_words_narrow_the_list_down(visitor: Visitor, stub: Stub) -> None:
    page = remembering(visitor, stub)
    search = sheet(page).get_by_role("searchbox", name="Search")
    search.press_sequentially("train")
    expect(sheet(page).get_by_role("listitem")).to_have_count(1)
    search.fill("whales & <b>")
    expect(sheet(page).get_by_text("Nothing about “whales & <b>”.")).to_be_visible()
    expect(sheet(page).get_by_role("listitem")).to_have_count(0)
    search.fill("")
    expect(sheet(page).get_by_role("listitem")).to_have_count(3)


def test_memory_change_elsewhere_is_shown_at_once_without_disturbance(visitor: Visitor, stub: Stub) -> None:
    page = remembering(visitor, stub)
    sheet(page).get_by_role("button", name="Edit: Ada goes by train.").click()
    area = sheet(page).get_by_role("textbox", name="Edit")
    area.fill("Ada goes by bicycle")
    stub.only().notes.insert(0, note_of("Ada plays chess.", id="n00000009"))
    news(stub, change="saved")
    expect(sheet(page).get_by_role("listitem").first).to_contain_text("Ada plays chess.")
    expect(area).to_have_value("Ada goes by bicycle")
    expect(area).to_be_focused()
    stub.only().notes.pop(2)
    news(stub, change="forgotten")
    stub.only().notes.pop(0)
    news(stub, change="forgotten")
    expect(sheet(page).get_by_text("Ada plays chess.")).to_have_count(0)
    expect(area).to_have_value("Ada goes by bicycle")
    visitor.tolerated = ("status of 404",)
    sheet(page).get_by_role("button", name="Save").click()
    expect(sheet(page).get_by_role("alert")).to_have_text("This note is not there any more.")
    page.keyboard.press("Escape")
    expect(sheet(page).get_by_role("listitem")).to_have_count(2)


def test_an_empty_memory_says_how_it_fills(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    look(page)
    expect(sheet(page).get_by_text("/remember keeps a sentence")).to_be_visible()
    stub.only().notes = [note_of("Ada drinks tea.", id="n00000001")]
    news(stub, change="saved")
    expect(sheet(page).get_by_text("1 note")).to_be_visible()


def test_a_server_that_fails_is_said_so_and_asked_again(visitor: Visitor, stub: Stub) -> None:
    visitor.tolerated = ("status of 503",)
    stub.broken = True
    page = remembering(visitor, stub)
    expect(sheet(page).get_by_text("The notes could not be loaded.")).to_be_visible()
    stub.broken = False
    sheet(page).get_by_role("button", name="Retry").click()
    expect(sheet(page).get_by_role("listitem")).to_have_count(3)
    stub.broken = True
    sheet(page).get_by_role("button", name="Delete").first.click()
    expect(sheet(page).get_by_text("Nothing was changed.")).to_be_visible()
    expect(sheet(page).get_by_role("listitem")).to_have_count(3)


def test_waiting_is_shown(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    held: list[Route] = []
    page.route("**/api/v1/memory", lambda route: held.append(route))
    look(page)
    expect(sheet(page).get_by_text("Loading…")).to_be_visible()
    becomes(page, lambda: bool(held))
    held.pop().continue_()
    expect(sheet(page).get_by_text("Nothing yet.")).to_be_visible()


def test_the_keyboard_stays_in_the_sheet_and_comes_back_to_its_button(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    expect(page.locator(".gauge")).to_be_visible()
    stub.only().notes = [note_of("Ada drinks tea.", id="n00000001")]
    opener = page.get_by_role("button", name="Menu")
    opener.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("menuitem", name="New conversation")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("menuitem", name="Memory")).to_be_focused()
    page.keyboard.press("Enter")
    expect(sheet(page).get_by_role("heading", name="Memory")).to_be_focused()
    expect(sheet(page).get_by_role("listitem")).to_have_count(1)
    names = []
    script = """() => { const one = document.querySelector('#evertalk').shadowRoot.activeElement;
        return one ? one.ariaLabel || one.textContent : ''; }"""
    for _ in range(8):
        page.keyboard.press("Tab")
        names.append(page.evaluate(script))
    around = ["Earlier conversations", "Back to the chat", "Search", "Memory"]
    acts = [f"{act}: Ada drinks tea." for act in ("Edit", "Delete", "Earlier texts")]
    assert names == [*around, *acts, "Earlier conversations"]
    page.keyboard.press("Shift+Tab")
    assert page.evaluate(script) == "Earlier texts: Ada drinks tea."
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    expect(sheet(page).get_by_role("button", name="Edit: Ada drinks tea.")).to_be_focused()
    page.keyboard.press("Escape")
    expect(sheet(page)).to_be_hidden()
    expect(opener).to_be_focused()
    say(page, "still here")
    expect(log(page).get_by_text("You said: still here")).to_be_visible()


def test_memory_sheet_works_on_an_embedding_page(visitor: Visitor, stub: Stub) -> None:
    page = visitor.shop("?open=1")
    expect(page.locator(".gauge")).to_be_visible()
    stub.only().notes = [note_of("Ada drinks tea.", id="n00000001")]
    look(page)
    sheet(page).get_by_role("button", name="Edit").click()
    sheet(page).get_by_role("textbox", name="Edit").fill("Ada drinks coffee.")
    sheet(page).get_by_role("button", name="Save").click()
    expect(sheet(page).get_by_role("listitem")).to_contain_text("Ada drinks coffee.")
    sheet(page).get_by_role("button", name="Delete").click()
    sheet(page).get_by_role("button", name="Undo").click()
    expect(sheet(page).get_by_role("listitem")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(sheet(page)).to_be_hidden()
    expect(page.get_by_role("textbox", name="Message")).to_be_visible()


def test_public_site_never_mentions_memory(visitor: Visitor, stub: Stub) -> None:
    stub.audience = "public"
    page = visitor.shop("?open=1")
    say(page, "hello")
    expect(log(page).get_by_text("You said: hello")).to_be_visible()
    page.get_by_role("button", name="Menu").click()
    expect(page.get_by_role("menuitem", name="New conversation")).to_be_visible()
    expect(page.get_by_role("menuitem", name="Memory")).to_have_count(0)
    assert not any("sheet" in path for path in stub.requests)


def test_after_a_link_the_earlier_conversation_can_be_read(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    say(page, "hello")
    expect(log(page).get_by_text("You said: hello")).to_be_visible()
    session = stub.only()
    said = [("person", "My boat is Njord."), ("assistant", "A **fine** name. <b>x</b>")]
    messages = [{"role": role, "text": text, "at": "2026-05-04T12:00:00Z"} for role, text in said]
    session.archived = [
        {
            "session_id": "s-old",
            "channel": "web",
            "archived_at": "2026-05-04T12:00:00Z",
            "messages": messages,
        }
    ]
    stub.renamed = "s-joined"
    stub.call(stub.drop(session))
    line = page.get_by_text("Your conversation goes on here. The earlier one is kept.")
    expect(line.locator("visible=true")).to_have_count(2)  # seen, and said to a screen reader
    page.get_by_role("button", name="Read it").click()
    dialog = page.get_by_role("dialog", name="Earlier conversations")
    expect(dialog.get_by_text("My boat is Njord.")).to_be_visible()
    expect(dialog.locator("strong")).to_have_text("fine")
    expect(dialog.get_by_text("<b>x</b>")).to_be_visible()
    dialog.get_by_role("button", name="Memory").click()
    expect(sheet(page).get_by_text("Nothing yet.")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Read it")).to_have_count(0)


def test_a_line_says_what_the_tool_is_looking_at(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    say(page, "slow one")
    expect(log(page).get_by_text("Line 10 of the")).to_be_visible()  # where the stream is held
    tool = {"t": "run", "turn": 1, "state": "tool"}
    shown = (
        ({"tool": "fetch_url", "subject": "example.org"}, "Looking at example.org…"),
        ({"tool": "mcp_docs_search", "subject": "docs"}, "Asking docs…"),
        ({"tool": "calculate"}, "Calculating…"),
        ({"tool": "fetch_url"}, "Working…"),
        ({"tool": "fetch_url", "subject": "<b>x</b>"}, "Looking at <b>x</b>…"),
    )
    for more, words in shown:
        stub.call(stub.send(stub.only(), tool | more))
        expect(log(page).get_by_text(words, exact=True)).to_be_visible()
    stub.call(stub.send(stub.only(), {"t": "run", "turn": 1, "state": "started"}))
    expect(log(page).get_by_text("Looking at")).to_have_count(0)
    stub.release.set()
    expect(log(page).get_by_text("Line 39 of the answer")).to_be_visible()


def test_the_sheet_speaks_german(visitor: Visitor, stub: Stub) -> None:
    page = visitor.shop("?open=1&locale=de")
    expect(page.locator(".gauge")).to_be_visible()
    stub.only().notes = [note_of("Ada trinkt Tee.", id="n00000001", authority="tool")]
    look(page, menu="Menü", item="Gedächtnis")
    expect(page.get_by_role("listitem")).to_contain_text("Tatsache · 04.05.2026aus einem Werkzeug")


@pytest.mark.parametrize(
    ("theme", "locale"),
    rest_at_night(product(("light", "dark"), ("en", "ur")), by_day=(("light", "ur"), ("dark", "en"))),
)
def test_the_sheet_fits_and_its_targets_are_large_enough(
    visitor: Visitor, stub: Stub, theme: str, locale: str
) -> None:
    page = visitor.page()
    page.set_viewport_size({"width": 320, "height": 640})
    page.goto(f"{stub.host_url}/shop?open=1&plain=1&theme={theme}&locale={locale}")
    expect(page.locator(".gauge")).to_be_visible()
    stub.only().notes = [note_of("W" * 300, id="n00000001", authority="tool", event_date="2026-05")]
    look(page)
    item = sheet(page).get_by_role("listitem")
    expect(item).to_be_visible()
    item.get_by_role("button", name="Edit").click()
    box = sheet(page).bounding_box()
    assert box == {"x": 0, "y": 0, "width": 320, "height": 640}
    assert sheet(page).locator(".scroll:visible").evaluate("node => node.scrollWidth <= node.clientWidth")
    small = """all => all.filter((one) => one.checkVisibility()).map((one) => one.getBoundingClientRect())
        .filter((box) => box.height < 24 || box.width < 24).length"""
    assert sheet(page).locator("button, input, textarea").evaluate_all(small) == 0
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(sheet(page)).to_be_hidden()
