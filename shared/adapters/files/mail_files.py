"""Text of mails, archives, notebooks and contacts. Only the sandbox process imports this module."""

from __future__ import annotations

import contextlib
import email
import email.policy
import io
import json
import quopri
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.message import Message
from gzip import GzipFile
from typing import Any
from zipfile import BadZipFile, ZipFile

from shared.adapters.files.text_decoding import NotText, decode_text
from shared.core.values.files import MAIL, OUTLOOK, PLAIN, ZIP, Refused

MOST_FILES = 200
"""Maximum attachments of a mail, or files of an archive, that are read."""
MOST_NAMED = 500
"""Maximum files of an archive whose names are listed."""
MOST_UNPACKED = 96 * 1024 * 1024
"""Maximum bytes of all unpacked files of an archive together."""
MOST_FILE_BYTES = 20 * 1024 * 1024
"""Maximum bytes of one inner file, after unpacking."""
MOST_CHARS = 400_000
"""Maximum characters of the whole text."""
_MOST_PARTS = 20_000
_PIECE = 65_536
_HEADERS = "Subject", "From", "To", "Cc", "Date"
_OUTPUT_CHARS = 2_000
_BASE64 = re.compile(r"(?:ENCODING=B|ENCODING=BASE64|;BASE64|:data:[a-z/+.-]{1,60};base64,)", re.IGNORECASE)

ReadFile = Callable[[bytes], str]
"""Function that returns a file's text; it raises Refused or another exception for a file without text."""
HtmlText = Callable[[str], str]
"""Function from HTML to its text."""


class _Parts:
    """Collected text of a file and of the files in it, at most MOST_CHARS characters."""

    def __init__(self) -> None:
        self._said: list[str] = []
        self._chars = 0
        self.truncated = False

    def add(self, text: str) -> None:
        """Add a text without outer blanks, cut at the limit; blank texts are dropped."""
        left = MOST_CHARS - self._chars
        self.truncated = self.truncated or len(text) > left
        if left > 0 and text.strip():
            self._said.append(text.strip()[:left])
            self._chars += len(text) + 2

    def add_file(self, name: str, content: bytes, read: ReadFile) -> bool:
        """Add the text of an inner file under its name; return False and add a note if it cannot be read."""
        name = " ".join(name.split())[:200] or "file"
        try:
            text = read(content).strip() if len(content) <= MOST_FILE_BYTES else ""
        except Exception:  # noqa: BLE001 - one broken file among others may fail in any way
            text = ""
        self.add(f"## {name}\n\n{text}" if text else f"## {name}\n\n(This file could not be read as text.)")
        return bool(text)

    def result(self, mime: str = PLAIN) -> tuple[dict[str, Any], str]:
        """Return the head (`mime`, `truncated`) and the joined text."""
        return {"mime": mime, "truncated": self.truncated}, "\n\n".join(self._said)


def read_mail(content: bytes, read: ReadFile, to_text: HtmlText) -> tuple[dict[str, Any], str]:
    """Return head and text of an EML file: headers, text, and the text of attachments by `read`.

    The head has `mime` and `truncated`.
    """
    mail = email.message_from_bytes(content, policy=email.policy.default)
    parts = _Parts()
    _add_mail(mail, parts, read, to_text, depth=0)
    return parts.result(MAIL)


def _add_mail(mail: Message, parts: _Parts, read: ReadFile, to_text: HtmlText, *, depth: int) -> None:
    parts.add("\n".join(f"{name}: {_header(mail, name)}" for name in _HEADERS if mail[name]))
    body, html, files = _sort_parts(mail)
    parts.add(body or to_text(html))
    for part in files[:MOST_FILES]:
        name = str(part.get_filename() or part.get_content_type())
        if part.get_content_type() == "message/rfc822":
            inner: Any = part.get_payload()
            if depth < 3 and isinstance(inner, list) and inner:
                parts.add(f"## {name}")
                _add_mail(inner[0], parts, read, to_text, depth=depth + 1)
            continue
        payload = part.get_payload(decode=True)
        parts.add_file(name, payload if isinstance(payload, bytes) else b"", read)


def _header(mail: Message, name: str) -> str:
    try:
        value = str(mail[name])
    except Exception:  # noqa: BLE001 - the parser of headers fails in many ways on broken ones
        value = str(dict(mail.raw_items()).get(name, ""))
    if not value.isascii() and "\udc80" <= max(value) <= "\udcff":  # bytes that name no charset
        value = decode_text(value.encode("ascii", "surrogateescape")).text
    return " ".join(value.split())[:_OUTPUT_CHARS]


