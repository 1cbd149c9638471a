"""A browser that reports no network still talks: only a server that does not answer is out of reach."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.widget.conftest import Visitor
from tests.browser.widget.stub import Stub

pytestmark = pytest.mark.browser
WITHOUT_NETWORK = "Object.defineProperty(Navigator.prototype, 'onLine', {get: () => false})"
"""As Chromium reports it on a machine whose only network is loopback."""
OFFLINE = "You are offline."


def _ask(page: Page, text: str) -> None:
    box = page.get_by_role("textbox", name="Message")
    box.fill(text)
    box.press("Enter")
    expect(page.get_by_role("log").get_by_text(f"You said: {text}")).to_be_visible()


def test_browser_without_network_connects_and_talks(visitor: Visitor, stub: Stub) -> None:
    visitor.context.add_init_script(WITHOUT_NETWORK)
    page = visitor.chat()
    _ask(page, "hello from loopback")
    expect(page.get_by_text(OFFLINE)).to_have_count(0)


def test_lost_network_does_not_close_a_connection_that_works(visitor: Visitor, stub: Stub) -> None:
    page = visitor.chat()
    _ask(page, "first")
    page.evaluate(WITHOUT_NETWORK)
    page.evaluate("dispatchEvent(new Event('offline'))")
    _ask(page, "second")
    assert len(stub.only().sockets) == 1
    expect(page.get_by_text(OFFLINE)).to_have_count(0)


def test_widget_reconnects_without_an_online_event(visitor: Visitor, stub: Stub) -> None:
    """The first failure is explained by the network; each retry still tries."""
    visitor.tolerated = ("WebSocket connection",)
    visitor.context.add_init_script(WITHOUT_NETWORK)
    page = visitor.chat()
    _ask(page, "before")
    stub.refuse = True
    stub.call(stub.drop(stub.only()))
    expect(page.get_by_text(OFFLINE).first).to_be_visible()
    stub.refuse = False
    _ask(page, "after")
    expect(page.locator(".link")).to_be_hidden()
