"""Text of office documents, sheets, slides and e-books as Markdown.

Only the sandbox process imports this module. Limits hold whatever a file claims: for unpacked bytes, text and
depth of nesting.
"""

from __future__ import annotations

import datetime as dt
import html
import io
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote
from xml.parsers import expat
from zipfile import BadZipFile, ZipFile

from shared.adapters.files.rtf import MOST_CHARS, read_rtf
from shared.core.values.files import Refused

MOST_UNPACKED = 96 * 1024 * 1024
"""Maximum bytes of all unpacked parts; a sheet of a million rows exceeds it and is cut."""
MOST_PARTS = 20_000
"""Maximum members of a ZIP archive; a file with more is refused."""
MOST_DEPTH = 500
"""Maximum nesting of XML elements; a file with more is refused."""
_PIECE = 65_536
_OFFICE = "application/vnd.openxmlformats-officedocument"
_EPUB = "application/epub+zip"
_LEAST_MAIN_CHARS = 200
"""Characters below which a page's `main` or `article` is ignored, and its body read instead."""
_FORMAT_CHARS = 255
"""Maximum characters of a cell's number format, as spreadsheets allow."""
_MOST_POINTS = 1_000
"""Maximum points of a chart that are read."""
_NEVER_READ = "script, style, noscript, template, svg, iframe"
_MENUS = "nav, form, button, dialog, aside, footer"

Attributes = Mapping[str, str]
"""Attributes of an XML element by local name."""


class _Enough(Exception):
    """Signal that the text has reached its limit; the text collected until then is the result."""


def read_paper(content: bytes) -> tuple[dict[str, Any], str]:
    """Return head and Markdown text of an office file or e-book; the head has `mime` and `truncated`.

    Raises Refused, or another exception that a broken file causes.
    """
    if content.startswith(b"{\\rtf"):
        return read_rtf(content)
    if not content.startswith(b"PK"):  # the container of old Office files, and of locked new ones
        locked = "EncryptedPackage".encode("utf-16-le") in content
        raise Refused("file_locked" if locked else "file_unknown_kind")
    try:
        archive = _Archive(content)
    except BadZipFile as error:
        raise Refused("file_unreadable") from error
    words = _Words()
    try:
        mime = _read_archive(archive, words)
    except _Enough:
        words.truncated = True
        mime = archive.mime
    return {"mime": mime, "truncated": words.truncated}, words.text()


def page_markdown(text: str, *, menus: bool = False) -> tuple[str, str]:
    """Return the title and the Markdown text of an HTML page; the title is empty if it has none.

    If the page has a `main` or `article` of 200 characters or more, only that is read, else its body. Menus
    and forms are left out unless `menus` is set.
    """
    from justhtml import JustHTML

    from shared.adapters.files.page_tables import lift_tables

    # Sanitizing would remove elements by which menus are told from text; the page is never shown as HTML.
    whole = JustHTML(text, sanitize=False)
    title = whole.query_one("title")
    said = " ".join(title.to_text().split())[:300] if title is not None else ""
    for node in whole.query(_NEVER_READ if menus else f"{_NEVER_READ}, {_MENUS}"):
        if node.parent is not None:
            node.parent.remove_child(node)
    for picture in whole.query("img, picture, video, audio, source"):
        _replace_with_text(picture, str((picture.attrs or {}).get("alt") or ""))
    tables = lift_tables(whole.root)
    main = whole.query_one("main") or whole.query_one("article")
    found = main.to_markdown().strip() if main is not None else ""
    if len(found) < _LEAST_MAIN_CHARS:
        found = (whole.query_one("body") or whole).to_markdown().strip()
    return said, tables.put_back(html.unescape(found)).strip()


def _replace_with_text(node: Any, text: str) -> None:
    """Replace a picture by its description in parentheses, or by nothing, since models read tags as noise."""
    from justhtml import Text

    if node.parent is not None:
        node.parent.insert_before(
            Text(f"({' '.join(text.split())[:300]})") if text.strip() else Text(""), node
        )
        node.parent.remove_child(node)


