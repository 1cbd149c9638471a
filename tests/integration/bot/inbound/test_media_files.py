"""Files: sizes before downloads, pictures made smaller, texts decoded, PDFs read, hostile ones refused."""

from __future__ import annotations

import asyncio
import io
import random
import sys
import zipfile
import zlib
from typing import Any

import pytest
from aiogram import Bot
from PIL import Image
from pypdf import PdfWriter

from bot.telegram.client.session import GetRawUpdates, InvalidBotToken
from bot.telegram.inbound.media_files import CannotRead, FileReader
from bot.telegram.inbound.update_parser import parse_update
from bot.telegram.inbound.updates import IncomingMessage, Media
from shared.adapters.files.papers import MOST_UNPACKED
from shared.adapters.files.sandbox_client import open_in_sandbox
from shared.adapters.files.sandbox_worker import LONGEST_SIDE
from shared.core.values.files import MOST_BYTES, PAPER_MIMES, PDF, Document, Picture
from tests.kit.fakes.bot_api import Person, RunningBotApi
from tests.kit.fakes.bot_api.person import Sent
from tests.kit.sample_files import docx, open_document, pdf, words_docx, xlsx
from tests.kit.sample_pictures import image
from tests.kit.telegram.updates import BOT


@pytest.fixture
def reader(inbound_bot: Bot) -> FileReader:
    return FileReader(inbound_bot, pause_seconds=0.02, open_seconds=30)


async def media_of(api: Bot, sent: Sent) -> Media:
    updates: list[Any] = await api(GetRawUpdates(timeout=0, offset=sent.updates[BOT.bot_id]))
    found = parse_update(updates[0], bot=BOT)
    assert isinstance(found, IncomingMessage)
    assert found.media is not None
    return found.media


async def test_a_photo_comes_as_it_is_when_it_is_small_enough(
    newcomer: Person, inbound_bot: Bot, reader: FileReader
) -> None:
    content = image(800, 800)
    media = await media_of(inbound_bot, await newcomer.send_photo(content, caption="look"))
    assert await reader.read(media) == Picture(bytes=content, mime="image/jpeg", width=800, height=800)


@pytest.mark.parametrize(
    ("content", "size", "mime"),
    [
        (image(3136, 1568), (1568, 784), "image/jpeg"),
        (image(2000, 4000, "PNG"), (784, 1568), "image/jpeg"),
        (image(2000, 1000, "PNG", "RGBA"), (1568, 784), "image/png"),
        (image(64, 32, "WEBP"), (64, 32), "image/jpeg"),
        (image(64, 32, "GIF", "P"), (64, 32), "image/jpeg"),
        (image(64, 32, "JPEG", "CMYK"), (64, 32), "image/jpeg"),
    ],
)
async def test_pictures_sent_as_files_are_made_small_enough(
    content: bytes, size: tuple[int, int], mime: str, newcomer: Person, inbound_bot: Bot, reader: FileReader
) -> None:
    sent = await newcomer.send_file("picture.bin", content, media_type="application/octet-stream")
    found = await reader.read(await media_of(inbound_bot, sent))
    assert isinstance(found, Picture)
    assert ((found.width, found.height), found.mime) == (size, mime)
    with Image.open(io.BytesIO(found.bytes)) as shown:
        assert max(shown.size) <= LONGEST_SIDE


async def test_a_picture_is_put_upright(newcomer: Person, inbound_bot: Bot, reader: FileReader) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    sent = await newcomer.send_file("a.jpg", image(60, 20, exif=exif), media_type="image/jpeg")
    found = await reader.read(await media_of(inbound_bot, sent))
    assert isinstance(found, Picture)
    assert (found.width, found.height) == (20, 60)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.txt", "Grüße\r\nzwei\r\n".encode(), "Grüße\nzwei\n"),
        ("a.py", "print('ö')".encode("utf-8-sig"), "print('ö')"),
        ("a.csv", "ä;ö".encode("utf-16"), "ä;ö"),
        (
            "old.txt",
            "Grüße".encode("latin-1"),
            "(read as Windows-1252: the file names no encoding, so letters may be wrong.)\n\nGrüße",
        ),
        ("noending", b"just words", "just words"),
        ("app.ts", b"let a = 1", "let a = 1"),
    ],
)
async def test_text_and_code_are_read(
    name: str, content: bytes, text: str, newcomer: Person, inbound_bot: Bot, reader: FileReader
) -> None:
    mime = "video/mp2t" if name.endswith(".ts") else "application/octet-stream"
    media = await media_of(inbound_bot, await newcomer.send_file(name, content, media_type=mime))
    assert await reader.read(media) == Document(name=name, text=text)


