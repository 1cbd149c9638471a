"""The chat behind a proxy that forbids WebSockets and holds event streams back: it talks by polls.

`STORMS=100` in the environment makes it as many.
"""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Error, Page, expect

from tests.browser.real.compared import wait_until_equal
from tests.browser.real.conftest import WITHIN_MS
from tests.kit.deployment.breakable_servers import Case
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.fakes.strict_proxy.harness import RunningProxy
from tests.kit.night import rest_at_night

pytestmark = pytest.mark.browser
STORMS = int(os.environ.get("STORMS") or 100)
PACE_MS = 60
SEED = 11
NETWORKS: dict[str, dict[str, Any]] = {
    "forbids upgrades, and streams but for their headers": {
        "upgrades": "refused",
        "streams": "headers",
    },
    "never answers upgrades and holds streams back": {"upgrades": "hang", "streams": "held"},
    "cuts what takes three seconds": {"upgrades": "refused", "streams": "held", "cut_seconds": 3.0},
}


def settings_of(provider: RunningFake) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": provider.base_url, "ANTHROPIC_API_KEY": "a-key-for-the-fake"}


async def say(page: Page, words: str) -> None:
    box = page.get_by_role("textbox", name="Message")
    await box.fill(words)
    await box.press("Enter")


@pytest.mark.parametrize("network", rest_at_night(NETWORKS, by_day=("cuts what takes three seconds",)))
@pytest.mark.timeout(200)
async def test_talk_goes_by_polls_where_nothing_else_passes(
    web_case: Case, tabs: BrowserContext, provider: RunningFake, network: str
) -> None:
    await provider.reset()
    await provider.set_pace(150)
    async with web_case.web(**settings_of(provider)), RunningProxy(upstream=web_case.port) as proxy:
        await proxy.set_rules(**NETWORKS[network])
        page = await tabs.new_page()
        await page.goto(f"{proxy.origin}/chat")
        await say(page, "Is anybody there?")
        draft = page.locator("article.assistant[data-status=draft] .body")
        await expect(draft).to_contain_text(" ", timeout=WITHIN_MS)  # it grows before it is whole
        await wait_until_equal(web_case, [page], network)
        await say(page, "And again?")
        await expect(page.locator("article.assistant[data-status=sent]")).to_have_count(2, timeout=WITHIN_MS)
        await wait_until_equal(web_case, [page], network)
        seen = await proxy.seen()
        assert seen["polls"] > 2
        assert "sockets" not in seen
        await page.goto("about:blank")
    assert await web_case.value("SELECT count(*) FROM entries WHERE author = 'person'") == 2


@pytest.mark.timeout(200)
async def test_talk_moves_back_to_the_socket_when_the_proxy_lets_it(
    web_case: Case, tabs: BrowserContext, provider: RunningFake
) -> None:
    await provider.reset()
    async with web_case.web(**settings_of(provider)), RunningProxy(upstream=web_case.port) as proxy:
        await proxy.set_rules(upgrades="refused", streams="headers")
        page = await tabs.new_page()
        await page.goto(f"{proxy.origin}/chat")
        await say(page, "By polls.")
        await expect(page.locator("article.assistant[data-status=sent]")).to_have_count(1, timeout=WITHIN_MS)
        async with page.expect_websocket(timeout=2 * WITHIN_MS):
            await proxy.set_rules()
        async with asyncio.timeout(WITHIN_MS / 1_000):
            while not (await proxy.seen()).get("sockets"):
                await asyncio.sleep(0.1)
        await say(page, "By the socket.")
        await expect(page.locator("article.assistant[data-status=sent]")).to_have_count(2, timeout=WITHIN_MS)
        await wait_until_equal(web_case, [page], "after the move")
        await page.goto("about:blank")


class Network:
    """One storm after another between two tabs and the server, the same for the same seed."""

    def __init__(self, proxy: RunningProxy, tabs: list[Page], *, seed: int) -> None:
        self._proxy = proxy
        self._tabs = tabs
        self._chance = random.Random(seed)
        self.said = 0

    async def storm(self) -> None:
        """A few gusts while something is said and answered; upgrades and streams never pass."""
        await self._say()
        for _ in range(self._chance.randint(1, 3)):
            await self._proxy.set_rules(
                upgrades=self._chance.choice(("refused", "hang")),
                streams=self._chance.choice(("headers", "held")),
                cut_seconds=self._chance.choice((0.0, 0.5, 2.0)),
                trouble=self._chance.choice((0.0, 0.3, 0.7)),
            )
            await asyncio.sleep(self._chance.uniform(0.05, 0.6))
            if self._chance.random() < 0.4:
                await self._proxy.cut()
            if self._chance.random() < 0.15:
                await self._reload()
            if self._chance.random() < 0.4:
                await self._say()
        await self._proxy.set_rules(upgrades="refused", streams="headers")

    @staticmethod
    def words(number: int) -> str:
        return f"Said behind the proxy, number {number}."

    async def _say(self) -> None:
        self.said += 1
        await say(self._chance.choice(self._tabs), self.words(self.said))

    async def _reload(self) -> None:
        page = self._chance.choice(self._tabs)
        for _ in range(20):
            try:
                await page.reload(wait_until="domcontentloaded")
                await page.get_by_role("textbox", name="Message").wait_for(timeout=5_000)
            except Error:
                await self._proxy.set_rules(upgrades="refused", streams="headers")
            else:
                return


async def weather_the_storms(
    case: Case, context: BrowserContext, provider: RunningFake, *, storms: int
) -> None:
    await provider.reset()
    await provider.set_pace(PACE_MS)
    async with case.web(**settings_of(provider)), RunningProxy(upstream=case.port) as proxy:
        await proxy.set_rules(upgrades="refused", streams="headers")
        tabs = [await context.new_page() for _ in range(2)]
        for page in tabs:
            await page.goto(f"{proxy.origin}/chat")
            await page.get_by_role("textbox", name="Message").wait_for()
        network = Network(proxy, tabs, seed=SEED)
        for number in range(storms):
            await network.storm()
            await wait_until_equal(case, tabs, f"storm {number}")
        assert "sockets" not in await proxy.seen()
        for page in tabs:
            assert await page.evaluate("doubled") == []
            await page.goto("about:blank")
        stored = await case.value("SELECT array_agg(words) FROM entry_rows WHERE author = 'person'")
        assert sorted(stored) == sorted(network.words(number + 1) for number in range(network.said))


@pytest.mark.timeout(300)
async def test_few_storms_behind_a_proxy_lose_and_double_nothing(
    web_case: Case, tabs: BrowserContext, provider: RunningFake
) -> None:
    await weather_the_storms(web_case, tabs, provider, storms=5)


@pytest.mark.night
@pytest.mark.timeout(120 + 20 * STORMS)
async def test_storms_behind_a_proxy_lose_and_double_nothing(
    web_case: Case, tabs: BrowserContext, provider: RunningFake
) -> None:
    await weather_the_storms(web_case, tabs, provider, storms=STORMS)
