"""Each control of each form changes what is sent: none of them is dead."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.async_api import Locator, Page, Route, expect

from shared.config.settings import ORIGINS_NAME
from shared.config.stored import SEVERAL_SECRETS, list_storable
from tests.browser.dashboard.house import House

pytestmark = pytest.mark.browser
TYPED = {
    "origins": "https://shop.example", "accent": "#123456", "privacy_url": "https://shop.example/p",
    "texts": '{"de": {"title": "Laden"}}', "secret": "17:token",
}  # fmt: skip
NAMED = """form => [...form.elements]
    .filter((one) => one.name && !one.matches(":disabled") && one.checkVisibility()).map((one) => one.name)"""
"""Names of the controls that are shown and can be changed."""
REDRAWS = "provider"
"""Name of the control that decides which others there are."""
DISABLES = "tools.servers"
"""Name of the control that disables others, and is altered back."""
MOST_TABS, MOST_FIELDS = 7, 40
REFUSAL = {"code": "not_now", "message": "Not now.", "request_id": "r"}


@pytest.fixture
def house_options(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv(ORIGINS_NAME, "")
    return {"secret_key": "k" * 40}


@pytest.fixture
def tolerated() -> tuple[str, ...]:
    return ("422",)


def list_leaves(value: Any, place: str = "") -> dict[str, Any]:
    """Return the values of a body by their places; JSON within a text counts as values, too."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        value = json.loads(value)
    if isinstance(value, dict):
        return {
            key: one
            for name, inner in value.items()
            for key, one in list_leaves(inner, f"{place}.{name}").items()
        } or {place: {}}
    if isinstance(value, list) and any(isinstance(one, dict) for one in value):
        return list_leaves(dict(enumerate(value)), place)
    return {place: value}


async def alter(control: Locator) -> None:
    """Give a control a value that it does not have."""
    kind = await control.evaluate("one => one.type")
    name = await control.get_attribute("name") or ""
    if kind == "checkbox":
        await control.set_checked(not await control.is_checked())
    elif kind == "select-one":
        values = await control.evaluate("one => [...one.options].map((each) => each.value)")
        now = await control.input_value()
        await control.select_option(next(one for one in values[::-1] if one != now))
    else:
        text = TYPED.get(name, f"other-{name}")
        await control.fill(text if await control.input_value() != text else f"{text}-2")


class Sending:
    """A form whose requests are refused, so that what was typed stays; `before` is the last body."""

    def __init__(self, page: Page, form: Locator, button: str) -> None:
        self.page, self.form, self.button = page, form, button
        self.bodies: list[dict[str, Any]] = []
        self.before: dict[str, Any] = {}

    async def refuse(self, route: Route) -> None:
        if route.request.method == "GET" or "/check" in route.request.url:
            await route.continue_()
            return
        self.bodies.append(list_leaves(json.loads(route.request.post_data or "{}")))
        await route.fulfill(status=422, json=REFUSAL)

    async def send(self) -> set[str]:
        """Press the button; return the places that changed since the last time."""
        count = len(self.bodies)
        await self.form.get_by_role("button", name=self.button, exact=True).last.click()
        await expect(self.page.get_by_text("Not now.").filter(visible=True).first).to_be_visible()
        while len(self.bodies) == count:
            await self.page.wait_for_timeout(20)
        before, self.before = self.before, self.bodies[-1]
        return {key for key in before.keys() | self.before.keys() if before.get(key) != self.before.get(key)}


async def list_dead(
    sending: Sending, *, within: Locator | None = None, begun: bool = True
) -> list[tuple[str, list[str]]]:
    """Alter one control after the other; return those that changed nothing, or something else."""
    await sending.page.route("**/api/v1/**", sending.refuse)
    await sending.form.evaluate(
        "form => form.querySelectorAll('details').forEach((one) => { one.open = true; })"
    )
    if begun:
        await sending.send()
    dead, whole = [], within or sending.form
    for place, name in enumerate(await whole.evaluate(NAMED)):
        if name == REDRAWS:
            continue
        control = whole.locator("[name]:not(:disabled):is(input, select, textarea):visible").nth(place)
        await alter(control)
        changed = await sending.send()
        if name == DISABLES:
            await alter(control)
            await sending.send()
        last = name.split(".")[-1]
        if not changed or (name in PLAIN and not all(last in one.split(".") for one in changed)):
            dead.append((name, sorted(changed)))
    await sending.page.unroute("**/api/v1/**")
    return dead


PLAIN = {
    *list_storable(), "origins", "agent", "audience", "verified", "title", "starters", "texts", "uploads",
    "conversations", "handover", "webview", "name", "persona", "preset", "context.context_window", "role",
    "context.max_rounds", "caps.session_usd", "prices.input", "window", "fallback", "allowed", "access",
}  # fmt: skip
"""Names of controls that change the place of their name, and no other."""