async def test_a_long_text_is_cut_and_says_so(newcomer: Person, inbound_bot: Bot) -> None:
    media = await media_of(inbound_bot, await newcomer.send_file("a.txt", b"x" * 5_000))
    assert await FileReader(inbound_bot, max_chars=1_000).read(media) == Document(
        name="a.txt", text="x" * 1_000, truncated=True
    )


async def test_the_text_of_a_pdf_is_read_page_by_page(
    newcomer: Person, inbound_bot: Bot, reader: FileReader
) -> None:
    sent = await newcomer.send_file("a.pdf", pdf("First page", "Second page"), media_type="application/pdf")
    found = await reader.read(await media_of(inbound_bot, sent))
    assert found == Document(name="a.pdf", text="First page\n\nSecond page", mime=PDF)


async def test_office_files_books_and_pages_are_read_by_their_bytes(
    newcomer: Person, inbound_bot: Bot, reader: FileReader
) -> None:
    html = b"<!doctype html><title>Ferry</title><nav>Menu</nav><p>It leaves at <b>noon</b>.</p>"
    sheet = xlsx('<row><c r="A1"><v>1</v></c><c r="B1"><v>2</v></c></row>')
    for name, content, mime, text in (
        ("a.docx", words_docx("One", "Two"), PAPER_MIMES[0], "One\n\nTwo"),
        ("called.txt", sheet, PAPER_MIMES[1], "## Budget\n\n| 1 | 2 |\n| --- | --- |"),
        ("a.rtf", rb"{\rtf1 Words}", "application/rtf", "Words"),
        ("a.html", html, "text/plain", "# Ferry\n\nIt leaves at **noon**."),
        ("scripts.html", b"<html ><script>a()</script>", "text/plain", "<html ><script>a()</script>"),
        ("text.docx", b"only words", "text/plain", "only words"),
    ):  # fmt: skip
        found = await reader.read(await media_of(inbound_bot, await newcomer.send_file(name, content)))
        assert found == Document(name=name, text=text, mime=mime)


async def test_twenty_one_megabytes_are_refused_before_anything_is_asked(
    bot_api: RunningBotApi, newcomer: Person, inbound_bot: Bot, reader: FileReader
) -> None:
    media = await media_of(inbound_bot, await newcomer.send_file("big.pdf", b"%PDF-", size=21 * 1024 * 1024))
    assert await reader.read(media) == CannotRead(reason="file_too_large", name="big.pdf")
    assert not await bot_api.calls("getFile")


@pytest.mark.control("S32", "S48")
async def test_a_file_that_is_larger_than_it_says_is_cut_off(newcomer: Person, inbound_bot: Bot) -> None:
    media = await media_of(inbound_bot, await newcomer.send_file("liar.txt", b"x" * 300_000, size=10))
    found = await FileReader(inbound_bot, max_bytes=100_000).read(media)
    assert found == CannotRead(reason="file_too_large", name="liar.txt")


@pytest.mark.parametrize(
    ("kind", "mime", "reason"),
    [
        ("voice", "audio/ogg", "cannot_hear"),
        ("audio", "audio/mpeg", "cannot_hear"),
        ("video", "video/mp4", "cannot_watch"),
        ("video_note", "", "cannot_watch"),
        ("animation", "video/mp4", "cannot_watch"),
        ("sticker", "", "cannot_see_sticker"),
        ("document", "audio/mpeg", "cannot_hear"),
        ("document", "video/mp4", "cannot_watch"),
    ],
)
async def test_what_cannot_be_heard_or_watched_is_declined_without_a_call(
    kind: Any, mime: str, reason: Any, bot_api: RunningBotApi, reader: FileReader
) -> None:
    found = await reader.read(Media(kind=kind, file_id="x", mime=mime))
    assert found == CannotRead(reason=reason, name=kind)
    assert not await bot_api.calls("getFile")


def archive() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a.txt", random.Random(1).randbytes(4_000))
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.zip", archive(), "file_unknown_kind"),
        ("a.exe", b"MZ\x00\x01" * 50, "file_unknown_kind"),
        ("a.txt", b"\x00\x01\x02" * 50, "file_unreadable"),
        ("a.txt", bytes(range(256)) * 4, "file_unreadable"),
        ("a.txt", b"", "file_empty"),
        ("a.txt", b" \n\t ", "file_empty"),
        ("a.pdf", b"%PDF-1.4\nnothing", "file_unreadable"),
        ("a.pdf", pdf(" "), "file_empty"),
        ("a.docx", words_docx(" "), "file_empty"),
        ("a.docx", words_docx("x")[:-40], "file_unreadable"),
        ("a.odt", open_document("", manifest="<encryption-data/>"), "file_locked"),
        ("a.xlsx", b"MZ\x00\x01" * 50, "file_unknown_kind"),
        ("a.jpg", b"\xff\xd8\xff" + b"broken" * 20, "file_unreadable"),
        ("a.png", image(60, 60, "PNG")[:-30], "file_unreadable"),
    ],
)
async def test_what_cannot_be_read_is_refused_kindly(
    name: str, content: bytes, reason: Any, newcomer: Person, inbound_bot: Bot, reader: FileReader
) -> None:
    media = await media_of(inbound_bot, await newcomer.send_file(name, content))
    assert await reader.read(media) == CannotRead(reason=reason, name=name)


