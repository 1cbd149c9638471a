"""Files that people send: allowed kinds, limits, results of reading, and their form on screens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from shared.core.values.recordings import AUDIO_MIMES

MOST_BYTES = 20 * 1024 * 1024
"""Bytes of one file on every channel, equal to Telegram's limit for bots."""
MOST_TEXT_CHARS = 200_000
"""Characters of one file's text that the model reads; the rest is left out."""
MOST_FILE_CHARS = 100_000
"""Characters of all files of one message that the model reads; the rest is left out with a note."""
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
OLD_PAPER_MIMES = ("application/msword", "application/vnd.ms-excel", "application/vnd.ms-powerpoint")
OUTLOOK = "application/vnd.ms-outlook"
MAIL = "message/rfc822"
ZIP = "application/zip"
OTHER_MIMES = (
    *OLD_PAPER_MIMES, OUTLOOK, MAIL, ZIP, "text/calendar", "text/vcard", "application/x-ipynb+json",
    "image/heic", "image/heif", "image/avif", "image/tiff", "image/bmp",
)  # fmt: skip
"""Further kinds that are read; pictures among them are stored as JPEG or PNG."""
PICTURE_MIMES = (JPEG, "image/png", "image/gif", "image/webp")
FILES = "/api/v1/attachments"
NAME_CHARS = 120

Unread = Literal["file_unknown_kind", "file_unreadable", "file_empty", "file_locked"]
DocumentKind = Literal["pdf", "paper", "page", "form", "text"]
"""Kinds of documents that only the opening process reads, besides pictures."""

_SAVED_AS_THEY_ARE = frozenset({PDF, *PAPER_MIMES, *OLD_PAPER_MIMES, OUTLOOK, MAIL, ZIP, *AUDIO_MIMES})
_MAGIC = (
    (b"\xff\xd8\xff", JPEG),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
GZIPPED = b"\x1f\x8b\x08"
_PAPERS = (GZIPPED, b"PK\x03\x04", b"PK\x05\x06", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"{\\rtf")
_PAGE = re.compile(rb"<(?:!doctype\s{1,9}html|html)[\s>]", re.IGNORECASE)
_PDF_HEAD_BYTES = 1_024
"""Bytes of junk before a PDF's first line that its readers pass over (ISO 32000-1, Annex H)."""
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
"""Control characters, and signs that turn or hide what stands beside them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    bytes: bytes
    mime: str
    width: int
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """`truncated`: there was more text than we keep."""

    name: str
    text: str
    mime: str = PLAIN
    truncated: bool = False
    pages: tuple[Picture, ...] = ()
    """Scanned pages, which have no text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRead:
    """`reason` is a key of the texts that people read."""

    reason: Unread


class Refused(Exception):
    """A file that is opened, and of a kind that has no words for us; `reason` as in NotRead."""

    def __init__(self, reason: Unread) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """Stored file of a message, as screens receive it; `id` is the public one."""

    id: str
    name: str
    mime: str
    size: int
    width: int | None = None
    height: int | None = None
    cut: bool = False
    """A text that is longer than what is read of it."""

    def to_payload(self) -> dict[str, Any]:
        """In the protocol's shape; the same in a live frame, in history and as an upload's answer."""
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
    """A file's bytes for those who may have them."""

    name: str
    mime: str
    body: bytes

    def headers(self) -> Mapping[str, str]:
        """Pictures may be looked at; whatever else it claims to be is saved, never run."""
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
    """Return the type of a picture by its first bytes; None for types that no model reads."""
    for magic, mime in _MAGIC:
        if content.startswith(magic):
            return mime
    return "image/webp" if content[:4] == b"RIFF" and content[8:12] == b"WEBP" else None


def document_kind(content: bytes) -> DocumentKind | None:
    """By its bytes, whatever it is called; None for what is read here and now, or not at all."""
    if find_pdf(content) is not None:
        return "pdf"
    if content.startswith(_PAPERS):
        return "paper"
    start = content[:2_048].removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"<") and _PAGE.search(start):
        return "page"
    return "form" if form_kind(content) is not None else None


def find_pdf(content: bytes) -> int | None:
    """Return where a PDF begins, also after junk of a mail or a web server; None for other files."""
    at = content.find(b"%PDF-", 0, _PDF_HEAD_BYTES)
    return at if at == 0 or (at > 0 and _PDF_BODY.search(content, at)) else None


def form_kind(content: bytes) -> Literal["card", "notebook", "mail"] | None:
    """Recognise texts that programs write for programs; None for other files."""
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
    """Tell whether these bytes are a picture that can be opened, also of kinds that no model takes."""
    if picture_mime(content) is not None or content.startswith((b"II*\0", b"MM\0*")):
        return True
    if content[4:8] == b"ftyp":
        size = int.from_bytes(content[:4])
        brands = {content[at : at + 4] for at in (8, *range(16, min(size, 256), 4))}
        return bool(brands & _HEIF_BRANDS)
    return content.startswith(b"BM") and int.from_bytes(content[14:18], "little") in _BITMAP_HEADERS


def clean_name(name: str) -> str:
    """A file's name without folders and without signs that hide what it is; never empty."""
    last = name.replace("\\", "/").rpartition("/")[2]
    words = " ".join(_NOT_IN_NAMES.sub("", last).split()).strip(". ")
    if len(words) <= NAME_CHARS:
        return words or "file"
    stem, dot, ending = words.rpartition(".")
    if dot and len(ending) <= 10:
        return f"{stem[: NAME_CHARS - len(ending) - 2]}….{ending}"
    return f"{words[: NAME_CHARS - 1]}…"


def disposition(name: str, *, inline: bool) -> str:
    """Return a Content-Disposition header of RFC 6266: an ASCII name for old clients, then the real one."""
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", name)
    encoded = "".join(
        chr(byte) if (chr(byte).isalnum() and byte < 128) or chr(byte) in "._-" else f"%{byte:02X}"
        for byte in name.encode()
    )
    return f"{'inline' if inline else 'attachment'}; filename=\"{plain}\"; filename*=UTF-8''{encoded}"
