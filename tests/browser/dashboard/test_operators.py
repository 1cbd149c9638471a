"""Operators in real browsers: invited, logged in, a password set, locked out, and logged out by others."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from aiohttp import web
from playwright.async_api import Browser, BrowserContext, Page, expect

from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.postgres.people.operator_auth import Operators, create_login_link
from shared.config.settings import load_settings
from shared.core.identity.totp import code_at, step_of
from tests.browser.axe import look_for_faults, look_in_both_schemes
from tests.browser.dashboard.place import fits
from tests.browser.patience import WAIT_MS
from tests.kit.audit_tampering import forge
from tests.kit.dashboard.fixtures import RunCommands
from tests.kit.dashboard.serve import served
from tests.kit.fakes.oidc.harness import RunningProvider
from tests.kit.fakes.oidc.server import ADA, CLIENT_ID, CLIENT_SECRET

pytestmark = pytest.mark.browser
PASSWORD = "three yellow cups"


@dataclass(slots=True)
class House:
    """The dashboard, and the browsers of those who come."""

    url: str
    database_url: str
    pool: asyncpg.Pool[asyncpg.Record]
    browser: Browser
    provider: RunningProvider
    contexts: list[BrowserContext] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    async def page(self, **options: Any) -> Page:
        """In a browser of its own."""
        options = {"viewport": {"width": 1360, "height": 900}} | options
        context = await self.browser.new_context(locale="en-GB", **options)
        context.set_default_timeout(WAIT_MS)
        self.contexts.append(context)
        page = await context.new_page()
        page.on("console", lambda line: self.complaints.append(line.text) if line.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        return page

    async def admin(self, **options: Any) -> Page:
        page = await self.page(**options)
        token = await create_login_link(self.database_url)
        await page.goto(f"{self.url}/dashboard/login?token={token}&next=/dashboard/operators")
        await page.get_by_role("button", name="Log in").click()
        await expect(page.get_by_role("heading", name="Operators")).to_be_visible()
        return page

    async def invites(self, admin: Page, name: str) -> str:
        form = admin.get_by_role("region", name="Invite")
        await form.get_by_label("Name").fill(name)
        await form.get_by_role("button", name="Create login link").click()
        made = admin.get_by_role("region", name=f"Login link for {name}")
        link = await made.locator("code").inner_text()
        await expect(form.get_by_label("Name")).to_have_value("")
        return link

    async def enters(self, link: str) -> Page:
        page = await self.page()
        await page.goto(link)
        await page.get_by_role("button", name="Log in").click()
        await expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
        return page

    async def logs_in(self, page: Page, name: str, password: str) -> None:
        await page.goto(f"{self.url}/dashboard/login")
        await page.get_by_label("Name").fill(name)
        await page.get_by_label("Password").fill(password)
        await page.get_by_role("button", name="Log in").click()


@pytest.fixture
async def login_house(browser: Browser, database_url: str) -> AsyncIterator[House]:
    pool = await open_pool(database_url, size=4)
    async with RunningProvider() as provider:
        settings = load_settings(
            oidc_issuer=provider.issuer, oidc_client_id=CLIENT_ID, oidc_client_secret=CLIENT_SECRET,
            oidc_groups="ops=operator", secret_key="k" * 40,
        )  # fmt: skip
        app = web.Application()
        async with served(app, pool=pool, settings=settings, commands=RunCommands()) as url:
            made = House(url=url, database_url=database_url, pool=pool, browser=browser, provider=provider)
            yield made
            for context in made.contexts:
                await context.close()
    await pool.close()
    refusals = ("400", "401", "403", "409", "429")
    assert [line for line in made.complaints if not any(status in line for status in refusals)] == []


async def test_an_invited_operator_comes_in_sets_a_password_and_returns_by_it(login_house: House) -> None:
    admin = await login_house.admin()
    link = await login_house.invites(admin, "Grace")
    await expect(admin.get_by_role("row", name="Grace")).to_contain_text("invited")
    grace = await login_house.enters(link)
    await expect(grace.get_by_role("link", name="Operators")).to_have_count(0)
    await grace.get_by_role("link", name="Account").click()
    await expect(grace.get_by_role("region", name="Active sessions")).to_contain_text("this one")
    await grace.get_by_role("textbox", name="Password").fill(PASSWORD)
    await grace.get_by_role("button", name="Set the password").click()
    await expect(grace.locator("#say")).to_have_text("The password is set.")
    await grace.get_by_role("button", name="Log out").last.click()
    await login_house.logs_in(grace, "Grace", PASSWORD)
    await expect(grace.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    again = await login_house.page()
    await again.goto(link)
    await again.get_by_role("button", name="Log in").click()
    await expect(again.get_by_role("alert")).to_contain_text("This link was used")


async def test_wrong_passwords_lead_to_a_wait_with_its_end_time(login_house: House) -> None:
    admin = await login_house.admin()
    grace = await login_house.enters(await login_house.invites(admin, "Grace"))
    stranger = await login_house.page()
    for _ in range(5):
        await login_house.logs_in(stranger, "Grace", "a wrong password")
        await expect(stranger.get_by_role("alert")).to_have_text("Name or password are wrong.")
    await login_house.logs_in(stranger, "Grace", "a wrong password")
    await expect(stranger.get_by_role("alert")).to_have_text("Too many tries. Please wait 1 min.")
    await grace.goto(f"{login_house.url}/dashboard/account")
    await expect(grace.get_by_role("heading", name="Account")).to_be_visible()
    await admin.get_by_role("link", name="Grace").click()
    await expect(admin.get_by_text("Too many wrong passwords: refused until")).to_be_visible()


async def test_admin_ends_a_login_and_locks_an_operator(login_house: House) -> None:
    admin = await login_house.admin()
    grace = await login_house.enters(await login_house.invites(admin, "Grace"))
    await admin.goto(f"{login_house.url}/dashboard/operators")
    await admin.get_by_role("link", name="Grace").click()
    one = admin.get_by_role("region", name="Grace", exact=True)
    await one.get_by_role("button", name="Log out Grace").click()
    await expect(one).to_contain_text("No login is open.")
    await grace.goto(f"{login_house.url}/dashboard/account")
    await expect(grace.get_by_label("Password")).to_be_visible()
    assert "/dashboard/login" in grace.url
    await one.get_by_role("button", name="Lock out").click()
    await expect(admin.get_by_role("row", name="Grace")).to_contain_text("locked")
    await one.get_by_role("button", name="Unlock").click()
    await expect(admin.locator("#say")).to_have_text("Grace is unlocked.")
    await admin.get_by_role("link", name="admin (you)").click()
    own = admin.get_by_role("region", name="admin (you)")
    await own.get_by_role("button", name="Lock out").click()
    await expect(admin.get_by_role("alert")).to_contain_text("This is the last admin.")


async def test_operator_logs_out_another_browser_of_their_own(login_house: House) -> None:
    first = await login_house.admin()
    second = await login_house.admin()
    await first.goto(f"{login_house.url}/dashboard/account")
    logins = first.get_by_role("region", name="Active sessions")
    await expect(logins.get_by_role("listitem")).to_have_count(2)
    await logins.get_by_role("button", name="Log out everywhere else").click()
    await expect(logins.get_by_role("listitem")).to_have_count(1)
    await second.reload()
    await expect(second.get_by_label("Password")).to_be_visible()


async def test_the_organisation_lets_in_by_one_click(login_house: House) -> None:
    page = await login_house.page()
    await login_house.provider.tell(person={**ADA, "preferred_username": "Ada <b>"})
    await page.goto(f"{login_house.url}/dashboard/account")
    await page.get_by_role("link", name="Log in with your organisation").click()
    await expect(page.get_by_role("heading", name="Account")).to_be_visible()
    await expect(page.get_by_text("You log in with your organisation's identity provider")).to_be_visible()
    await expect(page.get_by_role("region", name="Active sessions")).to_contain_text(
        "by the identity provider"
    )


async def test_the_audit_is_filtered_paged_and_checked(login_house: House) -> None:
    admin = await login_house.admin()
    operators = Operators(login_house.pool)
    for n in range(110):
        await operators.record(actor="<b>eve</b>", action="read.messages", about=f"s{n}")
    await operators.close()
    await admin.keyboard.type("gu")
    await expect(admin.get_by_text("Verified: 112 entries without gaps")).to_be_visible()
    await expect(admin.locator("tbody tr")).to_have_count(100)
    await admin.get_by_role("button", name="Older").click()
    await expect(admin.locator("tbody tr")).to_have_count(12)
    await admin.get_by_label("Operator").select_option("admin")
    await expect(admin.locator("tbody tr")).to_have_count(1)
    assert "operator=admin" in admin.url
    async with admin.expect_download() as download:
        await admin.get_by_role("link", name="CSV").click()
    path = await (await download.value).path()
    exported, login = Path(path).read_text().splitlines()[1:]
    assert (",audit.exported," in exported, ",login," in login) == (True, True)
    await forge(
        login_house.pool, "UPDATE audit SET actor = 'nobody' WHERE id = (SELECT max(id) - 5 FROM audit)"
    )
    await admin.get_by_role("button", name="Check again").click()
    await expect(admin.get_by_text("The chain breaks at entry")).to_be_visible()


async def app_code(page: Page) -> str:
    """What the app shows after the key was typed into it."""
    key = await page.get_by_role("region", name="Second factor").locator(".once code").inner_text()
    return code_at(base64.b32decode(key.replace(" ", "")), step_of(time.time()))


@pytest.mark.control("S09")
async def test_a_second_factor_is_set_up_asked_for_and_taken_away(login_house: House) -> None:
    page = await login_house.page(viewport={"width": 390, "height": 844})
    token = await create_login_link(login_house.database_url)
    await page.goto(f"{login_house.url}/dashboard/login?token={token}&next=/dashboard/account")
    await page.get_by_role("button", name="Log in").click()
    await page.get_by_role("textbox", name="Password").fill(PASSWORD)
    await page.get_by_role("button", name="Set the password").click()
    region = page.get_by_role("region", name="Second factor")
    await region.get_by_role("button", name="Set up a second factor").click()
    await expect(region.get_by_role("link", name="Open an app")).to_have_attribute(
        "href", re.compile(r"^otpauth://totp/Evertalk:admin\?secret=[A-Z2-7]{32}&issuer=Evertalk$")
    )
    await expect(region.get_by_role("img", name="QR code of the key")).to_be_visible()
    await sound(page)
    await region.get_by_label("Code from the app").fill("000000")
    await region.get_by_role("button", name="Switch it on").click()
    await expect(region.get_by_role("alert")).to_contain_text("That code is not right")
    await region.get_by_label("Code from the app").fill(await app_code(page))
    await region.get_by_role("button", name="Switch it on").click()
    codes = region.get_by_role("list", name="Recovery codes").get_by_role("listitem")
    await expect(codes).to_have_count(10)
    spare, last = await codes.nth(0).inner_text(), await codes.nth(9).inner_text()
    await sound(page)
    await region.get_by_role("button", name="I have saved them").click()
    await expect(region).to_contain_text("with 10 recovery codes left")
    await page.context.clear_cookies()
    await login_house.logs_in(page, "admin", PASSWORD)
    await expect(page.get_by_label("Code")).to_be_focused()
    await sound(page)
    await page.get_by_label("Code").fill("000000")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("That code is not right")
    await page.get_by_label("Code").fill(spare)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    await page.goto(f"{login_house.url}/dashboard/operators")
    await expect(page.get_by_role("row", name="admin")).to_contain_text("password and code")
    await page.goto(f"{login_house.url}/dashboard/account")
    await expect(region).to_contain_text("with 9 recovery codes left")
    await sound(page)
    await region.get_by_label("Code from the app").fill(last)
    await region.get_by_role("button", name="Remove it").click()
    await expect(region.get_by_role("button", name="Set up a second factor")).to_be_visible()


async def sound(page: Page) -> None:
    """Nothing that axe finds, and nothing to scroll sideways."""
    assert await look_for_faults(page) == []
    await fits(page)


async def test_axe_finds_nothing_and_a_telephone_never_scrolls_sideways(login_house: House) -> None:
    admin = await login_house.admin()
    for name in ("Grace", "Nobody Came Yet With A Rather Long Name"):
        assert await login_house.invites(admin, name)
    await login_house.enters(await login_house.invites(admin, "Ida"))
    ida = await login_house.pool.fetchval("SELECT public_id FROM operators WHERE name = 'Ida'")
    found = {}
    for width in (1360, 390):
        await admin.set_viewport_size({"width": width, "height": 900})
        for path in (f"/dashboard/operators?who={ida}", "/dashboard/audit", "/dashboard/account"):
            await admin.goto(login_house.url + path)
            await expect(admin.locator("main .skeleton")).to_have_count(0)
            await expect(admin.locator("main h1")).to_be_visible()
            await expect(admin.get_by_text("Checking the chain")).to_have_count(0)
            found[path, width] = await look_in_both_schemes(admin)
            await fits(admin)
    stranger = await login_house.page()
    await stranger.goto(f"{login_house.url}/dashboard/login")
    found["login", 0] = await look_in_both_schemes(stranger)
    assert {key: some for key, some in found.items() if some} == {}
