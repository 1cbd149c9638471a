"""The webhook: secret, size, inbox, 200, in this order; and the fake's own courier posts to it."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiogram import Bot
from aiohttp import web
from pytest_aiohttp import AiohttpServer

from bot.telegram.inbound.update_parser import ALLOWED_UPDATES
from bot.telegram.inbound.webhook import (
    MAX_BODY_BYTES,
    PATH,
    SECRET_HEADER,
    WEBHOOK_TAKEN,
    BadWebhook,
    WebhookConfig,
    find_foreign_webhook,
    make_webhook_handler,
    register_webhook,
)
from shared.adapters.postgres.telegram.inbox import PostgresTelegramInbox
from shared.core.values.errors import StorageUnavailable
from tests.integration.bot.inbound.conftest import texts, texts_come
from tests.kit.fakes.bot_api import Person, RunningBotApi
from tests.kit.telegram.updates import BOT, raw

SECRET = "a-secret_of-more-than-32-characters_0123"


@dataclass
class Door:
    """A server with the handler, and the inbox behind it, which can be away."""

    inbox: PostgresTelegramInbox
    port: int = 0
    away: int = 0
    rings: list[int] = field(default_factory=list)

    async def store(self, bot_id: int, updates: Sequence[Mapping[str, Any]]) -> int:
        if self.away:
            self.away -= 1
            raise StorageUnavailable("away")
        return await self.inbox.store(bot_id, updates)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/telegram/{BOT.bot_id}"


@pytest.fixture
async def door(inbox: PostgresTelegramInbox, aiohttp_server: AiohttpServer) -> Door:
    made = Door(inbox)
    app = web.Application()
    secrets = {BOT.bot_id: SECRET}
    app.router.add_post(
        PATH, make_webhook_handler(made, find_secret=secrets.get, on_stored=made.rings.append)
    )
    server = await aiohttp_server(app, auto_decompress=False)
    made.port = server.port or 0
    return made


async def posted(
    http: aiohttp.ClientSession, url: str, body: bytes, secret: str | None = SECRET, **headers: str
) -> int:
    sent = {**headers, **({SECRET_HEADER: secret} if secret is not None else {})}
    async with http.post(url, data=body, headers=sent) as response:
        assert await response.text() == ""
        return response.status


def body(**changes: Any) -> bytes:
    return json.dumps({**raw(), **changes}).encode()


async def test_valid_update_is_stored_then_acknowledged_then_announced(
    door: Door, http: aiohttp.ClientSession, inbox: PostgresTelegramInbox
) -> None:
    assert await posted(http, door.url, body()) == 200
    assert await texts(inbox) == ["Hello"]
    assert door.rings == [BOT.bot_id]


WRONG = [None, "", "wrong", SECRET[:-1], SECRET + "x", "ünï©ode", "\udcff\udcfe", "-" * 32]


@pytest.mark.control("S01", "S50")
async def test_webhook_without_its_secret_is_refused(door: Door, inbox: PostgresTelegramInbox) -> None:
    for secret in WRONG:
        assert await raw_post(door, secret, body()) == 401, secret
    assert not await texts(inbox)


async def raw_post(door: Door, secret: str | None, content: bytes, *, path: str = "") -> int:
    """By hand, because a client would not send such headers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    target = path or f"/telegram/{BOT.bot_id}"
    head = f"POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n".encode()
    if secret is not None:
        head += SECRET_HEADER.encode() + b": " + secret.encode("utf-8", "surrogateescape") + b"\r\n"
    writer.write(head + b"Connection: close\r\n\r\n" + content)
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return int(answer.split()[1])


@pytest.mark.control("S01")
async def test_the_secret_is_asked_before_the_body_is_read(door: Door) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(b"POST /telegram/700001 HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n{")
    answer = await asyncio.wait_for(reader.readline(), 60)
    writer.close()
    assert b" 401 " in answer


@pytest.mark.control("S02")
async def test_other_bots_have_no_door_here(door: Door) -> None:
    for bot_id in ["1", "0", "700001x", "99999999999999999999", "%D9%A1"]:
        assert await raw_post(door, SECRET, body(), path=f"/telegram/{bot_id}") == 401, bot_id


@pytest.mark.control("S32")
async def test_five_megabytes_are_too_much_however_they_come(
    door: Door, http: aiohttp.ClientSession, inbox: PostgresTelegramInbox
) -> None:
    large = b'{"update_id": 1, "x": "' + b"x" * 5_000_000 + b'"}'

    async def dripped() -> AsyncIterator[bytes]:
        for start in range(0, len(large), 65_536):
            yield large[start : start + 65_536]

    assert await status_of_large(http, door, io.BytesIO(large)) == 413
    assert await status_of_large(http, door, dripped()) == 413
    edge = b'{"update_id": 1, "x": "' + b"x" * (MAX_BODY_BYTES - 25) + b'"}'
    assert len(edge) == MAX_BODY_BYTES
    assert await posted(http, door.url, edge) == 200
    assert not await texts(inbox)


async def status_of_large(http: aiohttp.ClientSession, door: Door, content: Any) -> int:
    """The server may hang up before it has been sent everything; then it has refused as well."""
    try:
        async with http.post(door.url, data=content, headers={SECRET_HEADER: SECRET}) as response:
            return response.status
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
        return 413


NO_UPDATES = [
    b"",
    b"{",
    b"[1]",
    b"null",
    b'"x"',
    b"\xff\xfe",
    b"{}",
    b'{"update_id": "1"}',
    b'{"update_id": true}',
    b'{"update_id": 1.5}',
    b'{"update_id": -1}',
    b'{"update_id": 99999999999999999999}',
    b'{"update_id": 1, "x": NaN}',
    b'{"update_id": 1, "x": 1e999}',
    b'{"update_id": 1, "x": ' + b"[" * 500 + b"]" * 500 + b"}",
    b'{"update_id": 1, "x": ' + b"[" * 200_000,
    b'{"update_id": 1, "x": ' + b"9" * 5_000 + b"}",
]


