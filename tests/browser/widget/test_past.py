"""What was said before comes while somebody scrolls up, stays where it is, and is left again."""

from __future__ import annotations

from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect
from pypdf import PdfReader

from tests.browser.axe import find_faults
from tests.browser.widget.conftest import Visitor
from tests.browser.widget.hands import becomes, log, say
from tests.browser.widget.stub import Stub
from tests.kit.night import by_night

pytestmark = pytest.mark.browser
BEGINNING = "Beginning of the conversation"
SHOWN = 300
"""Message nodes at most."""
STATE = """node => {
    const edge = node.getBoundingClientRect();
    const all = [...node.querySelectorAll("article")];
    const first = (one) => {
        const body = one.querySelector(".body");
        return (body.querySelector("p") ?? body).textContent.split("\\n")[0];
    };
    const seen = all.filter((one) => one.getBoundingClientRect().bottom > edge.top + 1)[0];
    const gap = node.querySelector("article ~ .gap");
    const above = (one) => !gap || one.compareDocumentPosition(gap) & Node.DOCUMENT_POSITION_FOLLOWING;
    const met = all.filter(above);
    return {count: all.length, top: seen?.getBoundingClientRect().top, words: seen && first(seen),
            all: met.map(first),
            tops: Object.fromEntries(all.map((one) => [first(one), one.getBoundingClientRect().top]))};
}"""


def remembered(visitor: Visitor, stub: Stub, turns: int, *, shop: bool = False, **more: Any) -> Page:
    """A page that comes back to a long conversation."""
    page = visitor.shop("?open=1&plain=1") if shop else visitor.chat()
    expect(page.locator(".gauge")).to_be_visible()
    stub.recall(stub.only(), turns, **more)
    stub.newest = 50
    page.reload()
    expect(log(page).get_by_text(f"Answer {turns}").first).to_be_visible()
    return page


def state(page: Page) -> dict[str, Any]:
    found: dict[str, Any] = log(page).evaluate(STATE)
    return found


def to_the_top(page: Page) -> None:
    log(page).evaluate("node => node.scrollTo(0, 0)")


def read_up(page: Page, *, until: Locator, most: int = 400) -> list[str]:
    """Turns the wheel until it is seen; the first words of everything that was drawn meanwhile, in order."""
    found: list[str] = []
    log(page).hover()
    for _ in range(most):
        now = state(page)
        assert now["count"] <= SHOWN
        fresh = now["all"]
        known = next((at for at, words in enumerate(fresh) if found and words == found[0]), len(fresh))
        found = fresh[:known] + found
        if until.count() and until.first.is_visible() and now["words"] == "Question 1":
            return found
        page.mouse.wheel(0, -1600)
        page.wait_for_timeout(20)
    raise AssertionError(f"never seen, but {state(page)}")


@pytest.mark.parametrize("shop", [False, True], ids=["full page", "widget"])
def test_a_conversation_is_read_to_its_beginning(visitor: Visitor, stub: Stub, shop: bool) -> None:
    page = remembered(visitor, stub, 250, shop=shop)
    found = read_up(page, until=log(page).get_by_text(BEGINNING))
    assert found == [f"{who} {turn}" for turn in range(1, 251) for who in ("Question", "Answer")]
    expect(log(page).get_by_text(BEGINNING)).to_have_count(1)
    befores = [int(query["before"]) for query in stub.pages]
    assert befores == sorted(set(befores), reverse=True)
    page.get_by_role("button", name="Jump to latest").click()
    expect(log(page).get_by_text("Answer 250")).to_be_in_viewport()
    assert state(page)["all"][-1] == "Answer 250"
    say(page, "And now?")
    expect(log(page).get_by_text("You said: And now?")).to_be_in_viewport()


def test_nothing_moves_when_earlier_messages_come(visitor: Visitor, stub: Stub) -> None:
    page = remembered(visitor, stub, 300)
    for number in range(1, 5):
        stub.hold_pages.clear()
        to_the_top(page)
        becomes(page, lambda number=number: len(stub.pages) == number)  # type: ignore[misc]
        before = state(page)
        stub.hold_pages.set()
        becomes(page, lambda before=before: state(page)["all"][0] != before["all"][0])  # type: ignore[misc]
        page.wait_for_timeout(200)
        after = state(page)
        assert abs(after["tops"][before["words"]] - before["top"]) < 2


