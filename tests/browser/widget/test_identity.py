"""Sites and signed-in people in a real browser: how it looks, who it is, and conversations that are kept."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.widget.conftest import Visitor
from tests.browser.widget.embedding_page import call, token, until
from tests.browser.widget.hands import arrived, log, say, texts
from tests.browser.widget.picked_files import chips, file, pick, png
from tests.browser.widget.stub import Stub, note_of

pytestmark = pytest.mark.browser

SITE = {
    "title": "Acme help",
    "welcome": "Hello from Acme",
    "starters": ["Where is my parcel?", "I want to send something back"],
    "accent": "#facc15",
    "on_accent": "#000000",
    "position": "left",
    "ai_notice": "An AI answers here.",
    "privacy_url": "https://acme.invalid/privacy",
    "launcher_label": "Ask Acme",
    "offline_text": "We are back at nine.",
}


def answered(page: Page, text: str) -> None:
    say(page, text)
    expect(log(page).get_by_label("Assistant").last).to_contain_text(f"You said: {text}")


def test_site_has_a_font_of_its_own_unless_the_page_sets_one(visitor: Visitor, stub: Stub) -> None:
    stub.site = {**SITE, "font": "Georgia, serif"}
    page = visitor.shop("?open=1")
    family = "node => getComputedStyle(node).fontFamily"
    expect(page.get_by_role("heading", name="Acme help")).to_be_visible()
    assert page.get_by_role("textbox", name="Message").evaluate(family) == "Georgia, serif"
    page.evaluate("document.documentElement.style.setProperty('--evertalk-font', 'monospace')")
    assert page.get_by_role("textbox", name="Message").evaluate(family) == "monospace"


def test_a_public_site_is_a_plain_and_kind_chat(visitor: Visitor, stub: Stub) -> None:
    stub.site, stub.audience = SITE, "public"
    page = visitor.shop()
    launcher = page.get_by_role("button", name="Ask Acme")
    box = launcher.bounding_box()
    assert box is not None
    assert round(box["x"]) == 20
    colours = "node => [getComputedStyle(node).backgroundColor, getComputedStyle(node).color]"
    assert launcher.evaluate(colours) == ["rgb(250, 204, 21)", "rgb(0, 0, 0)"]
    assert stub.received == [], "how it looks is asked without a conversation"
    launcher.click()
    expect(page.get_by_role("heading", name="Acme help")).to_be_visible()
    expect(page.get_by_text("Hello from Acme")).to_be_visible()
    expect(page.get_by_text("An AI answers here.")).to_be_visible()
    link = page.get_by_role("link", name="Privacy")
    assert link.get_attribute("href") == "https://acme.invalid/privacy"
    assert link.get_attribute("rel") == "noopener noreferrer"
    page.get_by_role("button", name="Where is my parcel?").click()
    expect(log(page).get_by_label("You")).to_contain_text("Where is my parcel?")
    expect(page.get_by_text("Hello from Acme")).to_be_hidden()
    expect(page.locator(".gauge")).to_be_hidden()
    assert "token" not in page.locator(".panel").inner_text().lower()


def test_a_page_may_say_how_it_looks_itself(visitor: Visitor, stub: Stub) -> None:
    stub.site = SITE
    page = visitor.shop("?title=Mine&accent=%23006400&position=right&open=1")
    expect(page.get_by_role("heading", name="Mine")).to_be_visible()
    box = page.get_by_role("dialog").bounding_box()
    assert box is not None
    assert round(box["x"] + box["width"]) == 1080
    page.get_by_role("button", name="Close chat").first.click()
    launcher = page.get_by_role("button", name="Ask Acme")
    assert launcher.evaluate("node => getComputedStyle(node).backgroundColor") == "rgb(0, 100, 0)"


@pytest.mark.parametrize(
    "site", [SITE, {"starters": []}], ids=["a site that has some", "a site that has none"]
)
def test_a_page_may_say_itself_how_people_begin(visitor: Visitor, stub: Stub, site: dict[str, Any]) -> None:
    stub.site = site
    page = visitor.shop("?open=1&starters=Where is it%3F | |<b>Bold</b>|3|4|5|6|7")
    expect(page.locator(".starters button")).to_have_text(["Where is it?", "<b>Bold</b>", "3", "4", "5", "6"])
    page.get_by_role("button", name="Where is it?").click()
    expect(log(page).get_by_label("You")).to_contain_text("Where is it?")


def test_site_asks_visitor_for_name_and_sends_the_answer(visitor: Visitor, stub: Stub) -> None:
    stub.site = {"starters": [], "ask_name": True}
    page = visitor.shop("?open=1")
    question = page.get_by_label("What should I call you?")
    question.fill("ada")
    question.press("Enter")
    expect(log(page).get_by_role("article", name="You")).to_contain_text("My name is Ada.")
    expect(question).to_be_hidden()


def test_site_asks_for_no_name_by_default(visitor: Visitor, stub: Stub) -> None:
    stub.site = SITE
    page = visitor.shop("?open=1")
    expect(page.locator(".starters button")).to_have_count(2)
    expect(page.get_by_label("What should I call you?")).to_have_count(0)


def test_the_full_page_bears_the_name_of_its_site(visitor: Visitor, stub: Stub) -> None:
    stub.site = {"title": "Acme help", "starters": []}
    page = visitor.chat()
    expect(page.get_by_role("heading", name="Acme help")).to_be_visible()
    expect(page).to_have_title("Acme help")


def test_absent_team_text_of_the_site_is_shown(visitor: Visitor, stub: Stub) -> None:
    stub.site = SITE
    visitor.tolerated = ("WebSocket", "503")
    stub.refuse = True
    page = visitor.shop("?open=1")
    expect(page.locator(".link")).to_have_text("We are back at nine.")


@pytest.mark.control("S15")
def test_text_of_a_site_is_text(visitor: Visitor, stub: Stub) -> None:
    evil = "<img src=x onerror=alert(1)>"
    stub.site = {
        "title": evil,
        "welcome": evil,
        "starters": [evil],
        "ai_notice": evil,
        "privacy_url": "javascript:alert(1)",
    }
    page = visitor.shop("?open=1")
    expect(page.get_by_role("button", name=evil)).to_be_visible()
    assert page.locator("#evertalk img, #evertalk a").count() == 0


def test_sign_in_before_load_never_shows_another_person(visitor: Visitor, stub: Stub) -> None:
    stub.required = True
    page = visitor.page()
    page.add_init_script(
        "window.Evertalk = function () { (Evertalk.q = Evertalk.q || []).push(arguments); };"
        "Evertalk('setTheme', 'dark'); Evertalk('open'); Evertalk('identify', 'ada');"
    )
    page.goto(f"{stub.host_url}/shop")
    answered(page, "Hi, it is me")
    hellos = [frame for frame in stub.received if frame["t"] == "hello"]
    assert [frame.get("identity") for frame in hellos] == ["ada"]
    assert page.locator(".root").get_attribute("data-theme") == "dark"


def test_signing_in_takes_the_conversation_along_under_a_new_token(visitor: Visitor, stub: Stub) -> None:
    page = visitor.shop("?open=1")
    answered(page, "Before")
    before = token(page)
    call(page, "identify", "ada")
    until(page, f"localStorage.getItem('evertalk:shop:token') !== '{before}'")
    expect(log(page).get_by_label("You")).to_have_count(1)
    expect(log(page).get_by_label("You")).to_contain_text("Before")
    assert token(page).startswith("signed")


def test_signing_out_leaves_nothing_of_the_person_behind(visitor: Visitor, stub: Stub) -> None:
    page = visitor.shop("?open=1")
    call(page, "identify", "ada")
    until(page, "localStorage.getItem('evertalk:shop:signed')")
    answered(page, "My secret")
    page.get_by_role("textbox", name="Message").fill("half a thought")
    page.reload()
    expect(log(page).get_by_label("You")).to_contain_text("My secret")
    call(page, "identify", None)
    expect(log(page).get_by_label("You")).to_have_count(0)
    until(page, "localStorage.getItem('evertalk:shop:token')?.startsWith('token')")
    assert page.evaluate("localStorage.getItem('evertalk:shop:signed')") is None
    said = [frame for frame in stub.received if frame["t"] != "ping"]
    assert said[-1] == {"t": "identify", "identity": None}
    call(page, "identify", "ada")
    expect(log(page).get_by_label("You")).to_contain_text("My secret")
    call(page, "shutdown")
    expect(page.locator("#evertalk")).to_have_count(0)
    assert token(page) == ""
    page.reload()
    until(page, "Boolean(window.Evertalk?.run)")
    call(page, "open")
    expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    assert texts(page) == []


def test_who_signs_in_next_sends_nothing_of_the_one_before(visitor: Visitor, stub: Stub) -> None:
    page = visitor.shop("?open=1")
    call(page, "identify", "ada")
    answered(page, "I am Ada")
    stub.deaf = True
    page.get_by_role("textbox", name="Message").fill("Ada's last words")
    page.keyboard.press("Enter")
    arrived(page, stub, "msg", 2)
    page.get_by_role("textbox", name="Message").fill("Ada's draft")
    stub.deaf = False
    call(page, "identify", "bob")
    until(page, "localStorage.getItem('evertalk:shop:signed') === 'bob'")
    expect(log(page).get_by_label("You")).to_have_count(0)
    expect(page.get_by_role("textbox", name="Message")).to_have_value("")
    answered(page, "I am Bob")
    sent = [frame for frame in stub.received if frame.get("text") == "Ada's last words"]
    assert len(sent) == 1, "once, as Ada, to a server that was deaf"


def test_chat_for_signed_in_people_begins_after_sign_in(visitor: Visitor, stub: Stub) -> None:
    stub.required = True
    page = visitor.shop("?open=1")
    page.evaluate("document.addEventListener('evertalk:error', event => window.told = event.detail.code)")
    expect(page.locator(".link")).to_have_text("Please sign in to use the chat.")
    assert page.evaluate("window.told ?? 'identity_required'") == "identity_required"
    call(page, "identify", "ada")
    answered(page, "Now I am in")
    expect(page.locator(".link")).to_be_hidden()


def test_refused_signature_keeps_the_conversation(visitor: Visitor, stub: Stub) -> None:
    page = visitor.shop("?open=1")
    answered(page, "Mine")
    mine = token(page)
    call(page, "identify", "forged")
    expect(page.locator(".link")).to_have_text("Please sign in to use the chat.")
    assert token(page) == mine
    call(page, "identify", None)
    expect(page.locator(".link")).to_be_hidden()


def test_shutting_down_keeps_an_anonymous_conversation(visitor: Visitor, stub: Stub) -> None:
    page = visitor.shop()
    call(page, "open")
    answered(page, "Keep me")
    call(page, "shutdown")
    page.reload()
    until(page, "Boolean(window.Evertalk?.run)")
    call(page, "toggle")
    expect(log(page).get_by_label("You")).to_contain_text("Keep me")
    call(page, "close")
    expect(page.get_by_role("dialog")).to_be_hidden()
    call(page, "send", "From the page")
    call(page, "setTheme", "light")
    call(page, "open")
    expect(log(page).get_by_label("You").last).to_contain_text("From the page")
    assert page.locator(".root").get_attribute("data-theme") == "light"


def test_a_code_opens_the_conversation_in_another_browser(visitor: Visitor, stub: Stub) -> None:
    page = visitor.shop("?open=1")
    answered(page, "Remember me")
    call(page, "keep")
    panel = page.get_by_role("dialog", name="Continue on another device")
    panel.get_by_role("button", name="Make a code").click()
    expect(panel.locator("code")).to_be_visible()
    expect(panel.get_by_role("button", name="Make a code")).to_be_focused()
    code = panel.locator("code").inner_text()
    panel.get_by_role("button", name="Back to the chat").click()
    expect(page.get_by_role("textbox", name="Message")).to_be_focused()
    assert code not in str(page.evaluate("JSON.stringify(localStorage)"))
    page.evaluate("localStorage.clear()")
    page.reload()
    page.get_by_role("textbox", name="Message").wait_for()
    expect(log(page).get_by_label("You")).to_have_count(0)
    call(page, "keep")
    panel.get_by_label("I have a code").fill("WRONG-CODE")
    visitor.tolerated = ("404",)
    panel.get_by_role("button", name="Open that conversation").click()
    expect(panel.get_by_role("status")).to_have_text(
        "This code opens nothing. Please look for a mistake in it."
    )
    panel.get_by_label("I have a code").fill(code.lower())
    page.keyboard.press("Enter")
    expect(panel).to_be_hidden()
    expect(log(page).get_by_label("You")).to_contain_text("Remember me")


def test_a_code_brings_the_full_page_its_cookie(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    answered(page, "On the page")
    (session,) = stub.sessions.values()
    stub.codes["AAAA"] = session
    visitor.context.clear_cookies()
    page.reload()
    page.get_by_role("textbox", name="Message").wait_for()
    page.evaluate(
        """async () => {
            const chat = { options: { page: true, site: 'default' }, store: { get: () => '' } };
            const { reach } = await import('/static/widget/rare.js');
            const body = JSON.stringify({ code: 'AAAA', site: 'default', page: true });
            const headers = { 'Content-Type': 'application/json' };
            await reach(chat, 'api/v1/recover', { method: 'POST', headers, body });
        }"""
    )
    page.reload()
    expect(log(page).get_by_label("You")).to_contain_text("On the page")


def leftovers(page: Page, stub: Stub) -> None:
    """Of Ada, who is signed in: a draft, files on their way and there, a message that did not get through."""
    pick(page, file("there.txt", b"Ada's words"), file("shot.png", png(), "image/png"))
    expect(page.locator(".composer .file[data-state=ready]")).to_have_count(2)
    page.get_by_role("textbox", name="Message").fill("Ada's secret message")
    stub.deaf = True
    page.keyboard.press("Enter")
    expect(log(page).get_by_text("Sending…")).to_be_visible()
    stub.hold_files.clear()
    pick(page, file("going.txt", b"More of Ada's words"))
    expect(chips(page)).to_have_count(1)
    page.get_by_role("textbox", name="Message").fill("Ada's draft")
    until(page, "localStorage.getItem('evertalk:shop:draft') === \"Ada's draft\"")


def kept(page: Page) -> str:
    """Everything that this browser keeps."""
    return str(page.evaluate("JSON.stringify([{ ...localStorage }, { ...sessionStorage }])"))


def nothing_of_ada(page: Page, stub: Stub, name: str) -> None:
    """Neither on the screen, nor kept, nor sent in the next one's name."""
    page.wait_for_timeout(400)
    seen = page.locator(".panel").inner_text() + page.get_by_role("textbox", name="Message").input_value()
    for trace in ("Ada's", "there.txt", "shot.png", "going.txt"):
        assert trace not in seen, seen
        assert trace not in kept(page)
    expect(chips(page)).to_have_count(0)
    before = len(stub.received)
    stub.deaf = False
    stub.hold_files.set()
    answered(page, f"I am {name}")
    page.wait_for_timeout(300)
    sent = [frame for frame in stub.received[before:] if frame["t"] in {"msg", "command"}]
    assert [frame["text"] for frame in sent] == [f"I am {name}"]
    assert "attachments" not in sent[0] or not sent[0]["attachments"]
    assert "Ada's" not in json.dumps(stub.people[name.lower()].events if name.lower() in stub.people else [])


