"""The dashboard over one seeded database, and the way in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
from playwright.async_api import Page, expect
from playwright.async_api import TimeoutError as NotInTime

from shared.adapters.postgres.people.operator_auth import create_login_link
from tests.kit.dashboard import seed
from tests.kit.dashboard.fixtures import RunCommands


async def fits(page: Page) -> None:
    """Nothing has to be scrolled sideways, as soon as what is drawn to size has been."""
    try:
        await page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")
    except NotInTime as error:
        raise AssertionError(f"{page.url} scrolls sideways at {page.viewport_size}") from error


TABS = ("conversation", "context", "summaries", "requests", "memory")
"""Of a session's page."""


Stored: TypeAlias = tuple[seed.Seeded, list[UUID]]
"""The session of a place, and the public ids of its summaries."""


@dataclass(slots=True)
class Seen:
    """A page, and all that went wrong on it."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Place:
    """The dashboard over one seeded database."""

    url: str
    database_url: str
    pool: asyncpg.Pool[asyncpg.Record]
    seeded: seed.Seeded
    links: list[UUID]
    commands: RunCommands
    cookies: list[Any] = field(default_factory=list)

    @property
    def session_url(self) -> str:
        return f"{self.url}/dashboard/sessions/{self.seeded.public_id}"

    def tab(self, name: str) -> str:
        return self.session_url if name == TABS[0] else f"{self.session_url}?tab={name}"


async def log_in(page: Page, place: Place) -> None:
    token = await create_login_link(place.database_url)
    await page.goto(f"{place.url}/dashboard/login?token={token}")
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
