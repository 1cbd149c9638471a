"""Files in the widget: picked, pasted and dropped, with progress, where a page forbids all but us."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.widget.conftest import Visitor
from tests.browser.widget.hands import arrived, log
from tests.browser.widget.picked_files import chips, file, pick, png
from tests.browser.widget.stub import Stub

pytestmark = pytest.mark.browser


def give(page: Page, kind: str, name: str, content: bytes, mime: str, *, words: str = "") -> None:
    """A paste into the message, or something dragged over the panel and dropped."""
    script = """([kind, name, bytes, mime, words]) => {
        const root = document.querySelector('#evertalk').shadowRoot;
        const data = new DataTransfer();
        data.items.add(new File([new Uint8Array(bytes)], name, { type: mime }));
        if (words) data.setData('text/plain', words);
        const how = { bubbles: true, cancelable: true, composed: true };
        const node = root.querySelector(kind === 'paste' ? 'textarea' : '.log');
        const over = () => node.dispatchEvent(new DragEvent(kind, { ...how, dataTransfer: data }));
        clearInterval(window.hovering);
        if (kind === 'paste') node.dispatchEvent(new ClipboardEvent(kind, { ...how, clipboardData: data }));
        else over();
        // A browser says so again and again until it is dropped.
        if (kind === 'dragover') window.hovering = setInterval(over, 100);
    }"""
    page.evaluate(script, [kind, name, list(content), mime, words])


def shop(visitor: Visitor, query: str = "") -> Page:
    page = visitor.shop(f"?open=1{query}")
    expect(page.get_by_role("button", name="Attach files")).to_be_visible()
    return page


def sent(stub: Stub) -> list[dict[str, Any]]:
    return [frame for frame in stub.received if frame["t"] == "msg"]


def test_picked_pasted_and_dropped_files_go_out_with_the_message(visitor: Visitor, stub: Stub) -> None:
    page = shop(visitor)
    pick(page, file("a.txt", b"words"))
    expect(chips(page)).to_have_count(1)
    give(page, "paste", "shot.png", png(), "image/png")
    expect(chips(page)).to_have_count(2)
    give(page, "dragover", "b.png", png("red"), "image/png")
    expect(page.get_by_text("Drop files here")).to_be_visible()
    give(page, "drop", "b.png", png("red"), "image/png")
    expect(chips(page)).to_have_count(3)
    expect(page.get_by_text("Drop files here")).to_be_hidden()
    expect(page.locator(".composer .file[data-state=ready]")).to_have_count(3)
    expect(page.locator(".composer canvas")).to_have_count(2)
    page.get_by_role("textbox", name="Message").fill("Look at these")
    page.keyboard.press("Enter")
    expect(chips(page)).to_have_count(0)
    bubble = log(page).locator(".person")
    expect(bubble).to_contain_text("Look at these")
    expect(bubble.get_by_role("button", name="Save a.txt 1 kB")).to_be_visible()
    expect(bubble.get_by_role("button", name="Save shot.png")).to_be_visible()
    expect(bubble.locator("canvas")).to_have_count(2)
    (frame,) = arrived(page, stub, "msg", 1)
    (session,) = stub.sessions.values()
    assert [session.files[one][0]["name"] for one in frame["attachments"]] == ["a.txt", "shot.png", "b.png"]
    assert session.files[frame["attachments"][1]][1] == png()


def test_after_a_reload_pictures_are_drawn_from_what_the_server_has(visitor: Visitor, stub: Stub) -> None:
    page = shop(visitor)
    pick(page, file("x.png", png("red"), "image/png"))
    expect(page.locator(".composer .file[data-state=ready]")).to_have_count(1)
    page.get_by_role("button", name="Send", exact=True).click()
    expect(log(page).locator(".person canvas")).to_have_count(1)
    page.reload()
    canvas = log(page).locator(".person canvas")
    expect(canvas).to_have_count(1)
    pixel = canvas.evaluate("node => [...node.getContext('2d').getImageData(5, 5, 1, 1).data]")
    assert pixel == [255, 0, 0, 255]
    with page.expect_download() as download:
        log(page).get_by_role("button", name="Save x.png").click()
    assert download.value.suggested_filename == "x.png"
    assert download.value.path().read_bytes() == png("red")


def test_an_answer_brings_its_files_and_charts(visitor: Visitor, stub: Stub) -> None:
    page = shop(visitor)
    files = ("plan.md", "text/markdown", b"# Plan"), ("sales.png", "image/png", png("red"))
    stub.call(stub.push(stub.only(), "There they are.", files=files))
    answer = log(page).locator("article.assistant").last
    expect(answer).to_contain_text("There they are.")
    expect(answer.locator("canvas")).to_have_count(1)
    with page.expect_download() as download:
        answer.get_by_role("button", name="Save plan.md").click()
    assert download.value.suggested_filename == "plan.md"
    assert download.value.path().read_bytes() == b"# Plan"
    page.reload()
    expect(log(page).locator("article.assistant canvas")).to_have_count(1)


def test_pictures_that_come_late_leave_the_reader_at_the_end(visitor: Visitor, stub: Stub) -> None:
    page = shop(visitor)
    for _ in range(2):
        pick(page, file("tall.png", png("red", (600, 600)), "image/png"))
        expect(page.locator(".composer .file[data-state=ready]")).to_have_count(1)
        page.get_by_role("button", name="Send", exact=True).click()
        expect(page.locator(".composer .file")).to_have_count(0)
        expect(page.locator(".send[aria-disabled=true]")).to_be_visible()
    expect(log(page).locator("article.assistant[data-status=sent]")).to_have_count(2)
    stub.call(stub.push(stub.only(), "The very last word"))
    expect(log(page).get_by_text("The very last word")).to_be_visible()
    page.reload()
    expect(log(page).locator(".person canvas")).to_have_count(2)
    expect(log(page).get_by_text("The very last word")).to_be_in_viewport()


def test_a_message_waits_for_its_files_and_shows_how_far_they_are(visitor: Visitor, stub: Stub) -> None:
    stub.hold_files.clear()
    page = shop(visitor)
    pick(page, file("a.txt", b"x" * 150_000))
    meter = chips(page).get_by_role("progressbar", name="Sending a.txt")
    expect(meter).to_have_attribute("aria-valuenow", "100")
    page.get_by_role("textbox", name="Message").fill("Read this")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Your message is sent as soon as the files are ready.").first).to_be_visible()
    expect(page.locator("[aria-live=polite]")).to_contain_text("as soon as the files are ready")
    assert sent(stub) == []
    stub.hold_files.set()
    expect(log(page).locator(".person")).to_contain_text("Read this")
    assert len(arrived(page, stub, "msg", 1)) == 1
    expect(page.get_by_role("textbox", name="Message")).to_have_value("")


def test_a_file_that_is_refused_says_why_and_can_be_taken_away(visitor: Visitor, stub: Stub) -> None:
    visitor.tolerated = ("status of 422",)
    stub.refuse_file = "file_unknown_kind"
    page = shop(visitor)
    pick(page, file("a.exe", b"MZ"), file("large.txt", b"x" * 200_001), file("empty.txt", b""))
    failed = page.locator(".composer .file[data-state=failed]")
    expect(failed).to_have_count(3)
    expect(chips(page).nth(0)).to_contain_text(
        "pictures, texts, web pages, PDF, office files, e-books, mails, calendars, contacts, notebooks"
        " and archives can be read"
    )
    expect(chips(page).nth(1)).to_contain_text("larger than 0 MB")
    expect(chips(page).nth(2)).to_contain_text("there is nothing in it to read")
    page.get_by_role("textbox", name="Message").fill("Still here")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Remove the file that did not work").first).to_be_visible()
    assert sent(stub) == []
    page.get_by_role("button", name="Remove empty.txt").click()
    expect(page.get_by_role("button", name="Remove large.txt")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("[aria-live=polite]")).to_contain_text("large.txt was removed.")
    page.get_by_role("button", name="Retry: a.exe").click()
    expect(page.locator(".composer .file[data-state=ready]")).to_have_count(1)
    page.get_by_role("textbox", name="Message").press("Enter")
    expect(log(page).locator(".person")).to_contain_text("Still here")


def test_too_many_files_are_said_to_be_too_many(visitor: Visitor) -> None:
    page = shop(visitor)
    pick(page, *(file(f"{n}.txt", b"x") for n in range(5)))
    expect(chips(page)).to_have_count(3)
    expect(page.get_by_text("3 files are the most for one message.").first).to_be_visible()


def test_files_wait_offline_and_go_out_with_their_message(visitor: Visitor, stub: Stub) -> None:
    visitor.tolerated = ("WebSocket", "ERR_INTERNET_DISCONNECTED")
    page = shop(visitor)
    pick(page, file("first.txt", b"warm"))
    expect(page.locator(".composer .file[data-state=ready]")).to_have_count(1)
    visitor.lose_network(page)
    expect(page.get_by_text("You are offline.").first).to_be_visible()
    pick(page, file("a.txt", b"words"))
    expect(chips(page).nth(1)).to_contain_text("waits for the connection")
    page.get_by_role("textbox", name="Message").fill("Read it later")
    page.keyboard.press("Enter")
    expect(page.get_by_text("The files stay here").first).to_be_visible()
    expect(page.get_by_role("textbox", name="Message")).to_have_value("Read it later")
    visitor.context.set_offline(False)
    page.evaluate("dispatchEvent(new Event('online'))")
    expect(log(page).locator(".person")).to_contain_text("Read it later")
    (frame,) = arrived(page, stub, "msg", 1)
    assert len(frame["attachments"]) == 2


def test_what_a_reload_could_not_keep_is_named(visitor: Visitor, stub: Stub) -> None:
    page = shop(visitor)
    pick(page, file("kept.txt", b"words"))
    expect(page.locator(".composer .file[data-state=ready]")).to_have_count(1)
    stub.hold_files.clear()
    pick(page, file("lost.txt", b"more words"))
    expect(chips(page)).to_have_count(2)
    page.get_by_role("textbox", name="Message").fill("A draft")
    page.get_by_role("textbox", name="Message").blur()
    page.wait_for_timeout(300)
    page.reload()
    stub.hold_files.set()
    expect(
        page.get_by_text("Not kept when the page was reloaded, please add again: lost.txt").first
    ).to_be_visible()
    expect(chips(page)).to_have_count(1)
    expect(page.get_by_role("textbox", name="Message")).to_have_value("A draft")
    page.get_by_role("textbox", name="Message").press("Enter")
    expect(log(page).get_by_role("button", name="Save kept.txt")).to_be_visible()


def test_where_no_files_are_taken_nothing_offers_it(visitor: Visitor, stub: Stub) -> None:
    stub.files = None
    page = visitor.shop("?open=1")
    expect(page.locator(".gauge")).to_be_visible()
    expect(page.get_by_role("button", name="Attach files")).to_be_hidden()
    give(page, "paste", "shot.png", png(), "image/png")
    give(page, "drop", "shot.png", png(), "image/png")
    expect(chips(page)).to_have_count(0)
    assert not any("attach" in path for path in stub.requests)


def test_pasted_words_stay_words(visitor: Visitor, stub: Stub) -> None:
    page = shop(visitor)
    give(page, "paste", "table.png", png(), "image/png", words="a table")
    expect(chips(page)).to_have_count(0)
    assert not any("attach" in path for path in stub.requests)


def test_files_speak_german_too(visitor: Visitor) -> None:
    page = visitor.shop("?open=1&locale=de")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Dateien anfügen").click()
    chooser.value.set_files([file("leer.txt", b"")])
    expect(page.get_by_text("leer.txt: darin ist nichts zu lesen").first).to_be_visible()
    page.get_by_role("button", name="leer.txt entfernen").click()
    expect(page.get_by_role("textbox")).to_be_focused()
