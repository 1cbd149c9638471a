"""How the talk goes on where no WebSocket gets through, and how it finds back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from playwright.sync_api import expect

from tests.browser.patience import WAIT_MS
from tests.browser.widget.conftest import Visitor
from tests.browser.widget.embedding_page import call, token, until
from tests.browser.widget.hands import asked, log, say, texts
from tests.browser.widget.stub import REFUSED, Stub

pytestmark = pytest.mark.browser
BLOCKED = ("WebSocket connection", "503 (Service Unavailable)", "ERR_")


@pytest.fixture
def behind(visitor: Visitor, stub: Stub) -> Visitor:
    """A visitor behind a proxy that knows no WebSocket."""
    stub.no_sockets = True
    visitor.tolerated = BLOCKED
    # Whoever tries again waits a random while: here they draw short ones.
    visitor.context.add_init_script("Math.random = () => 0.1")
    return visitor


def test_without_sockets_the_talk_goes_by_event_stream(behind: Visitor, stub: Stub) -> None:
    page = behind.shop("?open=1")
    say(page, "md")
    expect(log(page).get_by_text("Done.")).to_be_visible()
    assert stub.only().sockets
    assert any(path.endswith("/sse.js") for path in stub.requests)
    say(page, "/help")
    expect(log(page).get_by_text("says hello.")).to_be_visible()
    say(page, "slow")
    expect(log(page).get_by_text("Line 5 of the answer")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(log(page).get_by_text("Stopped")).to_be_visible()
    say(page, "after it")
    expect(log(page).get_by_text("You said: after it")).to_be_visible()
    sent = [frame["text"] for frame in stub.received if frame["t"] == "msg"]
    assert sent == ["md", "slow", "after it"]


def test_a_stream_that_breaks_in_an_answer_loses_and_doubles_nothing(behind: Visitor, stub: Stub) -> None:
    page = behind.chat()
    say(page, "hello")
    expect(log(page).get_by_text("You said: hello")).to_be_visible()
    say(page, "drop me")
    expect(log(page).get_by_text("Line 39 of the answer")).to_be_visible()
    assert len(texts(page)) == 4
    assert stub.violations == []


def test_the_socket_comes_back_when_it_can(behind: Visitor, stub: Stub) -> None:
    stub.heartbeat_ms = 400
    page = behind.chat()
    say(page, "by stream")
    expect(log(page).get_by_text("You said: by stream")).to_be_visible()
    with page.expect_websocket(lambda socket: True):
        stub.no_sockets = False
        say(page, "on the way")
    expect(log(page).get_by_text("You said: on the way")).to_be_visible()
    page.wait_for_function("() => true")
    stub.call(_until_socket(stub))
    say(page, "by socket")
    expect(log(page).get_by_text("You said: by socket")).to_be_visible()
    sent = [frame["text"] for frame in stub.received if frame["t"] == "msg"]
    assert list(dict.fromkeys(sent)) == ["by stream", "on the way", "by socket"]
    assert len(texts(page)) == 6


async def _until_socket(stub: Stub) -> None:
    async with asyncio.timeout(WAIT_MS / 1_000):
        while not any(isinstance(one, web.WebSocketResponse) for one in stub.only().sockets):
            await asyncio.sleep(0.05)


def test_message_read_in_one_tab_is_read_in_all(visitor: Visitor, stub: Stub) -> None:
    first = visitor.shop("?open=1")
    asked(first)
    first.keyboard.press("Escape")
    second = visitor.shop()
    stub.call(stub.push(stub.only(), "Are you there?"))
    for page in (first, second):
        expect(page.get_by_role("button", name="Open chat, 1 unread")).to_be_visible()
    second.reload()
    expect(second.get_by_role("button", name="Open chat, 1 unread")).to_be_visible()
    second.bring_to_front()
    second.get_by_role("button", name="Open chat").click()
    expect(first.get_by_role("button", name="Open chat", exact=True)).to_be_attached()
    expect(first.locator(".badge")).to_be_hidden()
    second.reload()
    expect(second.get_by_role("button", name="Open chat", exact=True)).to_be_visible()


@pytest.mark.parametrize("identity", list(REFUSED))
def test_refused_signature_over_a_stream_keeps_the_conversation(
    behind: Visitor, stub: Stub, identity: str
) -> None:
    page = behind.shop("?open=1")
    say(page, "Mine")
    expect(log(page).get_by_text("You said: Mine")).to_be_visible()
    behind.tolerated = (*BLOCKED, "401 (Unauthorized)")
    mine = token(page)
    page.evaluate("document.addEventListener('evertalk:error', event => window.told = event.detail.code)")
    call(page, "identify", identity)
    expect(page.locator(".link")).to_have_text("Please sign in to use the chat.")
    assert page.evaluate("window.told") == REFUSED[identity]
    assert token(page) == mine
    refused = [frame for frame in stub.received if frame["t"] == "hello"]
    page.wait_for_timeout(500)
    assert [frame for frame in stub.received if frame["t"] == "hello"] == refused, "it does not ask on and on"
    call(page, "identify", None)
    expect(page.locator(".link")).to_be_hidden()
    expect(log(page).get_by_text("You said: Mine")).to_be_visible()
    call(page, "identify", "ada")
    until(page, "localStorage.getItem('evertalk:shop:signed') === 'ada'")
    say(page, "As Ada")
    expect(log(page).get_by_text("You said: As Ada")).to_be_visible()
    assert token(page).startswith("signed")


def test_chat_over_a_stream_asks_for_sign_in(behind: Visitor, stub: Stub) -> None:
    stub.required = True
    behind.tolerated = (*BLOCKED, "401 (Unauthorized)")
    page = behind.shop("?open=1")
    expect(page.locator(".link")).to_have_text("Please sign in to use the chat.")
    call(page, "identify", "ada")
    say(page, "Now I am in")
    expect(log(page).get_by_text("You said: Now I am in")).to_be_visible()


def test_answer_missed_during_disconnect_is_placed_below_its_question(visitor: Visitor) -> None:
    """The end of the run before it was never heard: it seems to run on, and the question to wait for it."""
    page = visitor.chat()
    shown = page.evaluate(
        """async () => {
          const { Conversation } = await import('/static/widget/state.js');
          const chat = new Conversation({ changed() {}, said() {}, gap() {} });
          const asked = (n) => ({ t: "msg", event_seq: 2 * n - 1, mid: `q${n}`, cid: `c${n}`, role: "person",
            text: `question ${n}`, turn: n });
          const told = (n) => ({ t: "msg", event_seq: 2 * n, mid: `a${n}`, role: "assistant",
            text: `answer ${n}`, turn: n });
          chat.take({ t: "welcome", events: [], head: 0, state: {} });
          chat.take(asked(1));
          chat.take({ t: "run", state: "started", turn: 1 });
          chat.take(told(1));
          chat.send({ cid: "c2", text: "question 2", at: "", order: 2 });
          chat.take({ t: "welcome", resumed: true, events: [asked(2), told(2)], head: 4, state: {} });
          return chat.items.map((item) => item.text);
        }"""
    )
    assert shown == ["question 1", "answer 1", "question 2", "answer 2"]


def test_an_answer_never_stands_above_its_question(visitor: Visitor, stub: Stub) -> None:
    """The state that a welcome tells is newer than its events: its draft may be ahead of the question."""
    page = visitor.chat()
    script = """async () => {
        const { Conversation } = await import('/static/widget/state.js');
        const chat = new Conversation({ changed() {}, said() {}, gap() {} });
        const said = (event_seq, role, turn) =>
            ({ t: 'msg', event_seq, mid: `m${event_seq}`, role, turn, text: `${role} ${turn}` });
        const order = () => chat.items.map((item) => `${item.role ?? item.kind} ${item.turn ?? ''}`.trim());
        const seen = [];
        chat.take({ t: 'welcome', session: 's', log_epoch: 1, head: 2, resumed: false, audience: 'personal',
            events: [said(1, 'person', 1), said(2, 'assistant', 1)],
            state: { run: { turn: 2, text: 'It' } } });
        chat.take(said(3, 'person', 2));
        seen.push(order());
        chat.take({ t: 'command.result', event_seq: 4, command: 'help', success: true, result: 'x' });
        chat.take(said(5, 'person', 3));
        chat.take({ t: 'run', turn: 3, state: 'started' });
        chat.take({ t: 'delta', turn: 3, attempt: 1, off: 0, text: 'A' });
        chat.take(said(6, 'assistant', 2));
        chat.take(said(7, 'assistant', 3));
        seen.push(order());
        return seen;
    }"""
    begun = ["person 1", "assistant 1", "person 2"]
    stored = [*begun, "result", "person 3", "assistant 2", "assistant 3"]
    assert page.evaluate(script) == [[*begun, "assistant 2"], stored]


@pytest.mark.parametrize("before", ["nothing", "ack c1", "ack c2", "failure"])
def test_messages_stand_in_the_stored_order_when_the_second_is_stored_first(
    visitor: Visitor, before: str
) -> None:
    """A message is lost on a dying line, and the next one gets through before it is sent again."""
    script = """async (before) => {
        const { Conversation } = await import('/static/widget/state.js');
        const chat = new Conversation({ changed() {}, said() {}, gap() {} });
        const stored = { c2: ['m1', 1], c1: ['m2', 2] };
        const said = (event_seq, cid, text) =>
            ({ t: 'msg', event_seq, mid: stored[cid][0], cid, role: 'person', turn: stored[cid][1], text });
        chat.take({ t: 'welcome', events: [], head: 0, state: {} });
        chat.send({ cid: 'c1', text: 'sent first', at: '', order: 1 });
        chat.send({ cid: 'c2', text: 'sent second', at: '', order: 2 });
        const [kind, cid] = before.split(' ');
        if (kind === 'ack') chat.take({ t: 'ack', cid, mid: stored[cid][0] });
        if (kind === 'failure') {
            chat.byCid('c1').sentAt = Date.now() - 20000;
            chat.sweep(Date.now(), true);
        }
        chat.take(said(1, 'c2', 'sent second'));
        const seen = [chat.items.map((item) => item.text)];
        chat.take({ t: 'run', turn: 1, state: 'started' });
        chat.take({ t: 'delta', turn: 1, attempt: 1, off: 0, text: 'answer 1' });
        chat.take(said(2, 'c1', 'sent first'));
        chat.take({ t: 'msg', event_seq: 3, mid: 'm3', role: 'assistant', turn: 1, text: 'answer 1' });
        chat.take({ t: 'msg', event_seq: 4, mid: 'm4', role: 'assistant', turn: 2, text: 'answer 2' });
        seen.push(chat.items.map((item) => item.text));
        return seen;
    }"""
    first, last = visitor.chat().evaluate(script, before)
    if before == "failure":
        assert first == ["sent first", "sent second"], "a failed message stays where it was written"
    else:
        assert first == ["sent second", "sent first"]
    assert last == ["sent second", "sent first", "answer 1", "answer 2"]


def test_message_order_is_that_of_the_database_whatever_arrives_first(visitor: Visitor) -> None:
    script = (Path(__file__).parent / "orders.js").read_text()
    assert visitor.chat().evaluate(script, 2_000) == 0


def test_where_the_page_is_not_allowed_the_chat_says_so_and_stops(visitor: Visitor, stub: Stub) -> None:
    stub.barred = True
    visitor.tolerated = ("WebSocket connection", "403 (Forbidden)", "Evertalk: pages of")
    page = visitor.shop("?open=1")
    expect(page.locator(".link")).to_have_text("The chat is not available on this page.")
    asked_for = stub.knocks
    assert asked_for <= 2
    (told,) = [words for words in visitor.complaints if words.startswith("Evertalk:")]
    assert told.count(stub.host_url) == 2
    say(page, "Anybody there?")
    page.wait_for_timeout(2_500)
    assert stub.knocks == asked_for, "it does not ask on and on"
    expect(page.locator(".link")).to_have_text("The chat is not available on this page.")
