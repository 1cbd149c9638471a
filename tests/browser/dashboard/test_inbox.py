"""The inbox in a real browser: one operator works through many conversations with keys alone."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from shared.adapters.postgres.people.visitors import generate_token
from shared.core.identity.handover import NewHandover
from shared.core.session.turns import Inbound
from tests.browser.axe import look_for_faults, look_in_both_schemes
from tests.browser.dashboard.house import House
from tests.browser.dashboard.place import fits

pytestmark = pytest.mark.browser
MANY = 30


@pytest.fixture
def house_options() -> dict[str, Any]:
    return {"handover": "on", "handover_minutes": 600}


async def waits(house: House, number: int) -> str:
    """Somebody who asked for a human and wrote a word; their conversation."""
    row = await house.app.stores.visitors.create(generate_token(), site="default")
    assert row is not None
    await house.app.stores.handovers.request_handover(
        NewHandover(
            session_id=row.session_id, address_id=row.address_id, asked_by="person", reason=f"case {number}"
        )
    )
    await house.app.sessions.accept(
        Inbound(
            session_id=row.session_id, address_id=row.address_id, text=f"Question {number}, please",
            dedupe_key=f"web:{number}",
        )
    )  # fmt: skip
    await house.app.pool.execute(
        "UPDATE contacts SET display_name = $2 WHERE id = (SELECT contact_id FROM sessions WHERE id = $1)",
        row.session_id,
        f"Person {number:02}",
    )
    return str(row.session_public_id)


def reply_box(page: Page) -> Any:
    return page.get_by_role("textbox", name="Your reply")


def title(page: Page) -> Any:
    return page.locator(".inbox-talk h2").first


async def picked(page: Page, name: str, words: str) -> None:
    """In a dialog: typed, and chosen with Enter."""
    box = page.get_by_role("combobox", name=name)
    await expect(box).to_be_focused()
    await page.keyboard.type(words)
    await page.keyboard.press("Enter")
    await expect(box).to_have_count(0)


async def shot(page: Page, name: str) -> None:
    if folder := os.environ.get("PICTURES_FOLDER"):
        await page.screenshot(path=Path(folder) / f"{name}.png")


async def test_thirty_conversations_are_handled_by_keys_alone(house: House) -> None:
    for number in range(MANY):
        await waits(house, number)
    page = await house.operator("Anna", path="/dashboard/inbox")
    await expect(page.locator(".inbox-list li")).to_have_count(MANY)
    await page.keyboard.press("j")
    for number in range(MANY):
        await expect(title(page)).to_have_text(f"Person {number:02}")
        await expect(page.locator(".message.person")).to_contain_text(f"Question {number}, please")
        await page.keyboard.press("t")
        await expect(reply_box(page)).to_be_focused()
        await page.keyboard.type(f"Answer {number}")
        await page.keyboard.press("Enter")
        await expect(page.locator(".message.operator")).to_contain_text(f"Answer {number}")
        await page.keyboard.press("Escape")
        if number == 0:
            await shot(page, "inbox-wide")
        await page.keyboard.press("e")
        await expect(page.locator(".inbox-list li")).to_have_count(MANY - number - 1)
    await expect(page.get_by_text("Nobody is waiting for a human.")).to_be_visible()
    assert await house.one("SELECT count(*) FROM handovers WHERE ended_by = 'resolved'") == MANY
    said = "SELECT count(DISTINCT session_id) FROM entries WHERE author = 'operator'"
    assert await house.one(said) == MANY
    await page.get_by_role("button", name="Resolved").click()
    await expect(page.locator(".inbox-list li")).to_have_count(MANY)


async def test_several_conversations_are_selected_and_changed_at_once(house: House) -> None:
    for number in range(1, 6):
        await waits(house, number)
    bert = await house.operator("Bert")
    page = await house.operator("Anna", path="/dashboard/inbox")
    rows = page.locator(".inbox-list li")
    await expect(rows).to_have_count(5)
    for name in ("Person 01", "Person 02", "Person 03"):
        await page.get_by_role("checkbox", name=f"Select {name}").check()
    bar = page.get_by_role("group", name="Selected conversations")
    await expect(bar).to_contain_text("3 selected")
    await fits(page)
    assert await look_in_both_schemes(page) == []
    await page.emulate_media(color_scheme="light")
    await shot(page, "inbox-selected")
    await bar.get_by_role("button", name="Labels").click()
    await picked(page, "Labels", "Refund")
    await expect(rows.locator(".label")).to_have_count(3)
    await expect(bar).to_be_hidden()
    await rows.nth(3).locator("a").focus()
    await page.keyboard.press("x")
    await page.keyboard.press("j")
    await page.keyboard.press("x")
    await expect(bar).to_contain_text("2 selected")
    await page.keyboard.press("e")
    await expect(rows).to_have_count(3)
    assert await house.one("SELECT count(*) FROM handovers WHERE ended_by = 'resolved'") == 2
    for place in range(3):
        await rows.nth(place).get_by_role("checkbox").check()
    await house.app.pool.execute(
        """UPDATE handovers h
              SET state = 'human', taken_at = now(), operator_id = o.id, operator_name = 'Bert'
             FROM operators o WHERE o.name = 'Bert' AND h.id = (
               SELECT min(id) FROM handovers WHERE ended_at IS NULL)"""
    )
    await bar.get_by_role("button", name="Resolve").click()
    trouble = page.get_by_role("alert")
    await expect(trouble).to_contain_text("1 conversation was not changed:")
    await expect(trouble).to_contain_text("Person 01: Bert has this conversation.")
    await expect(rows).to_have_count(1)
    await bert.close()


async def test_macro_is_written_once_and_run_by_three_keys(house: House) -> None:
    for number in (1, 2):
        await waits(house, number)
    page = await house.operator("Anna", path="/dashboard/inbox")
    rows = page.locator(".inbox-list li")
    await expect(rows).to_have_count(2)
    await page.keyboard.press("j")
    await expect(title(page)).to_have_text("Person 01")
    await page.keyboard.press("m")
    form = page.get_by_role("dialog", name="Macros")
    await form.get_by_label("Name").fill("refund")
    await form.get_by_label("Labels").fill("Refund, Paid back")
    await form.get_by_label("Reply").fill("Dear {{name}}, it is on its way.")
    await form.get_by_label("Resolve").check()
    await fits(page)
    assert await look_in_both_schemes(page) == []
    await page.emulate_media(color_scheme="light")
    await shot(page, "macro-form")
    await form.get_by_role("button", name="Save").click()
    await picked(page, "Macros", "refund")
    await expect(rows).to_have_count(1)
    await expect(title(page)).to_have_text("Person 02")
    said = "SELECT blocks::text FROM entries WHERE author = 'operator'"
    assert "Dear Person 01, it is on its way." in await house.one(said)
    await page.keyboard.press("m")
    await picked(page, "Macros", "re")
    await expect(page.get_by_text("Nobody is waiting for a human.")).to_be_visible()
    closed = await house.app.pool.fetch("SELECT labels, ended_by FROM handovers")
    assert [tuple(row) for row in closed] == [(["Refund", "Paid back"], "resolved")] * 2


async def test_macro_on_a_selection_says_what_happened_to_each(house: House) -> None:
    for number in range(1, 6):
        await waits(house, number)
    bert = await house.operator("Bert")
    page = await house.operator("Anna", path="/dashboard/inbox")
    await house.app.stores.inbox.save_macro(
        "refund", labels=["Refund"], assignee="", reply="Dear {{name}}, it is on its way.", resolve=True,
        version=0, by="Anna",
    )  # fmt: skip
    rows = page.locator(".inbox-list li")
    await expect(rows).to_have_count(5)
    for number in range(1, 5):
        await page.get_by_role("checkbox", name=f"Select Person 0{number}").check()
    await house.app.pool.execute(
        """UPDATE handovers h
              SET state = 'human', taken_at = now(), operator_id = o.id, operator_name = 'Bert'
             FROM operators o
            WHERE o.name = 'Bert' AND h.id = (SELECT id FROM handovers ORDER BY id LIMIT 1)"""
    )
    service, (second,) = house.app.handover_service, await house.app.pool.fetch(
        "SELECT session_id FROM handovers ORDER BY id OFFSET 1 LIMIT 1"
    )  # fmt: skip
    anna = await house.one("SELECT id FROM operators WHERE name = 'Anna'")
    await service.release(second["session_id"], operator_id=anna, resolved=True)
    bar = page.get_by_role("group", name="Selected conversations")
    await expect(bar).to_contain_text("3 selected")
    await page.get_by_role("checkbox", name="Select Person 05").check()
    await page.keyboard.press("m")
    await picked(page, "Macros", "refund")
    await expect(page.get_by_text("refund ran on 3 conversations.")).to_have_count(2)
    trouble = page.get_by_role("alert")
    await expect(trouble).to_contain_text("1 conversation was not changed:")
    await expect(trouble).to_contain_text("Person 01: Bert has this conversation.")
    await expect(rows).to_have_count(1)
    said = await house.app.pool.fetch("SELECT blocks::text AS said FROM entries WHERE author = 'operator'")
    assert sorted(row["said"].partition("Person ")[2][:2] for row in said) == ["03", "04", "05"]
    assert await house.one("SELECT count(*) FROM audit WHERE action = 'macro.run'") == 3
    await fits(page)
    assert await look_in_both_schemes(page) == []
    await page.emulate_media(color_scheme="light")
    await shot(page, "inbox-macro-result")
    await bert.close()


async def test_assign_label_snooze_and_note(house: House) -> None:
    first, second = [await waits(house, number) for number in (1, 2)]
    bert = await house.operator("Bert", path="/dashboard/inbox")
    page = await house.operator("Anna", path="/dashboard/inbox")
    await expect(page.locator(".inbox-list li").first).to_be_visible()
    await page.keyboard.press("j")
    await expect(title(page)).to_have_text("Person 01")
    await page.keyboard.press("l")
    await picked(page, "Labels", "Refund")
    row = page.locator(".inbox-list li", has_text="Person 01")
    await expect(row.locator(".label")).to_have_text("Refund")
    await page.keyboard.press("n")
    await expect(page.get_by_role("textbox", name="Private note")).to_be_focused()
    await page.keyboard.type("Ask accounting first")
    await page.keyboard.press("Enter")
    await expect(page.locator(".message.note")).to_contain_text("Ask accounting first")
    await shot(page, "inbox-note")
    await page.keyboard.press("a")
    await picked(page, "Assign", "bert")
    await expect(row).to_contain_text("with Bert")
    await expect(bert).to_have_title(re.compile(r"^\(2\)"))
    await page.keyboard.press("k")
    await expect(title(page)).to_have_text("Person 02")
    await page.keyboard.press("s")
    await picked(page, "Snooze until", "in 1")
    await expect(page.locator(".inbox-list li")).to_have_count(1)
    await page.get_by_role("button", name="Snoozed").click()
    await expect(page.locator(".inbox-list li")).to_contain_text("Person 02")
    await house.app.sessions.accept(await another_word(house, second))
    await expect(page.get_by_text("Nothing matches.")).to_be_visible()
    await page.get_by_role("button", name="All").click()
    await page.get_by_role("combobox", name="Labels").select_option("Refund")
    await expect(page.locator(".inbox-list li")).to_have_count(1)
    await page.keyboard.press("Escape")
    assert await house.one("SELECT labels FROM handovers ORDER BY id LIMIT 1") == ["Refund"]
    assert await house.one("SELECT body FROM private_notes") == "Ask accounting first"
    assert first != second


async def test_a_private_note_is_removed_by_keys_and_goes_from_other_pages(house: House) -> None:
    session = await waits(house, 1)
    path = f"/dashboard/inbox?at={session}"
    anna = await house.operator("Anna", path=path)
    await anna.get_by_role("button", name="Private note").click()
    await anna.keyboard.type("Owes us a cake")
    await anna.keyboard.press("Enter")
    bert = await house.operator("Bert", path=path)
    phone = {"viewport": {"width": 390, "height": 844}}
    at_turn = f"/dashboard/sessions/{session}#turn-1"
    admin = await house.operator("Clara", "admin", at_turn, **phone)
    for page in (anna, bert, admin):
        await expect(page.locator(".message.note")).to_contain_text("Owes us a cake")
    remove = "Remove the private note"
    await expect(bert.get_by_role("button", name=remove)).to_have_count(0)
    await expect(admin.get_by_role("button", name=remove)).to_be_visible()
    assert await look_for_faults(admin) == []
    await fits(admin)
    await shot(admin, "note-390")
    await anna.get_by_role("button", name=remove).focus()
    await anna.keyboard.press("Enter")
    question = anna.get_by_role("dialog", name="Remove the private note?")
    await expect(question).to_contain_text("cannot be restored")
    assert await look_for_faults(anna) == []
    await shot(anna, "note-remove")
    await anna.keyboard.press("Escape")
    await expect(question).to_have_count(0)
    await expect(anna.get_by_role("button", name=remove)).to_be_focused()
    await anna.keyboard.press("Enter")
    await question.get_by_role("button", name="Remove").press("Enter")
    for page in (anna, bert, admin):
        await expect(page.locator(".message.note")).to_have_count(0)
    await expect(anna.locator(".transcript")).to_be_focused()
    assert await house.one("SELECT count(*) FROM private_notes") == 0
    assert await house.one("SELECT actor FROM audit WHERE action = 'private_note.deleted'") == "Anna"


async def test_what_was_loaded_of_earlier_stays_when_a_message_comes(house: House) -> None:
    session = await waits(house, 1)
    page = await house.operator("Anna", path=f"/dashboard/inbox?at={session}")
    await page.get_by_role("button", name="Private note").click()
    await page.keyboard.type("Owes us a cake")
    await page.keyboard.press("Enter")
    note, asked = page.locator(".message.note"), page.get_by_text("A human was asked for by the person")
    await expect(note).to_have_count(1)
    word, handovers = await another_word(house, session), house.app.stores.handovers
    await handovers.release(word.session_id, by="person")
    again = NewHandover(session_id=word.session_id, address_id=word.address_id, asked_by="assistant")
    await handovers.request_handover(again)
    for number in range(60):
        await house.app.sessions.accept(await another_word(house, session, f"Word {number}"))
    await page.reload()
    await expect(page.locator(".message", has_text="Word 59")).to_be_visible()
    await expect(note).to_have_count(0)
    await page.get_by_role("button", name="Load earlier messages").click()
    for one in (note, asked):
        await expect(one).to_have_count(1)
    await house.app.sessions.accept(await another_word(house, session, "The newest"))
    await expect(page.locator(".message", has_text="The newest")).to_be_visible()
    for one in (note, asked):
        await expect(one).to_have_count(1)


async def another_word(house: House, session: str, words: str = "Hello?") -> Inbound:
    row = await house.app.pool.fetchrow(
        "SELECT s.id, a.id AS address FROM sessions s JOIN addresses a ON a.session_id = s.id"
        " WHERE s.public_id = $1",
        session,
    )
    assert row is not None
    return Inbound(session_id=row["id"], address_id=row["address"], text=words, dedupe_key=f"web:{words}")


async def test_a_canned_reply_is_found_filled_in_and_checked(house: House) -> None:
    await waits(house, 7)
    page = await house.operator("Anna", path="/dashboard/inbox")
    await expect(page.locator(".inbox-list li").first).to_be_visible()
    await page.keyboard.press("j")
    await expect(title(page)).to_have_text("Person 07")
    await page.keyboard.press("t")
    await expect(reply_box(page)).to_be_focused()
    await page.get_by_role("button", name="Canned replies").click()
    dialog = page.get_by_role("dialog", name="Canned replies")
    await dialog.get_by_label("Name").fill("hello")
    await dialog.get_by_label("Text").fill("Hello {{name}}, this is {{operator}}. Your {{order}}?")
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog.get_by_text("/hello")).to_be_visible()
    await shot(page, "canned")
    assert await look_for_faults(page) == []
    await dialog.get_by_role("button", name="Close").click()
    await page.keyboard.press("r")
    await page.keyboard.type("/he")
    await expect(page.get_by_role("option", name="/hello")).to_be_visible()
    await shot(page, "canned-typed")
    await page.keyboard.press("Enter")
    await expect(reply_box(page)).to_have_value("Hello Person 07, this is Support. Your {{order}}?")
    await expect(page.locator("#reply-note")).to_contain_text("{{order}} is not known here.")
    await page.keyboard.press("Enter")
    await reply_box(page).fill("Hello Person 07!")
    await page.keyboard.press("Enter")
    await expect(page.locator(".message.operator")).to_have_count(1)
    await expect(page.locator(".message.operator")).to_contain_text("Hello Person 07!")


@pytest.mark.parametrize("width", [1360, 390])
async def test_axe_finds_nothing_in_the_inbox(house: House, width: int) -> None:
    for number in range(3):
        await waits(house, number)
    page = await house.operator("Anna", path="/dashboard/inbox", viewport={"width": width, "height": 844})
    await expect(page.locator(".inbox-list li")).to_have_count(3)
    await shot(page, f"list-{width}")
    found: dict[str, Any] = {"list": await look_in_both_schemes(page)}
    await fits(page)
    await page.get_by_role("link", name="Person 01").click()
    await expect(page.locator(".message.person")).to_be_visible()
    await page.keyboard.press("t")
    await expect(reply_box(page)).to_be_focused()
    await reply_box(page).press("Escape")
    await page.keyboard.press("n")
    await page.keyboard.type("For Bert")
    await shot(page, f"talk-{width}")
    found["talk"] = await look_in_both_schemes(page)
    await fits(page)
    await page.get_by_role("textbox", name="Private note").press("Escape")
    await page.keyboard.press("s")
    await expect(page.get_by_role("combobox", name="Snooze until")).to_be_focused()
    await shot(page, f"snooze-{width}")
    found["snooze"] = await look_in_both_schemes(page)
    await page.keyboard.press("Escape")
    if width == 390:
        await page.get_by_role("button", name="Back to the list").click()
        await expect(page.locator(".inbox-list li")).to_have_count(3)
    assert {state: some for state, some in found.items() if some} == {}


async def test_the_contact_is_shown_as_plain_words(house: House) -> None:
    session = await waits(house, 4)
    hostile = "<img src=x onerror=alert(1)>"
    await house.app.pool.execute(
        "UPDATE addresses SET contact = $1",
        {
            "page": "https://shop.example/cart", "browser": "Firefox on Linux", "language": "de-AT",
            "email": "ada@example.org", "attributes": {"plan": "pro", hostile: hostile},
        },
    )  # fmt: skip
    page = await house.operator("Anna", path=f"/dashboard/inbox?at={session}")
    card = page.get_by_role("region", name="Contact")
    for words in ("Firefox on Linux", "ada@example.org", "plan", "pro", hostile):
        await expect(card).to_contain_text(words)
    link = card.get_by_role("link", name="shop.example/cart")
    await expect(link).to_have_attribute("rel", "noopener noreferrer")
    assert await page.locator("main img").count() == 0
    await shot(page, "contact")
    await house.app.pool.execute('UPDATE addresses SET contact = \'{"page": "javascript:alert(1)"}\'')
    await page.reload()
    await expect(card).to_contain_text("javascript:alert(1)")
    await expect(card.locator("a[href^=javascript]")).to_have_count(0)


async def test_a_desktop_notification_is_asked_for_and_comes(house: House) -> None:
    page = await house.operator("Anna", path="/dashboard/account")
    await page.context.grant_permissions(["notifications"])
    await page.add_init_script(
        """window.shown = [];
           window.Notification = class {
             static permission = "granted"; static requestPermission = async () => "granted";
             constructor(title, { body }) { window.shown.push(body); } close() {} };
           Object.defineProperty(document, "hasFocus", { value: () => false });"""
    )
    await page.reload()
    switch = page.get_by_role(
        "checkbox", name="A sound and a notification when somebody is waiting for a human"
    )
    await expect(switch).not_to_be_checked()
    await switch.check()
    await page.reload()
    await expect(switch).to_be_checked()
    await waits(house, 1)
    await page.wait_for_function("() => window.shown.length === 1")
    assert await page.evaluate("() => window.shown") == ["One person is waiting for a human."]
    await switch.uncheck()
    await waits(house, 2)
    await expect(page).to_have_title(re.compile(r"^\(2\)"))
    assert await page.evaluate("() => window.shown.length") == 1


async def test_a_press_counts_though_the_list_changes_under_it(house: House) -> None:
    await waits(house, 1)
    page = await house.operator("Anna", path="/dashboard/inbox")
    await expect(page.locator(".inbox-list li")).to_have_count(1)
    choice = page.get_by_role("button", name="Unassigned")
    await choice.hover()
    await page.mouse.down()
    async with page.expect_response("**/api/v1/handovers"):
        await waits(house, 2)
    await page.wait_for_timeout(300)
    await page.mouse.up()
    await expect(choice).to_have_attribute("aria-pressed", "true")
    await expect(choice).to_have_text("Unassigned 2")


async def test_response_requested_during_navigation_is_not_drawn_on_next_page(house: House) -> None:
    session = await waits(house, 1)
    page = await house.operator("Anna", path=f"/dashboard/sessions/{session}")
    await page.get_by_role("button", name="Take").click()
    await expect(page.locator("main")).to_have_class("replying")
    await page.get_by_role("navigation", name="Pages").get_by_role("link", name="Operations").hover()
    await page.mouse.down()
    async with page.expect_response(f"**/api/v1/sessions/{session}"):
        await waits(house, 2)
    await page.wait_for_timeout(300)
    await page.mouse.up()
    await expect(page.get_by_role("heading", name="Jobs", level=1)).to_be_visible()
    await page.wait_for_timeout(300)
    await expect(page.locator("main")).not_to_have_class("replying")


@pytest.mark.parametrize("dark", [False, True])
async def test_six_messages_stand_above_a_docked_composer(house: House, dark: bool) -> None:
    session = await waits(house, 1)
    for number in range(8):
        await house.app.sessions.accept(await another_word(house, session, f"Word {number} of a longer talk"))
    page = await house.operator(
        "Anna",
        path=f"/dashboard/inbox?at={session}",
        viewport={"width": 1280, "height": 720},
        color_scheme="dark" if dark else "light",
    )
    await page.get_by_role("button", name="Take", exact=True).click()
    await expect(reply_box(page)).to_be_focused()
    await expect(page.get_by_text("Word 7 of a longer talk").first).to_be_visible()
    for words in ("One line", "and another"):
        await page.keyboard.type(words)
        await page.keyboard.press("Shift+Enter")
    await shot(page, f"inbox-docked{'-dark' if dark else ''}")
    shown = await page.locator(".inbox-talk .message").evaluate_all(
        """(all) => all.filter((one) => {
             const box = one.closest(".transcript").getBoundingClientRect();
             const mine = one.getBoundingClientRect();
             return mine.top >= box.top - 1 && mine.bottom <= box.bottom + 1;
           }).length"""
    )
    assert shown >= 6
    last = page.locator(".inbox-talk .message").last
    bottom = "one.closest('.transcript').getBoundingClientRect().bottom"
    assert await last.evaluate(f"(one) => one.getBoundingClientRect().bottom <= {bottom} + 1")
    assert await page.evaluate("() => document.documentElement.scrollHeight <= innerHeight")
    await expect(page.locator(".inbox-talk")).not_to_contain_text("tokens")
    preview = page.locator(".inbox-list .excerpt")
    await expect(preview).to_have_text("Word 7 of a longer talk")
    await fits(page)