def test_days_stand_between_the_messages_and_lead_to_others(visitor: Visitor, stub: Stub) -> None:
    page = remembered(visitor, stub, 120)
    expect(log(page).get_by_role("heading", name="Yesterday")).to_be_visible()
    expect(log(page).get_by_role("heading", name="Today")).to_have_count(0)
    say(page, "Hello again")
    expect(log(page).get_by_role("heading", name="Today")).to_be_visible()
    log(page).get_by_role("button", name="Yesterday").click()
    field = page.get_by_label("Date", exact=True)
    expect(field).to_be_focused()
    wanted = next(event for event in stub.only().events if event["text"].startswith("Question 20"))["at"]
    field.fill(wanted[:10])
    field.press("Enter")
    expect(log(page).get_by_text("Question 20", exact=True)).to_be_in_viewport()
    expect(log(page)).to_be_focused()
    expect(page.locator("[aria-live=polite]")).to_contain_text("Messages from")
    assert state(page)["count"] <= SHOWN


def test_between_a_day_and_the_present_everything_can_be_read(visitor: Visitor, stub: Stub) -> None:
    page = remembered(visitor, stub, 300)
    log(page).press("Home")
    expect(log(page).get_by_text(BEGINNING)).to_be_in_viewport()
    expect(log(page).get_by_text("Question 1", exact=True)).to_be_in_viewport()
    order = [f"{who} {turn}" for turn in range(1, 301) for who in ("Question", "Answer")]
    seen: set[str] = set()
    log(page).hover()
    # On a busy machine many turns of the wheel find the page still waiting for older messages.
    for _ in range(2_000):
        drawn = state(page)["all"]
        places = [order.index(words) for words in drawn]
        assert places == sorted(set(places)), "each message once, and in order"
        seen.update(drawn)
        if drawn[-1] == order[-1] and log(page).locator(".gap").count() == 0:
            break
        page.mouse.wheel(0, 1200)
        page.wait_for_timeout(30)
    assert [words for words in order if words not in seen] == []


SLIDES_MS = 500
"""At most so long a browser slides after a key."""


def test_the_keyboard_reads_back_and_keeps_its_place(visitor: Visitor, stub: Stub) -> None:
    page = remembered(visitor, stub, 200)
    page.keyboard.press("F6")
    expect(log(page)).to_be_focused()
    for _ in range(30):
        page.keyboard.press("PageUp")
        page.wait_for_timeout(40)
    expect(log(page)).to_be_focused()
    assert len(stub.pages) >= 1
    button = log(page).get_by_role("button", name="Copy").first
    button.focus()
    page.keyboard.press("PageUp")
    page.keyboard.press("End")  # while the key before it still slides
    page.wait_for_timeout(SLIDES_MS)
    expect(log(page).get_by_text("Answer 200")).to_be_in_viewport()
    page.keyboard.press("Home")
    expect(log(page).get_by_text("Question 1", exact=True)).to_be_in_viewport()
    becomes(
        page, lambda: page.evaluate("document.querySelector('#evertalk').shadowRoot.activeElement !== null")
    )


def test_a_lost_connection_says_so_quietly_and_is_tried_again(visitor: Visitor, stub: Stub) -> None:
    visitor.tolerated = ("Failed to load resource",)
    page = remembered(visitor, stub, 200)
    stub.broken = True
    to_the_top(page)
    again = log(page).get_by_role("button", name="Try again")
    expect(again).to_be_visible()
    expect(log(page).locator(".gap")).to_have_text("Could not load earlier messages · Try again")
    before = state(page)["words"]
    asked = len(stub.pages)
    page.wait_for_timeout(300)
    assert len(stub.pages) == asked
    stub.broken = False
    again.click()
    expect(again).to_have_count(0)
    expect(log(page)).to_be_focused()
    expect(log(page).locator(f"article:has-text('{before}')").first).to_be_attached()
    becomes(page, lambda: len(state(page)["all"]) > 60)


def test_message_erased_while_its_page_loads_is_not_shown(visitor: Visitor, stub: Stub) -> None:
    page = remembered(visitor, stub, 200)
    stub.hold_pages.clear()
    to_the_top(page)
    becomes(page, lambda: len(stub.pages) == 1)
    session = stub.only()
    gone = next(event for event in session.events if event["text"].startswith("Question 170"))
    stub.call(stub.durable(session, {"t": "erased", "mids": [gone["mid"]]}))
    stub.hold_pages.set()
    expect(log(page).get_by_text("[erased]")).to_have_count(1)
    expect(log(page).get_by_text("Question 170", exact=True)).to_have_count(0)


def test_after_everything_was_forgotten_nothing_comes_back(visitor: Visitor, stub: Stub) -> None:
    page = remembered(visitor, stub, 200)
    stub.hold_pages.clear()
    to_the_top(page)
    becomes(page, lambda: len(stub.pages) == 1)
    stub.call(stub.durable(stub.only(), {"t": "erased"}))
    stub.hold_pages.set()
    page.wait_for_timeout(300)
    expect(log(page).locator("article")).to_have_count(0)


