"""Opens a file that nobody vouches for, as a process of its own: bytes in, one line of JSON and bytes out."""

from __future__ import annotations

import io
import json
import os
import sys
from typing import Any

from shared.core.values.files import JPEG, PDF, Refused

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


def picture(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Upright and at most LONGEST_SIDE wide and high; PNG where something shines through, else JPEG."""
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
    mime = "image/png" if clear else JPEG
    return {"mime": mime, "width": whole.width, "height": whole.height}, out.getvalue()


def pdf(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The text of the first pages, page by page; a page that cannot be read is left out."""
    from pypdf import PdfReader

    reader = PdfReader(io.BytesIO(content))
    if reader.is_encrypted and not reader.decrypt(""):
        raise Refused("file_locked")
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
    return {"mime": PDF, "truncated": truncated}, text.encode("utf-8", "replace")


def page(content: bytes) -> tuple[dict[str, Any], bytes]:
    """An HTML page as Markdown: its main part where it names one, without menus, scripts and forms."""
    from shared.adapters.files.papers import page_markdown
    from shared.adapters.files.text_decoding import NotText, decode_text

    try:
        decoded = decode_text(content)
    except NotText as error:
        raise Refused("file_unknown_kind") from error
    title, text = page_markdown(decoded.text)
    head = {"title": title, "truncated": len(text) > MOST_PAGE_CHARS, "guessed": decoded.guessed}
    return head, text[:MOST_PAGE_CHARS].encode("utf-8", "replace")


def paper(content: bytes) -> tuple[dict[str, Any], bytes]:
    """An office paper or a book as Markdown."""
    from shared.adapters.files.papers import read_paper

    head, text = read_paper(content)
    return head, text.encode("utf-8", "replace")


def text(content: bytes) -> tuple[dict[str, Any], bytes]:
    """A text in an encoding that is in doubt; languages of the sender stand in a line before it."""
    from shared.adapters.files.text_decoding import NotText, decode_text

    languages, _, body = content.partition(b"\n")
    try:
        decoded = decode_text(body, languages=tuple(languages.decode("ascii", "replace").split()))
    except NotText as error:
        raise Refused("file_unknown_kind") from error
    return {"guessed": decoded.guessed}, decoded.text.encode("utf-8", "replace")


def chart(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The numbers of a chart, as JSON, drawn as a PNG."""
    from shared.adapters.files.charts import HEIGHT, WIDTH, draw_chart

    return {"mime": "image/png", "width": WIDTH, "height": HEIGHT}, draw_chart(json.loads(content))


_OPENERS = {"picture": picture, "pdf": pdf, "page": page, "paper": paper, "text": text, "chart": chart}


def main(kind: str, cpu_seconds: int) -> int:
    _limit(cpu_seconds)
    content = sys.stdin.buffer.read()
    try:
        head, body = _OPENERS[kind](content)
    except Refused as refused:
        head, body = {"refused": refused.reason}, b""
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
