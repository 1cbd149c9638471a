"""Mails, archives, notebooks, contacts, calendars and old Office files as text."""

from __future__ import annotations

import base64
import json

import pytest

from shared.adapters.files import mail_files
from shared.adapters.files.sandbox_worker import form, paper
from shared.core.values.files import MAIL, OUTLOOK, ZIP, Refused, document_kind, form_kind
from tests.kit.sample_files import (
    compound_file,
    excel_95,
    outlook_mail,
    pdf,
    word_97,
    words_docx,
    xlsx,
    zipped,
)


def read(content: bytes) -> tuple[str, str]:
    match document_kind(content):
        case "paper":
            head, text = paper(content)
        case "form":
            head, text = form(content)
        case other:
            raise AssertionError(other)
    return head["mime"], text.decode()


def attached(name: str, content: bytes, kind: str) -> str:
    return (
        f'--x\r\nContent-Type: {kind}\r\nContent-Disposition: attachment; filename="{name}"\r\n'
        f"Content-Transfer-Encoding: base64\r\n\r\n{base64.encodebytes(content).decode()}\r\n"
    )


HEADERS = (
    "From: Ida <ida@example.org>\r\nTo: bo@example.org\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n"
    "Date: Wed, 4 Mar 2026 09:30:00 +0000\r\nMIME-Version: 1.0\r\n"
)


def test_mail_is_read_with_its_parts_and_attachments() -> None:
    body = "Привет, Бо".encode("koi8_r")
    parts = (
        b"--x\r\nContent-Type: multipart/alternative; boundary=y\r\n\r\n--y\r\n"
        b"Content-Type: text/plain; charset=koi8-r\r\n\r\n"
        + body
        + b"\r\n--y\r\nContent-Type: text/html\r\n\r\n"
        b"<p>Other wording</p>\r\n--y--\r\n"
    )
    files = attached("report.pdf", pdf("Inside the report."), "application/pdf")
    files += attached("prices.csv", "Größe;Preis".encode("cp1252"), "text/csv")
    files += attached("plan.docx", words_docx("Inner plan"), "application/octet-stream")
    content = (
        f"{HEADERS}Content-Type: multipart/mixed; boundary=x\r\n\r\n".encode()
        + parts
        + f"{files}--x--".encode()
    )
    mime, text = read(content)
    assert mime == MAIL
    assert text.startswith(
        "Subject: Grüße\nFrom: Ida <ida@example.org>\nTo: bo@example.org\nDate: Wed, 04 Mar 2026"
    )
    for expected in ("Привет, Бо", "## report.pdf\n\nInside the report.", "Größe;Preis", "Inner plan"):
        assert expected in text
    assert "Other wording" not in text


def test_mail_of_html_alone_is_read_without_tags() -> None:
    content = f"{HEADERS}Content-Type: text/html; charset=utf-8\r\n\r\n<p>See <b>you</b> soon</p>".encode()
    text = read(content)[1]
    assert "you" in text
    assert "<p>" not in text


def test_mail_within_a_mail_is_read() -> None:
    inner = HEADERS.replace("=?utf-8?q?Gr=C3=BC=C3=9Fe?=", "Inner") + "\r\nDeep words\r\n"
    content = f"{HEADERS}Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n"
    content += "Content-Type: message/rfc822\r\n\r\n"
    text = read(f"{content}{inner}\r\n--x--".encode())[1]
    assert "Subject: Inner" in text
    assert "Deep words" in text


def test_note_with_a_colon_is_no_mail() -> None:
    assert document_kind(b"To: do list\nbuy milk\n") is None
    assert document_kind(b"From: here\nTo: there\nit is far\n") is None


def test_outlook_mail_is_read_with_its_attachments() -> None:
    mime, text = read(
        outlook_mail("Grüße", "Hello Bo", {"liste.csv": b"a;b", "plan.docx": words_docx("Inner plan")})
    )
    assert mime == OUTLOOK
    assert text == (
        "Subject: Grüße\nFrom: Ida <ida@example.org>\nTo: Bo\nDate: 2026-03-04 09:30 UTC\n\nHello Bo"
        "\n\n## liste.csv\n\na;b\n\n## plan.docx\n\nInner plan"
    )


def test_document_of_old_word_is_read() -> None:
    assert read(word_97("Lieferung\rPreis: 12 €\r\x13 PAGE \x14Seite 3\x15\rA\x07B\x07\x07"))[1] == (
        "Lieferung\nPreis: 12 €\nSeite 3\nA\tB"
    )


def test_sheet_of_old_excel_keeps_its_gaps() -> None:
    assert read(excel_95([["Товар", "Цена", "Склад"], ["Ложка", "", 7.0], ["", 2.5, ""]]))[1] == (
        "## Prices\n\n| Товар | Цена | Склад |\n| --- | --- | --- |\n| Ложка |  | 7 |\n|  | 2.5 |  |"
    )


