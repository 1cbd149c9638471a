"""Reading of untrusted files as pictures or text; the bytes decide the kind, not the name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Literal, TypeAlias

from shared.adapters.files.sandbox_client import Opened
from shared.adapters.files.text_decoding import Decoded, NotText, decode_plain
from shared.core.values.files import (
    JPEG,
    MAIL,
    MOST_TEXT_CHARS,
    OLD_PAPER_MIMES,
    OUTLOOK,
    PAPER_MIMES,
    PDF,
    PLAIN,
    ZIP,
    Document,
    DocumentKind,
    NotRead,
    Picture,
    document_kind,
    is_picture,
)

_HINT_CHARS = 200

_SCANNED = "(Scanned pages: pages"
_NAMED_PAGES = 20
_STORED_AS = frozenset((PDF, *PAPER_MIMES, *OLD_PAPER_MIMES, OUTLOOK, MAIL, ZIP))
Open: TypeAlias = Callable[[Literal["picture", "scans"] | DocumentKind, bytes], Awaitable[Opened]]
"""Function that opens content of a kind in the sandbox process; see `SandboxClient.open`."""


async def read_file(
    content: bytes,
    name: str,
    *,
    opened: Open,
    most_chars: int = MOST_TEXT_CHARS,
    languages: tuple[str, ...] = (),
) -> Picture | Document | NotRead:
    """Read a file as a picture or a document; return NotRead with the reason if that is not possible.

    `opened` sends content to the sandbox process; this process itself reads only plain Unicode text.
    `languages` are the sender's, to choose between equally likely encodings. Broken content raises nothing.
    """
    if not content:
        return NotRead(reason="file_empty")
    if is_picture(content):
        return await read_picture(content, opened=opened)
    if (kind := document_kind(content)) is None:
        return await read_text_document(
            content, name, opened=opened, most_chars=most_chars, languages=languages
        )
    found = await read_document(content, name, kind, opened=opened, most_chars=most_chars)
    if kind in ("page", "form") and isinstance(found, NotRead):  # scripts alone, which a person may ask about
        return await read_text_document(content, name, opened=opened, most_chars=most_chars)
    return found


async def read_picture(content: bytes, *, opened: Open) -> Picture | NotRead:
    """Return a picture re-encoded by the sandbox process: scaled down, upright and without metadata.

    Returns NotRead if it cannot be opened.
    """
    head, body = await opened("picture", content)
    if head is None or not body:
        return NotRead(reason="file_unreadable")
    return Picture(bytes=body, mime=str(head["mime"]), width=int(head["width"]), height=int(head["height"]))


async def read_document(
    content: bytes, name: str, kind: DocumentKind, *, opened: Open, most_chars: int = MOST_TEXT_CHARS
) -> Document | NotRead:
    """Return the text of a document of this kind, cut at `most_chars`.

    Returns NotRead with the reason if it has none.
    """
    head, body = await opened(kind, content)
    if head is None:
        return NotRead(reason="file_unreadable")
    if (reason := head.get("refused")) is not None:
        return NotRead(reason=reason)
    text = body.decode("utf-8", "replace").replace("\x00", "").strip()
    pages = await read_scans(content, opened=opened) if head.get("scanned") else ()
    if head.get("scanned"):
        text = "\n\n".join(filter(None, (_describe_scans(head["scanned"], len(pages)), text)))
    if not text:
        return NotRead(reason="file_empty")
    if (title := str(head.get("title", ""))) and title not in text[:1_000]:
        text = f"# {title}\n\n{text}"
    text = _tell_doubt(text, str(head.get("guessed", "")))
    mime = str(head.get("mime", PLAIN))
    mime = mime if mime in _STORED_AS else PLAIN  # templates of papers are not opened as such
    truncated = bool(head.get("truncated"))
    return _cut(Document(name=name, text=text, mime=mime, truncated=truncated, pages=pages), most_chars)


async def read_scans(content: bytes, *, opened: Open) -> tuple[Picture, ...]:
    """Return the first scanned pages of a PDF as pictures; empty if they cannot be opened."""
    head, body = await opened("scans", content)
    pictures: list[Picture] = []
    at = 0
    for one in (head or {}).get("pictures", ()):
        size = int(one["size"])
        pictures.append(
            Picture(bytes=body[at : at + size], mime=JPEG, width=int(one["width"]), height=int(one["height"]))
        )
        at += size
    return tuple(pictures)


def has_scans(text: str) -> bool:
    """Return whether a PDF's extracted text begins with the note that some pages are pictures."""
    return text.startswith(_SCANNED)


def _describe_scans(pages: list[int], shown: int) -> str:
    """Return the note that names the pages without text, and says how many of them follow as pictures."""
    named = ", ".join(map(str, pages[:_NAMED_PAGES])) + (" …" if len(pages) > _NAMED_PAGES else "")
    follow = f"the first {shown} follow as pictures" if shown else "they could not be opened as pictures"
    return f"{_SCANNED} {named} of this PDF are pictures without text; {follow}.)"


async def read_text_document(
    content: bytes,
    name: str,
    *,
    opened: Open,
    most_chars: int = MOST_TEXT_CHARS,
    languages: tuple[str, ...] = (),
) -> Document | NotRead:
    """Return a plain text file as a document, cut at `most_chars`; NotRead if it is empty or no text.

    If its encoding is in doubt, `opened` sends it to the sandbox process, with `languages` of the sender as
    hints; a guessed encoding is named in a first line. Raises what `opened` raises, such as SenderThrottled
    and TimeoutError.
    """
    try:
        decoded = await decode_file(content, opened=opened, languages=languages)
    except NotText:
        return NotRead(reason="file_unknown_kind")
    if not decoded.text.strip():
        return NotRead(reason="file_empty")
    return _cut(Document(name=name, text=_tell_doubt(decoded.text, decoded.guessed)), most_chars)


async def decode_file(content: bytes, *, opened: Open, languages: tuple[str, ...] = ()) -> Decoded:
    """Decode a text file in any encoding; raise NotText if no encoding fits.

    If the encoding is in doubt, the sandbox process decodes it through `opened`, with `languages` as hints.
    """
    if (found := decode_plain(content)) is not None:
        return found
    hints = " ".join(languages)[:_HINT_CHARS].encode("ascii", "replace").replace(b"\n", b" ")
    head, body = await opened("text", hints + b"\n" + content)
    if head is None or head.get("refused"):
        raise NotText("no encoding")
    return Decoded(text=body.decode("utf-8", "replace"), guessed=str(head.get("guessed", "")))


def _tell_doubt(text: str, guessed: str) -> str:
    """Return the text, with a first line that warns of wrong letters if its encoding was guessed."""
    return (
        f"({read_as(guessed)}: the file names no encoding, so letters may be wrong.)\n\n{text}"
        if guessed
        else text
    )


def read_as(guessed: str) -> str:
    """Return the remark that a text was read in a guessed encoding."""
    return f"read as {guessed}"


def _cut(document: Document, most_chars: int) -> Document:
    if len(document.text) <= most_chars:
        return document
    return replace(document, text=document.text[:most_chars], truncated=True)