def _sort_parts(mail: Message) -> tuple[str, str, list[Message]]:
    """Return the plain text, the HTML and the other parts of a mail, without inline images."""
    plain: list[str] = []
    html: list[str] = []
    files: list[Message] = []
    for part in _leaves(mail):
        kind, named = part.get_content_type(), part.get_filename()
        attached = part.get_content_disposition() == "attachment" or (named and not kind.startswith("text/"))
        if not attached and kind == "text/plain":
            plain.append(_text(part))
        elif not attached and kind == "text/html":
            html.append(_text(part))
        elif attached or not kind.startswith(("image/", "multipart/")):
            files.append(part)
    return "\n\n".join(plain), "\n".join(html), files


def _leaves(mail: Message) -> Iterator[Message]:
    stack: list[Message] = [mail]
    while stack:
        part = stack.pop()
        inner: Any = part.get_payload()
        if part.get_content_maintype() == "multipart" and isinstance(inner, list):
            stack.extend(reversed(inner))
        else:
            yield part


def _text(part: Message) -> str:
    payload = part.get_payload(decode=True)
    if not isinstance(payload, bytes):
        return ""
    charset = part.get_content_charset()
    if charset and charset not in ("us-ascii", "unknown-8bit"):
        try:
            return payload.decode(charset)
        except (LookupError, UnicodeDecodeError):
            pass
    try:
        return decode_text(payload).text
    except NotText:
        return ""


def read_outlook_mail(ole: Any, read: ReadFile, to_text: HtmlText) -> tuple[dict[str, Any], str]:
    """Return head and text of an MSG file of Outlook (MS-OXMSG): headers, text, and attachments by `read`."""
    parts = _Parts()
    sent = _sent_at(ole)
    sender = _property(ole, "", 0x0C1A)
    address = _property(ole, "", 0x5D01) or _property(ole, "", 0x0C1F)
    head = {
        "Subject": _property(ole, "", 0x0037),
        "From": f"{sender} <{address}>" if "@" in address and address != sender else sender or address,
        "To": _property(ole, "", 0x0E04),
        "Cc": _property(ole, "", 0x0E03),
        "Date": "" if sent is None else f"{sent:%Y-%m-%d %H:%M} UTC",
    }
    parts.add("\n".join(f"{name}: {value}" for name, value in head.items() if value.strip()))
    html = _stream(ole, "__substg1.0_10130102")
    body = _property(ole, "", 0x1000)
    parts.add(body or to_text(decode_text(html).text if html else _property(ole, "", 0x1013)))
    folders = sorted({entry[0] for entry in ole.listdir() if entry[0].startswith("__attach_version1.0_")})
    for folder in folders[:MOST_FILES]:
        name = _property(ole, folder, 0x3707) or _property(ole, folder, 0x3704)
        parts.add_file(name, _stream(ole, f"{folder}/__substg1.0_37010102"), read)
    return parts.result(OUTLOOK)


def _property(ole: Any, folder: str, tag: int) -> str:
    place = f"{folder}/" if folder else ""
    if wide := _stream(ole, f"{place}__substg1.0_{tag:04X}001F"):
        return wide.decode("utf-16-le", "replace").rstrip("\x00").strip()
    narrow = _stream(ole, f"{place}__substg1.0_{tag:04X}001E").rstrip(b"\x00")
    return decode_text(narrow).text.strip() if narrow else ""


def _stream(ole: Any, name: str) -> bytes:
    return bytes(ole.openstream(name).read(MOST_FILE_BYTES + 1)) if ole.exists(name) else b""


