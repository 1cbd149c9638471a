"""What pages of the dashboard ask by themselves, kept from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.async_api import Route

REFRESHES = "x-evertalk-refresh"


def without_news() -> Callable[[Route], Any]:
    """The page asks for news and gets none."""

    async def handle(route: Route) -> None:
        if REFRESHES in route.request.headers:
            await route.fulfill(status=503, json={"code": "away", "message": "Away."})
        else:
            await route.fallback()

    return handle