class _Archive:
    """ZIP archive with a limit on unpacked bytes. The constructor raises Refused if it is encrypted."""

    def __init__(self, content: bytes) -> None:
        self._zip = ZipFile(io.BytesIO(content))
        parts = self._zip.infolist()
        if len(parts) > MOST_PARTS:
            raise Refused("file_unreadable")
        if any(one.flag_bits & 1 for one in parts):
            raise Refused("file_locked")
        self.names = frozenset(self._zip.namelist())
        self._left = MOST_UNPACKED
        self.mime = ""

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield the unpacked bytes of a part. Raises _Enough when all parts together exceed MOST_UNPACKED."""
        with self._zip.open(name) as part:
            while piece := part.read(_PIECE):
                self._left -= len(piece)
                if self._left < 0:
                    raise _Enough
                yield piece

    def read(self, name: str) -> bytes:
        """Return the unpacked bytes of a part; empty if it does not exist."""
        return b"".join(self.pieces(name)) if name in self.names else b""

    def elements(self, name: str, *wanted: str) -> list[tuple[str, Attributes]]:
        """Return the elements of a part with one of these tags, in order; attributes have local names."""
        found: list[tuple[str, Attributes]] = []

        def began(tag: str, attributes: Attributes) -> None:
            if tag in wanted:
                found.append((tag, attributes))

        if name in self.names:
            _parse(self.pieces(name), began)
        return found

    def read_relations(self, name: str) -> dict[str, tuple[str, str]]:
        """Return the references of an Office part: kind and target path by id; external ones are left out."""
        folder, _, own = name.rpartition("/")
        place = posixpath.join(folder, "_rels", f"{own}.rels")
        return {
            one.get("Id", ""): (
                one.get("Type", "").rpartition("/")[2],
                posixpath.normpath(posixpath.join("/", folder, one.get("Target", ""))).lstrip("/"),
            )
            for _, one in self.elements(place, "Relationship")
            if one.get("TargetMode") != "External"
        }


def _read_archive(archive: _Archive, words: _Words) -> str:
    mime = archive.read("mimetype").decode("ascii", "replace").strip()[:100]
    if mime == _EPUB:
        archive.mime = mime
        _read_book(archive, words)
    elif mime.startswith("application/vnd.oasis.opendocument.") and "content.xml" in archive.names:
        archive.mime = mime
        if b"encryption-data" in archive.read("META-INF/manifest.xml"):
            raise Refused("file_locked")
        words.read(archive.pieces("content.xml"), hears=("p", "h"), sheets=mime.endswith("spreadsheet"))
    else:
        _read_office(archive, words)
    return archive.mime


def _read_office(archive: _Archive, words: _Words) -> None:
    main = next(
        (place for kind, place in archive.read_relations("").values() if kind == "officeDocument"), ""
    )
    kind = main.partition("/")[0]
    if main not in archive.names or kind not in ("word", "xl", "ppt"):
        raise Refused("file_unknown_kind")
    if kind == "word":
        archive.mime = f"{_OFFICE}.wordprocessingml.document"
        _read_document(archive, words, main)
    elif kind == "xl":
        archive.mime = f"{_OFFICE}.spreadsheetml.sheet"
        _read_workbook(archive, words, main)
    else:
        archive.mime = f"{_OFFICE}.presentationml.presentation"
        _read_slides(archive, words, main)


def _read_document(archive: _Archive, words: _Words, main: str) -> None:
    related = dict(archive.read_relations(main).values())
    style = ""
    for tag, one in archive.elements(related.get("styles", ""), "style", "name"):
        if tag == "style":
            style = one.get("styleId", "")
        elif found := re.fullmatch(r"heading ([1-6])|(title)", one.get("val", ""), re.IGNORECASE):
            words.headings[style] = int(found[1] or 1)
        elif one.get("val", "").lower().startswith(("list bullet", "list number")):
            words.list_styles.add(style)
    words.read(archive.pieces(main))
    for kind, place in archive.read_relations(main).values():
        if kind == "chart":
            _read_chart(archive, words, place)
    for kind, title in (("footnotes", "Footnotes"), ("endnotes", "Endnotes"), ("comments", "Comments")):
        if (place := related.get(kind, "")) in archive.names:
            words.part(f"{title}:")
            words.read(archive.pieces(place))


def _read_slides(archive: _Archive, words: _Words, main: str) -> None:
    related = archive.read_relations(main)
    for number, (_, one) in enumerate(archive.elements(main, "sldId"), 1):
        place = related.get(one.get("id", ""), ("", ""))[1]
        if place not in archive.names:
            continue
        words.part(f"## Slide {number}")
        words.read(archive.pieces(place))
        for kind, notes in archive.read_relations(place).values():
            if kind == "notesSlide" and notes in archive.names:
                words.part("Notes:")
                words.read(archive.pieces(notes))
            elif kind == "chart":
                _read_chart(archive, words, notes)


def _read_chart(archive: _Archive, words: _Words, place: str) -> None:
    """Add the numbers of a chart to `words` as a table with one column per series."""
    series: list[_Series] = []
    path: list[str] = []

    def began(tag: str, _: Attributes) -> None:
        path.append(tag)
        if tag == "ser":
            series.append(_Series())
        elif tag in ("pt", "v") and series:
            series[-1].begin(tag, path)

    def ended(_: str) -> None:
        path.pop()

    def heard(text: str) -> None:
        if series and path[-1:] == ["v"] and "ser" in path:
            series[-1].add(text, path)

    if place not in archive.names:
        return
    _parse(archive.pieces(place), began, ended, heard)
    shown = [one for one in series if one.values]
    if not shown:
        return
    labels = max((one.labels for one in shown), key=len)
    rows = [["", *(one.name for one in shown)]]
    for number in range(min(max(len(one.values) for one in shown), _MOST_POINTS)):
        values = (one.values[number] if number < len(one.values) else "" for one in shown)
        rows.append([labels[number] if number < len(labels) else "", *values])
    width = len(rows[0])
    lines = [_line(row, width) for row in rows]
    words.part("Chart:\n\n" + "\n".join([lines[0], "|" + " --- |" * width, *lines[1:]]))


class _Series:
    """Name, labels and values of one series of a chart."""

    def __init__(self) -> None:
        self.name = ""
        self.labels: list[str] = []
        self.values: list[str] = []

    def begin(self, tag: str, path: list[str]) -> None:
        if tag == "pt":
            if "cat" in path or "xVal" in path:
                self.labels.append("")
            elif "val" in path or "yVal" in path:
                self.values.append("")

    def add(self, text: str, path: list[str]) -> None:
        if "tx" in path:
            self.name += text
        elif ("cat" in path or "xVal" in path) and self.labels:
            self.labels[-1] += text
        elif ("val" in path or "yVal" in path) and self.values:
            self.values[-1] += text


def _read_workbook(archive: _Archive, words: _Words, main: str) -> None:
    related = archive.read_relations(main)
    places = dict(related.values())
    if (shared := places.get("sharedStrings", "")) in archive.names:
        words.shared = _shared_strings(archive.pieces(shared))
    words.dates = _date_styles(archive, places.get("styles", ""))
    for tag, one in archive.elements(main, "workbookPr", "sheet"):
        if tag == "workbookPr":
            words.since_1904 = one.get("date1904") in ("1", "true")
        elif (place := related.get(one.get("id", ""), ("", ""))[1]) in archive.names:
            words.part(f"## {' '.join(one.get('name', '').split())[:100]}")
            words.read(archive.pieces(place), hears=("v", "t"))


def _shared_strings(pieces: Iterator[bytes]) -> list[str]:
    found: list[str] = []
    said: list[str] = []
    inside = [""]

    def began(tag: str, _: Attributes) -> None:
        inside.append(tag if inside[-1] != "rPh" else "rPh")  # how a word is read aloud

    def ended(tag: str) -> None:
        inside.pop()
        if tag == "si":
            found.append("".join(said))
            said.clear()

    def text(words: str) -> None:
        if inside[-1] == "t":
            said.append(words)

    _parse(pieces, began, ended, text)
    return found


def _date_styles(archive: _Archive, name: str) -> frozenset[int]:
    """Return the numbers of the cell styles that show a number as a date or a time."""
    codes: dict[str, str] = {}
    dates: set[int] = set()
    number, inside = 0, False
    for tag, one in archive.elements(name, "numFmt", "cellStyleXfs", "cellXfs", "cellStyles", "xf"):
        if tag == "numFmt":
            codes[one.get("numFmtId", "")] = one.get("formatCode", "")
        elif tag != "xf":
            inside = tag == "cellXfs"
        elif inside:
            form = one.get("numFmtId", "0")
            code = codes.get(form, "")[:_FORMAT_CHARS]
            shown = re.sub(r'"[^"]*"|\\.|\[(?!h|m|s)[^\]]*\]', "", code, flags=re.IGNORECASE)
            known = form.isdecimal() and (14 <= int(form) <= 22 or 45 <= int(form) <= 47)
            if known or re.search("[ymdhs]", shown, re.IGNORECASE):
                dates.add(number)
            number += 1
    return frozenset(dates)


def _read_book(archive: _Archive, words: _Words) -> None:
    container = archive.elements("META-INF/container.xml", "rootfile")
    root = container[0][1].get("full-path", "") if container else ""
    folder = posixpath.dirname(root)
    places: dict[str, str] = {}
    spine: list[str] = []
    for tag, one in archive.elements(root, "item", "itemref"):
        if tag == "item":
            place = posixpath.normpath(posixpath.join(folder, unquote(one.get("href", ""))))
            places[one.get("id", "")] = place
        else:
            spine.append(places.get(one.get("idref", ""), ""))
    locked = {unquote(one.get("URI", "")) for _, one in
              archive.elements("META-INF/encryption.xml", "CipherReference")}  # fmt: skip
    if locked.intersection(spine):
        raise Refused("file_locked")
    if not spine:
        raise Refused("file_unreadable")
    for place in spine:
        if place in archive.names:
            words.part(page_markdown(archive.read(place).decode("utf-8", "replace"), menus=True)[1])


_SKIPPED = frozenset(
    {"Fallback", "tracked-changes", "delText", "rPh", "fld", "note-citation", "creator-initials"}
    | {"sender-initials", "date-string"}
)
_TABLES = frozenset({"tbl", "table", "sheetData"})
_ROWS = frozenset({"tr", "table-row", "row"})
_CELLS = frozenset({"tc", "table-cell", "covered-table-cell", "c"})
_ASIDE = frozenset({"note-body", "annotation"})
_SIGNS = {"br": "\n", "cr": "\n", "line-break": "\n", "tab": "\t", "noBreakHyphen": "-"}


class _Words:
    """Collector of paragraphs, headings, lists and tables as Markdown, used for all file formats."""

    def __init__(self) -> None:
        self.headings: dict[str, int] = {}
        self.list_styles: set[str] = set()
        self.shared: list[str] = []
        self.dates: frozenset[int] = frozenset()
        self.since_1904 = False
        self.truncated = False
        self._blocks: list[str] = []
        self._chars = 0
        self._begin()

    def _begin(self) -> None:
        self._hears: tuple[str, ...] = ("t",)
        self._sheets = False
        self._hearing = self._skipping = self._aside = self._lists = self._level = 0
        self._item = -1
        self._repeated = 1
        self._said: list[str] = []
        self._tables: list[list[list[str]]] = []
        self._cells: list[tuple[Attributes, list[str]]] = []

    def read(self, pieces: Iterator[bytes], *, hears: tuple[str, ...] = ("t",), sheets: bool = False) -> None:
        """Add the text of one XML part; `hears` names the elements whose content is text.

        `sheets` makes names of tables headings. Raises Refused, and _Enough at the limit of the text.
        """
        self._begin()
        self._hears, self._sheets = hears, sheets
        try:
            _parse(pieces, self._began, self._ended, self._heard)
        finally:  # what was begun when there was enough
            self._cells.clear()
            self._end_paragraph()
            while self._tables:
                self._end_table()

    def part(self, words: str) -> None:
        """Add a finished block of text. Raises _Enough at the limit."""
        self._blocks.append(words)
        self._count(words)

    def text(self) -> str:
        """Return the blocks, separated by blank lines and cut at MOST_CHARS."""
        whole = "\n\n".join(one for one in self._blocks if one)
        self.truncated = self.truncated or len(whole) > MOST_CHARS
        return whole[:MOST_CHARS].strip()

    def _count(self, words: str) -> None:
        self._chars += len(words) + 1
        if self._chars > MOST_CHARS + 1_000:
            raise _Enough

    def _heard(self, words: str) -> None:
        if self._hearing and not self._skipping:
            self._said.append(words)
            self._count(words)

    def _began(self, tag: str, one: Attributes) -> None:
        if self._skipping or tag in _SKIPPED:
            self._skipping += 1
            return
        self._hearing += tag in self._hears
        if tag in _SIGNS:
            self._said.append(_SIGNS[tag])
        elif tag == "s":
            self._said.append(" " * min(_number(one.get("c"), 1), 100))
        elif tag in _TABLES:
            self._end_paragraph()
            if tag == "table" and self._sheets:
                self.part(f"## {' '.join(one.get('name', '').split())[:100]}")
            self._tables.append([])
        elif tag in _ROWS and self._tables:
            self._tables[-1].append([])
            self._repeated = _number(one.get("number-rows-repeated"), 1)
        elif tag in _CELLS:
            self._cells.append((one, []))
        elif tag in _ASIDE:
            self._aside += 1
            self._said.append(" (")
        elif tag == "page" and one.get("name"):
            self.part(f"## {' '.join(one['name'].split())[:100]}")
        else:
            self._style(tag, one)

    def _style(self, tag: str, one: Attributes) -> None:
        if tag == "pStyle":
            self._level = self.headings.get(one.get("val", ""), self._level)
            self._item = 0 if one.get("val", "") in self.list_styles else self._item
        elif tag == "h":
            self._level = max(1, _number(one.get("outline-level"), 1))
        elif tag == "ph" and one.get("type") in ("title", "ctrTitle"):
            self._level = 3
        elif tag == "ilvl":
            self._item = _number(one.get("val"), 0)
        elif tag == "list":
            self._lists += 1
        elif tag == "list-item":
            self._item = self._lists - 1

    def _ended(self, tag: str) -> None:
        if self._skipping:
            self._skipping -= 1
            return
        self._hearing -= tag in self._hears
        if tag in ("p", "h"):
            self._end_paragraph()
        elif tag in _CELLS and self._cells:
            self._end_cell()
        elif tag in _ROWS and self._tables:
            self._end_row()
        elif tag in _TABLES and self._tables:
            self._end_table()
        elif tag in _ASIDE:
            self._aside -= 1
            self._said.append(")")
        elif self._aside and tag in ("creator", "date"):
            self._said.append(" ")
        elif tag == "list":
            self._lists -= 1

    def _end_paragraph(self) -> None:
        if self._aside:
            self._said.append(" ")
            return
        words = "".join(self._said).strip()
        level, item = self._level, self._item
        self._said, self._level, self._item = [], 0, -1
        if not words:
            return
        if self._cells:
            self._cells[-1][1].append(words)
        elif level:
            self._blocks.append(f"{'#' * min(level, 6)} {' '.join(words.split())}")
        elif item >= 0:
            said = f"{'  ' * min(item, 9)}- {words}"
            after_item = bool(self._blocks) and self._blocks[-1].lstrip(" ").startswith("- ")
            if after_item:
                self._blocks[-1] += f"\n{said}"
            else:
                self._blocks.append(said)
        else:
            self._blocks.append(words)

    def _end_cell(self) -> None:
        one, said = self._cells.pop()
        loose, self._said = "".join(self._said).strip(), []
        words = self._value(one, loose) if loose and one.get("r") else " ".join([*said, loose]).strip()
        if not self._tables or not self._tables[-1]:
            return
        row = self._tables[-1][-1]
        if (place := re.match("[A-Z]{1,3}", one.get("r", ""))) is not None:
            self._fill(row, _column(place[0]))
        repeated = min(_number(one.get("number-columns-repeated"), 1), 16_384)
        if words:
            for _ in range(repeated):
                row.append(words)
                self._count(words)
        else:
            self._fill(row, len(row) + min(repeated, 64))

    def _end_row(self) -> None:
        rows = self._tables[-1]
        times, self._repeated = self._repeated, 1
        if not rows or not any(rows[-1]):
            return
        for _ in range(times - 1):
            rows.append(list(rows[-1]))
            self._count("".join(rows[-1]))

    def _fill(self, row: list[str], width: int) -> None:
        while len(row) < width:
            row.append("")
            self._count("")

    def _value(self, one: Attributes, raw: str) -> str:
        """Return the value of a workbook's cell as the sheet displays it."""
        kind = one.get("t", "n")
        if kind == "s":
            at = _number(raw, -1)
            words = self.shared[at] if 0 <= at < len(self.shared) else ""
            self._count(words)
            return words
        if kind == "b":
            return "TRUE" if raw == "1" else "FALSE"
        if kind != "n":
            return raw
        try:
            number = float(raw)
            return self._moment(number) if _number(one.get("s"), -1) in self.dates else f"{number:.15g}"
        except (ValueError, OverflowError):
            return raw

    def _moment(self, days: float) -> str:
        start = dt.datetime(1904 if self.since_1904 else 1900, 1, 1)  # noqa: DTZ001 - sheets know no zone
        # Sheets treat 1900 as a leap year, and number its first day 1.
        moment = start + dt.timedelta(seconds=round((days if self.since_1904 else days - 2) * 86_400))
        if 0 <= days < 1:
            return moment.time().isoformat()
        return moment.date().isoformat() if days == int(days) else moment.isoformat(" ")

    def _end_table(self) -> None:
        rows = [_trim(row) for row in self._tables.pop()]
        rows = [row for row in rows if row]
        width = max(map(len, rows), default=0)
        if not width:
            return
        if self._cells:  # a table within a cell
            self._cells[-1][1].append("; ".join(", ".join(filter(None, row)) for row in rows))
        elif width == 1 and len(rows) == 1:
            self._blocks.append(rows[0][0])
        else:
            lines = [_line(row, width) for row in rows]
            self._blocks.append("\n".join([lines[0], "|" + " --- |" * width, *lines[1:]]))