def as_ada(visitor: Visitor) -> Page:
    page = visitor.shop("?open=1")
    expect(page.get_by_role("button", name="Attach files")).to_be_visible()
    call(page, "identify", "ada")
    until(page, "localStorage.getItem('evertalk:shop:signed') === 'ada'")
    return page


def test_who_signs_in_next_finds_no_file_draft_or_outbox(visitor: Visitor, stub: Stub) -> None:
    page = as_ada(visitor)
    leftovers(page, stub)
    call(page, "identify", "bob")
    until(page, "localStorage.getItem('evertalk:shop:signed') === 'bob'")
    nothing_of_ada(page, stub, "Bob")


def test_sign_in_after_sign_out_shows_nothing_of_former_person(visitor: Visitor, stub: Stub) -> None:
    page = as_ada(visitor)
    leftovers(page, stub)
    call(page, "identify", None)
    until(page, "localStorage.getItem('evertalk:shop:token')?.startsWith('token')")
    call(page, "identify", "bob")
    until(page, "localStorage.getItem('evertalk:shop:signed') === 'bob'")
    nothing_of_ada(page, stub, "Bob")


def test_sign_in_on_reload_never_shows_the_former_person(visitor: Visitor, stub: Stub) -> None:
    visitor.tolerated = ("WebSocket", "503")
    page = as_ada(visitor)
    leftovers(page, stub)
    page.add_init_script(
        "window.Evertalk = function () { (Evertalk.q = Evertalk.q || []).push(arguments); };"
        "Evertalk('identify', 'bob');"
    )
    stub.refuse = True
    page.reload()
    page.get_by_role("textbox", name="Message").wait_for()
    page.wait_for_timeout(300)
    assert "Ada's" not in kept(page), "not even while no server can say who it is"
    expect(page.get_by_role("textbox", name="Message")).to_have_value("")
    stub.refuse = False
    until(page, "localStorage.getItem('evertalk:shop:signed') === 'bob'")
    nothing_of_ada(page, stub, "Bob")


