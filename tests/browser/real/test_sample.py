"""One minute that shows a conversation without an end: a year is played, and can be taken out again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Page, expect

from shared.bootstrap.app import App, open_app
from shared.config.settings import load_settings
from shared.samples import load_year
from tests.browser.axe import look_for_faults
from tests.browser.real.photographs import photograph

pytestmark = pytest.mark.browser
PLAYED_MS = 80_000
"""Ten seconds where nothing else runs."""


@pytest.fixture(autouse=True)
async def worker(database_url: str, redis_url: str) -> AsyncIterator[None]:
    """Summarises beside the page's own process."""
    app = await open_app(load_settings(database_url=database_url, redis_url=redis_url), role="worker")
    working = asyncio.ensure_future(_work(app))
    yield
    working.cancel()
    await asyncio.wait([working])
    await app.close()


async def _work(app: App) -> None:
    while True:
        for job in await app.stores.jobs.due_jobs():
            await app.job_runner.run(job.id)
        await asyncio.sleep(0.05)


async def test_a_year_is_played_summarised_looked_at_and_removed(chat: Page) -> None:
    guide, messages = (
        chat.get_by_role("region", name="Try it"),
        chat.locator("article > .meta[data-sample=Sample]"),
    )
    answers, card = chat.locator("article.assistant[data-status=sent]"), chat.locator(".card")

    await guide.get_by_role("button", name="Show me a year of conversation").click()
    began = time.perf_counter()
    await expect(chat.locator("article.result")).to_contain_text("written for this demo")
    await expect(guide).to_contain_text("is being played")
    await expect(card).to_contain_text("→", timeout=PLAYED_MS)
    await expect(guide).to_contain_text("Earlier conversation was summarised")
    summarised = time.perf_counter() - began
    await expect(guide).to_contain_text("The sample ends here", timeout=PLAYED_MS)
    # A figure for `pytest -s`; a slow machine may take longer.
    print(f"sample: summary after {summarised:.1f} s, end after {time.perf_counter() - began:.1f} s")
    await expect(messages).to_have_count(2 * len(load_year()))
    await photograph(chat, "sample-ended")
    assert await look_for_faults(chat) == []

    await guide.get_by_role("button", name="Ask about the beginning").click()
    await expect(answers.last).to_contain_text("Saffron must never get fish")
    await guide.get_by_role("button", name="See the originals").click()
    await card.get_by_role("button", name="Earlier messages").click()
    await expect(card.get_by_role("tabpanel", name="Original")).to_contain_text("I'm Nora, I live in Bergen")
    await photograph(chat, "sample-originals")
    await guide.get_by_role("button", name="Undo the summary").click()
    await expect(card).to_have_count(0)
    await guide.get_by_role("button", name="Pin the answer").click()
    await expect(chat.locator("article.result").last).to_contain_text("inned")
    await guide.get_by_role("button", name="What do you remember?").click()
    await expect(chat.locator("article.result").last).to_contain_text("fish")
    await photograph(chat, "sample-remembered")

    await guide.get_by_role("button", name="Remove the sample").click()
    await expect(chat.locator("article.result").last).to_contain_text("The sample is deleted")
    await expect(messages).to_have_count(0)
    await expect(chat.get_by_text("Saffron")).to_have_count(0)
    await photograph(chat, "sample-removed")
    await chat.reload()
    await expect(chat.locator("article.result").last).to_contain_text("The sample is deleted")
    await expect(chat.get_by_text("I'm Nora")).to_have_count(0)
    await expect(chat.get_by_text("Saffron")).to_have_count(0)
    await expect(chat.get_by_text("[erased]")).to_have_count(0)
