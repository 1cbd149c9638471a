"""Sandbox process that opens one untrusted file.

It reads bytes from standard input, and writes a line of JSON and bytes.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import sys
import time
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

from shared.core.values.files import (
    GZIPPED,
    JPEG,
    PDF,
    Refused,
    document_kind,
    find_pdf,
    form_kind,
    is_picture,
)

LONGEST_SIDE = 1_568
"""Maximum width and height in pixels; models shrink larger pictures themselves, and charge for them."""
MOST_PIXELS = 50_000_000
"""Maximum pixels of a picture; a larger one is refused."""
MOST_PAGES = 200
"""Maximum pages of a PDF that are read."""
MOST_CHARS = 400_000
"""Maximum characters of a PDF's text."""
MOST_SCANS = 10
"""Maximum scanned pages of a PDF that become pictures."""
MOST_DEPTH = 2
"""Maximum depth of nested files, such as a document in a mail in a mail."""
_OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
MEMORY_BYTES = 1_024 * 1024 * 1024
"""Maximum bytes of the process's address space."""
NICE = 10
"""Nice level of the process, so that answers do not wait for files."""
MOST_PAGE_CHARS = 300_000
"""Maximum characters of an HTML page's text."""
_QUALITY = 85
_FORMATS = "JPEG", "PNG", "WEBP", "GIF", "AVIF", "TIFF", "BMP"