def test_slides_of_old_powerpoint_are_read() -> None:
    words = "Hafenplan".encode("utf-16-le")
    stream = b"\x0f\x00\xe8\x03" + (8 + len(words)).to_bytes(4, "little")
    stream += b"\x00\x00\xa0\x0f" + len(words).to_bytes(4, "little") + words
    assert read(compound_file({"PowerPoint Document": stream}))[1] == "Hafenplan"


def test_locked_old_files_are_refused_with_the_reason() -> None:
    locked = bytearray(word_97("secret"))
    at = locked.index(b"\xec\xa5")
    locked[at + 0x0B] |= 0x01
    with pytest.raises(Refused, match="file_locked"):
        read(bytes(locked))
    with pytest.raises(Refused, match="file_unknown_kind"):
        read(compound_file({"Drawing": b"x"}))


def test_archive_of_texts_is_read() -> None:
    mime, text = read(
        zipped({"notes/a.txt": "plain words", "b.csv": "Größe;1".encode("cp1252"),
                "c.bin": bytes(range(256)) * 9,
                "d.xlsx": xlsx('<row><c r="A1"><v>5</v></c></row>'), "e.pdf": pdf("In a PDF.")})
    )  # fmt: skip
    assert mime == ZIP
    for expected in ("- c.bin", "## notes/a.txt\n\nplain words", "Größe;1", "## Budget\n\n5", "In a PDF."):
        assert expected in text
    assert "## c.bin\n\n(This file could not be read as text.)" in text


def test_archive_within_an_archive_is_named_only() -> None:
    inner = zipped({"a.txt": "deep words"})
    text = read(zipped({"inner.zip": inner, "b.txt": "words"}))[1]
    assert "inner.zip" in text
    assert "deep words" not in text


def test_archive_without_texts_is_refused() -> None:
    with pytest.raises(Refused, match="file_unknown_kind"):
        paper(zipped({"a.bin": bytes(range(256)) * 9}))
    with pytest.raises(Refused, match="file_unknown_kind"):
        paper(zipped({}))


def test_bomb_in_an_archive_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail_files, "MOST_FILE_BYTES", 100_000)
    content = zipped({"bomb.txt": "a" * 5_000_000, "b.txt": "words"})
    head, text = paper(content)
    assert head["truncated"]
    assert b"words" in text
    assert b"bomb.txt\n\n(This file is too large or damaged" in text


def test_many_bombs_share_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail_files, "MOST_UNPACKED", 300_000)
    head, text = paper(zipped({f"{number}.txt": "a" * 90_000 for number in range(50)}))
    assert head["truncated"]
    assert text.count(b"too large") >= 40


def test_locked_archive_is_refused() -> None:
    content = bytearray(zipped({"a.txt": "words"}))
    content[content.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(Refused, match="file_locked"):
        paper(bytes(content))


def test_notebook_is_read_without_its_pictures() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "text"]},
        {"cell_type": "code", "source": "print(1)", "outputs": [
            {"output_type": "stream", "text": ["1\n"]},
            {"output_type": "display_data", "data": {"image/png": "iVBORw0" * 1_000}},
            {"output_type": "error", "ename": "ValueError", "evalue": "no"},
        ]},
    ]  # fmt: skip
    text = read(json.dumps({"cells": cells, "nbformat": 4, "metadata": {}}).encode())[1]
    assert (
        text == "# Title\ntext\n\n```python\nprint(1)\n```\n\n"
        "Output:\n```\n1\n```\n\nOutput:\n```\nValueError: no\n```"
    )


def test_contact_is_read_without_its_photo() -> None:
    card = (
        "BEGIN:VCARD\r\nVERSION:2.1\r\nN;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:=D0=98=D0=B4=\r\n=D0=B0;\r\n"
        "TEL;CELL:+49 30 123\r\nPHOTO;ENCODING=BASE64;JPEG:/9j/4AAQSkZJ\r\n RgABAQ\r\nEND:VCARD\r\n"
    )
    text = read(card.encode())[1]
    assert "N: Ида;" in text
    assert "TEL;CELL: +49 30 123" in text
    assert "/9j/" not in text


def test_calendar_is_read_in_whole_lines() -> None:
    event = "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nSUMMARY:Meet\\, greet and\r\n  eat\r\n"
    event += "DTSTART:20260304T093000Z\r\n"
    text = read(f"{event}END:VEVENT\r\nEND:VCALENDAR\r\n".encode())[1]
    assert "SUMMARY: Meet, greet and eat" in text
    assert "DTSTART: 20260304T093000Z" in text


@pytest.mark.parametrize("content", [b'{"cells": 5, "nbformat": 4}', b'{"cells": [5], "nbformat": 4}'])
def test_broken_notebook_is_refused(content: bytes) -> None:
    assert form_kind(content) == "notebook"
    with pytest.raises((Refused, TypeError, AttributeError)):
        form(content)
