"""Files that a person picks, and their chips."""

from __future__ import annotations

import io

from PIL import Image
from playwright.sync_api import FilePayload, Locator, Page


def png(colour: str = "teal", size: tuple[int, int] = (64, 32)) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, colour).save(out, "PNG")
    return out.getvalue()


def file(name: str, content: bytes, mime: str = "text/plain") -> FilePayload:
    return {"name": name, "mimeType": mime, "buffer": content}


def chips(page: Page) -> Locator:
    return page.get_by_role("list", name="Files to send").get_by_role("listitem")


def pick(page: Page, *files: FilePayload) -> None:
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Attach files").click()
    chooser.value.set_files(list(files))
