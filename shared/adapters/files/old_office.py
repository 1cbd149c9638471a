"""Text of Office files before 2007 and of Outlook mails. Only the sandbox process imports this module."""

from __future__ import annotations

import io
import re
import struct
from typing import Any

from shared.adapters.files.mail_files import HtmlText, ReadFile, read_outlook_mail
from shared.core.values.files import OLD_PAPER_MIMES as _MIMES
from shared.core.values.files import Refused

MOST_CHARS = 400_000
"""Maximum characters of the whole text."""
_MOST_STREAM_BYTES = 64 * 1024 * 1024
_MOST_COLUMNS = 256
_WORD_SIGNS = {7: "\t", 11: "\n", 12: "\n\n", 13: "\n", 30: "-", 31: "", 160: " "}
_SLIDE_TEXT, _SLIDE_BYTES, _CONTAINER = 0x0FA0, 0x0FA8, 0x0F


def read_old_office(content: bytes, read: ReadFile, to_text: HtmlText) -> tuple[dict[str, Any], str]:
    """Return head and text of the DOC, XLS, PPT or MSG in a compound file.

    The head has `mime` and `truncated`. `read` gives the text of an MSG's attachments, `to_text` that of its
    HTML. Raises Refused if the file is locked or of another kind, or any error that a broken file causes.
    """
    import olefile

    with olefile.OleFileIO(io.BytesIO(content)) as ole:
        names = {entry[0] for entry in ole.listdir()}
        if names & {"EncryptedPackage", "EncryptionInfo"}:
            raise Refused("file_locked")
        if "WordDocument" in names:
            mime, text = _MIMES[0], _read_word(ole)
        elif names & {"Workbook", "Book"}:
            mime, text = _MIMES[1], _read_workbook(content)
        elif "PowerPoint Document" in names:
            mime, text = _MIMES[2], _read_slides(_load(ole, "PowerPoint Document"))
        elif "__properties_version1.0" in names:
            return read_outlook_mail(ole, read, to_text)
        else:
            raise Refused("file_unknown_kind")
    return {"mime": mime, "truncated": len(text) > MOST_CHARS}, text[:MOST_CHARS]


def _load(ole: Any, name: str) -> bytes:
    return bytes(ole.openstream(name).read(_MOST_STREAM_BYTES)) if ole.exists(name) else b""


def _read_word(ole: Any) -> str:
    """Return the text of a Word document, joined in the order of its piece table ([MS-DOC] 2.4.1)."""
    main = _load(ole, "WordDocument")
    (flags,) = struct.unpack_from("<H", main, 0x0A)
    if flags & 0x0100:
        raise Refused("file_locked")
    table = _load(ole, "1Table" if flags & 0x0200 else "0Table")
    at, size = struct.unpack_from("<II", main, 0x01A2)
    pieces = _find_pieces(table[at : at + size])
    count = (len(pieces) - 4) // 12
    starts = struct.unpack_from(f"<{count + 1}I", pieces)
    said: list[str] = []
    kept = 0
    for number in range(count):
        (place,) = struct.unpack_from("<I", pieces, 4 * (count + 1) + 8 * number + 2)
        chars = starts[number + 1] - starts[number]
        if chars < 0 or kept > MOST_CHARS:
            break
        kept += chars
        if place & 0x40000000:
            begin = (place & 0x3FFFFFFF) // 2
            said.append(main[begin : begin + chars].decode("cp1252", "replace"))
        else:
            said.append(main[place : place + 2 * chars].decode("utf-16-le", "replace"))
    return _clean_word("".join(said))


def _find_pieces(clx: bytes) -> bytes:
    at = 0
    while at < len(clx) and clx[at] == 1:
        at += 3 + struct.unpack_from("<H", clx, at + 1)[0]
    if at >= len(clx) or clx[at] != 2:
        raise Refused("file_unreadable")
    (size,) = struct.unpack_from("<I", clx, at + 1)
    return clx[at + 5 : at + 5 + size]


def _clean_word(text: str) -> str:
    """Return Word's text without the codes of fields and control signs.

    Results of fields and rows of tables stay.
    """
    kept: list[str] = []
    hidden: list[bool] = []
    for sign in text:
        if sign == "\x13":
            hidden.append(True)
        elif sign == "\x14" and hidden:
            hidden[-1] = False
        elif sign == "\x15" and hidden:
            hidden.pop()
        elif not any(hidden):
            kept.append(sign)
    rows = re.sub(r"\x07\x07", "\n", "".join(kept)).translate(_WORD_SIGNS)
    return re.sub(r"[\x00-\x08\x0e-\x1f]", "", rows).strip()


def _read_workbook(content: bytes) -> str:
    import xlrd

    try:
        book = xlrd.open_workbook(file_contents=content, on_demand=True, logfile=io.StringIO())
    except xlrd.XLRDError as error:
        raise Refused("file_locked" if "encrypted" in str(error).lower() else "file_unreadable") from error
    said: list[str] = []
    chars = 0
    for name in book.sheet_names():
        sheet = book.sheet_by_name(name)
        rows = []
        for number in range(sheet.nrows):
            row = [_cell(book, cell) for cell in sheet.row(number)[:_MOST_COLUMNS]]
            if any(row):
                rows.append(row)
                chars += sum(map(len, row)) + 3 * len(row)
            if chars > MOST_CHARS:
                break
        if rows:
            said.append(f"## {' '.join(name.split())[:100]}\n\n{_table(rows)}")
        if chars > MOST_CHARS:
            break
    return "\n\n".join(said)


def _cell(book: Any, cell: Any) -> str:
    import xlrd

    if cell.ctype == xlrd.XL_CELL_DATE:
        try:
            moment = xlrd.xldate.xldate_as_datetime(cell.value, book.datemode)
        except (ValueError, OverflowError):
            return f"{cell.value:.15g}"
        if 0 <= cell.value < 1:
            return str(moment.time().isoformat())
        return str(moment.date().isoformat() if cell.value == int(cell.value) else moment.isoformat(" "))
    if cell.ctype == xlrd.XL_CELL_NUMBER:
        return f"{cell.value:.15g}"
    if cell.ctype == xlrd.XL_CELL_BOOLEAN:
        return "TRUE" if cell.value else "FALSE"
    if cell.ctype == xlrd.XL_CELL_ERROR:
        return str(xlrd.error_text_from_code.get(cell.value, ""))
    return " ".join(str(cell.value).split())


def _table(rows: list[list[str]]) -> str:
    width = max(len(row) - next((n for n, one in enumerate(reversed(row)) if one), len(row)) for row in rows)
    lines = [
        "| " + " | ".join(one.replace("|", "\\|") for one in [*row, *[""] * width][:width]) + " |"
        for row in rows
    ]
    return "\n".join([lines[0], "|" + " --- |" * width, *lines[1:]])


def _read_slides(stream: bytes) -> str:
    """Return the text records of a presentation in their order ([MS-PPT] 2.9), each text once."""
    said: list[str] = []
    at = 0
    while at + 8 <= len(stream):
        version, kind, size = struct.unpack_from("<HHI", stream, at)
        at += 8
        if version & 0x0F == _CONTAINER:
            continue
        body = stream[at : at + size]
        if kind == _SLIDE_TEXT:
            said.append(body.decode("utf-16-le", "replace"))
        elif kind == _SLIDE_BYTES:
            said.append(body.decode("latin-1"))
        at += size
    return "\n\n".join(filter(None, (re.sub(r"[\r\x0b]", "\n", one).strip() for one in dict.fromkeys(said))))