async def test_what_is_no_update_is_refused_without_words(door: Door, http: aiohttp.ClientSession) -> None:
    for content in NO_UPDATES:
        assert await posted(http, door.url, content) == 400, content[:40]
    assert not door.rings


@pytest.mark.control("S35")
async def test_a_compressed_body_is_refused(door: Door, http: aiohttp.ClientSession) -> None:
    for content in (b"no gzip at all", gzip.compress(body()), gzip.compress(b"x" * 9_000_000)):
        assert await posted(http, door.url, content, **{"Content-Encoding": "gzip"}) == 415


async def test_odd_characters_do_not_stop_the_inbox(
    door: Door, http: aiohttp.ClientSession, inbox: PostgresTelegramInbox
) -> None:
    content = b'{"update_id": 5, "message": {"text": "a\\u0000b\\ud800c"}}'
    assert await posted(http, door.url, content) == 200
    assert await texts(inbox) == ["a\ufffdb\ufffdc"]


async def test_without_postgres_telegram_is_asked_to_come_again(
    door: Door, http: aiohttp.ClientSession, inbox: PostgresTelegramInbox
) -> None:
    door.away = 1
    async with http.post(door.url, data=body(), headers={SECRET_HEADER: SECRET}) as response:
        assert (response.status, response.headers["Retry-After"]) == (503, "5")
    assert not await texts(inbox)
    assert await posted(http, door.url, body()) == 200


async def test_the_same_post_in_parallel_is_one_row_and_one_ring(
    door: Door, http: aiohttp.ClientSession, inbox: PostgresTelegramInbox
) -> None:
    statuses = await asyncio.gather(*(posted(http, door.url, body()) for _ in range(8)))
    assert statuses == [200] * 8
    assert await texts(inbox) == ["Hello"]
    assert door.rings == [BOT.bot_id]


async def test_telegram_delivers_through_copies_and_an_absent_database(
    bot_api: RunningBotApi, newcomer: Person, inbound_bot: Bot, door: Door, inbox: PostgresTelegramInbox
) -> None:
    await bot_api.set_speed(20)
    door.away = 2
    await bot_api.duplicate_updates(2, copies=3)
    assert await register_webhook(inbound_bot, WebhookConfig(url=door.url, secret=SECRET))
    for word in ("one", "two", "three"):
        await newcomer.say(word)
    assert await texts_come(inbox, 3) == ["one", "two", "three"]
    await asyncio.sleep(0.2)
    assert await texts(inbox) == ["one", "two", "three"]
    posts = (await bot_api.bot())["posts"]
    assert posts["503"] == 2
    assert set(posts) == {"200", "503"}
    assert not await bot_api.violations()


async def test_telegram_webhook_is_set_only_when_it_differs(
    bot_api: RunningBotApi, inbound_bot: Bot, door: Door
) -> None:
    mode = WebhookConfig(url=door.url, secret=SECRET)
    await bot_api.fail("getWebhookInfo", reset="before")
    assert await register_webhook(inbound_bot, mode)
    assert not await register_webhook(inbound_bot, mode)
    assert await register_webhook(inbound_bot, WebhookConfig(url=door.url, secret=SECRET + "x"))
    calls = await bot_api.calls("setWebhook")
    told = [call["params"] for call in calls if call["status"] == 200]
    assert [one["secret_token"] for one in told] == [SECRET, SECRET + "x"]
    assert told[0]["drop_pending_updates"] is False
    assert (await bot_api.bot())["allowed_updates"] == sorted(ALLOWED_UPDATES)


async def test_webhook_of_another_deployment_is_reported(
    bot_api: RunningBotApi, inbound_bot: Bot, door: Door
) -> None:
    mode = WebhookConfig(url=door.url, secret=SECRET)
    await register_webhook(inbound_bot, mode)
    assert await find_foreign_webhook(inbound_bot, mode) == ""
    await bot_api.advance_clock(2)
    await register_webhook(inbound_bot, WebhookConfig(url=f"{door.url}/other", secret=SECRET))
    assert await find_foreign_webhook(inbound_bot, mode) == WEBHOOK_TAKEN
    await bot_api.fail("getWebhookInfo", reset="before")
    assert await find_foreign_webhook(inbound_bot, mode) is None


@pytest.mark.control("S01")
@pytest.mark.parametrize("secret", ["", "tiny-and-weak", "x" * 31, "ü" * 40, "a b" * 20, "x" * 257])
def test_a_weak_secret_refuses_to_start(secret: str) -> None:
    with pytest.raises(BadWebhook) as caught:
        WebhookConfig(url="https://bot.example/telegram/1", secret=secret)
    assert "32" in caught.value.advice
    assert not secret or secret not in str(caught.value)


@pytest.mark.control("S02")
@pytest.mark.parametrize(
    "url",
    [
        "http://bot.example/x",
        "bot.example",
        "",
        "ftp://bot.example",
        "https://",
        "https://b.example:8080",
        "http://[x",
    ],
)
def test_an_address_that_telegram_cannot_use_is_refused(url: str) -> None:
    with pytest.raises(BadWebhook) as caught:
        WebhookConfig(url=url, secret=SECRET)
    assert caught.value.advice


@pytest.mark.parametrize(
    "url",
    ["https://bot.example/x", "https://bot.example:8443/x", "http://127.0.0.1:99/x", "http://localhost/x"],
)
def test_good_addresses_are_taken(url: str) -> None:
    assert WebhookConfig(url=url, secret=SECRET).registered_url.startswith(url)
