"""Two tabs behind a line that breaks at every step of the protocol: both show each message once, in order."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Page, expect

from tests.browser.real.conftest import WITHIN_MS
from tests.kit.deployment.breakable_servers import Case
from tests.kit.deployment.person import Person
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.fakes.tcp_proxy import Cut, Link, TcpProxy, dripping, everything

pytestmark = pytest.mark.browser
PACE_MS = 40


def replies_with(line: TcpProxy, *words: bytes, arrives: bool) -> None:
    """The line breaks at the first reply that holds all these words, before or behind it."""

    async def hook(_link: Link, data: bytes) -> bytes:
        if not all(word in data.replace(b" ", b"") for word in words):
            return data
        line.heal()
        raise Cut(data if arrives else b"")

    line.replies = hook


def next_request(line: TcpProxy, *, arrives: bool) -> None:
    async def hook(_link: Link, data: bytes) -> bytes:
        line.heal()
        raise Cut(data if arrives else b"")

    line.requests = hook


ACK, DELTA, ANSWER = (b'"t":"ack"',), (b'"t":"delta"',), (b'"t":"msg"', b'"role":"assistant"')
STEPS: tuple[tuple[str, Any], ...] = (
    ("a message never arrives", lambda line: next_request(line, arrives=False)),
    ("a message arrives, and nobody says so", lambda line: next_request(line, arrives=True)),
    ("an acknowledgement is lost", lambda line: replies_with(line, *ACK, arrives=False)),
    ("the line breaks behind an acknowledgement", lambda line: replies_with(line, *ACK, arrives=True)),
    ("the line breaks in an answer", lambda line: replies_with(line, *DELTA, arrives=True)),
    ("an answer is lost", lambda line: replies_with(line, *ANSWER, arrives=False)),
    ("the line breaks behind an answer", lambda line: replies_with(line, *ANSWER, arrives=True)),
)


@pytest.mark.row("F51")
@pytest.mark.timeout(400)
async def test_both_tabs_show_the_same_whatever_fails(
    web_case: Case, tabs: BrowserContext, provider: RunningFake
) -> None:
    await provider.reset()
    await provider.set_pace(PACE_MS)
    settings = {"ANTHROPIC_BASE_URL": provider.base_url, "ANTHROPIC_API_KEY": "a-key-for-the-fake"}
    async with (
        web_case.web(**settings) as web,
        TcpProxy(upstream=("127.0.0.1", web_case.port)) as line,
        TcpProxy(upstream=("127.0.0.1", web_case.port)) as slow_line,
        Person(web_case.port, name="other") as other,
    ):
        await other.ask("Good day.")
        first, second = await _tab(tabs, line), await _tab(tabs, line)
        said = await _says_through_every_break(first, second, line)
        sleeper = await _never_reads(web_case, other)
        await _welcomed_anew(line)
        third = await _tab(tabs, slow_line)
        await _shows_the_same(first, second, third, said=said)
        slow_line.replies = dripping(0.02, size=100)
        for page in (first, second):
            await _ask(page, said, f"Said last, number {len(said)}.")
            await other.ask("And does the sleeper hold me up?")
        await _shows_the_same(first, second, third, said=said)
        await first.reload()
        await _shows_the_same(first, second, said=said)
        sleeper.transport.abort()
        assert web.exits == []
        await web_case.promises_hold(other)
    stored = "SELECT count(*) FROM entries WHERE author = 'person' AND NOT cid LIKE 'other%'"
    assert await web_case.value(stored) == len(said)


async def _tab(context: BrowserContext, line: TcpProxy) -> Page:
    page = await context.new_page()
    await page.goto(f"http://127.0.0.1:{line.port}/chat")
    return page


async def _says_through_every_break(first: Page, second: Page, line: TcpProxy) -> list[str]:
    said: list[str] = []
    await _ask(first, said, "Good morning.")
    for what, break_it in STEPS:
        for page in (first, second):
            await expect(page.get_by_role("textbox", name="Message")).to_be_enabled()
        break_it(line)
        await _ask(first, said, f"Said while {what}.")
        line.heal()
        await _shows_the_same(first, second, said=said)
    return said


async def _welcomed_anew(line: TcpProxy) -> None:
    """All lines break, and the next words of greeting are lost, before and behind they arrive."""
    for arrives in (False, True):
        for lost in (_hello, _welcome):
            lost(line, arrives=arrives)
            line.cut()
            async with asyncio.timeout(WITHIN_MS / 1_000):
                while (line.requests, line.replies) != (everything, everything):
                    await asyncio.sleep(0.05)


def _hello(line: TcpProxy, *, arrives: bool) -> None:
    """What a tab says first when its socket is open; a page's words to a socket are masked."""

    async def hook(link: Link, data: bytes) -> bytes:
        if not link.asked:
            return data
        line.heal()
        raise Cut(data if arrives else b"")

    line.requests = hook


def _welcome(line: TcpProxy, *, arrives: bool) -> None:
    replies_with(line, b'"t":"welcome"', arrives=arrives)


async def _ask(page: Page, said: list[str], text: str) -> None:
    said.append(text)
    box = page.get_by_role("textbox", name="Message")
    await box.fill(text)
    await box.press("Enter")
    answers = page.locator("article.assistant[data-status=sent]")
    await expect(answers).to_have_count(len(said), timeout=WITHIN_MS)


async def _shows_the_same(*pages: Page, said: list[str]) -> None:
    for page in pages:
        await expect(page.locator("article.assistant[data-status=sent]")).to_have_count(
            len(said), timeout=WITHIN_MS
        )
    end = time.monotonic() + WITHIN_MS / 1_000
    while (shown := [await _transcript(page) for page in pages]) != [shown[0]] * len(pages):
        # One of them may just be welcomed anew, and draws what the other has drawn.
        assert time.monotonic() < end, "\n".join(map(repr, shown))
        await asyncio.sleep(0.1)
    assert [text for who, text in shown[0] if who == "person"] == said
    assert len(shown[0]) == 2 * len(said)
    for page in pages:
        assert await page.evaluate("doubled") == []


async def _transcript(page: Page) -> list[tuple[str, str]]:
    found = await page.locator("article").evaluate_all(
        """all => all.map(one => {
             const words = (one.querySelector(".md") ?? one).cloneNode(true);
             words.querySelectorAll("time, button, svg").forEach(part => part.remove());
             return [one.classList.contains("assistant") ? "assistant" : "person", words.textContent];
           })"""
    )
    return [(who, text.strip()) for who, text in found]


async def _never_reads(case: Case, other: Person) -> asyncio.StreamWriter:
    """A tab of the other person that says hello and sleeps on all it is told."""
    hello = b'{"t": "hello", "v": 1, "site": "default", "last_seq": 0, "token": "%s"}'
    frame = hello % str(other.token).encode()
    asked = (
        f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{case.port}\r\nOrigin: http://127.0.0.1:{case.port}\r\n"
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", case.port)
    writer.write(asked)
    async with asyncio.timeout(30):
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    writer.write(b"\x81" + bytes([0x80 | 126]) + len(frame).to_bytes(2, "big") + b"\0\0\0\0" + frame)
    await writer.drain()
    transport = writer.transport
    assert isinstance(transport, asyncio.Transport)
    transport.pause_reading()
    return writer