def _sent_at(ole: Any) -> datetime | None:
    """Return when an MSG file was sent, in UTC; None if the file does not say it."""
    table = _stream(ole, "__properties_version1.0")[32:]
    for at in range(0, len(table) - 15, 16):
        tag, _, value = struct.unpack_from("<IIQ", table, at)
        if tag in (0x00390040, 0x0E060040) and value:
            return datetime(1601, 1, 1, tzinfo=UTC) + timedelta(microseconds=min(value // 10, 2**57))
    return None


def read_bundle(content: bytes, read: ReadFile) -> tuple[dict[str, Any], str]:
    """Return head and text of a ZIP archive: the names of its files, then the text of each.

    Raises Refused if it is damaged, encrypted or has too many files, or if none of them can be read.
    """
    try:
        archive = ZipFile(io.BytesIO(content))
    except BadZipFile as error:
        raise Refused("file_unreadable") from error
    members = [one for one in archive.infolist() if not one.is_dir() and "__MACOSX" not in one.filename]
    if len(members) > _MOST_PARTS:
        raise Refused("file_unreadable")
    if any(one.flag_bits & 1 for one in members):
        raise Refused("file_locked")
    parts, left, readable = _Parts(), MOST_UNPACKED, False
    parts.add("Files of the archive:\n" + "\n".join(f"- {_name(one)}" for one in members[:MOST_NAMED]))
    cut = len(members) > MOST_FILES
    for member in members[:MOST_FILES]:
        if parts.truncated:
            break
        most = min(left, MOST_FILE_BYTES)
        unpacked = _unpack(archive, member, most)
        left -= most if unpacked is None else len(unpacked)
        if unpacked is None:
            cut = True
            parts.add(f"## {_name(member)}\n\n(This file is too large or damaged, and was not read.)")
        else:
            readable = parts.add_file(_name(member), unpacked, read) or readable
    parts.truncated = parts.truncated or cut
    if not readable:
        raise Refused("file_unknown_kind")
    return parts.result(ZIP)


def unpack_gzip(content: bytes) -> bytes:
    """Return the unpacked content of a gzip file. Raises Refused if damaged or above `MOST_FILE_BYTES`."""
    try:
        with GzipFile(fileobj=io.BytesIO(content)) as packed:
            unpacked = packed.read(MOST_FILE_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise Refused("file_unreadable") from error
    if len(unpacked) > MOST_FILE_BYTES:
        raise Refused("file_unreadable")
    return unpacked


def _name(member: Any) -> str:
    """Return the name of an archive's member, at most 200 characters.

    The encoding of an old archive is guessed.
    """
    name = str(member.filename)
    if not member.flag_bits & 0x800 and not name.isascii():
        with contextlib.suppress(UnicodeEncodeError, NotText):
            name = decode_text(name.encode("cp437")).text
    return " ".join(name.split())[:200]


def _unpack(archive: ZipFile, member: Any, most: int) -> bytes | None:
    """Return the unpacked bytes of a member; None if it is damaged or larger than `most` bytes."""
    pieces: list[bytes] = []
    size = 0
    try:
        with archive.open(member) as part:
            while piece := part.read(_PIECE):
                size += len(piece)
                if size > most:
                    return None
                pieces.append(piece)
    except Exception:  # noqa: BLE001 - a damaged member may fail in any way; the others are still wanted
        return None
    return b"".join(pieces)


def read_notebook(text: str) -> tuple[dict[str, Any], str]:
    """Return head and text of a Jupyter notebook: texts, code, and the code's output.

    Raises Refused if it is damaged.
    """
    try:
        book = json.loads(text)
        cells = book.get("cells") or [cell for sheet in book.get("worksheets", ()) for cell in sheet["cells"]]
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise Refused("file_unreadable") from error
    language = str(book.get("metadata", {}).get("kernelspec", {}).get("language", "python"))[:20]
    parts = _Parts()
    for cell in cells:
        source = _joined(cell.get("source", cell.get("input", "")))
        if cell.get("cell_type") != "code":
            parts.add(source)
            continue
        parts.add(f"```{language}\n{source}\n```" if source else "")
        for output in cell.get("outputs", ()):
            shown = _joined(output.get("text", output.get("data", {}).get("text/plain", "")))
            if output.get("output_type") == "error":
                shown = f"{output.get('ename', '')}: {output.get('evalue', '')}"
            if shown.strip():
                cut = "\n…" if len(shown) > _OUTPUT_CHARS else ""
                parts.add(f"Output:\n```\n{shown[:_OUTPUT_CHARS].rstrip()}{cut}\n```")
    return parts.result()


def _joined(lines: Any) -> str:
    return "".join(map(str, lines)) if isinstance(lines, list) else str(lines)


def read_card(text: str) -> tuple[dict[str, Any], str]:
    """Return head and text of a contact (VCF) or calendar (ICS): unfolded, decoded, without pictures."""
    parts = _Parts()
    lines: list[str] = []
    for line in _unfold(text):
        name, colon, value = line.partition(":")
        if not colon or name.upper() in ("VERSION", "PRODID", "CALSCALE", "METHOD"):
            continue
        if _BASE64.search(line[:200]):
            lines.append(f"{name.partition(';')[0]}: (a picture or another file)")
            continue
        if "QUOTED-PRINTABLE" in name.upper():
            value = decode_text(quopri.decodestring(value.encode("utf-8"))).text
            name = re.sub(
                r";(?:ENCODING=)?QUOTED-PRINTABLE|;CHARSET=[\w-]{1,40}", "", name, flags=re.IGNORECASE
            )
        value = re.sub(r"\\([nN;,\\])", lambda found: "\n" if found[1] in "nN" else found[1], value)
        lines.append(f"{name}: {value}")
    parts.add("\n".join(lines))
    return parts.result()


def _unfold(text: str) -> Iterator[str]:
    """Yield lines, joined where a line was folded.

    A line that begins with a blank, or follows a soft line break, is joined to the one before.
    """
    held = ""
    for line in text.split("\n"):
        soft = held.endswith("=") and "QUOTED-PRINTABLE" in held.partition(":")[0].upper()
        if soft:
            held = held[:-1] + line
        elif held and line[:1] in (" ", "\t"):
            held += line[1:]
        else:
            yield from (held,) if held else ()
            held = line
    yield from (held,) if held else ()
