"""Answering again, opinions, the menu and its questions, people who take over, and what was not read yet."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from shared.core.identity.handover import ADVICE
from tests.browser.axe import find_faults
from tests.browser.patience import WAIT_MS
from tests.browser.widget.conftest import Visitor
from tests.browser.widget.embedding_page import call
from tests.browser.widget.hands import arrived, asked, becomes, frames, log, say
from tests.browser.widget.stub import Stub, ctx
from tests.kit.night import rest_at_night

pytestmark = pytest.mark.browser
HUMAN = {"name": "human", "description": "Talk to a person"}


def heard(page: Page, stub: Stub, kind: str, count: int) -> None:
    """The server has so many of a kind, and has answered them."""
    becomes(page, lambda: [event["t"] for event in stub.only().events].count(kind) >= count)


def menu(page: Page, item: str) -> None:
    """Chooses from the menu."""
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("menuitem", name=item).click()


def offered(page: Page) -> list[str]:
    """What the menu shows."""
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("menuitem").first.wait_for()
    return page.get_by_role("menuitem").all_inner_texts()


def again(page: Page) -> Locator:
    return page.get_by_role("button", name="Answer again")


# ---- answering again


def test_the_new_answer_stands_for_the_old_one_which_can_be_opened(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    asked(page, "first")
    asked(page, "second")
    expect(again(page)).to_have_count(1)
    again(page).click()
    expect(log(page).get_by_text("You said: second (again)")).to_be_visible()
    expect(page.locator("article.assistant")).to_have_count(2)
    expect(page.locator("article.person")).to_have_count(2)
    expect(page.get_by_role("textbox", name="Message")).to_be_focused()
    earlier = page.locator("article.assistant").last.locator("details")
    expect(earlier.get_by_text("You said: second", exact=True)).to_have_count(0)
    earlier.locator("summary").click()
    expect(earlier.get_by_text("You said: second", exact=True)).to_be_visible()
    assert [frame["command"] for frame in frames(stub, "command")] == ["retry"]
    expect(page.locator(".result")).to_have_count(0)
    page.reload()
    expect(log(page).get_by_text("You said: second (again)")).to_be_visible()
    expect(page.locator("article.assistant")).to_have_count(2)
    again(page).click()
    expect(page.locator("article.assistant").last.locator("details")).to_have_attribute("data-count", "2")
    page.locator("summary").click()
    expect(page.locator("details .md")).to_have_count(2)


def test_another_tab_shows_the_newer_answer_too(visitor: Visitor) -> None:
    first, second = visitor.chat(), visitor.chat()
    asked(first)
    again(first).click()
    expect(log(second).get_by_text("You said: hello (again)")).to_be_visible()
    expect(second.locator("article.assistant")).to_have_count(1)


def test_command_lost_with_its_socket_is_resent_with_same_id(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    asked(page)
    stub.deaf = True
    again(page).click()
    page.wait_for_timeout(100)
    again(page).click()
    stub.deaf = False
    stub.call(stub.drop(stub.only()))
    expect(log(page).get_by_text("You said: hello (again)")).to_be_visible()
    cids = {frame["cid"] for frame in frames(stub, "command")}
    assert len(cids) == 1, "a second click while one is under way asks for nothing"


def test_no_answer_is_given_again_while_one_is_written(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    asked(page)
    say(page, "slow one")
    expect(log(page).get_by_text("Line 5 of the answer")).to_be_visible()
    expect(again(page)).to_have_count(0)
    stub.release.set()
    expect(again(page)).to_have_count(1)


def test_a_failed_answer_is_tried_again(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    say(page, "fail")
    notice = page.locator("article").last
    expect(notice).to_contain_text("not reachable")
    notice.get_by_role("button", name="Retry").click()
    expect(log(page).get_by_text("You said: fail (again)")).to_be_visible()
    expect(page.locator("article.person")).to_have_count(1)


def test_retry_without_the_command_asks_the_question_again(visitor: Visitor, stub: Stub) -> None:
    stub.audience = "public"
    page = visitor.shop("?open=1")
    say(page, "fail")
    expect(again(page)).to_have_count(0)
    page.locator("article").last.get_by_role("button", name="Retry").click()
    expect(page.locator("article.person")).to_have_count(2)


def test_what_is_out_of_sight_is_not_answered_again(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    asked(page)
    expect(again(page)).to_have_count(1)
    begun = {
        "t": "compaction",
        "id": "k9",
        "state": "new",
        "kind": "new",
        "through_turn": 1,
        "trigger": "manual",
    }
    stub.call(stub.durable(stub.only(), begun | {"before": 0, "after": 0, "summary": "", "can_undo": False}))
    expect(again(page)).to_have_count(0)
    asked(page, "anew")
    expect(again(page)).to_have_count(1)


# ---- actions at rest


def opacity(page: Page, role: str, index: int) -> Callable[[], str]:
    """Return a reader of the opacity of the line below a message."""
    line = page.locator(f"article.{role}").nth(index).locator(".meta")
    return lambda: str(line.evaluate("node => getComputedStyle(node).opacity"))


def rest(page: Page) -> None:
    """Move the pointer off every message."""
    page.get_by_role("textbox", name="Message").hover()


@pytest.mark.parametrize("role", ["assistant", "person"])
def test_actions_of_older_messages_appear_on_hover(visitor: Visitor, role: str) -> None:
    page = visitor.chat()
    asked(page, "first")
    asked(page, "second")
    rest(page)
    older, last = opacity(page, role, 0), opacity(page, role, 1)
    becomes(page, lambda: older() == "0")
    assert last() == "1"
    page.locator(f"article.{role}").first.hover()
    becomes(page, lambda: older() == "1")
    rest(page)
    becomes(page, lambda: older() == "0")


def test_actions_of_older_answers_appear_on_focus(visitor: Visitor) -> None:
    page = visitor.chat()
    asked(page, "first")
    asked(page, "second")
    rest(page)
    older = opacity(page, "assistant", 0)
    becomes(page, lambda: older() == "0")
    page.locator("article.assistant").first.get_by_role("button", name="Copy").focus()
    becomes(page, lambda: older() == "1")


def test_rated_answer_keeps_its_actions_visible(visitor: Visitor) -> None:
    page = visitor.chat()
    asked(page, "first")
    asked(page, "second")
    page.locator("article.assistant").first.get_by_role("button", name="Good answer").click()
    page.get_by_role("textbox", name="Message").focus()
    rest(page)
    thumb = page.locator("article.assistant").first.get_by_role("button", name="Good answer")
    expect(thumb).to_have_attribute("aria-pressed", "true")
    assert opacity(page, "assistant", 0)() == "1"


# ---- opinions


def test_a_thumb_is_shown_kept_and_taken_back(visitor: Visitor, stub: Stub) -> None:
    page, other = visitor.chat(), visitor.chat()
    asked(page)
    good = page.get_by_role("button", name="Good answer")
    good.click()
    expect(good).to_have_attribute("aria-pressed", "true")
    expect(other.get_by_role("button", name="Good answer")).to_have_attribute("aria-pressed", "true")
    page.reload()
    expect(good).to_have_attribute("aria-pressed", "true")
    good.click()
    expect(good).to_have_attribute("aria-pressed", "false")
    assert [frame["value"] for frame in arrived(page, stub, "feedback", 2)] == [1, 0]


def test_after_a_thumb_down_words_are_welcome_and_not_needed(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    asked(page)
    poor = page.get_by_role("button", name="Poor answer")
    poor.click()
    words = page.get_by_role("textbox", name="What was wrong?")
    expect(words).to_be_focused()
    page.keyboard.press("Escape")
    expect(words).to_have_count(0)
    expect(page.get_by_role("textbox", name="Message")).to_be_focused()
    poor.click()
    poor.click()
    words.fill("It only repeats me.")
    words.press("Enter")
    expect(words).to_have_count(0)
    expect(page.locator("[aria-live=polite]")).to_contain_text("Thank you.")
    sent = [(frame["value"], frame.get("text")) for frame in arrived(page, stub, "feedback", 4)]
    assert sent == [(-1, None), (0, None), (-1, None), (-1, "It only repeats me.")]


def test_feedback_lost_with_its_socket_is_resent_with_same_id(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    asked(page)
    stub.lose_asides = 1
    page.get_by_role("button", name="Poor answer").click()
    first, again = arrived(page, stub, "feedback", 2)
    assert first == again
    heard(page, stub, "feedback", 1)
    stub.lose_asides = 1
    words = page.get_by_role("textbox", name="What was wrong?")
    words.fill("It only repeats me.")
    words.press("Enter")
    told = arrived(page, stub, "feedback", 4)[2:]
    assert [frame.get("text") for frame in told] == ["It only repeats me."] * 2
    assert told[0]["cid"] == told[1]["cid"] != first["cid"]
    heard(page, stub, "feedback", 2)
    stub.call(stub.drop(stub.only()))
    asked(page, "and now")
    assert len(frames(stub, "feedback")) == 4, "what was acknowledged is not said again"


def test_a_pin_says_so_without_a_message_of_its_own(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    asked(page)
    page.get_by_role("button", name="Pin", exact=True).click()
    expect(page.get_by_role("button", name="Unpin")).to_be_visible()
    sent = arrived(page, stub, "pin", 1)
    stub.call(stub.result(stub.only(), sent[0]["cid"], "pin", "Pinned: hello"))
    expect(page.locator("[aria-live=polite] p").last).to_have_text("Pinned")
    page.reload()
    expect(page.get_by_role("button", name="Unpin")).to_be_visible()
    expect(page.locator(".result")).to_have_count(0)


UNTIL_TOLD = """() => {
    const soon = window.setTimeout;
    window.later = [];
    window.setTimeout = (run, ms, ...more) => ms > 1000 ? window.later.push(run) : soon(run, ms, ...more);
}"""
"""What waits for longer than a second waits until the test lets it run."""


def test_copied_label_survives_a_redraw_of_its_answer(visitor: Visitor) -> None:
    visitor.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page, other = visitor.chat(), visitor.chat()
    asked(page)
    copy = page.locator("article.assistant .meta button").first
    expect(copy).to_have_text("Copy")
    page.evaluate(UNTIL_TOLD)
    copy.click()
    expect(copy).to_have_text("Copied")
    other.get_by_role("button", name="Pin", exact=True).click()
    expect(page.get_by_role("button", name="Unpin")).to_be_visible()
    expect(copy).to_have_text("Copied")
    expect(page.get_by_role("button", name="Copied")).to_have_count(1)
    page.evaluate("window.later.forEach(run => run())")
    expect(copy).to_have_text("Copy")
    copy.press("Enter")
    expect(copy).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "You said: hello"


def test_pin_lost_with_its_socket_is_resent_with_same_id(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    asked(page)
    stub.lose_asides = 1
    page.get_by_role("button", name="Pin", exact=True).click()
    expect(page.get_by_role("button", name="Unpin")).to_be_visible()
    first, again = arrived(page, stub, "pin", 2)
    assert first == again
    assert first["pinned"] is True
    stub.call(stub.result(stub.only(), first["cid"], "pin", "Pinned: hello"))
    expect(page.locator("[aria-live=polite] p").last).to_have_text("Pinned")
    stub.call(stub.drop(stub.only()))
    asked(page, "and now")
    assert len(frames(stub, "pin")) == 2, "what was answered is not asked again"


# ---- the menu


def test_the_menu_works_by_keyboard_and_gives_the_focus_back(visitor: Visitor) -> None:
    page = visitor.shop("?open=1")
    expect(page.locator(".gauge")).to_be_visible()
    opener = page.get_by_role("button", name="Menu")
    opener.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("menuitem", name="New conversation")).to_be_focused()
    expect(opener).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("End")
    expect(page.get_by_role("menuitem", name="Delete my data")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("menuitem", name="New conversation")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("menu")).to_have_count(0)
    expect(opener).to_be_focused()
    expect(opener).to_have_attribute("aria-expanded", "false")
    expect(page.get_by_role("dialog")).to_be_visible()
    opener.click()
    expect(page.get_by_role("menu")).to_be_visible()
    page.get_by_role("log").click(position={"x": 20, "y": 400})
    expect(page.get_by_role("menu")).to_have_count(0)


def test_only_what_this_visitor_may_do_is_offered(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    expect(page.locator(".gauge")).to_be_visible()
    everything = offered(page)
    assert "Talk to a person" not in everything, "nobody can be asked here"
    assert {"Memory", "Pinned messages", "Download (Markdown)", "Download (JSON)"} <= set(everything)
    stub.audience = "public"
    stub.commands.append(HUMAN)
    page.reload()
    plain = offered(page)
    assert not {"Memory", "Pinned messages"} & set(plain)
    assert {"Talk to a person", "New conversation", "Delete my data…"} <= set(plain)


def test_a_new_conversation_is_explained_before_it_begins(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    asked(page)
    menu(page, "New conversation")
    dialog = page.get_by_role("dialog", name="Start a new conversation?")
    expect(dialog).to_contain_text("stays here to be read")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert frames(stub, "command") == []
    menu(page, "New conversation")
    dialog.get_by_role("button", name="Start a new conversation").click()
    expect(page.locator(".result")).to_contain_text("A new conversation.")


def test_the_gauge_asks_the_same_question(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    page.locator(".gauge").click()
    page.get_by_role("button", name="New conversation").click()
    expect(page.get_by_role("dialog", name="Start a new conversation?")).to_be_visible()
    assert frames(stub, "command") == []


def test_forgetting_shows_first_what_it_would_be(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    asked(page)
    menu(page, "Delete my data")
    dialog = page.get_by_role("dialog", name="Delete everything about you?")
    expect(dialog).to_contain_text("That would be 2 messages.")
    expect(dialog).not_to_contain_text("/forget")
    dialog.get_by_role("button", name="Cancel").click()
    assert [frame["args"] for frame in frames(stub, "command")] == ["everything"]
    menu(page, "Delete my data")
    dialog.get_by_role("button", name="Delete everything").click()
    expect(dialog).to_contain_text("Forgotten: 2 messages.")
    dialog.get_by_role("button", name="Close").click()
    expect(page.locator("article")).to_have_count(0)


def test_a_question_without_a_connection_says_so(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    asked(page)
    page.clock.install()
    stub.deaf = True
    menu(page, "Delete my data")
    page.clock.run_for(21_000)
    expect(page.get_by_role("dialog", name="Delete everything about you?")).to_contain_text("Not connected")
    expect(page.get_by_role("button", name="Delete everything")).to_have_count(0)


@pytest.mark.parametrize("kind", ["md", "json"])
def test_the_conversation_is_saved_as_a_file(visitor: Visitor, stub: Stub, kind: str) -> None:
    page = visitor.chat()
    asked(page)
    with page.expect_download() as saved:
        menu(page, "Download (Markdown)" if kind == "md" else "Download (JSON)")
    assert re.fullmatch(rf"conversation-[0-9-]{{10}}\.{kind}", saved.value.suggested_filename)


def test_what_is_pinned_is_listed_shown_and_let_go(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    asked(page, "first")
    page.get_by_role("button", name="Pin", exact=True).click()
    asked(page, "second")
    menu(page, "Pinned messages")
    dialog = page.get_by_role("dialog", name="Pinned messages")
    expect(dialog.get_by_role("listitem")).to_have_text(re.compile("You said: first"))
    dialog.get_by_role("button", name="Show").click()
    expect(page.locator("article.assistant").first).to_be_focused()
    menu(page, "Pinned messages")
    dialog.get_by_role("button", name="Unpin").click()
    expect(dialog).to_contain_text("Nothing is pinned.")
    dialog.press("Escape")
    expect(page.get_by_role("button", name="Unpin")).to_have_count(0)


@pytest.mark.parametrize(
    ("item", "title"),
    [
        ("Memory", "Memory"),
        ("Pinned messages", "Pinned messages"),
        ("Search", "Search"),
        ("Go to a date", "Go to a date"),
    ],
)
def test_menu_views_open_in_one_panel(visitor: Visitor, stub: Stub, item: str, title: str) -> None:
    stub.commands.append({"name": "search", "args": "", "text": "Search"})
    page = visitor.chat()
    asked(page)
    menu(page, item)
    panel = page.get_by_role("dialog", name=title)
    expect(panel).to_be_visible()
    assert panel.evaluate("node => node.matches('section.sheet')")
    assert find_faults(page) == []
    panel.get_by_role("button", name="Back to the chat").click()
    expect(panel).to_be_hidden()
    expect(page.get_by_role("button", name="Menu")).to_be_focused()


def test_panel_is_docked_to_the_side_and_the_page_makes_room(visitor: Visitor) -> None:
    page = visitor.shop("?open=1&plain=1")
    expect(page.locator(".gauge")).to_be_visible()
    room = "getComputedStyle(document.documentElement).marginRight"
    menu(page, "Dock to the side")
    becomes(page, lambda: page.evaluate(room) == "400px")
    dialog = page.get_by_role("dialog")
    assert dialog.bounding_box() == {"x": 700, "y": 0, "width": 400, "height": 760}
    expect(page.get_by_role("button", name="Close chat")).to_have_count(1)
    assert find_faults(page) == []
    page.reload()
    becomes(page, lambda: page.evaluate(room) == "400px")
    page.get_by_role("button", name="Close chat").click()
    assert page.evaluate(room) == "0px"
    page.get_by_role("button", name="Open chat").click()
    assert page.evaluate(room) == "400px"
    page.set_viewport_size({"width": 800, "height": 700})
    becomes(page, lambda: page.evaluate(room) == "0px")
    page.set_viewport_size({"width": 1100, "height": 760})
    becomes(page, lambda: page.evaluate(room) == "400px")
    menu(page, "Undock")
    becomes(page, lambda: page.evaluate(room) == "0px")
    menu(page, "Dock to the side")
    becomes(page, lambda: page.evaluate(room) == "400px")
    call(page, "shutdown")
    assert page.evaluate(room) == "0px", "the page is as it was"


def test_page_docks_the_panel_by_an_attribute(visitor: Visitor) -> None:
    page = visitor.shop("?open=1&dock=true&position=left")
    expect(page.locator(".gauge")).to_be_visible()
    becomes(page, lambda: page.evaluate("getComputedStyle(document.documentElement).marginLeft") == "400px")


def test_the_appearance_is_chosen_and_remembered(visitor: Visitor) -> None:
    page = visitor.shop("?open=1")
    expect(page.locator(".gauge")).to_be_visible()
    menu(page, "Appearance: system")
    expect(page.get_by_role("menuitem", name="Appearance: light")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".root")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.locator(".root")).to_have_attribute("data-theme", "dark")


# ---- people who take over


def test_a_person_takes_over_writes_under_their_name_and_leaves(visitor: Visitor, stub: Stub) -> None:
    stub.commands.append(HUMAN)
    page = visitor.chat()
    asked(page)
    menu(page, "Talk to a person")
    line = page.locator(".bars").get_by_text("Waiting for a person…")
    expect(line).to_be_visible()
    session, announcer = stub.only(), page.locator("[aria-live=polite]")
    stub.call(stub.hand_over(session, "human", "Ann"))
    expect(page.locator(".bars").get_by_text("You are talking with Ann.")).to_be_visible()
    expect(announcer).to_contain_text("You are talking with Ann.")
    page.get_by_role("textbox", name="Message").press_sequentially("Where is it", delay=10)
    assert len(arrived(page, stub, "typing", 1)) == 1, (
        "said once for all that is written within three seconds"
    )
    stub.call(stub.send(session, {"t": "typing"}))
    expect(page.locator(".bars").get_by_text("Ann is writing…")).to_be_visible()
    page.get_by_role("textbox", name="Message").fill("")
    stub.call(stub.write(session, "Hello, what can I do?"))
    expect(page.locator(".bars").get_by_text("You are talking with Ann.")).to_be_visible()
    theirs = page.get_by_role("article", name="Ann")
    expect(theirs).to_contain_text("Hello, what can I do?")
    expect(announcer).to_contain_text("Ann: Hello, what can I do?")
    expect(theirs.get_by_role("button", name="Good answer")).to_have_count(0)
    page.reload()
    expect(page.locator(".bars").get_by_text("You are talking with Ann.")).to_be_visible()
    expect(page.locator(".mark")).to_have_text("Ann is here")
    stub.call(stub.hand_over(session, "bot"))
    expect(page.locator(".bars").get_by_text("You are talking with Ann.")).to_be_hidden()
    expect(announcer).to_contain_text("The assistant answers again.")
    expect(page.get_by_role("article", name="Ann")).to_have_count(1)


def test_the_help_of_a_person_is_rated(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    asked(page)
    session = stub.only()
    stub.call(stub.hand_over(session, "human", "Ann"))
    expect(page.locator(".bars").get_by_text("You are talking with Ann.")).to_be_visible()
    stub.call(stub.hand_over(session, "bot", rate=7))
    card = page.get_by_role("group", name="How was our help?")
    expect(card).to_be_visible()
    assert find_faults(page) == []
    card.get_by_role("button", name="4 of 5 stars").click()
    expect(page.locator(".rate")).to_have_text("Thank you!")
    assert stub.told[0][0] == "contact"
    assert stub.told[0][1]["page"].startswith("http")
    assert stub.told[-1] == ("ratings", {"handover": 7, "rating": 4})
    expect(page.locator(".rate")).to_have_count(0)


def test_waiting_can_be_taken_back(visitor: Visitor, stub: Stub) -> None:
    stub.commands.append(HUMAN)
    page = visitor.shop("?open=1")
    asked(page)
    menu(page, "Talk to a person")
    page.locator(".bars").get_by_role("button", name="Cancel").click()
    expect(page.locator(".bars").get_by_text("Waiting for a person…")).to_be_hidden()
    assert [frame["args"] for frame in frames(stub, "command")] == ["", "cancel"]


def test_a_hand_over_that_ended_while_away_does_not_stick(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    asked(page)
    session = stub.only()
    stub.call(stub.hand_over(session, "waiting"))
    expect(page.locator(".bars").get_by_text("Waiting for a person…")).to_be_visible()
    session.handover = None
    stub.call(stub.drop(session))
    expect(page.locator(".bars").get_by_text("Waiting for a person…")).to_be_hidden()


@pytest.mark.control("S15")
def test_an_operators_name_is_never_markup(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    asked(page)
    session = stub.only()
    stub.call(stub.hand_over(session, "human", "<img src=x onerror=alert(1)>"))
    stub.call(stub.write(session, "Hi", name="<img src=x onerror=alert(1)>"))
    expect(page.locator(".who")).to_have_text("<img src=x onerror=alert(1)>")
    assert page.locator("img").count() == 0


@pytest.mark.parametrize("code", sorted(ADVICE))
def test_missing_operator_notice_is_german_and_no_failed_answer(
    visitor: Visitor, stub: Stub, code: str
) -> None:
    page = visitor.chat("?locale=de", box="Nachricht")
    box = page.get_by_role("textbox", name="Nachricht")
    box.fill("Hallo")
    box.press("Enter")
    expect(page.locator("article.assistant[data-status=sent]")).to_have_count(1)
    stub.call(stub.hand_over(stub.only(), "waiting"))
    stub.call(stub.lapse(stub.only(), code))
    notice = page.locator("article.notice")
    expect(notice).to_contain_text(re.compile("der Assistent", re.IGNORECASE))
    expect(notice).not_to_contain_text("assistant")
    expect(notice.locator(".bad")).to_have_count(0)
    expect(page.locator("[aria-live=polite]")).to_contain_text(re.compile("der Assistent", re.IGNORECASE))


# ---- read and unread


def test_unread_messages_are_counted_after_a_reload(visitor: Visitor, stub: Stub) -> None:
    page = visitor.shop("?open=1")
    asked(page)
    page.keyboard.press("Escape")
    stub.call(stub.push(stub.only(), "One"))
    expect(page.get_by_role("button", name="Open chat, 1 unread")).to_be_visible()
    page.goto("about:blank")
    stub.call(stub.push(stub.only(), "Two"))
    page.goto(f"{stub.host_url}/shop")
    expect(page.get_by_role("button", name="Open chat, 2 unread")).to_be_visible()
    page.get_by_role("button", name="Open chat").click()
    expect(page.locator(".badge")).to_be_hidden()
    for _ in range(WAIT_MS // 20):
        if frames(stub, "read")[-1]["seq"] == len(stub.only().events):
            break
        page.wait_for_timeout(20)
    assert frames(stub, "read")[-1]["seq"] == len(stub.only().events)
    page.reload()
    expect(page.get_by_role("button", name="Open chat", exact=True)).to_be_visible()


def test_reading_in_one_tab_is_known_in_the_other(visitor: Visitor, stub: Stub) -> None:
    page = visitor.shop("?open=1")
    asked(page)
    page.keyboard.press("Escape")
    other = visitor.shop()
    expect(other.get_by_role("button", name="Open chat", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Open chat", exact=True)).to_be_visible()
    stub.call(stub.push(stub.only(), "News"))
    expect(other.get_by_role("button", name="Open chat, 1 unread")).to_be_visible()
    page.bring_to_front()
    page.get_by_role("button", name="Open chat").click()
    expect(other.locator(".badge")).to_be_hidden()


# ---- gauge, keyboard, shapes


def test_the_gauge_says_its_numbers_and_its_parts_sum_up(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    asked(page)
    frame = {"t": "ctx"} | ctx(86_400)
    gauge = page.locator(".gauge")
    expect(gauge).to_have_attribute("aria-label", re.compile("~33k/120k"))
    stub.call(stub.send(stub.only(), frame))
    expect(gauge).to_have_attribute("aria-label", re.compile(r"Context: 72\s?% · ~86k/120k, filling up"))
    gauge.click()
    expect(page.locator(".stack .part").first).to_be_attached()
    shares = page.locator(".stack .part").evaluate_all(
        "all => all.map(one => Number(getComputedStyle(one).getPropertyValue('--share')))"
    )
    assert sum(shares) == 120_000
    assert sum(frame["parts"].values()) == 86_400
    stub.call(stub.send(stub.only(), frame | {"stale": True}))
    expect(gauge).to_have_attribute("data-stale", "true")
    expect(page.locator(".popover")).to_contain_text("updating")


def test_escape_closes_one_thing_after_the_other(visitor: Visitor) -> None:
    page = visitor.shop("?open=1")
    asked(page)
    page.locator(".gauge").click()
    box = page.get_by_role("textbox", name="Message")
    box.focus()
    page.keyboard.type("/")
    expect(page.get_by_role("listbox")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("listbox")).to_be_hidden()
    expect(page.locator(".popover")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".popover")).to_be_hidden()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.get_by_role("button", name="Open chat")).to_be_focused()


def test_what_comes_late_takes_no_key_from_who_writes(visitor: Visitor) -> None:
    page = visitor.chat()
    asked(page)
    held: list[Route] = []
    box, more = page.get_by_role("textbox", name="Message"), page.get_by_role("button", name="Menu")
    page.route("**/widget/menu.js", lambda route: held.append(route))
    with page.expect_request("**/widget/menu.js"):
        page.locator(".gauge").click()
    more.click()
    box.focus()
    page.keyboard.type("Hel")
    held[0].continue_()
    expect(page.locator(".popover")).to_be_visible()
    page.keyboard.type("lo ")
    expect(box).to_have_value("Hello ")
    more.click()
    expect(page.get_by_role("menu")).to_be_visible()
    expect(box).to_have_value("Hello ")


def test_room_for_an_opinion_that_comes_late_closes_no_menu(visitor: Visitor) -> None:
    page = visitor.chat()
    asked(page)
    held: list[Route] = []
    page.route("**/widget/menu.js", lambda route: held.append(route))
    with page.expect_request("**/widget/menu.js"):
        page.get_by_role("button", name="Poor answer").click()
    page.get_by_role("button", name="Menu").click()
    held[0].continue_()
    expect(page.get_by_role("textbox", name="What was wrong?")).to_be_visible()
    expect(page.get_by_role("menuitem").first).to_be_focused()


def test_f6_goes_to_the_log_and_back(visitor: Visitor) -> None:
    page = visitor.chat()
    box = page.get_by_role("textbox", name="Message")
    box.focus()
    page.keyboard.press("F6")
    expect(page.get_by_role("log")).to_be_focused()
    page.keyboard.press("F6")
    expect(box).to_be_focused()


@pytest.mark.parametrize(
    ("width", "locale"), rest_at_night(product((320, 550), ("en", "ur")), by_day=((320, "ur"), (550, "en")))
)
def test_everything_fits_a_narrow_or_enlarged_page(
    visitor: Visitor, stub: Stub, width: int, locale: str
) -> None:
    """A window of 1,100 pixels at 200 % has 550 of them."""
    stub.commands.append(HUMAN)
    page = visitor.page()
    page.set_viewport_size({"width": width, "height": 380 if width == 550 else 640})
    page.goto(f"{stub.host_url}/shop?open=1&plain=1&locale={locale}")
    asked(page)
    page.get_by_role("button", name="Poor answer").click()
    expect(page.get_by_role("textbox", name="What was wrong?")).to_be_visible()
    stub.call(stub.hand_over(stub.only(), "waiting"))
    expect(page.locator(".bars").get_by_text("Waiting for a person…")).to_be_visible()
    inside = """node => {
        const box = node.getBoundingClientRect();
        return box.left >= 0 && box.right <= innerWidth && box.top >= 0 && box.bottom <= innerHeight;
    }"""
    page.get_by_role("button", name="Menu").click()
    assert page.get_by_role("menu").evaluate(inside)
    page.get_by_role("menuitem", name="Delete my data").click()
    expect(page.get_by_role("button", name="Delete everything")).to_be_visible()
    assert page.locator("dialog").evaluate(inside)
    page.keyboard.press("Escape")
    assert page.get_by_role("log").evaluate("node => node.scrollWidth <= node.clientWidth")
    assert page.locator(".head").evaluate("node => node.scrollWidth <= node.clientWidth")
    small = """all => all.filter((one) => one.checkVisibility()).map((one) => one.getBoundingClientRect())
        .filter((box) => box.height < 24 || box.width < 24).length"""
    assert page.locator("button, summary").evaluate_all(small) == 0


@pytest.mark.parametrize("context_options", [{"forced_colors": "active", "locale": "en-US"}])
@pytest.mark.usefixtures("context_options")
def test_with_forced_colours_every_control_keeps_an_edge(visitor: Visitor) -> None:
    page = visitor.shop("?open=1")
    asked(page)
    pressed = page.get_by_role("button", name="Good answer")
    pressed.click()
    expect(pressed).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="Menu").click()
    edge = "node => getComputedStyle(node).borderTopStyle"
    for name in (".panel", ".menu", ".send", ".field", ".person .body"):
        assert page.locator(name).evaluate(edge) == "solid", name
    assert pressed.evaluate("node => getComputedStyle(node).outlineStyle") == "solid"


@pytest.mark.parametrize(
    "context_options",
    [{"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True, "locale": "en-US"}],
)
@pytest.mark.usefixtures("context_options")
def test_on_a_phone_the_keyboard_never_covers_what_is_written(visitor: Visitor) -> None:
    page = visitor.shop("?open=1&plain=1")
    asked(page)
    page.evaluate("""() => {
        Object.defineProperty(visualViewport, 'height', { value: 420, configurable: true });
        visualViewport.dispatchEvent(new Event('resize'));
    }""")
    dialog = page.get_by_role("dialog")
    # It slides up to its place.
    dialog.evaluate("node => Promise.all(node.getAnimations().map(one => one.finished))")
    box = dialog.bounding_box()
    assert box is not None
    assert box["height"] == 420
    expect(page.get_by_role("textbox", name="Message")).to_be_in_viewport()
