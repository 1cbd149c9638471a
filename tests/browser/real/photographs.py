"""Pictures of a page in both themes."""

from __future__ import annotations

import os
from pathlib import Path

from playwright.async_api import Page


async def photograph(page: Page, name: str) -> None:
    """For whoever wants to look: PICTURES_FOLDER names one."""
    if folder := os.environ.get("PICTURES_FOLDER"):
        for scheme, width in (("light", 1280), ("dark", 390)):
            await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            await page.set_viewport_size({"width": width, "height": 780})
            await page.screenshot(path=Path(folder) / f"{name}-{scheme}-{width}.png")
