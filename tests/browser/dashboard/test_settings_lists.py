"""Models and bots beside the first ones: typed in rows, tried, refused in the row, kept and taken away."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import Page, Route, expect

from shared.config.settings import ORIGINS_NAME
from tests.browser.axe import look_for_faults, look_in_both_schemes
from tests.browser.dashboard.house import House
from tests.browser.dashboard.place import fits
from tests.browser.dashboard.settings_page import settings_of, stored
from tests.kit.fakes.bot_api import TOKEN, USERNAME, running_bot_api
from tests.kit.fakes.messages_api import RunningFake, running_fake

pytestmark = pytest.mark.browser
SAVED = "Saved. A running Evertalk follows within two seconds."


@pytest.fixture
def house_options(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv(ORIGINS_NAME, "EVERTALK_PRESET=environment")
    return {"secret_key": "k" * 40}


@pytest.fixture
def tolerated() -> tuple[str, ...]:
    return ("422",)


@pytest.fixture
async def other_provider() -> AsyncIterator[RunningFake]:
    async with running_fake(wire="openai") as fake:
        yield fake


async def list_nothing(page: Page) -> None:
    """Keep requests for lists of models away from real providers."""

    async def answer(route: Route) -> None:
        await route.fulfill(json={"servers": [], "message": ""})

    await page.route("**/api/v1/settings/models", answer)


async def add_model(page: Page, server: RunningFake, name: str, key: str) -> None:
    await page.get_by_role("button", name="Add a model").click()
    row = page.locator("fieldset").last
    await row.get_by_label("Name", exact=True).fill(name)
    await row.get_by_label("Provider").select_option(label="Another server")
    await page.locator("fieldset").last.get_by_label("Address").fill(server.base_url)
    # The key is asked for as soon as the address says whose it is.
    await page.locator("fieldset").last.get_by_label("Key", exact=True).fill(key)


async def test_a_model_of_another_server_is_added_tried_and_stored(
    house: House, other_provider: RunningFake
) -> None:
    page = await settings_of(house, "anna", "model")
    await add_model(page, other_provider, "mine", "good-key")
    row = page.locator("fieldset").last
    await row.get_by_role("button", name="List its models").click()
    await expect(row.get_by_role("status")).to_contain_text("The models are listed")
    await row.get_by_label("Model ID").fill("claude-haiku-5-5")
    await row.get_by_label("Context window").fill("90000")
    await row.get_by_role("button", name="Test").click()
    await expect(row.get_by_role("status")).to_contain_text("It works: mine answered")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_text(SAVED)).to_be_visible()
    assert json.loads(await stored(house, "EVERTALK_MODELS") or "") == [
        {
            "name": "mine",
            "wire": "openai",
            "base_url": other_provider.base_url,
            "model": "claude-haiku-5-5",
            "window": 90000,
        }
    ]
    assert "good-key" not in (await stored(house, "EVERTALK_MODEL_KEYS") or "")
    key = page.locator("fieldset").last.get_by_label("Key", exact=True)
    await expect(key).to_have_value("")
    await expect(key).to_have_attribute("placeholder", "set, never shown")
    await page.reload()
    row = page.locator("fieldset").last
    await expect(row.get_by_label("Address")).to_have_value(other_provider.base_url)
    await row.get_by_role("button", name="Test").click()
    await expect(row.get_by_role("status")).to_contain_text("It works: mine answered")
    await row.get_by_role("button", name="Remove").click()
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_text("No other model is set.")).to_be_visible()
    await expect(page.get_by_text(SAVED)).to_be_visible()
    assert [await stored(house, one) for one in ("EVERTALK_MODELS", "EVERTALK_MODEL_KEYS")] == [None, None]


async def test_provider_card_writes_the_settings_of_the_form(house: House) -> None:
    page = await settings_of(house, "anna", "model")
    await list_nothing(page)
    cards = page.get_by_role("group", name="Which provider?").get_by_role("radio")
    await expect(cards).to_have_count(9)
    await expect(page.get_by_role("radio", name="Anthropic")).to_be_checked()
    await page.get_by_role("radio", name="Mistral").check()
    await expect(page.get_by_label("Anthropic: key", exact=True)).to_be_hidden()
    key = page.get_by_label("Mistral: key", exact=True)
    await expect(key).to_be_focused()
    await expect(page.get_by_label("Chat model")).to_have_accessible_description(
        re.compile("Needed with this provider")
    )
    await key.fill("sk-of-mistral")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_text(SAVED)).to_be_visible()
    assert await stored(house, "OPENAI_BASE_URL") == "https://api.mistral.ai/v1"
    assert await house.one("SELECT sealed FROM stored_settings WHERE name = 'OPENAI_API_KEY'") is not None
    await page.reload()
    await expect(page.get_by_role("radio", name="Mistral")).to_be_checked()


async def test_stored_key_goes_nowhere_after_another_provider_is_chosen(house: House) -> None:
    page = await settings_of(house, "anna", "model")
    await list_nothing(page)
    await page.get_by_label("Anthropic: key", exact=True).fill("sk-of-anthropic")
    await page.get_by_label("Chat model").fill("claude-of-mine")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_text(SAVED)).to_be_visible()
    await page.get_by_role("radio", name="DeepSeek").check()
    await expect(page.get_by_text("Anthropic: key – Removed when you save.")).to_be_visible()
    await page.get_by_role("radio", name="Anthropic").check()
    await expect(page.get_by_text("Removed when you save.")).to_have_count(0)
    await page.get_by_role("radio", name="DeepSeek").check()
    await page.get_by_label("DeepSeek: key", exact=True).fill("sk-of-deepseek")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_text(SAVED)).to_be_visible()
    assert await house.one("SELECT sealed FROM stored_settings WHERE name = 'ANTHROPIC_API_KEY'") is None
    assert await stored(house, "EVERTALK_MODEL") is None
    assert await stored(house, "OPENAI_BASE_URL") == "https://api.deepseek.com/v1"


async def test_key_of_a_card_is_tried_with_the_servers_own_words(
    house: House, other_provider: RunningFake
) -> None:
    page = await settings_of(house, "anna", "model")
    await page.get_by_role("radio", name="Another server").check()
    address = page.get_by_label("Address", exact=True)
    await expect(address).to_be_focused()
    await address.fill(other_provider.base_url)
    await page.get_by_label("Key", exact=True).fill("bad-key")
    await page.get_by_label("Chat model").fill("claude-haiku-5-5")
    await page.get_by_role("button", name="Test", exact=True).click()
    await expect(page.get_by_text("The provider refuses the key or the account.")).to_be_visible()
    await expect(page.get_by_text("invalid x-api-key")).to_be_visible()
    await page.get_by_label("Key", exact=True).fill("good-key")
    await page.get_by_role("button", name="Test", exact=True).click()
    await expect(page.get_by_text("It works: claude-haiku-5-5 answered")).to_be_visible()
    await expect(page.locator("#chat-models option[value='claude-haiku-5-5']")).to_have_count(1)
    assert await house.one("SELECT count(*) FROM stored_settings") == 0


async def test_typed_key_follows_its_corrected_address(house: House, other_provider: RunningFake) -> None:
    page = await settings_of(house, "anna", "model")
    await add_model(page, other_provider, "mine", "")
    row = page.locator("fieldset").last
    address = row.get_by_label("Address")
    await address.fill("http://127.0.0.1:9/v1")
    await row.get_by_label("Key", exact=True).fill("good-key")
    await address.fill(other_provider.base_url)
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_text(SAVED)).to_be_visible()
    key = page.locator("fieldset").last.get_by_label("Key", exact=True)
    await expect(key).to_have_attribute("placeholder", "set, never shown")


async def test_invalid_list_entry_is_reported_in_its_row_and_kept(
    house: House, other_provider: RunningFake
) -> None:
    page = await settings_of(house, "anna", "model")
    await add_model(page, other_provider, "one", "good-key")
    await add_model(page, other_provider, "two", "good-key")
    await page.locator("fieldset").last.get_by_label("Context window").fill("many")
    await page.get_by_role("button", name="Save", exact=True).click()
    row = page.locator("fieldset").last
    await expect(row).to_have_attribute("aria-invalid", "true")
    await expect(row.get_by_role("status")).to_contain_text("window: must be a whole number")
    await expect(row.get_by_label("Name", exact=True)).to_be_focused()
    await expect(row.get_by_label("Key", exact=True)).to_have_value("good-key")
    assert await house.one("SELECT count(*) FROM stored_settings") == 0


async def test_a_second_bot_is_added_and_tried(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_bot_api() as api:
        monkeypatch.setenv("EVERTALK_TELEGRAM_API_URL", api.base_url)
        page = await settings_of(house, "anna", "telegram")
        await page.get_by_role("button", name="Add a bot").click()
        row = page.locator("fieldset").last
        await row.get_by_label("Token of the bot").fill(TOKEN)
        await row.get_by_label("Agent").fill("shop")
        await row.get_by_label("Who may write").select_option("allowlist")
        await row.get_by_label("Allowed people and groups").fill("17, 18")
        await row.get_by_role("button", name="Test").click()
        await expect(row.get_by_role("status")).to_contain_text(f"@{USERNAME}")
    telegram = page.get_by_role("region", name="Telegram", exact=True)
    await telegram.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_text(SAVED)).to_be_visible()
    assert json.loads(await stored(house, "EVERTALK_TELEGRAM_BOTS") or "") == [
        {"token_env": TOKEN.partition(":")[0], "agent": "shop", "access": "allowlist", "allowed": [17, 18]}
    ]
    await expect(page.locator("fieldset legend").last).to_have_text(f"Bot {TOKEN.partition(':')[0]}")


async def test_rows_are_read_by_everybody_at_every_width(house: House, other_provider: RunningFake) -> None:
    page = await house.operator("anna", "admin", "/dashboard/settings?section=model")
    await add_model(page, other_provider, "mine", "good-key")
    await fits(page)
    assert await look_in_both_schemes(page) == []
    await page.set_viewport_size({"width": 390, "height": 844})
    await fits(page)
    assert await look_for_faults(page) == []
