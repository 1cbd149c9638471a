"""Files that people send: recognised kinds, limits, results of reading them, and their form for clients."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from shared.core.values.recordings import AUDIO_MIMES

MOST_BYTES = 20 * 1024 * 1024
"""Most bytes of a file on any channel, equal to Telegram's limit for bots."""
MOST_TEXT_CHARS = 200_000
"""Most characters of one file's text that the model reads; the rest is left out."""
MOST_FILE_CHARS = 100_000
"""Most characters of all files in a message that the model reads; the rest is left out with a note."""
JPEG = "image/jpeg"
PDF = "application/pdf"
PLAIN = "text/plain"
RTF = "application/rtf"
PAPER_MIMES = (
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "application/vnd.oasis.opendocument.text",
    "application/vnd.oasis.opendocument.spreadsheet",
    "application/vnd.oasis.opendocument.presentation",
    "application/epub+zip",
    RTF,
    "text/rtf",
)
"""MIME types of documents with text that can be read: current office formats, e-books and RTF."""
OLD_PAPER_MIMES = ("application/msword", "application/vnd.ms-excel", "application/vnd.ms-powerpoint")
"""MIME types of office documents in Microsoft's formats from before 2007."""
OUTLOOK = "application/vnd.ms-outlook"
MAIL = "message/rfc822"
ZIP = "application/zip"
OTHER_MIMES = (
    *OLD_PAPER_MIMES, OUTLOOK, MAIL, ZIP, "text/calendar", "text/vcard", "application/x-ipynb+json",
    "image/heic", "image/heif", "image/avif", "image/tiff", "image/bmp",
)  # fmt: skip
"""More types that can be read; pictures among them are stored as JPEG or PNG."""
PICTURE_MIMES = (JPEG, "image/png", "image/gif", "image/webp")
FILES = "/api/v1/attachments"
"""URL path of stored files; the public id of a file follows it."""
NAME_CHARS = 120
"""Most characters of a file's name; `clean_name` shortens longer ones."""

Unread = Literal["file_unknown_kind", "file_unreadable", "file_empty", "file_locked"]
"""Keys of the texts that tell people why a file was not read."""
DocumentKind = Literal["pdf", "paper", "page", "form", "text"]
"""Kinds of documents that only the separate file-opening process reads.

`paper` is an office document, e-book or archive, `page` HTML, `form` a contact card, calendar, notebook or
mail.
"""

