"""Recognition of exports by their content, and unpacking of archives."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

from shared.adapters.past.json_stream import JsonStream
from shared.adapters.past.whatsapp import read_whatsapp
from shared.core.memory.past import MOST_UNPACKED_BYTES, ImportRefused, PastSource
from shared.core.values.errors import BadInput
from shared.core.values.local_time import resolve_zone

_MEMBERS = ("conversations.json", "result.json")
MOST_MEMBERS = 20_000
"""Maximum entries of an archive; one with more is refused."""
MOST_KEYS = 50
"""Maximum fields or list items that are examined."""
_CHUNK_BYTES = 2**20


def unpack_export(path: Path, target: Path) -> Path:
    """Return the file with the messages: `path` itself, or the one in a ZIP archive, written to `target`.

    Raises ImportRefused for archives that are damaged, without messages, with a password, or that unpack to
    too much, and OSError if the disk is full; a part of `target` may remain.
    """
    if not zipfile.is_zipfile(path):
        return path
    try:
        with zipfile.ZipFile(path) as archive:
            member = _find_member(archive)
            if member.flag_bits & 1:
                raise ImportRefused("locked")
            if member.file_size > MOST_UNPACKED_BYTES:
                raise ImportRefused("packed_too_large")
            with archive.open(member) as packed, target.open("wb") as unpacked:
                left = MOST_UNPACKED_BYTES
                # The size in the directory is only the archive's claim.
                while chunk := packed.read(_CHUNK_BYTES):
                    left -= len(chunk)
                    if left < 0:
                        raise ImportRefused("packed_too_large")
                    unpacked.write(chunk)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, OSError) as error:
        if isinstance(error, OSError) and shutil.disk_usage(target.parent).free < _CHUNK_BYTES:
            raise
        raise ImportRefused("unreadable") from error
    return target


def _find_member(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    members = archive.infolist()
    if len(members) > MOST_MEMBERS:
        raise ImportRefused("packed_too_large")
    for wanted in _MEMBERS:
        for one in members:
            if one.filename.rpartition("/")[2] == wanted:
                return one
    texts = [one for one in members if one.filename.endswith(".txt") and one.file_size]
    if not texts:
        raise ImportRefused("unknown_kind")
    return max(texts, key=lambda one: one.file_size)


def recognise(path: Path) -> PastSource:
    """Return the program that made an export. Raises ImportRefused if it is unknown or unreadable."""
    with path.open("rb") as file:
        head = file.read(4096)
    if not head.strip():
        raise ImportRefused("empty")
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    # Lines of WhatsApp may begin with a date in brackets.
    if text[:1] == b"{" or (text[:1] == b"[" and text[1:].lstrip()[:1] in (b"{", b"[", b"]")):
        found = _recognise_json(path)
        if found is None:
            raise ImportRefused("unknown_kind")
        return found
    if b"\0" in head:
        raise ImportRefused("unknown_kind")
    try:
        next(iter(read_whatsapp(path, zone=resolve_zone("UTC", "UTC"))), None)
    except (BadInput, OSError) as error:
        raise ImportRefused("unknown_kind") from error
    return "whatsapp"


def _recognise_json(path: Path) -> PastSource | None:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            stream = JsonStream(file)
            if stream.peek() == "{":
                return _recognise_object(stream)
            for number, _ in enumerate(stream.items()):
                row = stream.value()
                if isinstance(row, dict) and isinstance(row.get("mapping"), dict):
                    return "chatgpt"
                if isinstance(row, dict) and isinstance(row.get("chat_messages"), list):
                    return "claude"
                if number >= MOST_KEYS:
                    break
    except UnicodeDecodeError as error:
        raise ImportRefused("unknown_kind") from error
    except BadInput as error:
        raise ImportRefused("unreadable") from error
    return None


def _recognise_object(stream: JsonStream) -> PastSource | None:
    for number, key in enumerate(stream.fields()):
        inner = stream.peek()
        if (key == "messages" and inner == "[") or (key == "chats" and inner == "{"):
            return "telegram"
        if number >= MOST_KEYS:
            break
        stream.value()
    return None