def test_another_tab_forgets_the_one_before_as_well(visitor: Visitor, stub: Stub) -> None:
    page = as_ada(visitor)
    other = visitor.shop("?open=1")
    expect(other.get_by_role("button", name="Attach files")).to_be_visible()
    leftovers(page, stub)
    other.bring_to_front()
    call(other, "identify", "bob")
    until(other, "localStorage.getItem('evertalk:shop:signed') === 'bob'")
    page.bring_to_front()
    until(page, "localStorage.getItem('evertalk:shop:signed') === 'bob'")
    page.wait_for_timeout(2500)
    nothing_of_ada(page, stub, "Bob")
    page.close()
    assert "Ada's" not in kept(other)
    expect(log(other).get_by_text("You said: I am Bob")).to_be_visible()


def test_what_lay_over_the_chat_goes_with_the_one_before(visitor: Visitor, stub: Stub) -> None:
    page = as_ada(visitor)
    answered(page, "Hello")
    stub.people["ada"].notes = [note_of("Ada drinks green tea.", id="n00000001")]
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("menuitem", name="Memory").click()
    expect(page.get_by_text("Ada drinks green tea.")).to_be_visible()
    call(page, "identify", "bob")
    until(page, "localStorage.getItem('evertalk:shop:signed') === 'bob'")
    expect(page.get_by_role("dialog", name="Memory")).to_have_count(0)
    answered(page, "I am Bob")
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("menuitem", name="Memory").click()
    expect(page.get_by_text("Nothing yet.")).to_be_visible()
    expect(page.get_by_text("Ada drinks green tea.")).to_have_count(0)


def test_new_signature_of_same_person_keeps_draft_and_files(visitor: Visitor, stub: Stub) -> None:
    def signed(nonce: str) -> str:
        claims = base64.urlsafe_b64encode(json.dumps({"sub": "ada", "n": nonce}).encode()).decode()
        return f"h.{claims.rstrip('=')}.s"

    page = visitor.shop("?open=1")
    expect(page.get_by_role("button", name="Attach files")).to_be_visible()
    call(page, "identify", signed("1"))
    until(page, "Boolean(localStorage.getItem('evertalk:shop:signed'))")
    pick(page, file("mine.txt", b"words"))
    expect(page.locator(".composer .file[data-state=ready]")).to_have_count(1)
    page.get_by_role("textbox", name="Message").fill("Half a thought")
    call(page, "identify", signed("2"))
    page.wait_for_timeout(600)
    expect(page.get_by_role("textbox", name="Message")).to_have_value("Half a thought")
    expect(chips(page)).to_have_count(1)
