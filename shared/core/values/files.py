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
PICTURE_MIMES = (JPEG, "image/png", "image/gif", "image/webp")
FILES = "/api/v1/attachments"
NAME_CHARS = 120

Unread = Literal["file_unknown_kind", "file_unreadable", "file_empty", "file_locked"]
DocumentKind = Literal["pdf", "paper", "page", "text"]
"""Kinds of documents that only the opening process reads, besides pictures."""

_SAVED_AS_THEY_ARE = frozenset({PDF, *PAPER_MIMES, *AUDIO_MIMES})
_MAGIC = (
    (b"\xff\xd8\xff", JPEG),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_PAPERS = (b"PK\x03\x04", b"PK\x05\x06", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"{\\rtf")
_PAGE = re.compile(rb"<(?:!doctype\s{1,9}html|html)[\s>]", re.IGNORECASE)
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
    if content.startswith(b"%PDF-"):
        return "pdf"
    if content.startswith(_PAPERS):
        return "paper"
    start = content[:2_048].removeprefix(b"\xef\xbb\xbf").lstrip()
    return "page" if start.startswith(b"<") and _PAGE.search(start) else None


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