def test_old_pin_is_found_and_regenerated_answer_keeps_former_one(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    expect(page.locator(".gauge")).to_be_visible()
    session = stub.only()
    stub.recall(session, 200)
    old, anew = session.events[41], session.events[-1]
    anew["replaces"] = session.events[101]["mid"]
    session.pinned = [old["mid"]]
    stub.newest = 50
    page.reload()
    expect(log(page).get_by_text("Answer 200").first).to_be_visible()
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("menuitem", name="Pinned messages").click()
    page.get_by_role("dialog").get_by_role("button", name="Show").click()
    found = log(page).locator("article", has_text="Answer 21").first
    expect(found).to_be_in_viewport()
    expect(found).to_be_focused()
    expect(found.get_by_role("button", name="Unpin")).to_be_visible()
    log(page).press("Home")
    for _ in range(60):
        page.mouse.wheel(0, 1500)
        page.wait_for_timeout(30)
    page.keyboard.press("End")
    expect(log(page).get_by_text("Earlier answer")).to_be_visible()


def test_the_card_of_an_old_summary_comes_to_its_place(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    expect(page.locator(".gauge")).to_be_visible()
    session = stub.only()
    stub.recall(session, 100)
    covered = session.events[120]
    card = {"t": "compaction", "id": "k900", "state": "done", "kind": "summary", "before": 9000, "after": 900}
    card |= {"through_turn": covered["turn"], "from_mid": session.events[0]["mid"], "to_mid": covered["mid"]}
    stub.call(stub.durable(session, card | {"summary": "Old things", "can_undo": True, "at": covered["at"]}))
    stub.newest = 50
    page.reload()
    expect(page.locator(".card")).to_have_count(1)
    read_up(page, until=log(page).get_by_text(BEGINNING))
    place = """node => [...node.querySelectorAll("article, .card")].map((one) =>
        one.matches(".card") ? "card" : one.querySelector(".body").innerText.split("\\n")[0])"""
    log(page).evaluate("node => node.scrollTo(0, node.scrollHeight / 2)")
    becomes(page, lambda: "card" in log(page).evaluate(place))
    shown = log(page).evaluate(place)
    assert shown[shown.index("card") - 1] == "Answer 61"
    page.locator(".card").get_by_role("button", name="Earlier conversation").click()
    page.get_by_role("tab", name="Original").click()
    expect(page.locator(".original")).to_have_count(100)
    page.get_by_role("button", name="Earlier messages").click()
    expect(page.locator(".original").first).to_contain_text("Question 1")
    expect(page.get_by_role("button", name="Later messages")).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_among_days_gaps_and_dates(visitor: Visitor, stub: Stub, theme: str) -> None:
    visitor.tolerated = ("Failed to load resource",)
    page = visitor.chat(f"?theme={theme}")
    expect(page.locator(".gauge")).to_be_visible()
    stub.recall(stub.only(), 100)
    stub.newest = 50
    page.reload()
    expect(log(page).locator(".day").first).to_be_attached()
    stub.broken = True
    to_the_top(page)
    expect(log(page).get_by_role("button", name="Try again")).to_be_visible()
    assert find_faults(page) == []
    stub.broken = False
    log(page).press("Home")
    expect(log(page).get_by_text(BEGINNING)).to_be_in_viewport()
    log(page).locator(".day button").first.click()
    expect(page.get_by_label("Date", exact=True)).to_be_visible()
    assert find_faults(page) == []
    small = """all => all.filter((one) => one.checkVisibility()).map((one) => one.getBoundingClientRect())
        .filter((box) => box.height < 24 || box.width < 24).length"""
    assert page.locator("button").evaluate_all(small) == 0


HUGE = (Path(__file__).parent / "huge.js").read_text()
"""Draws so many messages, reads them all upwards, and says how that went."""


def test_very_many_messages_stay_smooth(visitor: Visitor) -> None:
    page = visitor.chat()
    many = by_night(100_000, else_=20_000)
    told = page.evaluate(HUGE, many)
    print(told)
    assert told["items"] > many
    assert told["most"] <= SHOWN
    assert told["typical"] < 50
    assert told["live"] < 100


def test_a_saved_page_holds_all_that_was_loaded(visitor: Visitor, stub: Stub) -> None:
    page = remembered(visitor, stub, 250)
    read_up(page, until=log(page).get_by_text(BEGINNING))
    paper = PdfReader(BytesIO(page.pdf()))
    words = " ".join(sheet.extract_text() for sheet in paper.pages).split()
    printed = [number for word, number in pairwise(words) if word == "Question"]
    assert printed == [str(turn) for turn in range(1, 251)]
    assert state(page)["count"] <= SHOWN, "and then the screen is as it was"