@pytest.mark.control("S37", "S48")
async def test_no_secret_of_ours_is_within_reach_of_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", "a secret")
    given: list[dict[str, str]] = []
    launch = asyncio.create_subprocess_exec

    async def watched(*words: str, **options: Any) -> asyncio.subprocess.Process:
        given.append(options["env"])
        return await launch(*words, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", watched)
    head, _ = await open_in_sandbox("picture", image(9, 9))
    assert head is not None
    assert "a secret" not in given[0].values()


async def test_a_locked_pdf_is_refused() -> None:
    writer = PdfWriter()
    writer.add_blank_page(100, 100)
    writer.encrypt("secret")
    out = io.BytesIO()
    writer.write(out)
    assert await open_in_sandbox("pdf", out.getvalue()) == ({"refused": "file_locked"}, b"")


@pytest.mark.control("S35", "S48")
async def test_a_picture_of_too_many_pixels_is_never_unpacked() -> None:
    """A PNG of 60,000 × 60,000 grey pixels packed into a few kilobytes; its header alone tells."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")

    side = (60_000).to_bytes(4, "big")
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", side + side + bytes([8, 0, 0, 0, 0]))
    bomb += chunk(b"IDAT", zlib.compress(bytes(60_001) * 100)) + chunk(b"IEND", b"")
    assert await open_in_sandbox("picture", bomb) == (None, b"")


@pytest.mark.control("S48")
async def test_endless_file_is_aborted_and_its_process_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[asyncio.subprocess.Process] = []
    launch = asyncio.create_subprocess_exec

    async def slow(*_: str, **options: Any) -> asyncio.subprocess.Process:
        process = await launch(sys.executable, "-c", "import time; time.sleep(60)", **options)
        started.append(process)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slow)
    assert await open_in_sandbox("pdf", b"%PDF-", seconds=0.3) == (None, b"")
    assert started[0].returncode == -9


@pytest.mark.control("S35", "S48")
async def test_a_pdf_that_unpacks_without_end_is_stopped() -> None:
    """40 kB that become 40 MB of text commands."""
    stream = zlib.compress(b"BT /F1 12 Tf (" + b"a" * 40_000_000 + b") Tj ET", 9)
    content = pdf("x").replace(b"/Contents 5 0 R", b"/Contents 9 0 R")
    content += b"\n9 0 obj\n<< /Filter /FlateDecode /Length %d >>\nstream\n" % len(stream)
    content += stream + b"\nendstream\nendobj\n"
    head, body = await open_in_sandbox("pdf", content, seconds=4)
    assert head is None or len(body) <= 400_000


@pytest.mark.control("S35", "S48")
async def test_a_document_that_unpacks_without_end_is_stopped() -> None:
    """A fifth of a megabyte that becomes twice as much as is ever unpacked."""
    content = docx("<w:p/>" * 1_000 + "<!--" + " " * (2 * MOST_UNPACKED) + "-->")
    assert len(content) < 220_000
    head, body = await open_in_sandbox("paper", content, seconds=20)
    assert head is None or (head["truncated"], body) == (True, b"")


async def test_unanswered_download_is_retried(
    bot_api: RunningBotApi, newcomer: Person, inbound_bot: Bot, reader: FileReader
) -> None:
    media = await media_of(inbound_bot, await newcomer.send_file("a.txt", b"words"))
    await bot_api.fail("getFile", reset="before")
    await bot_api.fail("file", status=502, html=True)
    assert await reader.read(media) == Document(name="a.txt", text="words")
    await bot_api.fail("file", times=9, status=502, html=True)
    assert await reader.read(media) == CannotRead(reason="file_unavailable", name="a.txt")
    gone = Media(kind="document", file_id="nonsense", name="b.txt")
    assert await reader.read(gone) == CannotRead(reason="file_unavailable", name="b.txt")


async def test_a_dead_bot_is_no_matter_of_one_file(
    bot_api: RunningBotApi, newcomer: Person, inbound_bot: Bot, reader: FileReader
) -> None:
    media = await media_of(inbound_bot, await newcomer.send_file("a.txt", b"words"))
    await bot_api.change_bot(revoked=True)
    with pytest.raises(InvalidBotToken):
        await reader.read(media)


def test_limit_of_a_file_is_telegrams_own() -> None:
    assert MOST_BYTES == 20 << 20
