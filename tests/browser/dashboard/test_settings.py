"""Settings in forms: stored, refused beside the field, kept through lost connections and other operators."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Route, expect

from shared.config.settings import ORIGINS_NAME, load_settings
from tests.browser.axe import look_for_faults, look_in_both_schemes
from tests.browser.dashboard.house import House, open_house
from tests.browser.dashboard.place import fits
from tests.browser.dashboard.settings_page import settings_of, stored
from tests.kit.fakes.webhook_receiver import receiving

pytestmark = pytest.mark.browser
TABS = ("Model", "Channels", "Voice and pictures", "Context", "Spending", "Operations", "All settings")


@pytest.fixture
def house_options(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run as `up` does, but for nobody who follows; one setting is the environment's."""
    monkeypatch.setenv(ORIGINS_NAME, "EVERTALK_PRESET=environment")
    monkeypatch.setenv("EVERTALK_PRESET", "pantheon")
    return {"secret_key": "k" * 40}


@pytest.fixture
def tolerated() -> tuple[str, ...]:
    return "401", "409", "422", "net::ERR_FAILED", "ERR_INTERNET_DISCONNECTED"


async def test_a_setting_is_typed_stored_and_taken_away(house: House) -> None:
    page = await settings_of(house, "anna")
    cap = page.get_by_label("Per day", exact=True)
    await cap.fill("2.50")
    await cap.press("Enter")
    await expect(page.get_by_text("Saved. A running Evertalk follows within two seconds.")).to_be_visible()
    await expect(page.locator(".setting-field").first).to_contain_text("set by anna")
    assert await stored(house, "EVERTALK_CAP_TOTAL_PER_DAY_USD") == "2.50"
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Nothing was changed.")).to_be_visible()
    await cap.fill("")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".setting-field").first).not_to_contain_text("set by anna")
    assert await stored(house, "EVERTALK_CAP_TOTAL_PER_DAY_USD") is None


async def test_invalid_setting_is_reported_next_to_its_field_and_kept(house: House) -> None:
    page = await settings_of(house, "anna")
    cap, visitor = (
        page.get_by_label("Per day", exact=True),
        page.get_by_label("Per anonymous visitor and day"),
    )
    await cap.fill("lots")
    await visitor.fill("0.10")
    await page.get_by_role("button", name="Save").click()
    await expect(cap).to_have_attribute("aria-invalid", "true")
    await expect(cap).to_be_focused()
    await expect(cap).to_have_accessible_description(re.compile("Per day: .*valid decimal"))
    await expect(visitor).not_to_have_attribute("aria-invalid", "true")
    assert await house.one("SELECT count(*) FROM stored_settings") == 0


async def test_what_is_typed_outlasts_other_pages_and_a_lost_connection(house: House) -> None:
    page = await settings_of(house, "anna")
    cap = page.get_by_label("Per day", exact=True)
    await cap.fill("3")
    await page.get_by_role("link", name="Channels", exact=True).click()
    await expect(page.get_by_role("heading", name="Sites", level=1)).to_be_visible()
    await page.get_by_role("link", name="Settings", exact=True).click()
    await page.get_by_role("tab", name="Spending").click()
    await expect(cap).to_have_value("3")

    async def cut(route: Route) -> None:
        await (route.abort() if route.request.method == "PUT" else route.continue_())

    await page.route("**/api/v1/settings", cut)
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("The server cannot be reached just now.")).to_be_visible()
    await expect(cap).to_have_value("3")
    await page.unroute("**/api/v1/settings")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.get_by_text("Saved. A running Evertalk")).to_be_visible()
    assert await stored(house, "EVERTALK_CAP_TOTAL_PER_DAY_USD") == "3"


