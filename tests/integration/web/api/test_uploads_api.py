"""Files of visitors: what they really are decides, nobody else gets them, and nothing is lost over them."""

from __future__ import annotations

import asyncio
import io
import json
import struct
import zlib
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest
from aiohttp import ClientSession
from PIL import Image, PngImagePlugin

from shared.adapters.files import sandbox_client as opened_files
from shared.adapters.postgres.privacy.retention import RULES, Sweep, render_statement
from shared.core.values.files import PAPER_MIMES, clean_name
from tests.integration.web.api.sent_files import fetch, picture, send, visitor
from tests.kit.sample_files import epub, open_document, pdf, pptx, words_docx, xlsx, zipped
from tests.kit.web.callers import make_key
from tests.kit.web.fixtures import Frame, Server, Starter
from tests.kit.web.rest_calls import call, opened
from web.server.rate_limits import LOCAL, ClientLimits


def bomb() -> bytes:
    """A picture that says of itself that it is 60,000 by 60,000, in a few hundred bytes."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    rows = chunk(b"IDAT", zlib.compress(bytes(100_000)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + rows + chunk(b"IEND", b"")


READABLE = {
    "a picture": (picture(), "x.png", "image/png", "image/jpeg"),
    "a picture that shines through": (picture(mode="RGBA"), "x.png", "", "image/png"),
    "a picture that is called a text": (picture("JPEG"), "notes.txt", "text/plain", "image/jpeg"),
    "a moving picture": (picture("GIF", mode="P"), "x.gif", "image/gif", "image/jpeg"),
    "a web picture": (picture("WEBP"), "x.webp", "image/webp", "image/jpeg"),
    "a text that is called a picture": (b"just words", "x.png", "image/png", "text/plain"),
    "code": ("print('Grüße')".encode(), "a.py", "application/octet-stream", "text/plain"),
    "a table": (b"a,b\n1,2\n", "a.csv", "text/csv", "text/plain"),
    "a paper": (pdf("First page"), "a.pdf", "application/pdf", "application/pdf"),
    "a paper that is called a picture": (pdf("First page"), "a.png", "image/png", "application/pdf"),
    "a drawing in words": (b"<svg><script>alert(1)</script></svg>", "a.svg", "image/svg+xml", "text/plain"),
    "a page": (b"<!doctype html><script>alert(1)</script>", "a.html", "text/html", "text/plain"),
    "a document": (words_docx("Word"), "a.docx", "", PAPER_MIMES[0]),
    "a sheet that is called a text": (
        xlsx('<row><c r="A1"><v>1</v></c></row>'), "a.txt", "text/plain", PAPER_MIMES[1]),
    "slides": (pptx("<a:p><a:t>One</a:t></a:p>"), "a.pptx", "", PAPER_MIMES[2]),
    "an open document": (open_document("<text:p>x</text:p>"), "a.odt", "", PAPER_MIMES[3]),
    "a book": (epub("<p>x</p>"), "a.epub", "", "application/epub+zip"),
    "rich text": (rb"{\rtf1 Words}", "a.rtf", "", "application/rtf"),
    "a picture that is a script, too": (
        picture("GIF", mode="P") + b"*/=1;alert(document.cookie)//<script>alert(1)</script>",
        "a.gif", "text/javascript", "image/jpeg",
    ),
}  # fmt: skip


@pytest.mark.control("S48")
@pytest.mark.parametrize("what", READABLE)
async def test_the_bytes_say_what_a_file_is(server: Server, what: str) -> None:
    content, name, said, mime = READABLE[what]
    _, _, token = await visitor(server)
    status, told = await send(server, token, content, name=name, kind=said)
    assert (status, told["mime"], told["name"]) == (200, mime, name)
    assert ("width" in told) == mime.startswith("image/")
    status, body, headers = await fetch(server, token, told["id"])
    assert (status, len(body)) == (200, told["size"])
    assert b"alert" not in body or headers["Content-Disposition"].startswith("attachment;")
    inline = mime.startswith("image/")
    assert headers["Content-Disposition"].startswith("inline;" if inline else "attachment;")
    assert headers["Content-Type"].partition(";")[0] == mime
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"] == "sandbox; default-src 'none'"
    assert headers["Cache-Control"] == "no-store"


REFUSED = {
    "nothing at all": (b"", 422, "file_empty"),
    "blanks": (b" \n\t ", 422, "file_empty"),
    "a bomb": (bomb(), 422, "file_unreadable"),
    "half a picture": (picture("JPEG", (600, 600))[:400], 422, "file_unreadable"),
    "a picture in name only": (b"\x89PNG\r\n\x1a\n<script>", 422, "file_unreadable"),
    "half a paper": (pdf("First page")[:60], 422, "file_unreadable"),
    "a page that claims to be a paper": (b"%PDF-1.7\n<script>alert(1)</script>", 422, "file_unreadable"),
    "half an archive": (b"PK\x03\x04" + bytes(range(256)) * 8, 422, "file_unreadable"),
    "an archive without texts": (zipped({"a.bin": bytes(range(256)) * 9}), 422, "file_unknown_kind"),
    "a locked document": (open_document("", manifest="<encryption-data/>"), 422, "file_locked"),
    "a program": (b"\x7fELF" + bytes(600), 422, "file_unknown_kind"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
async def test_what_cannot_be_read_is_refused_with_a_reason(server: Server, what: str) -> None:
    content, status, code = REFUSED[what]
    _, _, token = await visitor(server)
    found, told = await send(server, token, content, name="a.png", kind="image/png")
    assert (found, told["code"]) == (status, code)
    assert told["message"]
    assert await server.services.pool.fetchval("SELECT count(*) FROM attachments") == 0


@pytest.mark.control("S48")
async def test_a_picture_is_made_smaller_and_says_nothing_of_its_camera(server: Server) -> None:
    exif = Image.Exif()
    exif[0x010E] = "taken at home"
    exif[0x0112] = 6
    words = PngImagePlugin.PngInfo()
    words.add_text("Comment", "taken at home")
    _, _, token = await visitor(server)
    sent = (
        picture("JPEG", (3000, 1500), exif=exif, comment=b"taken at home", icc_profile=b"taken at home" * 20),
        picture("PNG", (3000, 1500), "RGBA", exif=exif, pnginfo=words, icc_profile=b"taken at home" * 20),
    )
    for content in sent:
        assert b"taken at home" in content or b"Comment" in content
        _, told = await send(server, token, content)
        assert (told["width"], told["height"]) == (784, 1568)
        _, body, _ = await fetch(server, token, told["id"])
        assert b"taken at home" not in body
        with Image.open(io.BytesIO(body)) as shown:
            assert shown.size == (784, 1568)
            assert not dict(shown.getexif())
            assert "icc_profile" not in shown.info
            assert "Comment" not in shown.info


@pytest.mark.control("S48")
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("photo\u202egnp.exe", "photognp.exe"),
        ("a\x00b\r\nSet-Cookie: x.txt", "abSet-Cookie: x.txt"),
        ("", "file"),
        ("...", "file"),
        ('"; filename="x.html', '"; filename="x.html'),
        ("Grüße 😀.txt", "Grüße 😀.txt"),
        ("x" * 400 + ".txt", "x" * 115 + "….txt"),
    ],
)
async def test_a_name_is_only_a_name(server: Server, name: str, shown: str) -> None:
    _, _, token = await visitor(server)
    _, told = await send(server, token, b"words", name=name)
    assert told["name"] == shown
    assert len(shown) <= 120
    _, _, headers = await fetch(server, token, told["id"])
    assert "Set-Cookie" not in headers
    disposition = headers["Content-Disposition"]
    assert disposition.isascii()
    assert disposition.count('"') == 2
    assert f"filename*=UTF-8''{quote(shown, safe='')}" in disposition


def test_a_cleaned_name_stays_as_it_is() -> None:
    for name in ("../a", "x" * 500, "a\u202eb.txt", " . "):
        assert clean_name(clean_name(name)) == clean_name(name)


@pytest.mark.control("S32", "S48")
async def test_too_large_is_refused_whatever_is_said_of_the_size(server: Server) -> None:
    uploads = server.process.uploads
    uploads.most_bytes = 1_000
    _, welcome, token = await visitor(server)
    assert welcome["limits"]["files"]["bytes"] == 1_000
    assert (await send(server, token, b"x" * 1_001))[0] == 413

    async def endless() -> Any:
        for _ in range(100):
            yield b"x" * 100

    status, told = await send(server, token, endless())
    assert (status, told["code"]) == (413, "file_too_large")
    assert (await send(server, token, b"x" * 1_000))[0] == 200


@pytest.mark.control("S35")
async def test_packed_bodies_are_refused(server: Server) -> None:
    _, _, token = await visitor(server)
    status, told = await send(server, token, zlib.compress(b"x"), **{"Content-Encoding": "deflate"})
    assert (status, told["code"]) == (415, "bad_encoding")


async def raw(server: Server, token: str, body: bytes, *, length: int) -> bytes:
    """What a client gets that says `length`, sends `body`, and then nothing more."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /api/v1/uploads HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
    writer.write(f"{head}Content-Length: {length}\r\n\r\n".encode() + body)
    await writer.drain()
    try:
        async with asyncio.timeout(20):
            return await reader.read(4_096)
    finally:
        writer.close()


