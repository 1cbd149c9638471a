"""Commands, gauge, compaction card and undo in a real browser."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.widget.conftest import Visitor
from tests.browser.widget.hands import complete, log, say
from tests.browser.widget.stub import LIMIT, Stub, ctx

pytestmark = pytest.mark.browser
PLAIN = ("export", "feedback", "forget", "help", "new")


LISTEN = """() => {
    window.told = [];
    const added = (one) => one.addedNodes.forEach((node) => told.push(node.textContent));
    const watch = new MutationObserver((all) => all.forEach(added));
    const root = document.querySelector('#evertalk').shadowRoot;
    for (const region of root.querySelectorAll('[aria-live=polite], [role=alert]'))
        watch.observe(region, { childList: true });
}"""
"""As a screen reader: what comes into a live region, in order."""


def commands(stub: Stub) -> list[str]:
    """The names of all command frames so far."""
    return [frame["command"] for frame in stub.received if frame["t"] == "command"]


def without_line(visitor: Visitor, page: Page) -> None:
    """Offline, and the page knows."""
    visitor.lose_network(page)
    expect(page.locator(".link")).to_contain_text("You are offline.")


def talk(page: Page, count: int) -> None:
    """So many questions with their answers."""
    for number in range(count):
        say(page, f"question {number}")
        expect(log(page).get_by_text(f"You said: question {number}")).to_be_visible()
        expect(page.get_by_role("button", name="Stop answering")).to_be_hidden()


def test_commands_are_offered_to_who_types_before_they_are_known(visitor: Visitor, stub: Stub) -> None:
    stub.hold_welcome.clear()
    page = visitor.chat()
    page.get_by_role("textbox", name="Message").press_sequentially("/hel")
    expect(page.get_by_role("option")).to_have_count(0)
    stub.hold_welcome.set()
    expect(page.get_by_role("option")).to_contain_text(["/help"])


def test_enter_completes_a_part_and_runs_only_the_whole(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    expect(page.locator(".gauge")).to_be_visible()
    box = page.get_by_role("textbox", name="Message")
    box.press_sequentially("/")
    options = page.get_by_role("option")
    expect(options).to_have_count(len(stub.commands))
    box.press("ArrowDown")
    expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    expect(box).to_have_attribute("aria-activedescendant", "evt-command-1")
    box.press_sequentially("co")
    expect(options).to_have_count(2)
    box.press("Enter")
    expect(box).to_have_value("/compact")
    expect(page.get_by_role("listbox")).to_be_hidden()
    assert commands(stub) == []
    box.fill("/hel")
    box.press("Tab")
    expect(box).to_have_value("/help")
    box.press("Enter")
    expect(page.locator(".result")).to_contain_text("help says hello.")
    expect(page.locator(".result")).to_be_in_viewport()
    assert commands(stub) == ["help"]
    box.press_sequentially("/")
    box.press("Escape")
    expect(page.get_by_role("listbox")).to_be_hidden()
    expect(box).to_have_value("/")
    box.fill("/nonsense now")
    box.press("Enter")
    expect(page.locator(".result").last).to_contain_text("nonsense says hello.")  # the server knows better
    box.fill("/nonsense\nin two lines")
    box.press("Enter")
    expect(log(page).get_by_text("You said: /nonsense")).to_be_visible()
    assert commands(stub) == ["help", "nonsense"]


def test_a_command_without_a_connection_is_refused_at_once(visitor: Visitor, stub: Stub) -> None:
    visitor.tolerated = ("ERR_INTERNET_DISCONNECTED", "WebSocket connection")
    page = visitor.chat()
    expect(page.locator(".gauge")).to_be_visible()
    without_line(visitor, page)
    say(page, "/undo")
    expect(page.locator(".result")).to_contain_text("Not connected.")
    expect(page.locator(".result")).to_have_attribute("data-broken", "true")
    visitor.context.set_offline(False)
    say(page, "hello")
    expect(log(page).get_by_text("You said: hello")).to_be_visible()
    assert commands(stub) == []


def test_a_command_typed_before_the_welcome_is_given_after_it(visitor: Visitor, stub: Stub) -> None:
    stub.hold_welcome.clear()
    page = visitor.chat()
    say(page, "/help")
    say(page, "and a message")
    expect(page.locator(".result")).to_have_attribute("data-pending", "true")
    assert commands(stub) == []
    stub.hold_welcome.set()
    expect(page.locator(".result")).to_contain_text("help says hello.")
    expect(log(page).get_by_text("You said: and a message")).to_be_visible()
    assert commands(stub) == ["help"]


def test_command_result_is_announced_once_and_failure_at_once(visitor: Visitor, stub: Stub) -> None:
    visitor.tolerated = ("ERR_INTERNET_DISCONNECTED", "WebSocket connection")
    page, other = visitor.chat(), visitor.chat()
    for one in (page, other):
        expect(one.locator(".gauge")).to_be_visible()
        one.evaluate(LISTEN)
    say(page, "/help")
    expect(page.locator("[aria-live=polite]")).to_have_text("help says hello.")
    stub.call(stub.drop(stub.only()))
    stub.call(stub.result(stub.only(), "", "context", "asked for by REST"))
    expect(page.locator(".result")).to_have_count(2)
    expect(other.locator(".result")).to_have_count(2)
    without_line(visitor, page)
    say(page, "/undo")
    expect(page.get_by_role("alert").filter(has_text="Not connected.")).to_be_attached()
    of_commands = "told.filter((one) => /hello|REST|Not conn/.test(one))"
    not_connected = "Not connected. Try the command again in a moment."
    assert page.evaluate(of_commands) == ["help says hello.", not_connected]
    assert other.evaluate(of_commands) == []


def test_screen_reader_hears_what_is_shown(visitor: Visitor, stub: Stub) -> None:
    visitor.tolerated = ("ERR_INTERNET_DISCONNECTED", "WebSocket connection")
    page = visitor.chat()
    talk(page, 2)
    complete(page)
    page.evaluate(LISTEN)
    say(page, "slow one")
    polite = page.locator("[aria-live=polite]")
    expect(polite).to_contain_text("Assistant is replying")
    stub.release.set()
    expect(polite).to_contain_text("Line 0 of the answer")
    stub.call(stub.compact(stub.only(), ""))
    expect(polite).to_contain_text("The earlier conversation")
    without_line(visitor, page)
    visitor.context.set_offline(False)
    expect(polite).to_contain_text("Connected again")
    heard = page.evaluate("told.map((one) => one.slice(0, 20))")
    assert heard == [
        "Assistant is replyin",
        "Line 0 of the answer",
        "Summarising earlier ",
        "The earlier conversa",
        "You are offline. Mes",
        "Connected again",
    ]


def test_a_compaction_shows_its_bar_then_its_card(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    talk(page, 3)
    stub.hold_progress.clear()
    say(page, "/compact")
    bar = page.get_by_role("progressbar", name="Summarising earlier messages…")
    expect(bar).to_be_visible()
    expect(bar).to_have_attribute("aria-valuenow", "40")
    page.get_by_role("textbox", name="Message").fill("typing meanwhile")
    stub.hold_progress.set()
    card = page.locator(".card")
    expect(card).to_contain_text("Earlier conversation was summarised · 35k → 12k")
    expect(bar).to_be_hidden()
    expect(page.get_by_role("textbox", name="Message")).to_be_focused()
    expect(page.get_by_role("textbox", name="Message")).to_have_value("typing meanwhile")
    expect(page.locator(".result")).to_contain_text("Summarised: 35,000 → 11,666 tokens.")
    order = page.locator(".items > *").evaluate_all("all => all.map(one => one.className.split(' ')[0])")
    assert order == ["person", "assistant", "person", "assistant", "card", "person", "assistant", "notice"]


def test_automatic_summary_disturbs_no_writer_and_no_reader(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    talk(page, 3)
    say(page, "long story")
    expect(log(page).get_by_text("Line 39 of the answer")).to_be_attached()
    complete(page)
    box = page.get_by_role("textbox", name="Message")
    box.press_sequentially("half a tho")
    in_sight = page.get_by_text("Line 9 of the answer").first
    in_sight.evaluate("node => node.scrollIntoView()")
    expect(page.get_by_role("button", name="Jump to latest")).to_be_visible()
    before = in_sight.bounding_box()
    stub.call(stub.compact(stub.only(), ""))
    expect(page.locator(".card")).to_contain_text("Earlier conversation was summarised")
    expect(page.get_by_role("progressbar")).to_be_hidden()
    expect(page.locator(".card")).not_to_be_in_viewport()
    after = in_sight.bounding_box()
    assert before is not None
    assert after is not None
    assert abs(after["y"] - before["y"]) <= 1
    expect(box).to_be_focused()
    box.press_sequentially("ught")
    expect(box).to_have_value("half a thought")


def test_the_card_has_summary_and_original_and_remembers_the_choice(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    talk(page, 2)
    say(page, "/compact")
    card = page.locator(".card")
    card.get_by_role("button", name="Earlier conversation").click()
    expect(card.get_by_role("tabpanel", name="Summary").locator("strong")).to_have_text("tests")
    card.get_by_role("tab", name="Summary").press("ArrowRight")
    expect(card.get_by_role("tab", name="Original")).to_be_focused()
    expect(card.locator(".original")).to_have_count(4)
    expect(card.locator(".original").first).to_contain_text("question 0")
    page.reload()
    card.get_by_role("button", name="Earlier conversation").click()
    expect(card.locator(".original")).to_have_count(4)


def test_originals_reach_the_widget_of_another_origin(visitor: Visitor, stub: Stub) -> None:
    page = visitor.shop("?open=1")
    talk(page, 2)
    say(page, "/compact")
    card = page.locator(".card")
    card.get_by_role("button", name="Earlier conversation").click()
    card.get_by_role("tab", name="Original").click()
    expect(card.locator(".original")).to_have_count(4)


def test_undo_takes_the_card_away_and_the_gauge_back(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    talk(page, 2)
    say(page, "/compact")
    expect(page.locator(".gauge")).to_have_attribute("title", "Context: 9.4 % · ~11k/120k")
    page.locator(".card").get_by_role("button", name="Undo").click()
    expect(page.locator(".card")).to_have_count(0)
    expect(page.locator(".gauge")).to_have_attribute("title", "Context: 28.3 % · ~34k/120k")
    expect(page.get_by_text("The originals are back.").first).to_be_visible()
    assert next(frame for frame in stub.received if frame.get("command") == "undo")["args"] == ""


def test_only_the_newest_summary_can_be_undone_and_the_reason_is_shown(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    talk(page, 2)
    say(page, "/compact")
    expect(page.locator(".result[data-pending=false]")).to_have_count(1)
    say(page, "more")
    expect(log(page).get_by_text("You said: more")).to_be_visible()
    say(page, "/compact")
    expect(page.locator(".card")).to_have_count(2)
    older = page.locator(".card").first.get_by_role("button", name="Undo")
    expect(older).to_have_attribute("aria-disabled", "true")
    older.click(force=True)
    expect(log(page).get_by_text("A later summary builds on this one.")).to_be_visible()
    card = stub.only().events[[event["t"] for event in stub.only().events].index("compaction")]
    newest = [event for event in stub.only().events if event["t"] == "compaction"][-1]
    assert newest is not card
    stub.call(stub.durable(stub.only(), newest | {"can_undo": False, "undo_reason": "New turns rest on it."}))
    last = page.locator(".card").last.get_by_role("button", name="Undo")
    expect(last).to_have_attribute("aria-disabled", "true")
    last.click(force=True)
    expect(log(page).get_by_text("New turns rest on it.")).to_be_visible()
    assert "undo" not in commands(stub)


def test_the_bar_cannot_outlive_the_work(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    talk(page, 1)
    session = stub.only()
    progress = {"t": "compaction.progress", "id": "kx", "percent": 50, "stage": "summary", "state": "running"}
    bar = page.get_by_role("progressbar")
    stub.call(stub.send(session, progress))
    expect(bar).to_be_visible()
    stub.call(stub.drop(session))
    expect(bar).to_be_hidden()
    session.compaction = {"id": "ky", "started_at": "2026-01-01T00:00:00Z", "percent": 30}
    page.reload()
    expect(bar).to_have_attribute("aria-valuenow", "30")
    stub.call(stub.send(session, progress | {"id": "ky", "state": "failed"}))
    expect(page.get_by_text("Nothing was changed.").first).to_be_visible()


def test_progress_bar_ends_after_two_minutes(visitor: Visitor, stub: Stub) -> None:
    stub.heartbeat_ms = 10_000_000
    page = visitor.page()
    page.clock.install()
    page.goto(f"{stub.url}/chat")
    expect(page.locator(".gauge")).to_be_visible()
    progress = {"t": "compaction.progress", "id": "kx", "percent": 50, "stage": "summary", "state": "running"}
    stub.call(stub.send(stub.only(), progress))
    page.clock.run_for(100)
    expect(page.get_by_role("progressbar")).to_be_visible()
    page.clock.run_for(122_000)
    expect(page.get_by_role("progressbar")).to_be_hidden()


def test_summary_is_announced_above_the_messages_until_it_begins(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    talk(page, 1)
    session = stub.only()
    line = page.get_by_text("Earlier messages will soon be summarised")
    expect(line).to_have_count(0)
    frame = {"t": "ctx"} | ctx(80_000)
    stub.call(stub.send(session, frame | {"next": {"turns": 1, "soon": True}}))
    expect(line).to_be_visible()
    stub.call(stub.send(session, {"t": "compaction.progress", "id": "kx", "percent": 5, "state": "running"}))
    expect(line).to_be_hidden()
    expect(page.get_by_role("progressbar")).to_be_visible()
    stub.call(stub.send(session, {"t": "compaction.progress", "id": "kx", "percent": 100, "state": "done"}))
    stub.call(stub.send(session, frame | {"next": {"turns": 20, "soon": False}}))
    expect(page.get_by_role("progressbar")).to_be_hidden()
    expect(line).to_be_hidden()


@pytest.mark.parametrize(
    ("outlook", "text"),
    [
        ({"turns": 12, "soon": False}, "Messages until the next summary: about 12"),
        ({"turns": 0, "soon": True}, "Earlier messages will soon be summarised"),
        ({"withheld": "off"}, "Automatic summaries are off"),
        ({"withheld": "hook"}, "put the summary off once"),
        ({"withheld": "held"}, "After an undo, the next summary waits"),
    ],
)
def test_opened_gauge_says_when_the_next_summary_comes(
    visitor: Visitor, stub: Stub, outlook: dict[str, Any], text: str
) -> None:
    page = visitor.chat()
    talk(page, 1)
    stub.call(stub.send(stub.only(), {"t": "ctx"} | ctx(80_000) | {"next": outlook}))
    page.locator(".gauge").click()
    expect(page.locator(".popover").get_by_text(text)).to_be_visible()


EDGES = [(69.9, "ok"), (70, "warning"), (90, "warning"), (90.1, "critical")]


@pytest.mark.parametrize(("pct", "state"), EDGES)
def test_the_gauge_tells_its_state_in_three_ways(
    visitor: Visitor, stub: Stub, pct: float, state: str
) -> None:
    page = visitor.chat()
    gauge = page.locator(".gauge")
    expect(gauge).to_be_visible()
    stub.call(stub.send(stub.only(), {"t": "ctx"} | ctx(round(LIMIT * pct / 100))))
    expect(gauge).to_have_attribute("data-status", state)
    words = {"ok": "plenty of room", "warning": "filling up", "critical": "nearly full"}[state]
    expect(gauge).to_have_accessible_name(re.compile(words))
    colours = {"ok": "rgb(21, 128, 61)", "warning": "rgb(147, 91, 8)", "critical": "rgb(185, 28, 28)"}
    expect(gauge.locator(".arc")).to_have_css("stroke", colours[state])


def test_context_gauge_explains_and_acts_only_on_request(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    talk(page, 1)
    gauge = page.locator(".gauge")
    expect(gauge).to_have_attribute("title", "Context: 27.5 % · ~33k/120k")
    stub.call(stub.send(stub.only(), {"t": "ctx"} | ctx(86_400, stale=True)))
    expect(gauge).to_have_attribute("title", "Context: 72 % · ~86k/120k")
    expect(gauge).to_have_attribute("data-stale", "true")
    gauge.click()
    popover = page.get_by_role("dialog", name="Context")
    expect(popover).to_be_visible()
    parts = ["Instructions", "Memory", "Summary", "Conversation", "Tools", "Free"]
    expect(popover.locator("dt")).to_have_text(parts)
    expect(popover.locator("dd").nth(3)).to_have_text("52k")
    assert commands(stub) == []
    page.keyboard.press("Escape")
    expect(popover).to_be_hidden()
    expect(gauge).to_be_focused()
    gauge.click()
    popover.get_by_role("button", name="Summarise now").click()
    expect(popover).to_be_hidden()
    expect(page.locator(".card")).to_be_visible()
    assert commands(stub) == ["compact"]


def test_new_conversation_starts_from_an_empty_log(visitor: Visitor) -> None:
    page = visitor.chat()
    talk(page, 1)
    say(page, "/new")
    expect(page.locator(".result")).to_contain_text("A new conversation.")
    expect(page.locator("article")).to_have_count(1)


def test_a_pinned_message_says_so(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    talk(page, 1)
    page.get_by_role("button", name="Pin", exact=True).click()
    expect(page.get_by_role("button", name="Unpin")).to_have_attribute("aria-pressed", "true")


def test_a_public_site_shows_a_plain_chat(visitor: Visitor, stub: Stub) -> None:
    stub.audience = "public"
    page = visitor.shop("?open=1")
    say(page, "hello")
    expect(log(page).get_by_text("You said: hello")).to_be_visible()
    expect(page.locator(".gauge")).to_be_hidden()
    expect(page.get_by_role("button", name="Pin")).to_have_count(0)
    page.get_by_role("textbox", name="Message").press_sequentially("/")
    expect(page.get_by_role("option")).to_have_text([re.compile(f"^/{name}") for name in PLAIN])


def test_a_public_site_never_shows_a_card(visitor: Visitor, stub: Stub) -> None:
    stub.audience = "public"
    page = visitor.shop("?open=1")
    talk(page, 2)
    stub.call(stub.compact(stub.only(), "auto"))
    say(page, "after")
    expect(log(page).get_by_text("You said: after")).to_be_visible()
    expect(page.locator(".card")).to_have_count(0)
    expect(page.get_by_role("progressbar")).to_have_count(0)


def test_the_list_of_commands_looks_the_same_before_and_after_an_answer(visitor: Visitor) -> None:
    page = visitor.chat()
    box = page.get_by_role("textbox", name="Message")
    heights = "all => all.map(one => one.getBoundingClientRect().height)"
    options = page.locator(".slash li")
    box.fill("/")
    expect(options.first).to_be_visible()
    before = options.evaluate_all(heights)
    box.fill("")
    talk(page, 1)
    box.fill("/")
    expect(options.first).to_be_visible()
    assert options.evaluate_all(heights) == before
