"""What a file that nobody vouches for holds: a picture, or a text; by its bytes, whatever it is called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Literal, TypeAlias

from shared.adapters.files.sandbox_client import Opened
from shared.core.values.files import (
    MOST_TEXT_CHARS,
    PAPER_MIMES,
    PDF,
    PLAIN,
    Document,
    DocumentKind,
    NotRead,
    Picture,
    document_kind,
    picture_mime,
)
from shared.core.values.text_files import NotText, read_text

Open: TypeAlias = Callable[[Literal["picture"] | DocumentKind, bytes], Awaitable[Opened]]


async def read_file(
    content: bytes, name: str, *, opened: Open, most_chars: int = MOST_TEXT_CHARS
) -> Picture | Document | NotRead:
    """Never raises for what a file holds. A text is read here and now, all else `opened`."""
    if not content:
        return NotRead(reason="file_empty")
    if picture_mime(content) is not None:
        return await read_picture(content, opened=opened)
    if (kind := document_kind(content)) is None:
        return read_text_document(content, name, most_chars=most_chars)
    found = await read_document(content, name, kind, opened=opened, most_chars=most_chars)
    if kind == "page" and isinstance(found, NotRead):  # a page of scripts alone, which somebody may ask about
        return read_text_document(content, name, most_chars=most_chars)
    return found


async def read_picture(content: bytes, *, opened: Open) -> Picture | NotRead:
    """Made anew in a process of its own: small enough, upright, and without what a camera wrote into it."""
    head, body = await opened("picture", content)
    if head is None or not body:
        return NotRead(reason="file_unreadable")
    return Picture(bytes=body, mime=str(head["mime"]), width=int(head["width"]), height=int(head["height"]))


async def read_document(
    content: bytes, name: str, kind: DocumentKind, *, opened: Open, most_chars: int = MOST_TEXT_CHARS
) -> Document | NotRead:
    head, body = await opened(kind, content)
    if head is None:
        return NotRead(reason="file_unreadable")
    if (reason := head.get("refused")) is not None:
        return NotRead(reason=reason)
    text = body.decode("utf-8", "replace").replace("\x00", "").strip()
    if not text:
        return NotRead(reason="file_empty")
    if (title := str(head.get("title", ""))) and title not in text[:1_000]:
        text = f"# {title}\n\n{text}"
    mime = str(head.get("mime", PLAIN))
    mime = mime if mime in (PDF, *PAPER_MIMES) else PLAIN  # templates of papers, which nobody opens as such
    return _cut(Document(name=name, text=text, mime=mime, truncated=bool(head.get("truncated"))), most_chars)


def read_text_document(content: bytes, name: str, *, most_chars: int = MOST_TEXT_CHARS) -> Document | NotRead:
    try:
        text = read_text(content)
    except NotText:
        return NotRead(reason="file_unknown_kind")
    if not text.strip():
        return NotRead(reason="file_empty")
    return _cut(Document(name=name, text=text), most_chars)


def _cut(document: Document, most_chars: int) -> Document:
    if len(document.text) <= most_chars:
        return document
    return replace(document, text=document.text[:most_chars], truncated=True)
