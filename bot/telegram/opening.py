"""Opens a file that nobody vouches for, as a process of its own: bytes in, one line of JSON and bytes out."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

from bot.telegram.file_kinds import JPEG, LONGEST_SIDE

MOST_PIXELS = 50_000_000
MOST_PAGES = 200
MOST_CHARS = 400_000
MEMORY_BYTES = 1_024 * 1024 * 1024
CPU_SECONDS = 30
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


def main(kind: str) -> int:
    _limit()
    content = sys.stdin.buffer.read()
    try:
        head, body = picture(content) if kind == "picture" else pdf(content)
    except Exception:  # noqa: BLE001 - a hostile file may fail in any way; the answer is always the same
        return 1
    sys.stdout.buffer.write(json.dumps(head).encode() + b"\n" + body)
    return 0


def _limit() -> None:
    """Where the system can; the parent's patience is the limit elsewhere."""
    try:
        import resource
    except ImportError:
        return
    for which, most in ((resource.RLIMIT_CPU, CPU_SECONDS), (resource.RLIMIT_AS, MEMORY_BYTES)):
        try:
            resource.setrlimit(which, (most, most))
        except (ValueError, OSError):  # macOS knows no limit of addresses
            continue


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
