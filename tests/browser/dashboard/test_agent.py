"""An operator makes an agent by its form, looks at what it comes to, and goes on in JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, FilePayload, Page, expect

from shared.config.settings import load_settings
from tests.browser.axe import look_for_faults
from tests.browser.dashboard.house import House, open_house
from tests.browser.dashboard.place import fits
from tests.kit.fakes.mcp_process import mcp_servers

pytestmark = pytest.mark.browser


@pytest.fixture
def house_options() -> dict[str, Any]:
    return {"secret_key": "k" * 40}


@pytest.fixture
def tolerated() -> tuple[str, ...]:
    return "status of 409", "status of 422", "status of 502"


async def stored(house: House, name: str = "ada") -> Any:
    return await house.one("SELECT config FROM agents WHERE name = $1", name)


async def looks_well(page: Page, name: str) -> None:
    """Light, dark and on a telephone; pictures for people where they are asked for."""
    for scheme, width in (("light", 1360), ("dark", 1360), ("light", 390)):
        await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        await page.set_viewport_size({"width": width, "height": 900})
        await fits(page)
        assert await look_for_faults(page) == [], (name, scheme, width)
        if folder := os.environ.get("PICTURES_FOLDER"):
            await page.screenshot(path=Path(folder) / f"{name}-{scheme}-{width}.png", full_page=True)
    await page.emulate_media(color_scheme="light")
    await page.set_viewport_size({"width": 1360, "height": 900})


async def test_an_agent_is_made_by_its_form(house: House) -> None:
    page = await house.operator("anna", "admin", "/dashboard/agents")
    await page.get_by_text("New agent").click()
    await page.get_by_label("Name", exact=True).fill("ada")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/dashboard/agents/ada")
    prompt = page.locator(".prompt")
    await page.get_by_label("Display name").fill("Ada")
    await expect(prompt).to_contain_text("You are Ada")
    await page.get_by_label("Persona").fill("You know every plant in our shop.")
    await expect(prompt).to_contain_text("You know every plant in our shop.")
    await page.get_by_label("Preset").select_option("steady")
    window = page.get_by_label("Context window", exact=True)
    await expect(window).to_have_attribute("placeholder", "200000")
    await window.fill("many")
    error = page.locator("#agent-context\\.context_window-error")
    await expect(error).to_have_text("Context window: must be a whole number, not 'many'")
    await window.fill("64000")
    await expect(error).to_be_empty()
    await expect(page.get_by_role("img", name="Window: 64,000").first).to_be_visible()
    await page.get_by_role("checkbox", name="fetch_url").uncheck()
    await page.get_by_role("button", name="Modes: Add").click()
    await page.keyboard.type("expert")
    await page.keyboard.press("Tab")
    await page.keyboard.type("Use the Latin names.")
    await page.get_by_label("Per conversation and day").fill("5.5")
    await expect(page.get_by_text("Valid", exact=True)).to_be_visible()
    await looks_well(page, "agent-form")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Saved as version 2").first).to_be_visible()
    wanted = {
        "name": "Ada", "persona": "You know every plant in our shop.", "preset": "steady",
        "context": {"context_window": 64_000}, "tools": {"deny": ["fetch_url"]},
        "modes": {"expert": "Use the Latin names."}, "caps": {"session_usd": 5.5},
    }  # fmt: skip
    assert await stored(house) == wanted
    await page.get_by_role("tab", name="JSON").click()
    await page.get_by_label("Settings as JSON").fill('{"name": "Eve", "preset": "steady"}')
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Saved as version 3").first).to_be_visible()
    await page.get_by_role("button", name="Compare version 2 with the one in force").press("Enter")
    await expect(page.locator(".agent-versions ins").filter(has_text="Eve")).to_be_visible()
    await expect(page.locator(".agent-versions del").filter(has_text="Ada")).to_be_visible()
    await looks_well(page, "agent-versions")
    await page.get_by_role("button", name="Roll back to version 2").press("Enter")
    await expect(page.get_by_text("Version 2 is in force again, as version 4.")).to_be_visible()
    assert await stored(house) == wanted


async def test_the_playground_talks_with_the_draft_and_changes_nothing(house: House) -> None:
    page = await house.operator("anna", "admin", "/dashboard/agents/default")
    box = page.get_by_label("Message to the draft")
    log = page.get_by_role("log", name="Playground")
    await box.fill("My dog Bertil is allergic to chicken.")
    await box.press("Enter")
    await expect(log.locator(".said.assistant")).to_have_count(1)
    await box.fill("What is my dog called?")
    await page.keyboard.press("Enter")
    await expect(log.locator(".said.assistant").nth(1)).to_contain_text("Bertil")
    await expect(log.locator(".said.assistant").nth(1)).to_contain_text("offline-demo")
    await page.get_by_label("Context window", exact=True).fill("10")
    await box.fill("And now?")
    await box.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("This cannot be used")
    await expect(box).to_have_value("And now?")
    await looks_well(page, "agent-playground")
    assert await house.one("SELECT count(*) FROM entries") == 0
    assert await house.one("SELECT count(*) FROM usage WHERE purpose = 'playground'") == 2
    assert await stored(house, "default") == {}
    await page.get_by_role("button", name="Start over").click()
    await expect(log.locator(".said")).to_have_count(0)


async def test_a_knowledge_file_is_added_searched_and_removed(house: House) -> None:
    page = await house.operator("anna", "admin", "/dashboard/agents/default")
    card = page.get_by_label("Knowledge", exact=True)
    words = b"# Roses\n\nWater the roses twice a week."
    await card.locator("input[type=file]").set_input_files(
        FilePayload(name="plants.md", mimeType="text/markdown", buffer=words)
    )
    await card.get_by_role("button", name="Add").press("Enter")
    await expect(card.get_by_text("1 passage").first).to_be_visible()
    await card.get_by_label("Search the files").last.fill("rose")
    await page.keyboard.press("Enter")
    await expect(card.get_by_text("Water the roses twice a week.")).to_be_visible()
    await looks_well(page, "agent-knowledge")
    await card.get_by_role("button", name="Remove plants.md").press("Enter")
    await expect(card.get_by_text("No file yet.")).to_be_visible()
    assert await house.one("SELECT count(*) FROM knowledge") == 0


async def test_a_server_of_tools_is_added_tested_and_removed(house: House) -> None:
    page = await house.operator("anna", "admin", "/dashboard/agents/default")
    card = page.get_by_label("MCP servers", exact=True)
    await card.get_by_text("Add a server").click()
    await card.get_by_label("Name", exact=True).fill("files")
    await card.get_by_label("Address").fill("http://127.0.0.1:1/mcp")
    await card.get_by_label("Headers").fill("Authorization: Bearer canary")
    await card.get_by_role("button", name="Test").press("Enter")
    await expect(card.get_by_text("The server cannot be used.")).to_be_visible()
    await card.get_by_role("button", name="Add", exact=True).press("Enter")
    await expect(card.get_by_text("Authorization", exact=True)).to_be_visible()
    await expect(card.get_by_label("Headers")).to_have_value("")
    await looks_well(page, "agent-servers")
    await card.get_by_role("button", name="Edit: files").press("Enter")
    await expect(card.get_by_label("Address")).to_have_value("http://127.0.0.1:1/mcp")
    await card.get_by_role("button", name="Remove files").press("Enter")
    await expect(card.get_by_text("No server yet.")).to_be_visible()


async def test_changed_tools_are_approved_by_one_button(house: House) -> None:
    page = await house.operator("anna", "admin", "/dashboard/agents/default")
    card = page.get_by_label("MCP servers", exact=True)
    await card.get_by_text("Add a server").click()
    await card.get_by_label("Name", exact=True).fill("files")
    await card.get_by_label("Address").fill("http://127.0.0.1:1/mcp")
    await card.get_by_role("button", name="Add", exact=True).press("Enter")
    await expect(card.get_by_role("button", name="Remove files")).to_be_visible()
    await house.one(
        """INSERT INTO mcp_tool_lists (server, source, seen, approved, can_write, needs_approval)
           VALUES ('files', repeat('a', 64), '{"send": "2"}', '{"send": "1"}', true, true) RETURNING 1"""
    )
    await page.reload()
    await expect(card.get_by_text("send", exact=True)).to_be_visible()
    await looks_well(page, "agent-changed-tools")
    await card.get_by_role("button", name="Approve changed tools").press("Enter")
    await expect(card.get_by_text("send", exact=True)).to_be_hidden()
    assert await house.one("SELECT count(*) FROM audit WHERE action = 'mcp.tools_approved'") == 1


async def test_one_server_is_switched_off_for_an_agent(
    database_url: str, redis_url: str, browser: Browser, tmp_path: Path
) -> None:
    settings = load_settings(
        database_url=database_url, redis_url=redis_url, data_dir=tmp_path, secret_key="k" * 40
    )
    async with mcp_servers(tmp_path, "web", "more"), open_house(settings, browser) as house:
        house.tolerated = ("status of 409",)
        page = await house.operator("anna", "admin", "/dashboard/agents/default")
        servers = page.get_by_role("group", name="MCP servers")
        tick = page.get_by_role("checkbox", name="mcp_more_add")
        await expect(tick).to_be_visible()
        await expect(servers.get_by_role("checkbox", name="more")).to_be_disabled()
        tools = page.get_by_label("Effective limits").locator("details")
        await tools.locator("summary").click()
        await expect(tools).to_contain_text("mcp_find_tools")

        await servers.get_by_role("checkbox", name="All, including those added later").press("Space")
        await servers.get_by_role("checkbox", name="more").press("Space")
        await expect(tick).to_be_hidden()
        await expect(page.get_by_role("checkbox", name="mcp_web_add")).to_be_visible()
        await tools.locator("summary").click()
        await expect(tools).to_contain_text("mcp_web_add")
        await expect(tools).not_to_contain_text("mcp_more_add")
        await expect(page.get_by_text("Valid", exact=True)).to_be_visible()
        await looks_well(page, "agent-chosen-servers")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_text("Saved as version 2").first).to_be_visible()
        assert await stored(house, "default") == {"tools": {"servers": ["web"]}}

        card = page.get_by_label("MCP servers", exact=True).last
        await card.get_by_text("Add a server").click()
        await card.get_by_label("Name", exact=True).fill("files")
        await card.get_by_label("Address").fill("http://127.0.0.1:1/mcp")
        await card.get_by_role("button", name="Add", exact=True).press("Enter")
        await servers.get_by_role("checkbox", name="files").check()
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_text("Saved as version 3").first).to_be_visible()
        await card.get_by_role("button", name="Remove files").press("Enter")
        await expect(card.get_by_role("alert")).to_contain_text("Agents use this server by name")
        await expect(card.get_by_role("link", name="default")).to_be_visible()
        await looks_well(page, "agent-server-in-use")

        await page.get_by_role("tab", name="JSON").click()
        await page.get_by_label("Settings as JSON").fill('{"tools": {"servers": ["wbe"]}}')
        await expect(page.get_by_label("Problems")).to_contain_text("did you mean web?")
        await page.get_by_role("tab", name="Form").click()
        await expect(servers).to_contain_text("not set up")


async def test_typed_text_survives_navigation_and_overwrites_no_newer_version(house: House) -> None:
    page = await house.operator("anna", "admin", "/dashboard/agents/default")
    await page.get_by_label("Persona").fill("Half a thought")
    await page.get_by_role("link", name="Operations", exact=True).click()
    await page.get_by_role("heading", level=1, name="Jobs").wait_for()
    await house.app.stores.agents.change("default", {"persona": "Theirs"}, seen=1, by="test")
    await page.go_back()
    await expect(page.get_by_label("Persona")).to_have_value("Half a thought")
    await page.reload()
    await expect(page.get_by_label("Persona")).to_have_value("Half a thought")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Another operator changed this meanwhile").first).to_be_visible()
    await page.get_by_role("button", name="Take theirs").click()
    await expect(page.get_by_label("Persona")).to_have_value("Theirs")
    await page.reload()
    await expect(page.get_by_label("Persona")).to_have_value("Theirs")


async def test_a_viewer_reads_all_of_it_and_changes_nothing(house: House) -> None:
    await house.app.stores.agents.change("default", {"persona": "You are Ada."}, seen=1, by="test")
    page = await house.operator("vera", "viewer", "/dashboard/agents/default")
    await expect(page.get_by_label("Persona")).to_have_value("You are Ada.")
    await expect(page.get_by_label("Persona")).to_be_disabled()
    await page.get_by_role("tab", name="Form").press("ArrowRight")
    await expect(page.get_by_label("Settings as JSON")).not_to_be_editable()
    await page.get_by_role("button", name="Compare version 1 with the one in force").press("Enter")
    await expect(page.locator(".agent-versions ins").filter(has_text="Ada")).to_be_visible()
    for name in ("Save", "Send", "Assign", "Add", "Roll back to version 1"):
        await expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
    assert await look_for_faults(page) == []


async def test_an_agent_is_given_a_site(house: House) -> None:
    await house.app.stores.agents.create("ada", {}, by="test")
    page = await house.operator("anna", "admin", "/dashboard/agents/ada")
    await page.get_by_label("Assign it to a site").select_option("default")
    await page.get_by_role("button", name="Assign").press("Enter")
    await expect(page.get_by_label("Used by").get_by_role("link", name="default")).to_be_visible()
    await expect(page.get_by_label("Assign it to a site")).to_have_count(0)


async def test_form_and_json_are_two_views_of_one_draft(house: House) -> None:
    config = {"persona": "Old words.", "context": {"prune_mark": "[cut]"}, "tools": {"provider": []}}
    await house.app.stores.agents.create("ada", config, by="test")
    page = await house.operator("anna", "admin", "/dashboard/agents/ada")
    await page.get_by_label("Persona").fill("New words.")
    await page.get_by_role("tab", name="JSON").click()
    field = page.get_by_label("Settings as JSON")
    assert json.loads(await field.input_value()) == {**config, "persona": "New words."}
    await field.fill('{"persona": "Mine", ')
    await expect(page.get_by_text("This is not JSON yet")).to_be_visible()
    await page.get_by_role("tab", name="Form").click()
    await expect(page.get_by_text("The form shows this once it is a JSON object.")).to_be_visible()
    await page.get_by_role("tab", name="JSON").click()
    await expect(field).to_have_value('{"persona": "Mine", ')
    await field.fill('{"persona": "Mine", "tools": {"deny": ["mcp_*", "calc*la?e"]}, "presett": "steady"}')
    await expect(page.get_by_role("list", name="Problems")).to_contain_text("did you mean preset")
    await page.get_by_role("tab", name="Form").click()
    await expect(page.get_by_label("Persona")).to_have_value("Mine")
    await expect(page.get_by_role("checkbox", name="calculate")).to_be_disabled()
    await expect(page.get_by_role("checkbox", name="recall")).to_be_checked()
    await page.get_by_role("tab", name="JSON").click()
    odd = {
        "tools": 5,
        "modes": ["x"],
        "models": {"a": 1},
        "context": "x",
        "caps": None,
        "memory": [],
        "name": 7,
    }
    await field.fill(json.dumps(odd))
    await page.get_by_role("tab", name="Form").click()
    await expect(page.get_by_label("Display name")).to_have_value("7")
    await house.app.stores.agents.change("ada", {"persona": "Theirs"}, seen=1, by="test")
    await page.get_by_role("tab", name="JSON").click()
    assert json.loads(await field.input_value()) == odd
    await field.fill('{"persona": "Mine"}')
    await page.get_by_role("button", name="Save").click()
    await page.get_by_role("button", name="Continue with mine").click()
    await expect(field).to_have_value('{\n  "persona": "Mine"\n}')
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Saved as version 3").first).to_be_visible()
    assert await stored(house) == {"persona": "Mine"}
