"""Opens a file that nobody vouches for, as a process of its own: bytes in, one line of JSON and bytes out."""

from __future__ import annotations

import html
import io
import json
import os
import sys
from typing import Any

LONGEST_SIDE = 1_568
"""Models make larger pictures smaller themselves, and charge for it."""
MOST_PIXELS = 50_000_000
MOST_PAGES = 200
MOST_CHARS = 400_000
MEMORY_BYTES = 1_024 * 1024 * 1024
NICE = 10
"""Nobody who waits for an answer waits for somebody's file."""
MOST_PAGE_CHARS = 300_000
_QUALITY = 85
_JPEG = "image/jpeg"
_LEAST_MAIN_CHARS = 200
"""Where a page's main part says less, the whole page is read."""
_NOT_READ = "nav, script, style, noscript, template, svg, iframe, form, button, dialog, aside, footer"


def picture(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Upright and at most LONGEST_SIDE wide and high; PNG where something shines through, else _JPEG."""
    from PIL import Image, ImageOps

    Image.MAX_IMAGE_PIXELS = MOST_PIXELS
    with Image.open(io.BytesIO(content), formats=("JPEG", "PNG", "WEBP", "GIF")) as found:
        if found.width * found.height > MOST_PIXELS:
            raise ValueError("too many pixels")
        found.draft("RGB", (LONGEST_SIDE, LONGEST_SIDE))  # a JPEG is then read at a fraction of its size
        upright = ImageOps.exif_transpose(found)
        clear = upright.has_transparency_data
        whole = upright.convert("RGBA" if clear else "RGB")
    whole.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    whole.info = {}  # comments, places and profiles would be written again
    out = io.BytesIO()
    if clear:
        whole.save(out, "PNG", optimize=True)
    else:
        whole.save(out, "JPEG", quality=_QUALITY)
    mime = "image/png" if clear else _JPEG
    return {"mime": mime, "width": whole.width, "height": whole.height}, out.getvalue()


def pdf(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The text of the first pages, page by page; a page that cannot be read is left out."""
    from pypdf import PdfReader

    reader = PdfReader(io.BytesIO(content))
    if reader.is_encrypted and not reader.decrypt(""):
        raise ValueError("encrypted")
    pages: list[str] = []
    chars = 0
    count = len(reader.pages)
    for number in range(min(count, MOST_PAGES)):
        try:
            text = reader.pages[number].extract_text()
        except Exception:  # noqa: BLE001 - a broken page may fail in any way; the others are still wanted
            text = ""
        pages.append(text.strip())
        chars += len(text)
        if chars > MOST_CHARS:
            break
    truncated = len(pages) < count or chars > MOST_CHARS
    text = "\n\n".join(page for page in pages if page)[:MOST_CHARS]
    return {"pages": count, "truncated": truncated}, text.encode("utf-8", "replace")


def page(content: bytes) -> tuple[dict[str, Any], bytes]:
    """An HTML page as Markdown: its main part where it names one, without menus, scripts and forms."""
    from justhtml import JustHTML

    # Nobody shows it as HTML: its own cleaning would only take away what tells menus from words.
    whole = JustHTML(content.decode("utf-8", "replace"), sanitize=False)
    title = whole.query_one("title")
    said = " ".join(title.to_text().split())[:300] if title is not None else ""
    for node in whole.query(_NOT_READ):
        if node.parent is not None:
            node.parent.remove_child(node)
    main = whole.query_one("main") or whole.query_one("article")
    text = main.to_markdown().strip() if main is not None else ""
    if len(text) < _LEAST_MAIN_CHARS:
        body = whole.query_one("body") or whole
        text = body.to_markdown().strip()
    head = {"title": said, "truncated": len(text) > MOST_PAGE_CHARS}
    return head, html.unescape(text[:MOST_PAGE_CHARS]).encode("utf-8", "replace")


_OPENERS = {"picture": picture, "pdf": pdf, "page": page}


def main(kind: str, cpu_seconds: int) -> int:
    _limit(cpu_seconds)
    content = sys.stdin.buffer.read()
    try:
        head, body = _OPENERS[kind](content)
    except Exception:  # noqa: BLE001 - a hostile file may fail in any way; the answer is always the same
        return 1
    sys.stdout.buffer.write(json.dumps(head).encode() + b"\n" + body)
    return 0


def _limit(cpu_seconds: int) -> None:
    """Where the system can; the parent's patience is the limit elsewhere."""
    try:
        import resource
    except ImportError:
        return
    os.nice(NICE)
    for which, most in ((resource.RLIMIT_CPU, cpu_seconds), (resource.RLIMIT_AS, MEMORY_BYTES)):
        try:
            resource.setrlimit(which, (most, most))
        except (ValueError, OSError):  # macOS knows no limit of addresses
            continue


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
