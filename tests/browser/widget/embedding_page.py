"""What a page does that holds the widget."""

from __future__ import annotations

from playwright.sync_api import Page

from tests.browser.patience import WAIT_MS


def call(page: Page, *words: object) -> None:
    page.evaluate("words => Evertalk(...words)", list(words))


def token(page: Page) -> str:
    return str(page.evaluate("localStorage.getItem('evertalk:shop:token') ?? ''"))


def until(page: Page, script: str) -> None:
    """As `wait_for_function`, which a page without eval does not allow."""
    for _ in range(WAIT_MS // 100):
        if page.evaluate(script):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"never: {script}")