async def test_what_is_typed_outlasts_a_login_that_ends(house: House) -> None:
    page = await settings_of(house, "anna", "model")
    await page.get_by_label("Chat model").fill("my-model")
    await page.get_by_label("Anthropic: key", exact=True).fill("sk-typed-here")
    await house.app.pool.execute("UPDATE operator_sessions SET expires_at = now()")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading", name="Operator dashboard")).to_be_visible()
    kept = await page.evaluate("() => JSON.stringify({...sessionStorage, ...localStorage})")
    assert ("my-model" in kept, "sk-typed-here" in kept) == (True, False)
    await house.app.pool.execute("UPDATE operator_sessions SET expires_at = now() + interval '1 hour'")
    await page.goto(f"{house.url}/dashboard/settings?section=model")
    await expect(page.get_by_label("Chat model")).to_have_value("my-model")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Saved. A running Evertalk")).to_be_visible()
    assert await stored(house, "EVERTALK_MODEL") == "my-model"


async def test_second_of_two_operators_is_warned_and_loses_no_input(house: House) -> None:
    anna, ben = await settings_of(house, "anna"), await settings_of(house, "ben")
    for page, cap in ((anna, "2"), (ben, "4")):
        await page.get_by_label("Per day", exact=True).fill(cap)
    await ben.get_by_label("Per person and day").fill("1")
    await anna.get_by_role("button", name="Save").click()
    await expect(anna.get_by_text("Saved. A running Evertalk")).to_be_visible()
    await ben.get_by_role("button", name="Save").click()
    told = ben.get_by_role("alert")
    await expect(told).to_contain_text("your changes were not saved")
    await expect(told).to_contain_text("anna")
    await expect(told).to_contain_text("Per day: 2")
    await expect(ben.get_by_label("Per day", exact=True)).to_have_value("4")
    await ben.get_by_role("button", name="Take theirs").click()
    await expect(ben.get_by_label("Per day", exact=True)).to_have_value("2")
    await expect(ben.get_by_label("Per person and day")).to_have_value("1")
    await ben.get_by_role("button", name="Save").click()
    await expect(ben.get_by_text("Saved. A running Evertalk")).to_be_visible()
    assert await stored(house, "EVERTALK_CAP_TOTAL_PER_DAY_USD") == "2"
    assert await stored(house, "EVERTALK_CAP_PERSON_PER_DAY_USD") == "1"


async def test_a_secret_goes_in_and_never_comes_out(house: House) -> None:
    page = await settings_of(house, "anna", "model")
    key = page.get_by_label("Anthropic: key", exact=True)
    await key.fill("sk-typed-here")
    await key.press("Enter")
    await expect(page.get_by_text("A value is set and never shown.")).to_be_visible()
    await expect(key).to_have_value("")
    assert "sk-typed-here" not in await page.content()
    await page.get_by_role("button", name="Remove Anthropic: key").click()
    await expect(page.get_by_text("Removed when you save.")).to_be_visible()
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("button", name="Remove Anthropic: key")).to_be_hidden()
    assert await house.one("SELECT count(*) FROM stored_settings WHERE sealed IS NOT NULL") == 0


async def test_the_environment_wins_and_only_admins_change(house: House) -> None:
    page = await settings_of(house, "anna", "context")
    preset = page.get_by_label("Preset")
    await expect(preset).to_be_disabled()
    await expect(preset).to_have_value("pantheon")
    await expect(preset).to_have_accessible_description(re.compile("Set in the environment, which wins"))
    page = await settings_of(house, "olga", "model", role="operator")
    await expect(page.get_by_text("Only an admin can change them.")).to_be_visible()
    await expect(page.get_by_label("Chat model")).to_be_disabled()
    await expect(page.get_by_role("button", name="Save")).to_have_count(0)


async def test_a_token_without_telegram_is_tried_and_refused(house: House) -> None:
    page = await settings_of(house, "anna", "telegram")
    await page.get_by_role("button", name="Test").click()
    await expect(page.get_by_text("There is no token to test.")).to_be_visible()
    token = page.get_by_role("textbox", name="Token of the bot")
    await token.fill("abc")
    await page.get_by_role("button", name="Test").click()
    await expect(token).to_have_attribute("aria-invalid", "true")