def picture(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Return head and bytes of a picture, turned upright, scaled down to LONGEST_SIDE, without metadata.

    The head has media type, width and height in pixels. A picture with transparency becomes PNG, any other
    JPEG. Raises ValueError above MOST_PIXELS, and any error of Pillow for a broken file.
    """
    from PIL import Image, ImageOps

    Image.MAX_IMAGE_PIXELS = MOST_PIXELS
    formats: tuple[str, ...] = _FORMATS
    if content[4:8] == b"ftyp":
        from pi_heif import register_heif_opener

        register_heif_opener()
        formats = (*_FORMATS, "HEIF")
    with Image.open(io.BytesIO(mend_png(content)), formats=formats) as found:
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


def mend_png(content: bytes) -> bytes:
    """Return a PNG with corrected checksums of optional chunks, and any other content unchanged.

    Browsers do not check these checksums, but Pillow does.
    """
    if not content.startswith(b"\x89PNG"):
        return content
    mended = bytearray(content)
    at = 8
    while at + 12 <= len(mended):
        size = int.from_bytes(mended[at : at + 4])
        end = at + 8 + size
        if end + 4 > len(mended):
            break
        if mended[at + 4] & 0x20:  # a chunk that a reader may leave out
            mended[end : end + 4] = zlib.crc32(mended[at + 4 : end]).to_bytes(4)
        at = end + 4
    return bytes(mended)


def pdf(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Return head and UTF-8 text of a PDF's first pages; an unreadable page is left out.

    Reading ends after MOST_PAGES pages or MOST_CHARS characters; `truncated` is then true. `scanned` has the
    numbers, from 1, of pages with a picture and no text. Raises Refused if a password is needed.
    """
    from shared.adapters.files.pdf_layout import read_page

    reader = _open_pdf(content)
    pages: list[str] = []
    scanned: list[int] = []
    chars = 0
    count = len(reader.pages)
    for number in range(min(count, MOST_PAGES)):
        try:
            text = read_page(reader.pages[number], plainly=_is_time_short())
        except Exception:  # noqa: BLE001 - a broken page may fail in any way; the others are still wanted
            text = ""
        if not text.strip() and _has_picture(reader.pages[number]):
            scanned.append(number + 1)
        pages.append(text.strip())
        chars += len(text)
        if chars > MOST_CHARS:
            break
    truncated = len(pages) < count or chars > MOST_CHARS
    text = "\n\n".join(page for page in pages if page)[:MOST_CHARS]
    return {"mime": PDF, "truncated": truncated, "scanned": scanned}, text.encode("utf-8", "replace")


def scans(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the largest picture of each page without text as JPEG, for at most MOST_SCANS pages.

    The JPEG files follow one another in the bytes; `pictures` of the head has size in bytes, width and height
    of each. Unreadable pages are left out. Raises Refused if a password is needed.
    """
    reader = _open_pdf(content)
    told: list[dict[str, int]] = []
    bodies: list[bytes] = []
    for number in range(min(len(reader.pages), MOST_PAGES)):
        page = reader.pages[number]
        if len(told) == MOST_SCANS or _is_time_short():
            break
        with contextlib.suppress(Exception):  # a broken page may fail in any way; the others are still wanted
            if (picture := _largest_picture(page)) is not None:
                out = io.BytesIO()
                picture.save(out, "JPEG", quality=_QUALITY)
                bodies.append(out.getvalue())
                told.append({"size": len(bodies[-1]), "width": picture.width, "height": picture.height})
    return {"pictures": told}, b"".join(bodies)


def _largest_picture(page: Any) -> Any:
    """Return a page's largest picture, upright and within LONGEST_SIDE.

    Returns None if the page has text or no picture.
    """
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = MOST_PIXELS
    if page.extract_text().strip() or not _has_picture(page):
        return None
    largest = max((one.image for one in page.images), key=lambda image: image.width * image.height)
    upright = (largest.rotate(-page.rotation, expand=True) if page.rotation else largest).convert("RGB")
    upright.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    return upright


def _open_pdf(content: bytes) -> Any:
    """Open a PDF for reading; raise Refused if it needs a password."""
    from pypdf import PdfReader

    reader = PdfReader(io.BytesIO(content[find_pdf(content) or 0 :]))
    if reader.is_encrypted and not reader.decrypt(""):
        raise Refused("file_locked")
    return reader


def _has_picture(page: Any) -> bool:
    try:
        return len(page.images) > 0
    except Exception:  # noqa: BLE001 - a broken page may fail in any way; it has no picture then
        return False


def _is_time_short() -> bool:
    """Return whether half of the CPU time is used, so that the rest must be read without its layout."""
    return time.process_time() > _cpu_seconds / 2


def page(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Return head and Markdown of an HTML page: its main part, else all but menus, scripts and forms.

    `truncated` of the head is true if the text was cut at MOST_PAGE_CHARS. Raises Refused if it is no text.
    """
    from shared.adapters.files.papers import page_markdown
    from shared.adapters.files.text_decoding import NotText, decode_text

    try:
        decoded = decode_text(content)
    except NotText as error:
        raise Refused("file_unknown_kind") from error
    title, text = page_markdown(decoded.text)
    head = {"title": title, "truncated": len(text) > MOST_PAGE_CHARS, "guessed": decoded.guessed}
    return head, text[:MOST_PAGE_CHARS].encode("utf-8", "replace")


def paper(content: bytes, depth: int = 0) -> tuple[dict[str, Any], bytes]:
    """Return head and Markdown of an office file, e-book, Outlook mail, gzip file or archive of texts.

    `depth` is the number of files around this one. Raises Refused if it is locked, unreadable or of unknown
    kind.
    """
    from shared.adapters.files import mail_files, old_office
    from shared.adapters.files.papers import read_paper

    inner = partial(_read_inner, depth=depth + 1)
    if content.startswith(GZIPPED):
        return {}, inner(mail_files.unpack_gzip(content)).encode("utf-8", "replace")
    if content.startswith(_OLD_OFFICE):
        if "EncryptedPackage".encode("utf-16-le") in content:
            raise Refused("file_locked")
        head, text = old_office.read_old_office(content, inner, _html_text)
        return head, text.encode("utf-8", "replace")
    try:
        head, text = read_paper(content)
    except Refused as refused:
        if refused.reason != "file_unknown_kind" or depth or not content.startswith(b"PK"):
            raise
        head, text = mail_files.read_bundle(content, inner)
    return head, text.encode("utf-8", "replace")


def form(content: bytes, depth: int = 0) -> tuple[dict[str, Any], bytes]:
    """Return head and UTF-8 text of a mail, contact, calendar or notebook; `depth` is the number of files
    around it.

    Raises Refused for a damaged notebook, and NotText if no encoding fits.
    """
    from shared.adapters.files import mail_files
    from shared.adapters.files.text_decoding import decode_text

    kind = form_kind(content)
    if kind == "mail":
        head, text = mail_files.read_mail(content, partial(_read_inner, depth=depth + 1), _html_text)
    else:
        read = mail_files.read_notebook if kind == "notebook" else mail_files.read_card
        head, text = read(decode_text(content).text)
    return head, text.encode("utf-8", "replace")


def _read_inner(content: bytes, *, depth: int) -> str:
    """Return the text of a file inside another. Raises Refused, or any error that a broken file causes."""
    from shared.adapters.files.text_decoding import NotText, decode_text

    if depth > MOST_DEPTH or is_picture(content):
        raise Refused("file_unknown_kind")
    match document_kind(content):
        case "pdf":
            return pdf(content)[1].decode()
        case "page":
            return page(content)[1].decode()
        case "paper":
            return paper(content, depth)[1].decode()
        case "form":
            return form(content, depth)[1].decode()
    try:
        return decode_text(content).text
    except NotText as error:
        raise Refused("file_unknown_kind") from error


def _html_text(text: str) -> str:
    from shared.adapters.files.papers import page_markdown

    return page_markdown(text, menus=True)[1] if text.strip() else ""


def text(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Decode a text of unknown encoding into UTF-8.

    `guessed` of the head names a guessed encoding, else it is empty. The first line of `content` lists
    the sender's languages, separated by spaces; the text follows it. Raises Refused if no encoding fits.
    """
    from shared.adapters.files.text_decoding import NotText, decode_text

    languages, _, body = content.partition(b"\n")
    try:
        decoded = decode_text(body, languages=tuple(languages.decode("ascii", "replace").split()))
    except NotText as error:
        raise Refused("file_unknown_kind") from error
    return {"guessed": decoded.guessed}, decoded.text.encode("utf-8", "replace")


def chart(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Draw a chart from its numbers in JSON.

    Returns a head with media type, width and height in pixels, and a PNG.
    """
    from shared.adapters.files.charts import HEIGHT, WIDTH, draw_chart

    return {"mime": "image/png", "width": WIDTH, "height": HEIGHT}, draw_chart(json.loads(content))


_cpu_seconds = math.inf
"""CPU seconds that this process may use."""
_OPENERS: dict[str, Callable[[bytes], tuple[dict[str, Any], bytes]]] = {
    "picture": picture,
    "pdf": pdf,
    "page": page,
    "paper": paper,
    "form": form,
    "text": text,
    "scans": scans,
    "chart": chart,
}


def main(kind: str, cpu_seconds: int) -> int:
    """Read a file from standard input and write the answer to standard output.

    Returns 1 if the file is broken.
    """
    global _cpu_seconds
    _cpu_seconds = cpu_seconds
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
    """Limit CPU seconds and memory of this process.

    Where the system cannot limit them, the parent's timeout does.
    """
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
