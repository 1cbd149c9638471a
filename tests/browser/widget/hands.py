"""What a person does with the chat and sees of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.browser.patience import WAIT_MS
from tests.browser.widget.stub import Stub


def say(page: Page, text: str) -> None:
    """Types a message and presses Enter."""
    box = page.get_by_role("textbox", name="Message")
    box.fill(text)
    box.press("Enter")


def log(page: Page) -> Locator:
    """The conversation; what is read aloud stands elsewhere."""
    return page.get_by_role("log")


def asked(page: Page, text: str = "hello") -> None:
    """One question with its answer, which is whole and read when this returns."""
    say(page, text)
    expect(log(page).get_by_text(f"You said: {text}", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Stop answering")).to_be_hidden()


def frames(stub: Stub, kind: str) -> list[dict[str, Any]]:
    """What browsers have sent of one kind."""
    return [frame for frame in stub.received if frame["t"] == kind]


def becomes(page: Page, fact: Callable[[], bool]) -> None:
    """Waits for what no page shows."""
    for _ in range(WAIT_MS // 20):
        if fact():
            return
        page.wait_for_timeout(20)
    assert fact()


def arrived(page: Page, stub: Stub, kind: str, count: int) -> list[dict[str, Any]]:
    """So many frames of a kind, as soon as the server has them."""
    becomes(page, lambda: len(frames(stub, kind)) >= count)
    return frames(stub, kind)


def complete(page: Page) -> None:
    """The newest answer is over and drawn, and what stands beside answers has come."""
    expect(page.get_by_role("button", name="Answer again")).to_be_visible()
    expect(page.locator(".plain")).to_have_count(0)


def texts(page: Page) -> list[str]:
    """The words of every bubble and answer, in order, once all are drawn."""
    expect(page.locator(".plain")).to_have_count(0)
    return page.locator("article .body").all_inner_texts()
