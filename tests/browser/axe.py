"""What axe-core finds wrong with the page as it stands now: all its rules, those on trial included."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import Page as AsyncPage
from playwright.sync_api import Page

SCRIPT = Path(__file__).parents[2] / "node_modules/axe-core/axe.min.js"
SCHEMES: tuple[Literal["dark", "light"], ...] = ("dark", "light")
LOADED = "'axe' in window"
COLOURS = '["color-contrast", "link-in-text-block"]'
"""Rules of axe that look at colours: in a second scheme the others find what they found in the first."""
FINDINGS = """async (onlyColours) => {
    const roots = [document, ...[...document.querySelectorAll("*")].flatMap((one) => one.shadowRoot ?? [])];
    const moves = roots.flatMap((root) => root.getAnimations());
    const ending = moves.filter((one) => one.effect.getComputedTiming().endTime !== Infinity);
    await Promise.allSettled(ending.map((one) => one.finished));
    const trial = axe.getRules(["experimental"]).map((one) => [one.ruleId, { enabled: true }]);
    const rules = Object.fromEntries(trial);
    const what = onlyColours ? { runOnly: { type: "rule", values: COLOURS } } : { rules };
    const { violations } = await axe.run(document, { resultTypes: ["violations"], ...what });
    const words = (rule, node) => `${rule.id}: ${node.target.flat().join(" ")}`;
    return violations.flatMap((rule) => rule.nodes.map((node) => words(rule, node)));
}""".replace("COLOURS", COLOURS)
"""What fades has no contrast of its own yet: all that comes to an end is waited for."""


def read_axe() -> str:
    """To be evaluated first: a script tag would be refused by the page's own policy."""
    if SCRIPT.is_file():
        return SCRIPT.read_text() + "\nundefined"
    reason = "axe-core is missing: run `npm ci`"
    if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
        pytest.fail(reason)
    pytest.skip(reason)


def find_faults(page: Page, *, only_colours: bool = False) -> list[str]:
    if not page.evaluate(LOADED):
        page.evaluate(read_axe())
    return list(page.evaluate(FINDINGS, only_colours))


async def look_in_both_schemes(page: AsyncPage) -> list[str]:
    """What is wrong in light, and which colours are wrong in dark; then it is light again."""
    found: list[str] = []
    for scheme in SCHEMES:
        await page.emulate_media(color_scheme=scheme)
        findings = await look_for_faults(page, only_colours=scheme != SCHEMES[-1])
        found += [f"{scheme}: {words}" for words in findings]
    return found


async def look_for_faults(page: AsyncPage, *, only_colours: bool = False) -> list[str]:
    """As `find_faults`, for pages that are driven by tasks."""
    if not await page.evaluate(LOADED):
        await page.evaluate(read_axe())
    return list(await page.evaluate(FINDINGS, only_colours))
