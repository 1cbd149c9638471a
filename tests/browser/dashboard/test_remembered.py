"""What is remembered of a person, on the page of their session: read, added to, and seen to change."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.axe import look_for_faults
from tests.browser.dashboard.people_dashboard import PeopleDashboard
from tests.browser.dashboard.place import fits
from tests.kit.dashboard.people_seed import a_note, public_id_of
from tests.kit.dashboard.seed import HOSTILE

pytestmark = pytest.mark.browser
FACT = "Allergic to shellfish"


async def test_note_added_next_to_conversation_appears_on_all_its_pages(
    people_dashboard: PeopleDashboard,
) -> None:
    page, other = await people_dashboard.operator(), await people_dashboard.operator()
    await people_dashboard.open(page)
    await people_dashboard.open(other)
    notes = page.get_by_label("Notes", exact=True)
    await expect(notes.locator("li.remembered")).to_have_count(2)
    await notes.locator("summary", has_text="Add a note").focus()
    await page.keyboard.press("Enter")
    form = notes.locator(".note-add")
    await expect(form).to_contain_text("About Maria")
    await form.get_by_label("What to remember").fill(f"{FACT} {HOSTILE}")
    await form.get_by_role("combobox", name="Kind").select_option("profile")
    assert await look_for_faults(page) == []
    await form.get_by_role("button", name="Add the note").click()
    await expect(notes.get_by_text("The note is kept.")).to_be_visible()
    for seen in (notes, other.get_by_label("Notes", exact=True)):
        await expect(seen.locator("li.remembered")).to_have_count(3)
        await expect(seen.locator("li.remembered").first).to_contain_text(f"{FACT} {HOSTILE}")
        await expect(seen.locator("li.remembered").first).to_contain_text("from an operator")
    assert (
        await people_dashboard.pool.fetchval("SELECT scope FROM notes WHERE authority = 'operator'")
        == "default"
    )
    await notes.get_by_role("button", name="Undo").click()
    await expect(notes.get_by_text("The note is archived.")).to_be_visible()
    for seen in (notes, other.get_by_label("Notes", exact=True)):
        await expect(seen.locator("li.remembered")).to_have_count(2)


async def test_known_note_is_reported_and_forbidden_note_is_refused(
    people_dashboard: PeopleDashboard,
) -> None:
    page = await people_dashboard.operator()
    await people_dashboard.open(page, query="#add")
    notes = page.get_by_label("Notes", exact=True)
    words, add = notes.get_by_label("What to remember"), notes.get_by_role("button", name="Add the note")
    await words.fill("sk-ant-api03-" + "A" * 90)
    await add.click()
    await expect(notes.get_by_role("alert")).to_contain_text("such things are never kept")
    await words.fill(FACT)
    await add.click()
    await expect(notes.get_by_text("The note is kept.")).to_be_visible()
    await notes.locator("summary", has_text="Add a note").click()
    await words.fill(f"{FACT}!")
    await add.click()
    await expect(notes.get_by_text("This is known already.")).to_be_visible()
    await expect(notes.get_by_role("button", name="Undo")).to_have_count(0)
    await expect(notes.locator("li.remembered")).to_have_count(3)
    people_dashboard.complaints = [line for line in people_dashboard.complaints if "400" not in line]


async def test_a_form_that_is_being_filled_stays_while_the_notes_change(
    people_dashboard: PeopleDashboard,
) -> None:
    page = await people_dashboard.operator()
    await people_dashboard.open(page, query="#add")
    words = page.get_by_label("What to remember")
    await words.fill("Half a sen")
    async with people_dashboard.pool.acquire() as connection:
        for number in range(6):
            await a_note(connection, people_dashboard.crowd.maria, f"Collects stamp {number}")
    await expect(page.get_by_role("link", name="All 8 notes")).to_be_visible()
    await expect(page.locator("li.remembered")).to_have_count(5)
    await expect(words).to_have_value("Half a sen")
    await expect(words).to_be_focused()


async def test_who_only_looks_reads_the_notes_and_finds_no_form(people_dashboard: PeopleDashboard) -> None:
    page = await people_dashboard.operator("viewer")
    await people_dashboard.open(page, query="#add")
    notes = page.get_by_label("Notes", exact=True)
    await expect(notes.locator("li.remembered")).to_have_count(2)
    await expect(notes.locator("form")).to_have_count(0)
    maria = await public_id_of(people_dashboard.pool, people_dashboard.crowd.maria)
    read = "SELECT count(*) FROM audit WHERE action = 'read.notes' AND object = $1"
    assert await people_dashboard.pool.fetchval(read, f"person:{maria}") == 1


async def test_notes_that_cannot_be_had_leave_the_page_whole(people_dashboard: PeopleDashboard) -> None:
    page = await people_dashboard.operator()
    away = "**/api/v1/notes?**"
    await page.route(away, lambda route: route.fulfill(status=503, json={"message": "Away."}))
    await people_dashboard.open(page)
    notes = page.get_by_label("Notes", exact=True)
    await expect(notes.get_by_role("alert")).to_contain_text("Away.")
    await page.get_by_role("tab", name="Conversation").click()
    await expect(page.get_by_label("Transcript")).to_contain_text("Nothing was said yet.")
    await page.get_by_role("tab", name="Memory").click()
    await page.unroute(away)
    await notes.get_by_role("button", name="Try again").click()
    await expect(notes.locator("li.remembered")).to_have_count(2)
    people_dashboard.complaints = [line for line in people_dashboard.complaints if "503" not in line]


@pytest.mark.parametrize("width", [1360, 390])
async def test_session_links_lead_to_person_jobs_and_deliveries(
    people_dashboard: PeopleDashboard, width: int
) -> None:
    page = await people_dashboard.operator("admin")
    await page.set_viewport_size({"width": width, "height": 844})
    await people_dashboard.open(page)
    await fits(page)
    for name, heading in (
        ("The person", "Maria"),
        ("Jobs", "Jobs"),
        ("Delivery problems", "Delivery problems"),
    ):
        await page.locator(".session-head .facts").get_by_role("link", name=name).click()
        await expect(page.get_by_role("heading", name=heading, level=1)).to_be_visible()
        if name != "The person":
            await expect(page.locator(".chip")).to_contain_text(
                str(people_dashboard.crowd.maria.public_id)[:8]
            )
        else:
            await expect(page).to_have_url(
                f"{people_dashboard.url}/dashboard/people/{await maria_of(people_dashboard)}"
            )
        await page.go_back()
        await expect(page.locator(".session-head .facts")).to_be_visible()
    await page.goto(f"{people_dashboard.url}/dashboard/audit?action=read.session")
    await page.get_by_role("link", name="Maria").first.click()
    await expect(page.get_by_role("heading", name="Maria", level=1)).to_be_visible()
    await page.goto(f"{people_dashboard.url}/dashboard/audit?action=read.notes")
    await page.locator("main").get_by_role("link", name="Maria").first.click()
    await expect(page).to_have_url(
        f"{people_dashboard.url}/dashboard/people/{await maria_of(people_dashboard)}"
    )


async def maria_of(dashboard: PeopleDashboard) -> str:
    return str(await public_id_of(dashboard.pool, dashboard.crowd.maria))
