"""Pictures of a page at both widths in both colour schemes.

`PICTURES_FOLDER=FOLDER ./evertalk test tests/browser/dashboard/test_pictures.py` writes a picture of each
page of the dashboard; `test_poor_data.py` does so for pages without data, with one record, and with many.
"""

from __future__ import annotations

import os
from pathlib import Path

from playwright.async_api import Page

WIDTHS = (1280, 390)
SCHEMES = ("light", "dark")


async def photograph(page: Page, name: str, *, whole: bool = False) -> None:
    """Take four pictures if PICTURES_FOLDER names a folder; `whole` includes what is below the window."""
    if folder := os.environ.get("PICTURES_FOLDER"):
        for width in WIDTHS:
            await page.set_viewport_size({"width": width, "height": 860})
            for scheme in SCHEMES:
                await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
                await page.screenshot(path=Path(folder) / f"{name}-{width}-{scheme}.png", full_page=whole)
        await page.emulate_media(color_scheme="light")
        await page.set_viewport_size({"width": 1280, "height": 720})
