"""One browser for all tests, one stub server and one clean profile for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, sync_playwright

from tests.browser.kept import Profile, Profiles
from tests.browser.patience import WAIT_MS
from tests.browser.widget.stub import Stub
from tests.kit.needed_programs import chromium


@pytest.fixture(scope="package")
def widget_browser() -> Iterator[Browser]:
    program = chromium()
    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="package")
def profiles(widget_browser: Browser) -> Iterator[Profiles]:
    all_of_them = Profiles(widget_browser)
    yield all_of_them
    all_of_them.close()


@pytest.fixture
def stub() -> Iterator[Stub]:
    server = Stub()
    server.start()
    yield server
    server.release.set()
    server.hold_files.set()
    server.stop()
    assert server.violations == []


class Visitor:
    """Opens pages and remembers everything the browser complained about."""

    def __init__(self, profile: Profile, stub: Stub) -> None:
        self._profile = profile
        self.stub = stub
        self.complaints: list[str] = []
        self.foreign: list[str] = []
        self.tolerated: tuple[str, ...] = ()

    @property
    def context(self) -> BrowserContext:
        """For who changes what outlasts a page."""
        return self._profile.context

    def page(self) -> Page:
        """A new page under watch."""
        page = self._profile.page()
        page.set_default_timeout(WAIT_MS)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", self._dialog)
        page.on("request", lambda request: self._watch(request.url))
        return page

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(message.text)

    def _dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def _watch(self, url: str) -> None:
        known = (self.stub.url, self.stub.host_url, self.stub.url.replace("http", "ws"), "data:")
        if not url.startswith(known):
            self.foreign.append(url)

    def chat(self, query: str = "", *, box: str = "Message") -> Page:
        """The full page; `box` is what its language calls the field to write in."""
        page = self.page()
        page.goto(f"{self.stub.url}/chat{query}")
        page.get_by_role("textbox", name=box).wait_for()
        return page

    def shop(self, query: str = "") -> Page:
        """A page of somebody else with the widget in it."""
        page = self.page()
        page.goto(f"{self.stub.host_url}/shop{query}")
        return page

    def lose_network(self, page: Page) -> None:
        """Cut the network and tell the page: with loopback alone the browser sends no event."""
        self.context.set_offline(True)
        page.evaluate("dispatchEvent(new Event('offline'))")

    def settled(self) -> list[str]:
        """The complaints that nobody announced."""
        return [text for text in self.complaints if not any(known in text for known in self.tolerated)]


@pytest.fixture
def context_options() -> dict[str, Any]:
    return {"viewport": {"width": 1100, "height": 760}, "locale": "en-US"}


@pytest.fixture
def visitor(profiles: Profiles, stub: Stub, context_options: dict[str, Any]) -> Iterator[Visitor]:
    profile = profiles.take_over(context_options)
    one = Visitor(profile, stub)
    yield one
    profiles.release(profile, context_options, stub.url, stub.host_url)
    assert one.settled() == []
    assert one.foreign == []
