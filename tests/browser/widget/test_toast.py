"""“Saved: …”: said once, small, to be taken back; and that no line which is read out silences another."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.widget.conftest import Visitor
from tests.browser.widget.hands import log, say
from tests.browser.widget.stub import Stub, note_of

pytestmark = pytest.mark.browser
TEA = "Ada drinks green tea."


def toast(page: Page) -> Locator:
    return page.get_by_role("group", name="New notes")


def polite(page: Page) -> Locator:
    return page.locator("[aria-live=polite]")


def noted(stub: Stub, text: str = TEA, *, note: str = "n00000001", **values: Any) -> None:
    """The server keeps a note and says so."""
    stub.only().notes.append(note_of(text, id=note))
    event = {"t": "memory", "id": note, "text": text, "kind": "fact", "change": "saved"}
    stub.call(stub.durable(stub.only(), event | values))


def talking(visitor: Visitor, query: str = "") -> Page:
    page = visitor.chat(query)
    expect(page.locator(".gauge")).to_be_visible()
    say(page, "hello")
    expect(log(page).get_by_text("You said: hello")).to_be_visible()
    return page


def test_saved_note_toast_appears_once_and_can_be_undone(visitor: Visitor, stub: Stub) -> None:
    page = talking(visitor)
    page.evaluate(
        """() => {
            window.told = [];
            const region = document.querySelector('#evertalk').shadowRoot.querySelector('[aria-live=polite]');
            const added = (one) => one.addedNodes.forEach((node) => told.push(node.textContent));
            const keep = (all) => all.forEach(added);
            new MutationObserver(keep).observe(region, { childList: true });
        }"""
    )
    noted(stub)
    expect(toast(page)).to_contain_text(f"Saved: {TEA}")
    expect(page.get_by_role("textbox", name="Message")).to_be_focused()
    page.get_by_role("button", name=f"Undo: {TEA}").click()
    expect(toast(page)).to_have_count(0)
    expect(page.get_by_role("textbox", name="Message")).to_be_focused()
    assert stub.only().notes == []
    expect(polite(page)).to_contain_text("Undone.")
    assert page.evaluate("told.filter(one => !one.startsWith('You said'))") == [
        f"Saved: {TEA}",
        "Undone.",
    ]


def test_a_note_that_cannot_be_taken_back_stays(visitor: Visitor, stub: Stub) -> None:
    visitor.tolerated = ("status of 503",)
    page = talking(visitor)
    noted(stub)
    stub.broken = True
    page.get_by_role("button", name=f"Undo: {TEA}").click()
    expect(polite(page)).to_contain_text("That did not work just now.")
    expect(toast(page)).to_contain_text("Retry")
    stub.broken = False
    page.get_by_role("button", name=f"Undo: {TEA}").click()
    expect(toast(page)).to_have_count(0)


def test_the_toast_leads_to_all_that_is_remembered(visitor: Visitor, stub: Stub) -> None:
    page = talking(visitor)
    noted(stub)
    toast(page).get_by_role("button", name="Memory").click()
    expect(page.get_by_role("dialog", name="Memory").get_by_text(TEA)).to_be_visible()
    expect(toast(page)).to_have_count(0)
    noted(stub, "Ada goes by train.", note="n00000002")
    expect(page.get_by_role("dialog").get_by_role("listitem")).to_have_count(2)
    expect(toast(page)).to_have_count(0)


def test_toast_disappears_on_dismissal_and_after_its_time(visitor: Visitor, stub: Stub) -> None:
    page = visitor.page()
    page.clock.install()
    page.goto(f"{stub.url}/chat")
    expect(page.locator(".gauge")).to_be_visible()
    noted(stub)
    toast(page).get_by_role("button", name="Dismiss").click()
    expect(toast(page)).to_have_count(0)
    expect(page.get_by_role("textbox", name="Message")).to_be_focused()
    noted(stub, "Ada goes by train.", note="n00000002")
    undo = toast(page).get_by_role("button", name="Undo")
    undo.focus()
    page.clock.fast_forward(30_000)
    expect(undo).to_be_focused()
    page.keyboard.press("Escape")
    expect(toast(page)).to_have_count(0)
    noted(stub, "Ada likes Rome.", note="n00000003")
    expect(toast(page)).to_contain_text("Rome")
    page.mouse.move(5, 5)
    page.clock.fast_forward(11_000)
    expect(toast(page)).to_have_count(0)


def test_several_notes_share_one_toast_and_the_oldest_makes_room(visitor: Visitor, stub: Stub) -> None:
    page = talking(visitor)
    for at, what in enumerate(("tea", "trains", "Rome", "chess")):
        noted(stub, f"Ada likes {what}.", note=f"n0000000{at}")
    expect(toast(page).get_by_role("paragraph")).to_have_count(3)
    expect(toast(page)).to_contain_text("chess")
    expect(toast(page)).not_to_contain_text("tea")
    gone = {"t": "memory", "id": "n00000003", "text": "", "kind": "fact", "change": "forgotten"}
    stub.call(stub.durable(stub.only(), gone))
    expect(toast(page)).not_to_contain_text("chess")


def test_flush_note_raises_no_toast(visitor: Visitor, stub: Stub) -> None:
    page = talking(visitor)
    noted(stub, quiet=True)
    stub.call(stub.push(stub.only(), "Done with that"))
    expect(polite(page)).to_contain_text("Done with that")
    expect(toast(page)).to_have_count(0)
    shown = page.locator(".panel").inner_text()
    assert TEA not in shown
    assert "Done with that" in shown


def test_a_public_site_and_a_reload_show_no_toast(visitor: Visitor, stub: Stub) -> None:
    page = talking(visitor)
    noted(stub)
    expect(toast(page)).to_be_visible()
    page.reload()
    expect(log(page).get_by_text("You said: hello")).to_be_visible()
    expect(toast(page)).to_have_count(0)
    stub.audience = "public"
    page.reload()
    expect(log(page).get_by_text("You said: hello")).to_be_visible()
    noted(stub, "Ada likes Rome.", note="n00000002")
    stub.call(stub.push(stub.only(), "Done with that"))
    expect(log(page).get_by_text("Done with that")).to_be_visible()
    expect(toast(page)).to_have_count(0)


@pytest.mark.parametrize("context_options", [{"reduced_motion": "reduce", "locale": "en-US"}])
@pytest.mark.usefixtures("context_options")
def test_the_toast_does_not_move_for_who_wants_rest(visitor: Visitor, stub: Stub) -> None:
    page = talking(visitor)
    noted(stub)
    expect(toast(page)).to_be_visible()
    assert toast(page).evaluate("node => getComputedStyle(node).animationName") == "none"


@pytest.mark.parametrize("code", ["handover_unanswered", "handover_silent"])
def test_the_honest_notice_is_heard_beside_what_follows_it(visitor: Visitor, stub: Stub, code: str) -> None:
    page = talking(visitor)
    stub.call(stub.hand_over(stub.only(), "waiting"))
    expect(page.locator(".bars").get_by_text("Waiting for a person…")).to_be_visible()
    stub.call(stub.lapse(stub.only(), code))
    expect(polite(page)).to_contain_text("Sorry")
    expect(polite(page)).to_contain_text("The assistant answers again.")
    expect(polite(page)).to_have_attribute("aria-atomic", "false")


def test_what_was_read_out_is_cleared_away_after_a_while(visitor: Visitor, stub: Stub) -> None:
    page = visitor.page()
    page.clock.install()
    page.goto(f"{stub.url}/chat")
    expect(page.locator(".gauge")).to_be_visible()
    say(page, "hello")
    expect(polite(page)).to_contain_text("You said: hello")
    page.clock.fast_forward(8_000)
    expect(polite(page).get_by_role("paragraph")).to_have_count(0)