@pytest.mark.control("S33")
async def test_a_slow_body_is_not_waited_for_for_ever(server: Server) -> None:
    server.process.uploads._idle_seconds = 0.2
    _, _, token = await visitor(server)
    assert (await raw(server, token, b"half", length=100)).startswith(b"HTTP/1.1 408")
    assert await server.services.pool.fetchval("SELECT count(*) FROM attachments") == 0
    assert (await send(server, token, b"whole"))[0] == 200


async def test_a_few_slow_addresses_leave_room_for_others(starter: Starter) -> None:
    server = await starter.start(trusted_proxies="127.0.0.1", limits=ClientLimits())
    host, _, port = server.url.removeprefix("http://").partition(":")
    writers = []
    for number in range(8):
        _, _, token = await visitor(server)
        _, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /api/v1/uploads HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
        head += f"X-Forwarded-For: 198.51.100.{number % 2}\r\nContent-Length: 100\r\n\r\nhalf"
        writer.write(head.encode())
        await writer.drain()
        writers.append(writer)
    async with asyncio.timeout(30):
        while server.process.uploads.receiving < 4:
            await asyncio.sleep(0.01)
    _, _, token = await visitor(server)
    headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": "203.0.113.9"}
    async with server.client.post(f"{server.url}/api/v1/uploads", data=b"whole", headers=headers) as answer:
        assert answer.status == 200
    assert server.process.uploads.receiving == 4
    for writer in writers:
        writer.close()


