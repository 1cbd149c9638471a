"""Sending, streaming, drawing and surviving: the conversation in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.widget.conftest import Visitor
from tests.browser.widget.hands import arrived, asked, becomes, complete, log, say, texts
from tests.browser.widget.stub import MARKDOWN, Stub
from tests.kit.hostile_texts import REPEATED, hostile_text

pytestmark = pytest.mark.browser


def copies(page: Page, button: Locator) -> None:
    """The button says for a moment that it did: whoever looks too late has missed it."""
    button.evaluate(
        """node => {
            window.shown = [];
            const watch = new MutationObserver(() => shown.push(node.textContent));
            watch.observe(node, { childList: true, characterData: true, subtree: true });
        }"""
    )
    button.click()
    becomes(page, lambda: "Copied" in page.evaluate("shown"))


def test_the_widget_stands_on_a_page_that_forbids_everything_else(visitor: Visitor, stub: Stub) -> None:
    page = visitor.shop()
    launcher = page.get_by_role("button", name="Open chat")
    expect(launcher).to_be_visible()
    assert stub.received == [], "nobody opened the panel, so no conversation may begin"
    style = """node => { const s = getComputedStyle(node);
        return [s.display, s.letterSpacing, s.textTransform, s.position]; }"""
    assert launcher.evaluate(style) == ["grid", "normal", "none", "fixed"]
    launcher.click()
    box = page.get_by_role("dialog", name="Chat").bounding_box()
    assert box is not None
    assert round(box["x"] + box["width"]) == 1080
    assert page.locator("#shop").evaluate("node => getComputedStyle(node).color") == "rgb(255, 0, 0)"


ABOVE_ALL = """() => {
    const cover = document.body.appendChild(document.createElement('p'));
    for (const [name, value] of [['position', 'fixed'], ['inset', '0'], ['z-index', '2147483647']])
        cover.style.setProperty(name, value, 'important');
    document.body.style.setProperty('transform', 'scale(1)', 'important');
    return document.elementFromPoint(innerWidth - 48, innerHeight - 48)?.id;
}"""
NEW_BODY = """() => {
    const next = document.createElement('body');
    next.append('Another page');
    document.documentElement.replaceChild(next, document.body);
}"""


def test_page_elements_never_cover_the_chat_and_it_survives_navigation(visitor: Visitor, stub: Stub) -> None:
    page = visitor.shop("?open=1")
    say(page, "hello")
    expect(log(page).get_by_text("You said: hello")).to_be_visible()
    assert page.evaluate(ABOVE_ALL) == "evertalk"
    for change in (NEW_BODY, "document.body.replaceChildren('One more page')"):
        page.evaluate(change)
        expect(log(page).get_by_text("You said: hello")).to_be_visible()
    assert page.evaluate(ABOVE_ALL) == "evertalk"
    say(page, "still here")
    expect(log(page).get_by_text("You said: still here")).to_be_visible()
    page.evaluate("Evertalk('shutdown')")
    page.evaluate(NEW_BODY)
    expect(page.locator("#evertalk")).to_have_count(0)


def test_the_keyboard_opens_and_closes_the_panel(visitor: Visitor) -> None:
    page = visitor.shop()
    page.get_by_role("button", name="Open chat").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("textbox", name="Message")).to_be_focused()
    page.keyboard.press("F6")
    expect(page.get_by_role("log")).to_be_focused()
    page.keyboard.press("F6")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.get_by_role("button", name="Open chat")).to_be_focused()


def test_calls_before_the_load_are_answered_after_it(visitor: Visitor, stub: Stub) -> None:
    page = visitor.shop("?early=1")
    expect(page.get_by_role("dialog")).to_be_visible()
    expect(log(page).get_by_text("You said: early bird")).to_be_visible()
    page.evaluate(
        "window.heard = []; for (const n of ['close', 'open', 'shutdown']) "
        "document.addEventListener('evertalk:' + n, () => window.heard.push(n))"
    )
    page.evaluate("Evertalk('toggle')")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.evaluate("Evertalk('setTheme', 'dark')")
    page.evaluate("Evertalk('shutdown')")
    expect(page.locator("#evertalk")).to_have_count(0)
    assert page.evaluate("window.heard") == ["close", "shutdown"]


def test_an_answer_streams_into_one_table_one_list_and_one_code_block(visitor: Visitor) -> None:
    visitor.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = visitor.chat()
    say(page, "md")
    expect(log(page).get_by_text("Done.")).to_be_visible()
    answer = page.locator("article.assistant")
    expect(answer).to_have_count(1)
    for tag, count in {"table": 1, "ol": 1, "ol ul": 1, "pre": 1, "blockquote": 1, "strong": 1}.items():
        expect(answer.locator(tag)).to_have_count(count)
    expect(answer.get_by_role("link", name="the docs")).to_have_attribute("href", "https://example.com/a_(b)")
    complete(page)
    copies(page, answer.locator(".code button"))
    code = MARKDOWN.split("```")[1].removeprefix("python\n").removesuffix("\n")
    assert page.evaluate("navigator.clipboard.readText()") == code
    copies(page, answer.locator(".meta").get_by_text("Copy", exact=True))
    assert page.evaluate("navigator.clipboard.readText()") == MARKDOWN


@pytest.mark.control("S15", "S16")
def test_nothing_in_an_answer_becomes_active(visitor: Visitor) -> None:
    page = visitor.chat()
    say(page, "xss")
    expect(page.get_by_role("link", name="call")).to_be_visible()
    complete(page)
    answer = page.locator("article.assistant .body")
    expect(answer.locator("img, iframe, svg, script, style, object, form, input")).to_have_count(0)
    links = answer.locator("a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
    assert links
    assert all(re.match(r"(https?://|mailto:|tel:)", link) for link in links)
    rels = answer.locator("a").evaluate_all("all => all.map(one => one.rel)")
    assert set(rels) == {"noopener noreferrer nofollow ugc"}
    expect(answer.get_by_text("(evil.invalid)").first).to_be_visible()
    attributes = """all => all.flatMap(one => [...one.attributes].map(a => a.name))
        .filter(name => name === 'style' || name.startsWith('on'))"""
    assert answer.locator("*").evaluate_all(attributes) == []


GROWTH = """async (texts) => {
    const { render } = await import('/static/widget/md.js');
    const tools = { copy() {}, labels: { copy: '' } };
    const cost = (text) => Math.min(...[1, 2, 3].map(() => {
        const start = performance.now();
        render(document.createElement('div'), text, tools);
        return performance.now() - start;
    }));
    return texts.filter(([kind, small, large]) => {
        for (let tries = 0; tries < 3; tries++) {
            const least = cost(small), most = cost(large);
            if (most < 100 || most < 9 * least) return false;
        }
        return true;
    }).map(([kind]) => kind);
}"""
"""Kinds of texts of which four times as much takes nine times as long, in three attempts of three."""


@pytest.mark.control("S51")
def test_markdown_work_grows_no_faster_than_its_text(visitor: Visitor) -> None:
    kinds = {kind: [hostile_text(kind, chars) for chars in (15_000, 60_000)] for kind in REPEATED}
    kinds["padded code"] = [f"` {'a' * chars}`" for chars in (45_000, 180_000)]
    assert visitor.chat().evaluate(GROWTH, [[kind, *texts] for kind, texts in kinds.items()]) == []


@pytest.mark.control("S15")
def test_hostile_markdown_is_drawn_in_time_and_whole(visitor: Visitor) -> None:
    page = visitor.chat()
    script = """async () => {
        const { render } = await import('/static/widget/md.js');
        const tools = { copy() {}, labels: { copy: '' } };
        const inputs = ['*'.repeat(5000), '['.repeat(8000), '# ' + '#'.repeat(9e4) + 'x', '> '.repeat(5000),
            '```' + 'a'.repeat(9e4) + '`', '[a]('.repeat(9000), 'a\\n'.repeat(9e3), '|'.repeat(4000),
            '*_~~`['.repeat(5000), ' '.repeat(9e4) + 'x'];
        return inputs.map((input) => {
            const node = document.createElement('div');
            render(node, input, tools);
            return node.childNodes.length > 0;
        });
    }"""
    assert all(page.evaluate(script))
    grow = """async (text) => {
        const { render } = await import('/static/widget/md.js');
        const tools = { copy() {}, labels: { copy: 'Copy' } };
        const [grown, whole] = [document.createElement('div'), document.createElement('div')];
        for (let end = 1; end <= text.length; end++) render(grown, text.slice(0, end), tools);
        render(whole, text, tools);
        return grown.isEqualNode(whole);
    }"""
    assert page.evaluate(grow, MARKDOWN) is True


def test_stop_keeps_what_was_written(visitor: Visitor) -> None:
    page = visitor.chat()
    say(page, "slow one")
    expect(log(page).get_by_text("Line 8 of the answer")).to_be_visible()
    page.get_by_role("button", name="Stop answering").click()
    expect(log(page).get_by_text("Stopped", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Stop answering")).to_be_hidden()
    expect(page.locator("article.assistant")).to_have_count(1)


def test_a_cut_in_the_middle_of_a_stream_loses_and_doubles_nothing(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    say(page, "drop here")
    expect(log(page).get_by_text("Line 39 of the answer")).to_be_visible()
    assert len(texts(page)) == 2
    for number in range(40):
        expect(log(page).get_by_text(f"Line {number} of the answer 😀.", exact=True)).to_have_count(1)
    hellos = [frame for frame in stub.received if frame["t"] == "hello"]
    assert len(hellos) == 2
    assert hellos[1]["last_seq"] == 1


def test_an_ack_that_was_lost_does_not_double_the_message(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    say(page, "lost ack")
    expect(log(page).get_by_text("You said: lost ack")).to_be_visible()
    expect(page.locator("article.person")).to_have_count(1)
    expect(page.locator("article.person")).to_have_attribute("data-status", "sent")
    sent = [frame["cid"] for frame in stub.received if frame["t"] == "msg"]
    assert len(set(sent)) == 1


def test_an_ack_before_the_events_of_other_devices_changes_no_order(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    say(page, "first")
    expect(page.locator("article.assistant")).to_have_count(1)
    stub.said_before = "from the telephone"
    say(page, "from here")
    expect(page.locator("article.person")).to_contain_text(["first", "from the telephone", "from here"])


def test_messages_written_offline_arrive_once_and_in_order(visitor: Visitor, stub: Stub) -> None:
    visitor.tolerated = ("ERR_INTERNET_DISCONNECTED", "WebSocket connection")
    page = visitor.chat()
    expect(page.locator(".gauge")).to_be_visible()
    visitor.lose_network(page)
    expect(page.get_by_text("You are offline.").first).to_be_visible()
    say(page, "first")
    say(page, "second")
    expect(log(page).get_by_text("Sending…")).to_have_count(2)
    visitor.context.set_offline(False)
    expect(log(page).get_by_text("You said: second")).to_be_visible()
    expect(log(page).get_by_text("You said: first")).to_be_visible()
    kept = [event["text"] for event in stub.only().events if event.get("role") == "person"]
    assert kept == ["first", "second"]
    assert page.evaluate("Object.keys(localStorage).filter(key => key.includes(':out:'))") == []


def test_draft_and_outbox_survive_a_reload_with_the_same_id(visitor: Visitor, stub: Stub) -> None:
    page = visitor.shop("?open=1")
    say(page, "hello")
    expect(log(page).get_by_text("You said: hello")).to_be_visible()
    stub.deaf = True
    say(page, "into the void")
    page.get_by_role("textbox", name="Message").fill("half a thou")
    expect(log(page).get_by_text("Sending…")).to_be_visible()
    page.reload()
    expect(page.get_by_role("textbox", name="Message")).to_have_value("half a thou")
    expect(log(page).get_by_text("You said: hello")).to_be_visible()
    stub.deaf = False
    page.reload()
    expect(log(page).get_by_text("You said: into the void")).to_be_visible()
    assert len({frame["cid"] for frame in stub.received if frame.get("text") == "into the void"}) == 1
    assert len(stub.sessions) == 1


def test_the_full_page_keeps_its_token_in_a_cookie_only(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    say(page, "hello")
    expect(log(page).get_by_text("You said: hello")).to_be_visible()
    page.reload()
    expect(log(page).get_by_text("You said: hello")).to_be_visible()
    assert "token" not in stub.received[0]
    assert page.evaluate("Object.keys(localStorage).filter(key => key.includes('token'))") == []


def test_a_refused_message_says_why_and_is_retried_under_a_new_id(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    say(page, "limit")
    failed = page.locator("article.person[data-status=failed]")
    expect(failed).to_contain_text("Too many messages. · Wait a little. · Try again in 3 s.")
    page.reload()
    expect(failed).to_contain_text("Too many messages.")
    failed.get_by_role("button", name="Retry").click()
    arrived(page, stub, "msg", 2)
    expect(failed).to_contain_text("Too many messages.")
    cids = [frame["cid"] for frame in stub.received if frame["t"] == "msg"]
    assert len(set(cids)) == len(cids) == 2
    failed.get_by_role("button", name="Discard").click()
    expect(page.locator("article")).to_have_count(0)


def test_a_message_sent_during_an_answer_is_queued_and_answered_next(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    say(page, "slow one")
    expect(log(page).get_by_text("Line 5 of the answer")).to_be_visible()
    say(page, "and then")
    expect(page.locator("article.person").last).to_contain_text("Queued")
    stub.release.set()
    expect(log(page).get_by_text("You said: and then")).to_be_visible()
    expect(log(page).get_by_text("Queued")).to_have_count(0)
    order = page.locator("article").evaluate_all("all => all.map(one => one.className)")
    assert order == ["person", "person", "assistant", "assistant"]
    before = texts(page)
    page.reload()
    expect(log(page).get_by_text("You said: and then")).to_be_visible()
    assert texts(page) == before


def test_a_failed_answer_says_so(visitor: Visitor) -> None:
    page = visitor.chat()
    say(page, "fail")
    expect(log(page).get_by_text("The model is not reachable. Try again in a minute.")).to_be_visible()
    expect(page.locator(".dots")).to_have_count(0)


def test_a_silent_socket_is_left_for_a_new_one(visitor: Visitor, stub: Stub) -> None:
    stub.heartbeat_ms = 250
    page = visitor.chat()
    expect(page.locator(".gauge")).to_be_visible()
    stub.deaf = True
    page.wait_for_function("() => true")
    with page.expect_websocket():
        pass
    stub.deaf = False
    say(page, "still there")
    expect(log(page).get_by_text("You said: still there")).to_be_visible()


def test_two_tabs_show_the_same_conversation(visitor: Visitor) -> None:
    first, second = visitor.chat(), visitor.chat()
    say(first, "from one")
    expect(log(second).get_by_text("You said: from one")).to_be_visible()
    say(second, "from two")
    for page in (first, second):
        expect(log(page).get_by_text("You said: from two")).to_be_visible()
        expect(page.get_by_role("button", name="Stop answering")).to_be_hidden()
    assert texts(first) == texts(second)


def test_an_answer_to_a_closed_panel_is_counted_on_the_launcher(visitor: Visitor, stub: Stub) -> None:
    page = visitor.shop("?open=1")
    asked(page)
    page.keyboard.press("Escape")
    stub.call(stub.push(stub.only(), "Are you there?"))
    expect(page.get_by_role("button", name="Open chat, 1 unread")).to_be_visible()
    page.get_by_role("button", name="Open chat").click()
    expect(page.get_by_text("Are you there?").first).to_be_visible()
    expect(page.locator(".badge")).to_be_hidden()


def test_a_restore_on_the_server_brings_the_true_history(visitor: Visitor, stub: Stub) -> None:
    """And what was confirmed a moment ago, and is not in it, is said again under its old id."""
    page = visitor.chat()
    asked(page, "one")
    asked(page, "two")
    session = stub.only()
    cid = next(event["cid"] for event in session.events if event.get("text") == "two")
    stub.epoch = 2
    session.events[:] = session.events[:2]
    del session.cids[cid]
    stub.call(stub.push(session, "Filler"))
    stub.call(stub.push(session, "Filler too"))
    stub.call(stub.drop(session))
    expect(page.get_by_text("Filler too").first).to_be_visible()
    expect(log(page).get_by_text("You said: two")).to_have_count(1)
    assert [event["text"] for event in session.events if event.get("cid") == cid] == ["two"]
    assert [event["text"] for event in session.events if event.get("role") == "person"] == ["one", "two"]


def test_what_was_said_long_ago_is_not_said_again(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    page.clock.install()
    asked(page, "one")
    page.clock.fast_forward(700_000)
    session = stub.only()
    stub.epoch = 2
    session.events[:] = []
    stub.call(stub.push(session, "Filler"))
    stub.call(stub.drop(session))
    page.clock.fast_forward(5_000)
    expect(page.get_by_text("Filler").first).to_be_visible()
    asked(page, "and now")
    assert [event["text"] for event in session.events if event.get("role") == "person"] == ["and now"]


def test_a_reader_who_scrolled_up_is_left_alone(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    say(page, "long story")
    expect(log(page).get_by_text("Line 39 of the answer")).to_be_attached()
    complete(page)
    top = "node => node.scrollTop"
    expect(page.locator("article.person").first).to_be_in_viewport()
    page.get_by_role("button", name="Jump to latest").click()
    expect(log(page).get_by_text("Line 39 of the answer")).to_be_in_viewport()
    log(page).evaluate("node => { node.scrollTop = 100; }")
    expect(page.get_by_role("button", name="Jump to latest")).to_be_visible()
    where = log(page).evaluate(top)
    stub.call(stub.push(stub.only(), "Something new"))
    expect(log(page).get_by_text("Something new")).to_be_attached()
    assert abs(log(page).evaluate(top) - where) <= 1


def test_reader_of_a_long_answer_keeps_their_scroll_position(visitor: Visitor, stub: Stub) -> None:
    page, other = visitor.chat(), visitor.chat()
    say(page, "long story")
    in_sight = page.get_by_text("Line 9 of the answer").first
    expect(log(page).get_by_text("Line 39 of the answer")).to_be_attached()
    complete(page)
    in_sight.evaluate("node => node.scrollIntoView()")
    before = in_sight.bounding_box()
    stub.call(stub.result(stub.only(), "", "status", "asked for by REST"))
    say(other, "from another tab")
    expect(log(page).get_by_text("You said: from another tab")).to_be_attached()
    assert in_sight.bounding_box() == before
    page.get_by_role("button", name="Jump to latest").click()
    expect(log(page).get_by_text("You said: from another tab")).to_be_in_viewport()
    say(page, "long story again")
    expect(log(page).get_by_text("long story again").first).to_be_in_viewport()
