"""The line that tests break: it carries what it should, and breaks where it is told to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.kit.fakes.tcp_proxy import (
    DONE_WITH_A_TRANSACTION,
    Link,
    LostReplies,
    TcpProxy,
    cut_after,
    delayed,
    dripping,
)

WORDS = b"0123456789" * 20


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1000):
        writer.write(data)
    writer.close()


@asynccontextmanager
async def through(proxy: TcpProxy) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", proxy.port), 60)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


@pytest.fixture
async def proxy() -> AsyncIterator[TcpProxy]:
    server = await asyncio.start_server(_echo, "127.0.0.1", 0)
    upstream = ("127.0.0.1", int(server.sockets[0].getsockname()[1]))
    async with TcpProxy(upstream=upstream) as running:
        yield running
    server.close()


async def _asked(proxy: TcpProxy, words: bytes, *, wanted: int) -> bytes:
    """What comes back: as much as is wanted, or less where the line breaks."""
    async with through(proxy) as (reader, writer):
        writer.write(words)
        try:
            return await asyncio.wait_for(reader.readexactly(wanted), 60)
        except asyncio.IncompleteReadError as error:
            return error.partial
        except ConnectionError:
            return b""


async def test_a_line_that_is_well_carries_everything(proxy: TcpProxy) -> None:
    assert await _asked(proxy, WORDS, wanted=200) == WORDS
    assert proxy.connections == 1


@pytest.mark.parametrize("number", [0, 1, 37, 199])
async def test_replies_break_off_after_given_bytes_and_next_connection_works(
    proxy: TcpProxy, number: int
) -> None:
    proxy.replies = cut_after(number)
    assert await _asked(proxy, WORDS, wanted=200) == WORDS[:number]
    assert await _asked(proxy, WORDS, wanted=200) == WORDS


async def test_a_slow_line_loses_nothing(proxy: TcpProxy) -> None:
    proxy.replies = delayed(0.01)
    assert await _asked(proxy, WORDS, wanted=200) == WORDS
    proxy.replies = dripping(0.001, size=7)
    assert await _asked(proxy, WORDS, wanted=200) == WORDS


async def test_every_open_line_can_be_cut_and_who_comes_can_be_refused(proxy: TcpProxy) -> None:
    async with through(proxy) as (reader, writer):
        writer.write(b"a")
        assert await asyncio.wait_for(reader.read(1), 60) == b"a"
        assert proxy.cut() == 1
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await asyncio.wait_for(reader.readexactly(1), 60)
    proxy.refuses = True
    assert await _asked(proxy, WORDS, wanted=1) == b""
    proxy.heal()
    assert await _asked(proxy, WORDS, wanted=200) == WORDS


async def test_several_servers_take_turns(proxy: TcpProxy) -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read(100)).upper())
        writer.close()

    other = await asyncio.start_server(shout, "127.0.0.1", 0)
    proxy.others = [("127.0.0.1", int(other.sockets[0].getsockname()[1]))]
    heard = {await _asked(proxy, b"hello", wanted=5) for _ in range(2)}
    other.close()
    assert heard == {b"hello", b"HELLO"}


async def test_a_server_that_is_not_there_cuts_the_line(tmp_path: Path) -> None:
    async with TcpProxy(upstream=tmp_path / "nobody") as proxy:
        assert await _asked(proxy, WORDS, wanted=1) == b""


async def test_who_comes_while_it_closes_is_cut_off(proxy: TcpProxy) -> None:
    async def came(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        proxy._came(reader, writer)
        await proxy.__aexit__()

    server = await asyncio.start_server(came, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), 20) == b""
    writer.transport.abort()
    server.close()


async def test_only_replies_that_end_a_transaction_are_lost(proxy: TcpProxy) -> None:
    lost = LostReplies(share=1.0, skip=1)
    proxy.replies = lost
    async with through(proxy) as (reader, writer):
        for words in (b"a row", b"begun" + DONE_WITH_A_TRANSACTION, b"another row"):
            writer.write(words)
            assert await asyncio.wait_for(reader.readexactly(len(words)), 60) == words
        writer.write(b"done" + DONE_WITH_A_TRANSACTION)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await asyncio.wait_for(reader.readexactly(1), 60)
    assert lost.lost == 1


async def test_the_same_seed_loses_the_same_replies() -> None:
    async def losses(seed: int) -> list[int]:
        hook, found = LostReplies(share=0.2, seed=seed, skip=0), []
        for number in range(100):
            try:
                await hook(Link(number=1), DONE_WITH_A_TRANSACTION)
            except Exception:
                found.append(number)
        return found

    assert await losses(1) == await losses(1) != await losses(2)
