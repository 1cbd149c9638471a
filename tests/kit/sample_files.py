"""Files as people send and keep them, made by hand."""

from __future__ import annotations

import io
import zipfile
import zlib


def slow_pdf(pages: int = 100, commands: int = 30_000) -> bytes:
    """Some kilobytes that unpack to as many commands on each page, of which each shows nothing."""
    stream = zlib.compress(b"BT /F1 12 Tf " + b"()Tj " * commands + b"ET", 9)
    content = pdf("x").replace(b"/Contents 5 0 R", b"/Contents 9 0 R")
    content = content.replace(b"[4 0 R] /Count 1", b"[%s] /Count %d" % (b" ".join([b"4 0 R"] * pages), pages))
    content += b"\n9 0 obj\n<< /Filter /FlateDecode /Length %d >>\nstream\n" % len(stream)
    return content + stream + b"\nendstream\nendobj\n"


def pdf(*pages: str) -> bytes:
    """Pages with these words, written by hand: a writer of text is more than pypdf is."""
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
"""How a file of Word 97 begins, and a locked one of today."""


def zipped(parts: dict[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return out.getvalue()


def related(**places: str) -> str:
    """A part that says where others lie, by their kinds; its ids are r1, r2 …"""
    rows = (
        f'<Relationship Id="r{number}" Type="{OFFICE}/{kind.rstrip("_0123456789")}" Target="{place}"/>'
        for number, (kind, place) in enumerate(places.items(), 1)
    )
    return f"<Relationships>{''.join(rows)}</Relationships>"


def docx(body: str, **more: str) -> bytes:
    """A document of Word with this body; `more` are parts beside it, such as `styles`."""
    return zipped({
        "_rels/.rels": related(officeDocument="word/document.xml"),
        "word/document.xml": f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>',
        "word/_rels/document.xml.rels": related(**{kind: f"{kind}.xml" for kind in more}),
        **{f"word/{kind}.xml": f'<w:x xmlns:w="{WORD}">{part}</w:x>' for kind, part in more.items()},
    })  # fmt: skip


def words_docx(*paragraphs: str) -> bytes:
    return docx("".join(f"<w:p><w:r><w:t>{words}</w:t></w:r></w:p>" for words in paragraphs))


def xlsx(rows: str, *, shared: str = "", styles: str = "", name: str = "Budget") -> bytes:
    """A workbook of Excel with one sheet."""
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
    """Slides of PowerPoint, stored in the other order than they are shown."""
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
    """Of LibreOffice: `kind` is text, spreadsheet or presentation."""
    names = " ".join(
        f'xmlns:{one}="{OPEN_DOCUMENT}{one}:1.0"' for one in ("office", "text", "table", "drawing")
    )
    return zipped({
        "mimetype": f"application/vnd.oasis.opendocument.{kind}",
        "content.xml": f"<office:document-content {names}>{body}</office:document-content>",
        "META-INF/manifest.xml": f"<manifest>{manifest}</manifest>",
    })  # fmt: skip


def epub(*chapters: str, locked: bool = False) -> bytes:
    """A book whose chapters are pages with these bodies."""
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
