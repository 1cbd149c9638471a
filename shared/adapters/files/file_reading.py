"""Reads an untrusted file as a picture or a text: by its bytes, whatever it is called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Literal, TypeAlias

from shared.adapters.files.sandbox_client import Opened
from shared.adapters.files.text_decoding import Decoded, NotText, decode_plain
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

_HINT_CHARS = 200

Open: TypeAlias = Callable[[Literal["picture"] | DocumentKind, bytes], Awaitable[Opened]]


async def read_file(
    content: bytes,
    name: str,
    *,
    opened: Open,
    most_chars: int = MOST_TEXT_CHARS,
    languages: tuple[str, ...] = (),
) -> Picture | Document | NotRead:
    """Never raise for what a file holds. Only a text in Unicode is read in this process.

    `languages` are those of the sender: they decide where two encodings are about equally likely.
    """
    if not content:
        return NotRead(reason="file_empty")
    if picture_mime(content) is not None:
        return await read_picture(content, opened=opened)
    if (kind := document_kind(content)) is None:
        return await read_text_document(
            content, name, opened=opened, most_chars=most_chars, languages=languages
        )
    found = await read_document(content, name, kind, opened=opened, most_chars=most_chars)
    if kind == "page" and isinstance(found, NotRead):  # a page of scripts alone, which somebody may ask about
        return await read_text_document(content, name, opened=opened, most_chars=most_chars)
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
    text = _tell_doubt(text, str(head.get("guessed", "")))
    mime = str(head.get("mime", PLAIN))
    mime = mime if mime in (PDF, *PAPER_MIMES) else PLAIN  # templates of papers, which nobody opens as such
    return _cut(Document(name=name, text=text, mime=mime, truncated=bool(head.get("truncated"))), most_chars)


async def read_text_document(
    content: bytes,
    name: str,
    *,
    opened: Open,
    most_chars: int = MOST_TEXT_CHARS,
    languages: tuple[str, ...] = (),
) -> Document | NotRead:
    try:
        decoded = await decode_file(content, opened=opened, languages=languages)
    except NotText:
        return NotRead(reason="file_unknown_kind")
    if not decoded.text.strip():
        return NotRead(reason="file_empty")
    return _cut(Document(name=name, text=_tell_doubt(decoded.text, decoded.guessed)), most_chars)


async def decode_file(content: bytes, *, opened: Open, languages: tuple[str, ...] = ()) -> Decoded:
    """Decode a text in any encoding; one in doubt is `opened`. Raises NotText."""
    if (found := decode_plain(content)) is not None:
        return found
    hints = " ".join(languages)[:_HINT_CHARS].encode("ascii", "replace").replace(b"\n", b" ")
    head, body = await opened("text", hints + b"\n" + content)
    if head is None or head.get("refused"):
        raise NotText("no encoding")
    return Decoded(text=body.decode("utf-8", "replace"), guessed=str(head.get("guessed", "")))


def _tell_doubt(text: str, guessed: str) -> str:
    """Add the line by which a model knows that letters may be wrong."""
    return (
        f"({read_as(guessed)}: the file names no encoding, so letters may be wrong.)\n\n{text}"
        if guessed
        else text
    )


def read_as(guessed: str) -> str:
    return f"read as {guessed}"


def _cut(document: Document, most_chars: int) -> Document:
    if len(document.text) <= most_chars:
        return document
    return replace(document, text=document.text[:most_chars], truncated=True)
