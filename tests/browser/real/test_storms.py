"""Two tabs in storms of resets, refusals, black holes and reloads: in the end both show what Postgres holds.

`STORMS=200` in the environment makes it as many. By day test_breaks.py breaks each kind of line once.
"""

from __future__ import annotations

import asyncio
import os
import random

import pytest
from playwright.async_api import BrowserContext, Error, Page

from tests.browser.real.compared import wait_until_equal
from tests.kit.deployment.breakable_servers import Case
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.fakes.tcp_proxy import Link, TcpProxy

pytestmark = pytest.mark.browser
STORMS = int(os.environ.get("STORMS") or 30)
PACE_MS = 60
SEED = 7
STATES = "all => all.slice(-8).map((one) => [one.dataset.mid, one.dataset.status, one.innerText])"


async def black_hole(_link: Link, _data: bytes) -> bytes:
    """What is said is lost, and nobody hears that it is."""
    return b""


class Weather:
    """One storm after another over two tabs, the same for the same seed."""

    def __init__(self, line: TcpProxy, tabs: list[Page], *, seed: int) -> None:
        self._line = line
        self._tabs = tabs
        self._chance = random.Random(seed)
        self.said = 0

    async def storm(self) -> None:
        """A few gusts while something is said and answered."""
        speaker = self._chance.choice(self._tabs)
        await self._say(speaker)
        for _ in range(self._chance.randint(1, 4)):
            await asyncio.sleep(self._chance.uniform(0.02, 0.6))
            gust = self._chance.choice((self._reset, self._refusal, self._hole, self._reload))
            await gust()
            if self._chance.random() < 0.3:
                await self._say(self._chance.choice(self._tabs))
        self._line.heal()
        self._line.cut()  # a black hole is noticed after two heartbeats only

    @staticmethod
    def words(number: int) -> str:
        return f"Said in the storm, number {number}."

    async def _say(self, page: Page) -> None:
        self.said += 1
        box = page.get_by_role("textbox", name="Message")
        await box.fill(self.words(self.said))
        await box.press("Enter")

    async def _reset(self) -> None:
        self._line.cut()

    async def _refusal(self) -> None:
        self._line.refuses = True
        self._line.cut()
        await asyncio.sleep(self._chance.uniform(0.1, 0.8))
        self._line.refuses = False

    async def _hole(self) -> None:
        self._line.replies = black_hole
        if self._chance.random() < 0.5:
            self._line.requests = black_hole
        await asyncio.sleep(self._chance.uniform(0.1, 0.6))
        self._line.heal()
        self._line.cut()

    async def _reload(self) -> None:
        page = self._chance.choice(self._tabs)
        for _ in range(20):
            try:
                await page.reload(wait_until="domcontentloaded")
                await page.get_by_role("textbox", name="Message").wait_for(timeout=5_000)
            except Error:
                self._line.heal()
            else:
                return


@pytest.mark.night
@pytest.mark.timeout(120 + 20 * STORMS)
async def test_after_storms_both_tabs_equal_the_database_in_id_and_order(
    web_case: Case, tabs: BrowserContext, provider: RunningFake
) -> None:
    await provider.reset()
    await provider.set_pace(PACE_MS)
    settings = {"ANTHROPIC_BASE_URL": provider.base_url, "ANTHROPIC_API_KEY": "a-key-for-the-fake"}
    async with web_case.web(**settings), TcpProxy(upstream=("127.0.0.1", web_case.port)) as line:
        pages = [await tabs.new_page() for _ in range(2)]
        for page in pages:
            await page.goto(f"http://127.0.0.1:{line.port}/chat")
            await page.get_by_role("textbox", name="Message").wait_for()
        weather = Weather(line, pages, seed=SEED)
        for number in range(STORMS):
            await weather.storm()
            await wait_until_equal(web_case, pages, f"storm {number}")
        states = [await page.locator("article").evaluate_all(STATES) for page in pages]
        kept = [await page.evaluate("Object.entries(localStorage)") for page in pages]
        for page in pages:
            await page.goto("about:blank")  # its line would else be looked for where the proxy no longer is
        stored = await web_case.value("SELECT array_agg(words) FROM entry_rows WHERE author = 'person'")
        missing = {weather.words(number) for number in range(1, weather.said + 1)} - set(stored)
        assert not missing, f"{missing} of {weather.said}: {states}, {kept}"
        assert len(stored) == weather.said
