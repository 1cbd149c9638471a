"""Comparison of tabs with the database, in id and order."""

from __future__ import annotations

import asyncio
import time

from playwright.async_api import Page, expect

from tests.browser.real.conftest import WITHIN_MS
from tests.kit.deployment.breakable_servers import Case

LOOKED_AT = 24
"""The newest messages that are compared, in id and order; a tab that was reloaded shows fifty."""
SHOWN = """() => {
  const root = document.querySelector("#evertalk")?.shadowRoot;
  return [...(root?.querySelectorAll("article") ?? [])].map((one) => one.dataset.mid);
}"""
"""Ids in one look: a locator reads the nodes first and their ids later, when they may have moved."""
STORED = """
SELECT coalesce(array_agg('m' || seq ORDER BY event_seq), '{}') FROM events WHERE kind = 'msg'
"""
WAITING = """
SELECT count(*) FROM sessions s JOIN turns t ON t.session_id = s.id AND t.turn_no > s.answered_turn
"""


async def wait_until_equal(case: Case, tabs: list[Page], when: str) -> None:
    """Wait until everything is answered and shown; a wrong order fails at once."""
    end = time.monotonic() + 2 * WITHIN_MS / 1_000
    while True:
        waiting = await case.value(WAITING)
        stored = (await case.value(STORED))[-LOOKED_AT:]
        shown = [(await page.evaluate(SHOWN))[-LOOKED_AT:] for page in tabs]
        if not waiting and all(ids == stored for ids in shown):
            break
        for ids in shown:
            assert is_in_order(ids, stored), f"{when}: {ids} is not in the order of {stored}"
        assert time.monotonic() < end, f"{when}: {shown} is not {stored}, {waiting} turns wait"
        await asyncio.sleep(0.05)
    for page in tabs:
        await expect(page.locator("article[data-status=sending]")).to_have_count(0)


def is_in_order(ids: list[str], stored: list[str]) -> bool:
    """Those that are known to be stored; what is being written has no id yet."""
    places = [stored.index(one) for one in ids if one in stored]
    return places == sorted(set(places))