async def test_each_control_of_a_site_changes_what_is_sent(house: House) -> None:
    await house.app.pool.execute("INSERT INTO agents (name) VALUES ('other')")
    page = await house.operator("anna", "admin", "/dashboard/sites/default")
    form = page.locator("form.site-form")
    await expect(form).to_be_visible()
    assert await list_dead(Sending(page, form, "Save")) == []
    names = await form.evaluate(NAMED)
    assert {*names} >= {"conversations", "uploads", "verified", "position"}


async def test_each_control_of_an_agent_changes_what_is_sent(house: House) -> None:
    config = {"models": ["one"], "modes": {"expert": "Be exact."}, "tools": {"servers": ["gone", "away"]}}
    await house.app.pool.execute("INSERT INTO agents (name, config) VALUES ('ada', $1::jsonb)", config)
    page = await house.operator("anna", "admin", "/dashboard/agents/ada")
    form = page.locator("form.site-form").first
    await expect(form.get_by_label("Persona")).to_be_visible()
    assert await list_dead(Sending(page, form, "Save")) == []
    names = await form.evaluate(NAMED)
    assert {*names} >= {"persona", "preset", "fetch_url", "gone", "tools.deny", "memory.recall_tokens"}


async def test_each_setting_of_each_form_changes_what_is_sent(house: House) -> None:
    page = await house.operator("anna", "admin", "/dashboard/settings")
    tabs = page.get_by_role("tab")
    await expect(tabs.first).to_be_visible()
    dead, seen = [], set()
    for place in range(await tabs.count()):
        await tabs.nth(place).click()
        for each in await page.get_by_role("tabpanel").locator("form.site-form").all():
            sending = Sending(page, each, "Save")
            dead += await list_dead(sending, begun=False)
            seen |= {*await each.evaluate(NAMED)}
            if await each.get_by_role("radio", name="OpenAI").count():
                await each.get_by_role("radio", name="OpenAI").check()
                dead += await list_dead(sending)
                seen |= {*await each.evaluate(NAMED)}
    assert dead == []
    lists = {"EVERTALK_MODELS", "EVERTALK_TELEGRAM_BOTS"}
    secrets = {name for name, field in list_storable().items() if field in SEVERAL_SECRETS}
    assert list_storable().keys() - seen == lists | secrets


async def test_settings_are_few_at_first_sight(house: House) -> None:
    page = await house.operator("anna", "admin", "/dashboard/settings")
    tabs = page.get_by_role("tab")
    await expect(tabs.first).to_be_visible()
    names = []
    for place in range(await tabs.count()):
        await tabs.nth(place).click()
        for each in await page.get_by_role("tabpanel").locator("form.site-form").all():
            names += [name for name in await each.evaluate(NAMED) if name != REDRAWS]
    assert await tabs.count() <= MOST_TABS
    assert 30 <= len({*names}) <= MOST_FIELDS


@pytest.mark.parametrize(("section", "button"), [("model", "Add a model"), ("telegram", "Add a bot")])
async def test_each_control_of_an_entry_changes_what_is_sent(house: House, section: str, button: str) -> None:
    page = await house.operator("anna", "admin", f"/dashboard/settings?section={section}")
    form = page.locator("form.site-form").first
    await form.get_by_role("button", name=button).click()
    if section == "model":
        await form.get_by_label("Provider").select_option(label="Another server")
    entry = form.locator("fieldset").last
    sending = Sending(page, form, "Save")
    controls = await entry.evaluate(NAMED)
    assert await list_dead(sending, within=entry) == []
    if section == "model":
        await page.route("**/api/v1/**", sending.refuse)
        await alter(entry.get_by_label("Provider"))
        assert {one.rpartition(".")[2] for one in await sending.send()} >= {"base_url"}
    assert {*controls} >= ({"name", "provider", "secret"} if section == "model" else {"secret", "allowed"})


async def test_each_control_for_operators_changes_what_is_sent(house: House) -> None:
    page = await house.operator("anna", "admin", "/dashboard/operators")
    await house.operator("ben", "viewer")
    invite = page.locator("form.inline-form")
    await invite.get_by_label("Name").fill("Grace")
    assert await list_dead(Sending(page, invite, "Create login link")) == []
    await page.reload()
    await page.get_by_role("link", name="ben").click()
    one = page.get_by_role("region", name="ben", exact=True)
    await expect(one).to_be_visible()
    sending = Sending(page, one, "Change the role")
    await page.route("**/api/v1/**", sending.refuse)
    await sending.send()
    await alter(one.get_by_label("Role"))
    assert await sending.send() == {".role"}