def _trim(row: list[str]) -> list[str]:
    while row and not row[-1]:
        row.pop()
    return row


def _line(row: list[str], width: int) -> str:
    cells = (" ".join(cell.split()).replace("|", "\\|") for cell in row)
    return "| " + " | ".join(cells) + " |" * (width - len(row) + 1)


def _column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - 64
    return number - 1


def _number(text: str | None, otherwise: int) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else otherwise


def _parse(
    pieces: Iterator[bytes],
    began: Callable[[str, Attributes], None],
    ended: Callable[[str], None] | None = None,
    heard: Callable[[str], None] | None = None,
) -> None:
    """Parse XML and call `began`, `ended` and `heard`; names are without their namespace.

    Raises Refused for a document type declaration, which could define entities, and for nesting beyond
    MOST_DEPTH.
    """
    parser = expat.ParserCreate(namespace_separator=" ")
    depth = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MOST_DEPTH:
            raise Refused("file_unreadable")
        found = dict(attributes)
        for name, value in attributes.items():  # `r:id` says more than `id`
            if " " in name:
                found[name.rpartition(" ")[2]] = value
        began(tag.rpartition(" ")[2], found)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        if ended is not None:
            ended(tag.rpartition(" ")[2])

    def refuse(*_: object) -> None:
        raise Refused("file_unreadable")

    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = refuse
    if heard is not None:
        parser.CharacterDataHandler = heard
    for piece in pieces:
        parser.Parse(piece, False)
    parser.Parse(b"", True)