@pytest.mark.control("S48")
async def test_slow_papers_of_three_visitors_block_no_other_uploads(
    starter: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await starter.start(trusted_proxies="127.0.0.1", limits=ClientLimits())
    really, begun, go_on = opened_files.open_in_sandbox, list[bytes](), asyncio.Event()

    async def slow(kind: Any, content: bytes, **options: Any) -> Any:
        if kind == "pdf" and b"slow" in content:
            begun.append(content)
            await go_on.wait()
            return None, b""
        return await really(kind, content, **options)

    monkeypatch.setattr(opened_files, "open_in_sandbox", slow)

    async def hostile(number: int) -> tuple[int, Frame]:
        _, _, token = await visitor(server)
        paper = pdf(f"slow {number}")
        return await send(server, token, paper, **{"X-Forwarded-For": f"198.51.100.{number % 3}"})

    async with asyncio.TaskGroup() as tasks:
        sent = [tasks.create_task(hostile(number)) for number in range(6)]
        async with asyncio.timeout(20):
            while len(begun) < 2:
                await asyncio.sleep(0.01)
        _, _, token = await visitor(server)
        for content in (b"words", picture()):
            status, _ = await send(server, token, content, **{"X-Forwarded-For": "203.0.113.9"})
            assert status == 200
        go_on.set()
    assert {task.result()[0] for task in sent} <= {422, 429}
    counted = len(begun)
    status, told = await send(server, token, begun[0], **{"X-Forwarded-For": "203.0.113.9"})
    assert (status, told["code"], len(begun)) == (422, "file_unreadable", counted), "opened again"


async def test_a_body_that_breaks_off_is_not_kept(server: Server) -> None:
    _, _, token = await visitor(server)
    host, _, port = server.url.removeprefix("http://").partition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /api/v1/uploads HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
    writer.write(f"{head}Content-Length: 100\r\n\r\nhalf of it".encode())
    await writer.drain()
    await asyncio.sleep(0.1)
    writer.close()
    assert (await send(server, token, b"whole"))[0] == 200
    assert await server.services.pool.fetchval("SELECT array_agg(words) FROM attachments") == ["whole"]


async def test_the_same_bytes_are_kept_once(server: Server) -> None:
    _, _, token = await visitor(server)
    told = await asyncio.gather(*(send(server, token, picture(), name=f"{n}.png") for n in range(3)))
    assert len({one["id"] for _, one in told}) == 1
    _, again = await send(server, token, picture(), name="last.png")
    assert (again["id"], again["name"]) == (told[0][1]["id"], "last.png")
    assert await server.services.pool.fetchval("SELECT count(*) FROM attachments") == 1


@pytest.mark.control("S29")
async def test_there_is_a_limit_per_minute_and_per_day(starter: Starter) -> None:
    server = await starter.start(limits=ClientLimits(uploads=4, upload_bytes_per_day=1_000))
    _, _, token = await visitor(server)
    assert (await send(server, token, b"a" * 600))[0] == 200
    status, told = await send(server, token, b"b" * 600)
    assert (status, told["code"]) == (429, "too_many_files")
    assert (await send(server, token, b"c" * 300))[0] == 200
    assert (await send(server, token, b"c" * 300))[0] == 200
    status, told = await send(server, token, b"d")
    assert (status, told["code"]) == (429, "rate_limited")
    assert told["details"]["retry_after"] > 0


async def test_visitors_of_one_address_have_limits_of_their_own(starter: Starter) -> None:
    server = await starter.start(limits=ClientLimits(uploads=1))
    for _ in range(2):
        _, _, token = await visitor(server)
        assert (await send(server, token, b"a"))[0] == 200
        assert (await send(server, token, b"b"))[0] == 429


@pytest.mark.control("S31")
async def test_one_address_has_a_limit_of_its_own(starter: Starter) -> None:
    server = await starter.start(limits=ClientLimits(upload_bytes_per_hour=1_000))
    _, _, token = await visitor(server)
    assert (await send(server, token, b"a" * 1_000))[0] == 200
    _, _, other = await visitor(server)
    assert (await send(server, other, b"b"))[0] == 429


@pytest.mark.control("S07", "S48")
async def test_a_file_is_its_owners_alone(server: Server) -> None:
    _, _, token = await visitor(server)
    screen, _, stranger = await visitor(server)
    _, told = await send(server, token, b"secret")
    for caller in (stranger, "", "x" * 43):
        status, body, _ = await fetch(server, caller, told["id"])
        assert status in (401, 404)
        assert b"secret" not in body
    await screen.send({"t": "msg", "cid": "c1", "text": "mine?", "attachments": [told["id"]]})
    error = await screen.until("error", cid="c1")
    assert error["code"] == "unknown_file"
    assert await server.services.pool.fetchval("SELECT count(*) FROM entries") == 0
    assert (await fetch(server, token, "0" * 32))[0] in (401, 404)
    assert (await fetch(server, token, told["id"]))[1] == b"secret"


@pytest.mark.control("S12")
async def test_a_page_of_another_site_cannot_send(starter: Starter) -> None:
    server = await starter.start()
    await server.services.pool.execute(
        """INSERT INTO sites (name, agent_id, allowed_origins)
           SELECT 'shop', id, '{https://shop.example}' FROM agents LIMIT 1"""
    )
    _, _, token = await visitor(server)
    status, told = await send(server, token, b"x", Origin="https://shop.example")
    assert (status, told["code"]) == (403, "foreign_origin")
    status, told = await send(server, token, b"x", Origin="https://evil.example")
    assert (status, told["code"]) == (403, "foreign_origin")
    assert (await send(server, token, b"x", Origin=server.url))[0] == 200


async def test_a_foreign_page_learns_what_it_may_send(starter: Starter) -> None:
    server = await starter.start(allowed_origins="https://shop.example")
    asked = {"Origin": "https://shop.example", "Access-Control-Request-Method": "POST"}
    async with server.client.options(f"{server.url}/api/v1/uploads", headers=asked) as response:
        assert "X-File-Name" in response.headers["Access-Control-Allow-Headers"]
        assert response.headers["Access-Control-Allow-Origin"] == "https://shop.example"


async def test_without_a_visitor_nothing_is_taken(server: Server) -> None:
    status, told = await send(server, "x" * 43, b"x")
    assert (status, told["code"]) == (401, "unauthorized")


async def test_the_cookie_of_our_own_page_is_enough(server: Server) -> None:
    async with ClientSession() as client:
        async with client.get(f"{server.url}/chat") as page:
            cookie = page.cookies["evertalk_visitor"].value
        await server.greet(cookie=f"evertalk_visitor={cookie}")
        headers = {"Cookie": f"evertalk_visitor={cookie}", "X-File-Name": "a.txt"}
        address = f"{server.url}/api/v1/uploads"
        async with client.post(address, data=b"x", headers=headers) as foreign:
            assert foreign.status == 403
        async with client.post(address, data=b"x", headers={**headers, "Origin": server.url}) as ours:
            assert ours.status == 200
            told = await ours.json()
        address = f"{server.url}/api/v1/attachments/{told['id']}"
        async with client.get(address, headers={"Cookie": f"evertalk_visitor={cookie}"}) as shown:
            assert await shown.read() == b"x"


async def test_a_public_site_takes_files_only_where_it_says_so(starter: Starter) -> None:
    server = await starter.start(profile="public", limits=LOCAL)
    _, welcome, token = await visitor(server)
    assert "files" not in welcome["limits"]
    status, told = await send(server, token, b"x")
    assert (status, told["code"]) == (403, "files_not_allowed")
    await server.services.pool.execute("UPDATE sites SET config = '{\"uploads\": true}'")
    server.process.visitors.forget_sites()
    _, welcome, token = await visitor(server)
    assert welcome["limits"]["files"]["most"] == 5
    assert (await send(server, token, b"x"))[0] == 200


async def test_a_personal_site_may_refuse_files(server: Server) -> None:
    await server.services.pool.execute("UPDATE sites SET config = '{\"uploads\": false}'")
    _, welcome, token = await visitor(server)
    assert "files" not in welcome["limits"]
    assert (await send(server, token, b"x"))[0] == 403


async def test_a_message_shows_its_files_live_and_later(server: Server) -> None:
    screen, welcome, token = await visitor(server)
    _, seen = await send(server, token, picture(), name="x.png")
    _, read = await send(server, token, b"secret words", name="a.txt")
    ids = [seen["id"], read["id"]]
    await screen.send({"t": "msg", "cid": "c1", "text": "Look", "attachments": ids})
    live = await screen.until("msg", role="person")
    assert live["attachments"] == [seen, read]
    assert live["text"] == "Look"
    await screen.until("run", state="done")
    await screen.send({"t": "msg", "cid": "c2", "text": " ", "attachments": [ids[1], ids[1]]})
    alone = await screen.until("msg", role="person")
    assert (alone["text"], alone["attachments"]) == ("", [read])
    await screen.until("run", state="done")
    _, history = await server.greet(token=token)
    assert [event for event in history["events"] if event.get("role") == "person"] == [live, alone]
    _, missed = await server.greet(token=token, last_seq=live["event_seq"], session=welcome["session"])
    assert missed["resumed"] is True
    assert alone in missed["events"]
    blocks = json.dumps(await server.services.pool.fetchval("SELECT blocks FROM entries WHERE seq = 1"))
    assert "[File a.txt]\\nsecret words\\n[End of file]" in blocks


async def test_a_message_without_words_and_files_is_empty_still(server: Server) -> None:
    screen, _, _ = await visitor(server)
    await screen.send({"t": "msg", "cid": "c1", "text": " ", "attachments": []})
    assert (await screen.until("error", cid="c1"))["code"] == "empty_message"


@pytest.mark.parametrize(
    "ids", ["x", {"a": 1}, [1], ["../x"], ["A" * 32], ["a" * 32, None], [f"{n:032x}" for n in range(6)]]
)
async def test_ids_that_are_none_are_refused_and_the_talk_goes_on(server: Server, ids: Any) -> None:
    screen, _, _ = await visitor(server)
    await screen.send({"t": "msg", "cid": "c1", "text": "hi", "attachments": ids})
    assert (await screen.until("error", cid="c1"))["code"] == "bad_frame"
    assert await server.services.pool.fetchval("SELECT count(*) FROM entries") == 0
    await screen.say("hi", cid="c1")
    assert (await screen.until("ack", cid="c1"))["mid"] == "m1"


async def test_a_repeated_message_keeps_its_number_also_when_its_files_are_gone(server: Server) -> None:
    screen, _, token = await visitor(server)
    _, told = await send(server, token, b"words")
    frame = {"t": "msg", "cid": "c1", "text": "", "attachments": [told["id"]]}
    await screen.send(frame)
    first = await screen.until("ack", cid="c1")
    await server.services.pool.execute("DELETE FROM attachments")
    await screen.send(frame)
    again = await screen.until("ack", cid="c1")
    assert (again["mid"], again["dup"]) == (first["mid"], True)
    await screen.send({**frame, "cid": "c2"})
    assert (await screen.until("error", cid="c2"))["code"] == "unknown_file"


async def test_unused_upload_is_deleted_after_a_day_and_not_listed(
    server: Server,
) -> None:
    screen, _, token = await visitor(server)
    _, used = await send(server, token, b"used words")
    _, seen = await send(server, token, picture())
    _, left = await send(server, token, b"left words")
    await screen.send({"t": "msg", "cid": "c1", "text": "", "attachments": [used["id"], seen["id"]]})
    await screen.until("ack", cid="c1")
    pool: asyncpg.Pool[asyncpg.Record] = server.services.pool
    await pool.execute("UPDATE attachments SET created_at = now() - interval '21 hours'")
    await screen.send({"t": "msg", "cid": "c2", "text": "x", "attachments": [left["id"]]})
    assert (await screen.until("error", cid="c2"))["code"] == "unknown_file"
    await screen.send({"t": "msg", "cid": "c3", "text": "x", "attachments": [used["id"]]})
    await screen.until("ack", cid="c3")
    await pool.execute("UPDATE attachments SET created_at = now() - interval '25 hours'")
    rule = RULES["attachments"]
    assert isinstance(rule, Sweep)
    assert await pool.fetchval(render_statement("attachments", rule)) == 1
    assert (await fetch(server, token, left["id"]))[0] in (401, 404)
    assert (await fetch(server, token, used["id"]))[1] == b"used words"


async def test_of_long_texts_the_beginning_is_read_and_that_is_said(server: Server) -> None:
    screen, _, token = await visitor(server)
    _, long = await send(server, token, b"a" * 120_000, name="a.txt")
    _, short = await send(server, token, b"b" * 100, name="b.txt")
    assert long["cut"] is True
    assert "cut" not in short
    await screen.send({"t": "msg", "cid": "c1", "text": "", "attachments": [long["id"], short["id"]]})
    await screen.until("ack", cid="c1")
    stored = await server.services.pool.fetchval("SELECT blocks FROM entries WHERE seq = 1")
    assert [block["text"].count("(The rest of this file was left out.)") for block in stored] == [1, 1]
    assert stored[0]["text"].count("a" * 100_000) == 1


async def test_a_key_sends_no_files_where_its_site_takes_none(server: Server) -> None:
    pool = server.services.pool
    key = await make_key(pool, "messages:write")
    path = f"?session_id={await opened(server, key)}"
    assert (await call(server, "POST", f"/uploads{path}", key, data=b"x"))[0] == 200
    await pool.execute("""UPDATE sites SET config = '{"uploads": false}'""")
    server.process.visitors.forget_sites()
    status, told = await call(server, "POST", f"/uploads{path}", key, data=b"y")
    assert (status, told["code"]) == (403, "files_not_allowed")
    assert await pool.fetchval("SELECT count(*) FROM attachments") == 1