_SAVED_AS_THEY_ARE = frozenset({PDF, *PAPER_MIMES, *OLD_PAPER_MIMES, OUTLOOK, MAIL, ZIP, *AUDIO_MIMES})
_MAGIC = (
    (b"\xff\xd8\xff", JPEG),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
GZIPPED = b"\x1f\x8b\x08"
"""First bytes of gzip data."""
_PAPERS = (GZIPPED, b"PK\x03\x04", b"PK\x05\x06", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"{\\rtf")
_PAGE = re.compile(rb"<(?:!doctype\s{1,9}html|html)[\s>]", re.IGNORECASE)
_PDF_HEAD_BYTES = 1_024
"""Most bytes of junk before a PDF's first line; readers skip them (ISO 32000-1, Annex H)."""
_PDF_BODY = re.compile(rb"startxref|\d obj\b|%%EOF")
_CARD = re.compile(rb"BEGIN:V(?:CARD|CALENDAR)\s", re.IGNORECASE)
_NOTEBOOK = re.compile(rb"\"nbformat\"\s{0,9}:")
_HEADER = re.compile(rb"([A-Za-z][A-Za-z0-9-]{0,60}):|[ \t]|From ")
_MAIL_HEADERS = frozenset(
    b"from to subject date message-id mime-version received return-path delivered-to content-type".split()
)
_LEAST_MAIL_HEADERS = 3
_HEIF_BRANDS = frozenset((b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1", b"avif", b"avis"))
_BITMAP_HEADERS = frozenset((12, 16, 40, 52, 56, 64, 108, 124))
_NOT_IN_NAMES = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff<>]"
)
"""Characters removed from file names: control characters, and those that reverse or hide
neighbouring text.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Picture of a document's page: its bytes, MIME type, and size in pixels."""

    bytes: bytes
    mime: str
    width: int
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Text and pictures read from a file; `truncated` is True if its text was cut to a limit."""

    name: str
    text: str
    mime: str = PLAIN
    truncated: bool = False
    pages: tuple[Picture, ...] = ()
    """Pictures of scanned pages, which have no text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRead:
    """Result for a file that could not be read; `reason` is a key of texts for people."""

    reason: Unread


class Refused(Exception):
    """Exception in the file-opening process for a file that cannot be read; `reason` as in NotRead."""

    def __init__(self, reason: Unread) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """Stored file of a message, as clients receive it; `id` is the public id, `size` is in bytes.

    `width` and `height` are pixels, None if the file is no picture.
    """

    id: str
    name: str
    mime: str
    size: int
    width: int | None = None
    height: int | None = None
    cut: bool = False
    """True if the file's text is longer than the part that is read."""

    def to_payload(self) -> dict[str, Any]:
        """Return the file as JSON of the protocol, as in live events, in the history and after an upload.

        `width` and `height` are present only for pictures, `cut` only if True.
        """
        told: dict[str, Any] = {
            "id": self.id,
            "name": self.name,
            "mime": self.mime,
            "size": self.size,
            "url": f"{FILES}/{self.id}",
        }
        if self.width and self.height:
            told |= {"width": self.width, "height": self.height}
        return {**told, "cut": True} if self.cut else told


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Content of a stored file, to be sent to a client as an HTTP response."""

    name: str
    mime: str
    body: bytes

    def headers(self) -> Mapping[str, str]:
        """Return the HTTP headers of the response: pictures are shown inline, all other files are saved as
        downloads.

        Types outside a list of known documents and sounds are sent as plain text, so that no browser executes
        them.
        """
        inline = self.mime in PICTURE_MIMES
        return {
            "Content-Type": self.mime
            if inline or self.mime in _SAVED_AS_THEY_ARE
            else f"{PLAIN}; charset=utf-8",
            "Content-Disposition": disposition(self.name, inline=inline),
            "Content-Security-Policy": "sandbox; default-src 'none'",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }


def picture_mime(content: bytes) -> str | None:
    """Return the MIME type of a JPEG, PNG, GIF or WebP picture by its first bytes; None for other content."""
    for magic, mime in _MAGIC:
        if content.startswith(magic):
            return mime
    return "image/webp" if content[:4] == b"RIFF" and content[8:12] == b"WEBP" else None


def document_kind(content: bytes) -> DocumentKind | None:
    """Return the kind of a document by its bytes, never `text`; None for plain text and for unknown kinds."""
    if find_pdf(content) is not None:
        return "pdf"
    if content.startswith(_PAPERS):
        return "paper"
    start = content[:2_048].removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"<") and _PAGE.search(start):
        return "page"
    return "form" if form_kind(content) is not None else None


def find_pdf(content: bytes) -> int | None:
    """Return the byte offset at which a PDF begins, after at most 1,024 bytes of junk; None for other
    files.
    """
    at = content.find(b"%PDF-", 0, _PDF_HEAD_BYTES)
    return at if at == 0 or (at > 0 and _PDF_BODY.search(content, at)) else None


def form_kind(content: bytes) -> Literal["card", "notebook", "mail"] | None:
    """Return the kind of a structured text file; None for other files.

    `card` is a contact card or a calendar, `notebook` a Jupyter notebook, `mail` a text with at least three
    mail headers.
    """
    start = content[:2_048].removeprefix(b"\xef\xbb\xbf").lstrip()
    if _CARD.match(start):
        return "card"
    if start.startswith(b"{") and b'"cells"' in content and _NOTEBOOK.search(content):
        return "notebook"
    found = set()
    for line in content[:16_384].lstrip().splitlines():
        header = _HEADER.match(line)
        if header is None:
            break
        found.add((header[1] or b"").lower())
    return "mail" if len(found & _MAIL_HEADERS) >= _LEAST_MAIL_HEADERS else None


def is_picture(content: bytes) -> bool:
    """Return whether the first bytes are those of a picture that can be opened.

    Besides the types of `picture_mime`, these are TIFF, HEIC, AVIF and BMP, which are stored as JPEG or PNG.
    """
    if picture_mime(content) is not None or content.startswith((b"II*\0", b"MM\0*")):
        return True
    if content[4:8] == b"ftyp":
        size = int.from_bytes(content[:4])
        brands = {content[at : at + 4] for at in (8, *range(16, min(size, 256), 4))}
        return bool(brands & _HEIF_BRANDS)
    return content.startswith(b"BM") and int.from_bytes(content[14:18], "little") in _BITMAP_HEADERS


def clean_name(name: str) -> str:
    """Return a file's name without folders and misleading characters, at most `NAME_CHARS` long.

    A longer name keeps its suffix. The result is `file` if nothing remains.
    """
    last = name.replace("\\", "/").rpartition("/")[2]
    words = " ".join(_NOT_IN_NAMES.sub("", last).split()).strip(". ")
    if len(words) <= NAME_CHARS:
        return words or "file"
    stem, dot, ending = words.rpartition(".")
    if dot and len(ending) <= 10:
        return f"{stem[: NAME_CHARS - len(ending) - 2]}….{ending}"
    return f"{words[: NAME_CHARS - 1]}…"


def disposition(name: str, *, inline: bool) -> str:
    """Return a Content-Disposition header (RFC 6266) with an ASCII name for old clients and the real name.

    `inline` lets the browser show the file instead of saving it.
    """
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", name)
    encoded = "".join(
        chr(byte) if (chr(byte).isalnum() and byte < 128) or chr(byte) in "._-" else f"%{byte:02X}"
        for byte in name.encode()
    )
    return f"{'inline' if inline else 'attachment'}; filename=\"{plain}\"; filename*=UTF-8''{encoded}"
