"""Hand-made files of the kinds that people send and keep."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path


def slow_pdf(pages: int = 100, commands: int = 30_000) -> bytes:
    """Return a PDF of a few kilobytes that unpacks to `commands` drawing commands on each page, all without
    effect.
    """
    stream = zlib.compress(b"BT /F1 12 Tf " + b"()Tj " * commands + b"ET", 9)
    content = pdf("x").replace(b"/Contents 5 0 R", b"/Contents 9 0 R")
    content = content.replace(b"[4 0 R] /Count 1", b"[%s] /Count %d" % (b" ".join([b"4 0 R"] * pages), pages))
    content += b"\n9 0 obj\n<< /Filter /FlateDecode /Length %d >>\nstream\n" % len(stream)
    return content + stream + b"\nendstream\nendobj\n"


def pdf(*pages: str) -> bytes:
    """Return a PDF with these words, one string per page.

    It is written by hand, because pypdf cannot write text.
    """
    count = len(pages)
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>"]
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(count))
    objects.append(f"<< /Type /Pages /Kids [{kids}] /Count {count} >>".encode())
    objects.append(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for number, words in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 700 Td ({words}) Tj ET".encode()
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents {5 + 2 * number} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>".encode()
        )
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
    out = b"%PDF-1.4\n"
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    return out + b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, table)


OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
SLIDE = "http://schemas.openxmlformats.org/presentationml/2006/main"
DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"
OPEN_DOCUMENT = "urn:oasis:names:tc:opendocument:xmlns:"

OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
"""The beginning of a file of Word 97, which a locked file of today has too."""


def zipped(parts: dict[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return out.getvalue()


def related(**places: str) -> str:
    """Return a part that lists the places of other parts, by their kinds; its ids are r1, r2 …"""
    rows = (
        f'<Relationship Id="r{number}" Type="{OFFICE}/{kind.rstrip("_0123456789")}" Target="{place}"/>'
        for number, (kind, place) in enumerate(places.items(), 1)
    )
    return f"<Relationships>{''.join(rows)}</Relationships>"


def docx(body: str, **more: str) -> bytes:
    """Return a Word document with this body; `more` are further parts, such as `styles`."""
    return zipped({
        "_rels/.rels": related(officeDocument="word/document.xml"),
        "word/document.xml": f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>',
        "word/_rels/document.xml.rels": related(**{kind: f"{kind}.xml" for kind in more}),
        **{f"word/{kind}.xml": f'<w:x xmlns:w="{WORD}">{part}</w:x>' for kind, part in more.items()},
    })  # fmt: skip


def words_docx(*paragraphs: str) -> bytes:
    return docx("".join(f"<w:p><w:r><w:t>{words}</w:t></w:r></w:p>" for words in paragraphs))


def xlsx(rows: str, *, shared: str = "", styles: str = "", name: str = "Budget") -> bytes:
    """Return an Excel workbook with one sheet."""
    return zipped({
        "_rels/.rels": related(officeDocument="xl/workbook.xml"),
        "xl/workbook.xml": f'<workbook xmlns="{SHEET}" xmlns:r="{OFFICE}"><sheets>'
                           f'<sheet name="{name}" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": related(
            worksheet="worksheets/sheet1.xml", sharedStrings="sharedStrings.xml", styles="styles.xml"),
        "xl/worksheets/sheet1.xml":
            f'<worksheet xmlns="{SHEET}"><sheetData>{rows}</sheetData></worksheet>',
        "xl/sharedStrings.xml": f'<sst xmlns="{SHEET}">{shared}</sst>',
        "xl/styles.xml": f'<styleSheet xmlns="{SHEET}">{styles}</styleSheet>',
    })  # fmt: skip


def pptx(*slides: str) -> bytes:
    """Return a PowerPoint presentation whose slides are stored in reverse order."""
    parts: dict[str, str | bytes] = {}
    for number, slide in enumerate(slides, 1):
        parts[f"ppt/slides/s{len(slides) - number}.xml"] = (
            f'<p:sld xmlns:p="{SLIDE}" xmlns:a="{DRAWING}"><p:spTree>{slide}</p:spTree></p:sld>'
        )
    shown = "".join(f'<p:sldId id="{255 + one}" r:id="r{one}"/>' for one in range(1, len(slides) + 1))
    return zipped({
        **parts,
        "_rels/.rels": related(officeDocument="ppt/presentation.xml"),
        "ppt/presentation.xml": f'<p:presentation xmlns:p="{SLIDE}" xmlns:r="{OFFICE}">'
                                f"<p:sldIdLst>{shown}</p:sldIdLst></p:presentation>",
        "ppt/_rels/presentation.xml.rels": related(
            **{f"slide_{one}": f"slides/s{len(slides) - one}.xml" for one in range(1, len(slides) + 1)}),
    })  # fmt: skip


def open_document(body: str, *, kind: str = "text", manifest: str = "") -> bytes:
    """Return a LibreOffice file; `kind` is text, spreadsheet or presentation."""
    names = " ".join(
        f'xmlns:{one}="{OPEN_DOCUMENT}{one}:1.0"' for one in ("office", "text", "table", "drawing")
    )
    return zipped({
        "mimetype": f"application/vnd.oasis.opendocument.{kind}",
        "content.xml": f"<office:document-content {names}>{body}</office:document-content>",
        "META-INF/manifest.xml": f"<manifest>{manifest}</manifest>",
    })  # fmt: skip


def epub(*chapters: str, locked: bool = False) -> bytes:
    """Return an EPUB book whose chapters have these bodies; `locked` encrypts the first one."""
    numbers = range(1, len(chapters) + 1)
    items = "".join(f'<item id="c{one}" href="c%20{one}.xhtml"/>' for one in numbers)
    spine = "".join(f'<itemref idref="c{one}"/>' for one in numbers)
    secret = '<encryption><CipherReference URI="OPS/c%201.xhtml"/></encryption>'
    return zipped({
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container><rootfile full-path="OPS/b.opf"/></container>',
        "OPS/b.opf": f"<package><manifest>{items}</manifest><spine>{spine}</spine></package>",
        **{f"OPS/c {one}.xhtml": f"<!DOCTYPE html><html><body>{chapter}</body></html>"
           for one, chapter in zip(numbers, chapters, strict=True)},
        **({"META-INF/encryption.xml": secret} if locked else {}),
    })  # fmt: skip


Placed = tuple[float, float, str]
"""Words of a page, with the distances of their place from the left and from the bottom, in points."""


def placed_pdf(*pages: list[Placed], size: int = 11) -> bytes:
    """Return a PDF whose words stand at the given places, stored in the order of the list."""
    written = []
    for page in pages:
        shown = "".join(f"1 0 0 1 {x:g} {y:g} Tm ({words}) Tj " for x, y, words in page)
        written.append(f"){shown}(")
    content = pdf(*("\x00" for _ in written))
    for number, shown in enumerate(written):
        before = b"BT /F1 12 Tf 72 700 Td (\x00) Tj ET"
        after = f"BT /F1 {size} Tf {shown[1:-1]}ET".encode("cp1252")
        at = content.index(before)
        head = content.rindex(b"<< /Length", 0, at)
        content = (
            content[:head] + b"<< /Length %d >>\nstream\n" % len(after) + after + content[at + len(before) :]
        )
        assert number >= 0
    return content


def scanned_pdf(*pages: tuple[int, int]) -> bytes:
    """Return a PDF with pages of these sizes, each a picture without words."""
    from PIL import Image

    pictures = [Image.new("RGB", size, "white") for size in pages]
    out = io.BytesIO()
    pictures[0].save(out, "PDF", save_all=True, append_images=pictures[1:])
    return out.getvalue()


def compound_file(streams: dict[str, bytes]) -> bytes:
    """Return a container of old Office files ([MS-CFB]) with these streams, by path."""
    free, end = 0xFFFFFFFF, 0xFFFFFFFE
    names: list[str] = [""]
    for path in streams:
        folder = path.rpartition("/")[0]
        if folder and folder not in names:
            names.append(folder)
        names.append(path)
    small = {path: content for path, content in streams.items() if len(content) < 4_096}
    mini, mini_chains, starts = _lay_out(small, 64, [])
    large = {path: content for path, content in streams.items() if path not in small}
    body, chains, places = _lay_out({**large, "": mini}, 512, [])
    starts |= places
    entries = b""
    for number, path in enumerate(names):
        inner = [one for one, name in enumerate(names) if name and name.rpartition("/")[0] == path]
        beside = [
            one for one in range(1, len(names)) if names[one].rpartition("/")[0] == path.rpartition("/")[0]
        ]
        after = beside[beside.index(number) + 1 :][:1] if number else []
        name = ("Root Entry" if not number else path.rpartition("/")[2]).encode("utf-16-le")
        size = len(streams.get(path, b"")) if number else len(mini)
        entries += name.ljust(64, b"\0") + struct.pack(
            "<HBBIII36xIQ", len(name) + 2, 5 if not number else 2 if path in streams else 1, 1, free,
            after[0] if after else free, inner[0] if inner else free, starts.get(path, end), size,
        )  # fmt: skip
    mini_table = struct.pack(f"<{len(mini_chains)}I", *mini_chains)
    rest, chains, places = _lay_out({"entries": entries, "mini": mini_table}, 512, chains)
    tables = 1
    while len(chains) + tables > tables * 128:
        tables += 1
    head = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16) + struct.pack(
        "<HHHHH6xIIIIIIIII", 0x3E, 3, 0xFFFE, 9, 6, 0, tables, places["entries"], 0, 4_096, places["mini"],
        len(mini_table) // 512 + 1, end, 0,
    )  # fmt: skip
    fats = range(len(chains), len(chains) + tables)
    head += struct.pack("<109I", *fats, *[free] * (109 - tables))
    table = struct.pack(f"<{len(chains) + tables}I", *chains, *[0xFFFFFFFD] * tables)
    return head + body + rest + table.ljust(tables * 512, b"\xff")


def _lay_out(
    parts: dict[str, bytes], sector: int, chains: list[int]
) -> tuple[bytes, list[int], dict[str, int]]:
    """Lay parts out in whole sectors.

    Return the bytes, the extended chains, and the first sector of each part.
    """
    body, grown, starts = b"", list(chains), {}
    for name, content in parts.items():
        count = -(-len(content) // sector)
        starts[name] = len(grown) if count else 0xFFFFFFFE
        grown += [len(grown) + step + 1 for step in range(count - 1)] + ([0xFFFFFFFE] if count else [])
        body += content.ljust(count * sector, b"\0")
    return body, grown, starts


def word_97(text: str) -> bytes:
    """Return a document of Word 97 whose text is one piece of UTF-16."""
    main = bytearray(1_024)
    struct.pack_into("<H", main, 0, 0xA5EC)
    struct.pack_into("<H", main, 0x0A, 0x0200)
    place = len(main)
    main += text.encode("utf-16-le")
    pieces = struct.pack("<II", 0, len(text)) + struct.pack("<HIH", 0, place, 0)
    clx = b"\x02" + struct.pack("<I", len(pieces)) + pieces
    struct.pack_into("<II", main, 0x01A2, 0, len(clx))
    return compound_file({"WordDocument": bytes(main), "1Table": clx})


def excel_95(rows: list[list[str | float]], *, name: str = "Prices", codepage: int = 1251) -> bytes:
    """Return a workbook of Excel 95 (BIFF5) with one sheet."""

    def record(kind: int, body: bytes) -> bytes:
        return struct.pack("<HH", kind, len(body)) + body

    start = struct.pack("<HHHH", 0x0500, 5, 0x096C, 1993)
    sheet = record(0x809, struct.pack("<HHHH", 0x0500, 0x10, 0x096C, 1993))
    for number, row in enumerate(rows):
        for column, value in enumerate(row):
            place = struct.pack("<HHH", number, column, 0)
            if isinstance(value, str):
                if value:
                    raw = value.encode(f"cp{codepage}")
                    sheet += record(0x204, place + struct.pack("<H", len(raw)) + raw)
            else:
                sheet += record(0x203, place + struct.pack("<d", value))
    sheet += record(0x0A, b"")
    title = name.encode("ascii")
    head = record(0x809, start) + record(0x42, struct.pack("<H", codepage))
    size = len(head) + 4 + 7 + len(title) + 4
    head += record(0x85, struct.pack("<IBBB", size, 0, 0, len(title)) + title) + record(0x0A, b"")
    return compound_file({"Book": (head + sheet).ljust(4_096, b"\0")})


def outlook_mail(subject: str, body: str, attachments: dict[str, bytes]) -> bytes:
    """Return a mail from Ida to Bo as Outlook saves it (MSG)."""

    def texts(**values: str) -> dict[str, bytes]:
        return {f"__substg1.0_{tag[1:]}001F": value.encode("utf-16-le") for tag, value in values.items()}

    streams = texts(t0037=subject, t0C1A="Ida", t5D01="ida@example.org", t0E04="Bo", t1000=body)
    sent = (datetime(2026, 3, 4, 9, 30, tzinfo=UTC) - datetime(1601, 1, 1, tzinfo=UTC)) // timedelta(
        microseconds=1
    )
    streams["__properties_version1.0"] = bytes(32) + struct.pack("<IIQ", 0x00390040, 6, sent * 10)
    for number, (name, content) in enumerate(attachments.items()):
        folder = f"__attach_version1.0_#{number:08X}"
        for tag, value in texts(t3707=name).items():
            streams[f"{folder}/{tag}"] = value
        streams[f"{folder}/__substg1.0_37010102"] = content
    return compound_file(streams)


def tiny_heic() -> bytes:
    """Return a picture as iPhones save it: 64 × 48 pixels, blue beside red."""
    return Path(__file__).with_name("tiny.heic").read_bytes()
