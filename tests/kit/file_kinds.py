"""Files of each kind that people send, with what a model must read of them."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import dataclass

from PIL import Image

from tests.kit.sample_files import (
    Placed,
    excel_95,
    outlook_mail,
    pdf,
    placed_pdf,
    scanned_pdf,
    tiny_heic,
    word_97,
    words_docx,
    zipped,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOfKind:
    """`words` and as many `pictures` reach the model."""

    name: str
    content: bytes
    words: tuple[str, ...] = ()
    pictures: int = 0


def _picture(form: str) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (64, 32), "teal").save(out, form)
    return out.getvalue()


_MAIL = (
    "From: Ida <ida@example.org>\r\nTo: bo@example.org\r\nSubject: Ferry\r\n"
    "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n"
    "--x\r\nContent-Type: text/plain\r\n\r\nSee the bill.\r\n"
    "--x\r\nContent-Type: application/pdf\r\n"
    "Content-Disposition: attachment; filename=bill.pdf\r\n"
    "Content-Transfer-Encoding: base64\r\n\r\n"
    f"{base64.encodebytes(pdf('Bill over nine')).decode()}\r\n--x--\r\n"
)
_NOTEBOOK = {"cells": [{"cell_type": "code", "source": "print(6*7)", "outputs": []}], "nbformat": 4}
_ROWS: list[Placed] = [
    (30, 250, "Part"),
    (120, 250, "Shelf"),
    (210, 250, "Have"),
    (30, 230, "nut"),
    (210, 230, "7"),
    (30, 210, "gear"),
    (120, 210, "C3"),
]
_DOUBT = "(read as {}: the file names no encoding, so letters may be wrong.)"

FILES = (
    FileOfKind(
        name="preise.csv",
        content="Artikel;Preis\r\n„Äpfel“;3,50 €\r\n".encode("cp1252"),
        words=("„Äpfel“;3,50 €", _DOUBT.format("Windows-1252")),
    ),
    FileOfKind(
        name="tseny.csv",
        content="Наименование;Цена\r\nЛожка столовая;35,00\r\n".encode("cp1251"),
        words=("Ложка столовая;35,00", _DOUBT.format("Windows-1251")),
    ),
    FileOfKind(name="wide.txt", content="価格は三百円です".encode("utf-16-le"), words=("価格は三百円です",)),
    FileOfKind(
        name="app.log", content=b"started\n" * 9 + bytes(64) + b"disk is full\n", words=("disk is full",)
    ),
    FileOfKind(name="table.pdf", content=placed_pdf(_ROWS), words=("| nut |  | 7 |", "| gear | C3 |  |")),
    FileOfKind(
        name="junk.pdf", content=b"HTTP/1.1 200 OK\r\n\r\n" + pdf("Still here"), words=("Still here",)
    ),
    FileOfKind(
        name="scan.pdf",
        content=scanned_pdf((600, 800), (600, 800)),
        words=("pages 1, 2 of this PDF are pictures without text",),
        pictures=2,
    ),
    FileOfKind(name="photo.heic", content=tiny_heic(), pictures=1),
    FileOfKind(name="photo.avif", content=_picture("AVIF"), pictures=1),
    FileOfKind(name="photo.tiff", content=_picture("TIFF"), pictures=1),
    FileOfKind(name="photo.bmp", content=_picture("BMP"), pictures=1),
    FileOfKind(
        name="mail.eml", content=_MAIL.encode(), words=("Subject: Ferry", "See the bill.", "Bill over nine")
    ),
    FileOfKind(
        name="mail.msg",
        content=outlook_mail("Boats", "Hello Bo", {"plan.docx": words_docx("Inner plan")}),
        words=("Subject: Boats", "Hello Bo", "Inner plan"),
    ),
    FileOfKind(name="old.doc", content=word_97("Lieferung im Mai"), words=("Lieferung im Mai",)),
    FileOfKind(
        name="old.xls",
        content=excel_95([["Товар", "Цена"], ["", 3.5]]),
        words=("| Товар | Цена |", "|  | 3.5 |"),
    ),
    FileOfKind(
        name="texts.zip",
        content=zipped({"a.txt": "first words", "b.txt": "more words"}),
        words=("first words", "more words"),
    ),
    FileOfKind(name="book.ipynb", content=json.dumps(_NOTEBOOK).encode(), words=("print(6*7)",)),
    FileOfKind(
        name="ida.vcf",
        content=b"BEGIN:VCARD\r\nFN:Ida\r\nTEL:+49 30 1\r\nEND:VCARD\r\n",
        words=("TEL: +49 30 1",),
    ),
    FileOfKind(
        name="trip.ics",
        content=b"BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nSUMMARY:Ferry\\, early\r\n"
        b"END:VEVENT\r\nEND:VCALENDAR\r\n",
        words=("SUMMARY: Ferry, early",),
    ),
)


def check_request(content: list[dict[str, object]], files: tuple[FileOfKind, ...]) -> None:
    """Compare a request's last message with what its files hold."""
    text = "\n".join(str(block["text"]) for block in content if block["type"] == "text")
    for one in files:
        for expected in one.words:
            assert expected in text, f"{one.name}: {expected}\n{text[-1500:]}"
    assert sum(block["type"] == "image" for block in content) == sum(one.pictures for one in files)
