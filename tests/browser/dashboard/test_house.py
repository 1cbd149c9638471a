"""An operator's daily round: corrects a note, lets somebody in, dresses a site, and forgets a person."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from shared.config.settings import load_settings
from tests.browser.axe import look_for_faults, look_in_both_schemes
from tests.browser.dashboard.place import Place, Seen, Stored, fits
from tests.kit.dashboard.fixtures import Pool
from tests.kit.dashboard.people_seed import a_bot, a_site, people, public_id_of
from tests.kit.dashboard.seed import HOSTILE

pytestmark = pytest.mark.browser
PAGES = {
    "memory": "Memory",
    "people": "People",
    "pairing": "Telegram access",
    "agents": "Agents",
    "sites": "Sites",
    "settings": "Settings",
}


@pytest.fixture(scope="module")
async def seeded(place_pool: Pool) -> Stored:
    async with place_pool.acquire() as connection:
        crowd = await people(connection)
        await a_bot(connection)
        await a_site(connection)
    return crowd.maria, []


@pytest.fixture(scope="module")
def place_options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return {"settings": load_settings(data_dir=tmp_path_factory.mktemp("data"), preset="steady")}


@pytest.fixture
def tolerated() -> tuple[str, ...]:
    return tuple(f"the server responded with a status of {status}" for status in (400, 409, 422))


async def settled(page: Page) -> None:
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    await expect(page.locator(".skeleton")).to_have_count(0)


async def test_a_note_is_corrected_put_away_and_back(seen: Seen, place: Place) -> None:
    page = seen.page
    await page.goto(f"{place.url}/dashboard/memory?q=Lisbon")
    note = page.locator(".note").first
    await expect(note).to_contain_text("Plans a trip to Lisbon in May")
    await note.get_by_role("button", name="Edit").click()
    await page.get_by_label("Text of the note").fill("Plans a trip to Lisbon in June")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("The note is corrected.").first).to_be_visible()
    await expect(page.locator(".note.kept")).to_contain_text("in June")
    await expect(page.locator(".note.replaced")).to_contain_text("in May")
    await page.get_by_role("button", name=re.compile("Archive")).click()
    await expect(page.locator(".note.put_away")).to_be_visible()
    await page.get_by_role("button", name="Undo").click()
    await expect(page.locator(".note.put_away")).to_have_count(0)
    await expect(page.locator(".note.kept")).to_contain_text("in June")


async def test_note_is_added_to_a_searched_person_and_deleted(seen: Seen, place: Place) -> None:
    page = seen.page
    await page.goto(f"{place.url}/dashboard/memory")
    await page.get_by_text("Add a note").click()
    await page.get_by_label("Look for a person").fill("mar")
    form = page.locator(".note-add")
    await expect(form.get_by_role("combobox", name="Person")).to_have_text("Maria")
    words = page.get_by_label("What to remember")
    await words.fill("sk-ant-api03-" + "A" * 90)
    await page.get_by_role("button", name="Add the note").click()
    await expect(page.get_by_role("alert")).to_contain_text("such things are never kept")
    for name, width in (("light", 1360), ("dark", 1360), ("narrow", 390)):
        await page.emulate_media(color_scheme="dark" if name == "dark" else "light")
        await page.set_viewport_size({"width": width, "height": 900})
        await fits(page)
        assert await look_for_faults(page) == [], name
        if folder := os.environ.get("PICTURES_FOLDER"):
            await page.screenshot(path=Path(folder) / f"add-note-{name}.png")
    await words.fill(f"Allergic to shellfish {HOSTILE}")
    await form.get_by_role("combobox", name="Kind").select_option("profile")
    await page.get_by_role("button", name="Add the note").click()
    await expect(page.get_by_text("The note is kept.").first).to_be_visible()
    kept = page.locator(".note.kept", has_text="Allergic to shellfish")
    await expect(kept).to_contain_text("from an operator")
    await expect(kept).to_contain_text("Text of an operator")
    await expect(kept).to_contain_text(HOSTILE)
    await page.get_by_role("button", name="Undo").click()
    await expect(page.locator(".note.put_away")).to_contain_text("Allergic to shellfish")


async def test_the_page_of_a_person_leads_to_a_note_about_them(seen: Seen, place: Place) -> None:
    page = seen.page
    await page.goto(f"{place.url}/dashboard/people/{await public_id_of(place.pool, place.seeded)}")
    await page.get_by_role("link", name="add one").click()
    form = page.locator(".note-add")
    await expect(form).to_contain_text("About Maria")
    await form.get_by_label("What to remember").fill("Prefers aisle seats")
    await form.get_by_role("button", name="Add the note").click()
    await expect(page.locator(".note.kept", has_text="Prefers aisle seats")).to_be_visible()
    await page.get_by_text("Add a note").click()
    await form.get_by_label("What to remember").fill("prefers aisle seats!")
    await form.get_by_role("button", name="Add the note").click()
    await expect(page.get_by_text("This is known already.").first).to_be_visible()
    assert await place.pool.fetchval("SELECT count(*) FROM notes WHERE text ILIKE '%aisle%'") == 1


async def test_slower_editor_sees_both_versions(seen: Seen, place: Place) -> None:
    page = seen.page
    await page.goto(f"{place.url}/dashboard/memory?q=Jo+drives")
    await page.get_by_role("button", name=re.compile("Edit")).click()
    await place.pool.execute(
        """WITH h AS (INSERT INTO notes (contact_id, scope, kind, text, hash)
             SELECT contact_id, scope, kind, 'Jo drives a blue bus', sha256('blue') FROM notes
              WHERE text LIKE 'Jo drives%' RETURNING id)
           UPDATE notes SET superseded_by = h.id, superseded_reason = 'changed' FROM h
            WHERE text LIKE 'Jo drives%'"""
    )
    await page.get_by_label("Text of the note").fill("Jo drives a green bus")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".two-versions")).to_contain_text("Jo drives a blue bus")
    await expect(page.locator(".two-versions")).to_contain_text("Jo drives a green bus")
    await page.get_by_role("button", name="Replace it with mine").click()
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".note.kept")).to_contain_text("green bus")


@pytest.mark.control("S19")
async def test_hostile_names_and_notes_stay_text(seen: Seen, place: Place) -> None:
    page = seen.page
    for path in ("people", "memory", "pairing"):
        await page.goto(f"{place.url}/dashboard/{path}")
        await settled(page)
        await expect(page.get_by_text(HOSTILE).first).to_be_visible()
        assert await page.locator("main script, main img").count() == 0


async def test_blocked_guest_can_be_allowed_again(seen: Seen, place: Place) -> None:
    page = seen.page
    await page.goto(f"{place.url}/dashboard/pairing")
    await page.get_by_role("button", name="Approve Nadia").click()
    await expect(page.get_by_text("Nadia can write now.").first).to_be_visible()
    row = await place.pool.fetchrow("SELECT state, decided_by FROM telegram_access WHERE chat_id = 4001")
    assert row is not None
    assert tuple(row) == ("allowed", "admin")
    await page.get_by_role("button", name="Block Nadia").click()
    await expect(page.get_by_role("button", name="Allow Nadia")).to_be_visible()


async def test_an_agent_is_checked_while_it_is_typed(seen: Seen, place: Place) -> None:
    page = seen.page
    await page.goto(f"{place.url}/dashboard/agents/default")
    await page.get_by_role("tab", name="JSON").click()
    field = page.get_by_label("Settings as JSON")
    await field.fill('{"persona": "You are Ada.", "presett": "steady"}')
    await expect(page.get_by_role("list", name="Problems")).to_contain_text("did you mean preset")
    await field.fill('{"persona": "You are Ada.", "context": {"soft_budget": 30000}}')
    await expect(page.get_by_text("Valid", exact=True)).to_be_visible()
    await expect(page.get_by_role("row", name=re.compile("soft_budget 30,000 this agent"))).to_be_visible()
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Saved as version").first).to_be_visible()
    stored = await place.pool.fetchval("SELECT config FROM agents WHERE name = 'default'")
    assert stored == {"persona": "You are Ada.", "context": {"soft_budget": 30_000}}


@pytest.mark.parametrize(("things", "noun"), [("agents", "agent"), ("sites", "site")])
async def test_an_agent_and_a_site_are_made_by_a_name(
    seen: Seen, place: Place, things: str, noun: str
) -> None:
    page = seen.page
    await page.goto(f"{place.url}/dashboard/{things}")
    await settled(page)
    await page.get_by_text(f"New {noun}").click()
    make = page.get_by_role("button", name=f"Create {noun}")
    await page.get_by_label("Name").fill("default")
    await make.click()
    await expect(page.get_by_text("with that name already exists")).to_be_visible()
    assert await look_for_faults(page) == []
    if folder := os.environ.get("PICTURES_FOLDER"):
        for scheme, width in (("light", 1360), ("dark", 1360), ("light", 390)):
            await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            await page.set_viewport_size({"width": width, "height": 800})
            await page.screenshot(path=Path(folder) / f"{things}-{scheme}-{width}.png")
    await page.get_by_label("Name").fill(f"new-{noun}")
    await page.get_by_label("Name").press("Enter")
    await page.wait_for_url(f"**/dashboard/{things}/new-{noun}")
    await settled(page)
    await expect(page.get_by_role("heading", level=1)).to_contain_text(f"new-{noun}")


async def test_a_site_is_dressed_and_its_widget_shows_it_at_once(seen: Seen, place: Place) -> None:
    page = seen.page
    await page.goto(f"{place.url}/dashboard/sites/shop")
    frame = page.frame_locator("iframe.preview")
    await expect(frame.get_by_text("Hello at the shop")).to_be_visible()
    await page.get_by_label("Language of the preview").select_option(label="Deutsch")
    await expect(frame.get_by_role("textbox", name="Nachricht")).to_be_visible()
    await page.get_by_label("Welcome").fill("Come in!")
    await page.get_by_label("Welcome").evaluate("node => node === document.activeElement || null")
    await expect(frame.get_by_text("Come in!")).to_be_visible()
    await page.get_by_label("Colour").fill("red")
    await expect(page.get_by_role("list", name="Problems")).to_contain_text("accent")
    await page.get_by_label("Colour").fill("#b91c1c")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Saved. A running Evertalk").first).to_be_visible()
    stored = await place.pool.fetchval("SELECT config FROM sites WHERE name = 'shop'")
    assert (stored["welcome"], stored["accent"]) == ("Come in!", "#b91c1c")
    await page.get_by_role("button", name="Generate secret").click()
    secret = await page.locator(".fresh .secret").inner_text()
    assert len(secret) > 40
    await page.reload()
    await settled(page)
    await expect(page.get_by_role("button", name=re.compile("Revoke"))).to_have_count(1)
    assert secret not in await page.content()


@pytest.mark.parametrize("width", [1360, 390])
async def test_no_page_of_the_house_has_a_finding(seen: Seen, place: Place, width: int) -> None:
    page = seen.page
    await page.set_viewport_size({"width": width, "height": 844})
    inner = (f"people/{await public_id_of(place.pool, place.seeded)}", "agents/default", "sites/shop")
    for path in (*PAGES, *inner):
        await page.goto(f"{place.url}/dashboard/{path}")
        await settled(page)
        if path == "sites/shop":
            await expect(page.frame_locator("iframe.preview").locator("#evertalk")).to_be_attached()
        if folder := os.environ.get("PICTURES_FOLDER"):
            await page.wait_for_timeout(600)
            name = path.split("/")[0] + ("-one" if "/" in path else "")
            await page.screenshot(path=Path(folder) / f"{name}-{width}.png", full_page=True)
        wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, (path, wide)
        findings = await (look_in_both_schemes if width == 1360 else look_for_faults)(page)
        assert findings == [], (path, findings)


async def test_a_person_is_forgotten_only_by_their_name(seen: Seen, place: Place) -> None:
    page = seen.page
    await page.goto(f"{place.url}/dashboard/people?q=maria")
    await page.get_by_role("link", name="Maria", exact=True).click()
    await page.get_by_role("button", name="Erase this person …").click()
    field = page.locator("input[name=confirm]")
    await field.fill("maria")
    await page.get_by_role("button", name="Erase permanently").click()
    await expect(page.get_by_role("alert")).to_contain_text("Nothing was erased")
    await field.fill("Maria")
    await page.get_by_role("button", name="Erase permanently").click()
    await expect(page.get_by_text("is in the log, without content")).to_be_visible()
    assert await place.pool.fetchval("SELECT count(*) FROM erasures WHERE state = 'done'") == 1
