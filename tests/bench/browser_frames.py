"""From a piece of an answer to a browser's frame, house and bare echo in turns, in one Chromium.

Both pages do the same with a piece: take it out of the frame, and write it into the page. What is measured is
the time until the browser heard it, and until it painted the next frame.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from playwright.async_api import Browser

STEP_SECONDS = 60.0
_OPEN = """([address, hello]) => new Promise((resolve, reject) => {
  const heard = [], place = document.body.appendChild(document.createElement('p'));
  const now = () => performance.timeOrigin + performance.now();
  const socket = new WebSocket(address);
  window.bench = { socket, heard };
  socket.onerror = () => reject(new Error('no socket'));
  socket.onopen = () => hello ? socket.send(JSON.stringify(hello)) : resolve('');
  socket.onmessage = message => {
    const frame = JSON.parse(message.data);
    if (frame.t === 'welcome') return resolve(frame.session);
    if (frame.t !== 'delta') return;
    const born = Number(frame.text.split(' ')[1]) / 1e6, arrived = now();
    place.textContent += frame.text.slice(-20);
    requestAnimationFrame(() => heard.push([arrived - born, now() - born]));
  };
})"""
_HEARD = "count => window.bench.heard.length >= count"


class Server(Protocol):
    @property
    def url(self) -> str: ...
    @property
    def is_house(self) -> bool: ...
    async def deltas(self, *, session: str, count: int, size: int) -> None: ...


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Raises RuntimeError where there is none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        raise RuntimeError("no Chromium on this machine")
    from playwright.async_api import async_playwright

    options = ["--no-sandbox"] if sys.platform.startswith("linux") and os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=options)
        try:
            yield browser
        finally:
            await browser.close()


async def in_browser(
    echo: Server, house: Server, *, hello: dict[str, Any], count: int, blocks: int
) -> dict[str, Any]:
    """The medians of both, and of the ratios of pairs."""
    async with chromium() as browser:
        for warm in (echo, house):
            await _waits(browser, warm, hello, count)
        pairs = [
            (await _waits(browser, echo, hello, count), await _waits(browser, house, hello, count))
            for _ in range(blocks)
        ]
    found: dict[str, Any] = {}
    for name, which in (("browser_message", 0), ("browser_frame", 1)):
        found |= {
            f"{name}_ratio": round(statistics.median(ours[which] / bare[which] for bare, ours in pairs), 2),
            f"{name}_ms": round(statistics.median(ours[which] for _, ours in pairs), 2),
            f"{name}_echo_ms": round(statistics.median(bare[which] for bare, _ in pairs), 2),
        }
    return found


async def _waits(browser: Browser, server: Server, hello: dict[str, Any], count: int) -> tuple[float, float]:
    """Milliseconds until the message was heard, and until the next frame."""
    context = await browser.new_context(bypass_csp=True)
    try:
        page = await context.new_page()
        await page.goto(f"{server.url}/healthz", timeout=STEP_SECONDS * 1_000)
        address = f"{server.url.replace('http', 'ws', 1)}/ws{'' if server.is_house else '?hear=1'}"
        asked = [address, hello if server.is_house else None]
        session = await asyncio.wait_for(page.evaluate(_OPEN, asked), STEP_SECONDS)
        await server.deltas(session=session, count=count, size=20)
        await page.wait_for_function(_HEARD, arg=count, timeout=STEP_SECONDS * 1_000)
        heard = await page.evaluate("() => window.bench.heard")
        return statistics.median(one for one, _ in heard), statistics.median(two for _, two in heard)
    finally:
        await context.close()
