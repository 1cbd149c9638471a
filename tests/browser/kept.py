"""A browser profile as good as new for every test, without the half second that a new one costs.

Between two tests its pages are closed and what they stored is gone. One empty page stays, so that the browser
keeps the process which has read the widget before. Who asks for `context` may change what outlasts pages: a
route, a permission, a script. Such a profile nobody gets after them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page

EMPTY = "http://127.0.0.1:9/empty"
"""Of the same host as every page under test; never asked for over the net."""
GENUINE = "() => [Date, setTimeout, requestAnimationFrame].every((one) => /native code/.test(one.toString()))"
"""A clock that a test winds reaches every page of its context, also later ones."""


@dataclass(slots=True)
class Profile:
    """One context for one test at a time."""

    _context: BrowserContext
    _empty: Page | None = None
    altered: bool = False

    @property
    def context(self) -> BrowserContext:
        self.altered = True
        return self._context

    def page(self) -> Page:
        return self._context.new_page()

    def cleaned(self, *origins: str) -> bool:
        """Whether the next test may have it."""
        if self.altered:
            self._context.close()
            return False
        empty = self._kept_page()
        for page in self._context.pages:
            if page is not empty:
                page.close()
        self._forget(empty, origins)
        if not empty.evaluate(GENUINE):
            self._context.close()
            return False
        return True

    def _kept_page(self) -> Page:
        if self._empty is None:
            self._empty = self._context.new_page()
            self._empty.route("**/*", lambda route: route.fulfill(body="", content_type="text/html"))
            self._empty.goto(EMPTY)
        return self._empty

    def _forget(self, empty: Page, origins: tuple[str, ...]) -> None:
        self._context.clear_cookies()
        browser = self._context.new_cdp_session(empty)
        browser.send("Network.clearBrowserCache")
        for origin in origins:
            browser.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})
        browser.detach()


@dataclass(slots=True)
class Profiles:
    """The clean ones, by how they were asked for."""

    browser: Browser
    _clean: dict[str, Profile] = field(default_factory=dict)

    def take_over(self, options: dict[str, Any]) -> Profile:
        kept = self._clean.pop(_name(options), None)
        return kept or Profile(self.browser.new_context(**options))

    def release(self, profile: Profile, options: dict[str, Any], *origins: str) -> None:
        if profile.cleaned(*origins):
            self._clean[_name(options)] = profile

    def close(self) -> None:
        for profile in self._clean.values():
            profile.context.close()
        self._clean.clear()


def _name(options: dict[str, Any]) -> str:
    return json.dumps(options, sort_keys=True)