async def test_folder_for_copies_is_tested_and_stored(house: House, tmp_path: Path) -> None:
    page = await settings_of(house, "anna", "backups")
    form = page.locator("form.site-form").filter(has=page.get_by_label("Folder for copies"))
    folder = form.get_by_label("Folder for copies")
    for typed, words in (
        ("", "No folder is set: backups stay on one disk."),
        (str(tmp_path / "none"), "There is no such folder on this machine. Is its disk mounted?"),
        (str(tmp_path), "The folder can be written, but lies on the same disk as the data."),
    ):
        await folder.fill(typed)
        await form.get_by_role("button", name="Test").click()
        await expect(form.get_by_text(words)).to_be_visible()
    await folder.fill("copies")
    await form.get_by_role("button", name="Save").click()
    await expect(folder).to_have_accessible_description(re.compile("Folder for copies: .*absolute path"))
    await folder.fill(str(tmp_path))
    await form.get_by_role("button", name="Save").click()
    await expect(form.get_by_text("Saved. A running Evertalk")).to_be_visible()
    assert await stored(house, "EVERTALK_BACKUP_COPY_DIR") == str(tmp_path)


async def test_link_for_an_owner_is_made_on_settings_and_access_pages(house: House) -> None:
    await house.app.pool.execute(
        """INSERT INTO telegram_bots (bot_id, username, agent_id, mode, access)
           SELECT 777, 'shop_bot', min(id), 'polling', 'pairing' FROM agents"""
    )
    page = await settings_of(house, "anna", "telegram")
    for path in ("/dashboard/settings?section=telegram", "/dashboard/pairing"):
        await page.goto(house.url + path)
        owners = page.get_by_role("region", name="Owners of bots")
        await expect(owners.get_by_text("no owner yet")).to_be_visible()
        await owners.get_by_role("button", name="Create a link for @shop_bot").click()
        await expect(owners.get_by_text("https://t.me/shop_bot?start=")).to_be_visible()
        await fits(page)
        assert await look_in_both_schemes(page) == []
    assert await house.one("SELECT count(*) FROM one_time_codes WHERE bot_id = 777") == 2
    other = await settings_of(house, "olga", "telegram", role="operator")
    await expect(other.get_by_role("region", name="Owners of bots")).to_have_count(0)


async def test_alerts_are_tried_at_the_targets_that_are_stored(
    database_url: str, redis_url: str, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with receiving("s" * 32) as receiver:
        monkeypatch.setenv("EVERTALK_ALERT_WEBHOOK_URL", receiver.url)
        monkeypatch.setenv("EVERTALK_ALERT_WEBHOOK_SECRET", "s" * 32)
        settings = load_settings(database_url=database_url, redis_url=redis_url, data_dir=tmp_path)
        async with open_house(settings, browser, alerts=True) as house:
            page = await settings_of(house, "anna", "alerts")
            test = page.get_by_role("region", name="Alerts").get_by_role("button", name="Test")
            await page.get_by_label("Sender").fill("bot@example.org")
            await test.click()
            await expect(page.get_by_text("Save first: the test uses stored values.")).to_be_visible()
            await page.get_by_label("Sender").fill("")
            await test.click()
            targets = page.get_by_role("table", name="Targets")
            await expect(targets.get_by_text("sent", exact=True)).to_be_visible()
            await fits(page)
            assert await look_for_faults(page) == []
    assert [one["type"] for one in receiver.taken] == ["alert.opened"]


async def test_form_promises_the_same_where_processes_are_started_alone(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ORIGINS_NAME)
    page = await settings_of(house, "anna")
    await page.get_by_label("Per day", exact=True).fill("2")
    await page.get_by_role("button", name="Save").click()
    done = page.locator(".site-form .done")
    await expect(done).to_have_text("Saved. A running Evertalk follows within two seconds.")


@pytest.mark.parametrize("width", [1360, 390])
async def test_every_form_is_read_by_everybody_at_every_width(house: House, width: int) -> None:
    size = {"width": width, "height": 844}
    page = await house.operator("anna", "admin", "/dashboard/settings", viewport=size)
    look = look_in_both_schemes if width == 1360 else look_for_faults
    for name in TABS:
        await page.get_by_role("tab", name=name).click()
        await expect(page.get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true")
        await expect(page.get_by_role("tabpanel")).not_to_be_empty()
        await fits(page)
        assert await look(page) == []
