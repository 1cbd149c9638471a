"""Pages call settings by their labels; names of variables stand under All settings alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from shared.config.settings import ORIGINS_NAME, load_settings
from shared.core.ops.alerts import ADVICE, KINDS, PERMITTED
from tests.browser.dashboard.people_dashboard import Parts, PeopleDashboard
from tests.browser.dashboard.place import TABS
from tests.kit.dashboard import seed_work

pytestmark = pytest.mark.browser
VARIABLE = re.compile(r"\b(?:EVERTALK|ANTHROPIC|OPENAI|TELEGRAM|CONTEXT)_[A-Z_]+")
PAGES = (
    "", "?numbers=1", "/inbox", "/sessions", "/people", "/memory", "/costs", "/agents", "/agents/default",
    "/sites", "/sites/shop", "/pairing", "/jobs", "/deliveries", "/alerts", "/audit", "/operators",
    "/account", "/search", "/settings",
)  # fmt: skip
NAMES = {
    "agent", "cause", "code", "duty", "job", "model", "process", "provider", "session", "sessions", "source",
    "state", "wording", "work",
}  # fmt: skip
"""Facts of alerts that are no numbers."""
ALL_SETTINGS = "All settings"
REASON = "EVERTALK_SUMMARY_MODEL names no model, and EVERTALK_HTTP_PORT is taken."


@pytest.fixture
def people_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parts:
    """A folder of its own, with a key in it."""
    monkeypatch.setenv(ORIGINS_NAME, "")
    settings = load_settings(data_dir=tmp_path, secret_key="k" * 40)
    return lambda pool: {"settings": settings}


@pytest.fixture
def tolerated() -> tuple[str, ...]:
    return ("the server responded",)


async def read_tabs(page: Page) -> dict[str, str]:
    """Return the text of each tab by its name, all details open; of a page without tabs its whole text."""
    await expect(page.locator("main h1")).to_be_visible()
    await expect(page.locator("main .skeleton:visible")).to_have_count(0)
    tabs = page.locator("main [role=tab]:visible")
    found = {}
    for place in range(max(1, await tabs.count())):
        name = ""
        if await tabs.count():
            name = await tabs.nth(place).inner_text()
            await tabs.nth(place).click()
        await expect(page.locator("main .skeleton:visible")).to_have_count(0)
        await page.evaluate(
            "document.querySelectorAll('main details').forEach((one) => { one.open = true; })"
        )
        found[name] = await page.locator("body").inner_text()
    return found


async def test_no_page_or_tab_shows_the_name_of_a_variable(people_dashboard: PeopleDashboard) -> None:
    pool = people_dashboard.pool
    await seed_work.jobs(pool)
    await pool.execute("UPDATE jobs SET last_error = $1 WHERE last_error <> ''", REASON)
    await pool.execute("UPDATE telegram_bots SET problem = $1", REASON)
    await pool.executemany(
        "INSERT INTO alerts (kind, key, detail) VALUES ($1, $1, $2::jsonb)",
        [
            (kind, {fact: "one" if fact in NAMES else 7 for fact in PERMITTED[kind]})
            for kind in KINDS
            if kind != "test"
        ],
    )
    await pool.executemany(
        """INSERT INTO alert_sends (alert_id, target, phase, state, error, attempt, ended_at)
           SELECT min(id), 'telegram:' || $1::int, 'opened', 'failed', $2, 1, now() FROM alerts""",
        [(number, code) for number, code in enumerate(ADVICE, start=1)],
    )
    page = await people_dashboard.operator("admin")
    await page.goto(f"{people_dashboard.url}/dashboard/settings?section=caps")
    await page.get_by_label("Per day", exact=True).fill("2.50")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Saved. A running Evertalk")).to_be_visible()
    maria = f"/dashboard/sessions/{people_dashboard.crowd.maria.public_id}"
    paths = [f"/dashboard{path}" for path in PAGES] + [f"{maria}?tab={tab}" for tab in TABS]
    person = await pool.fetchval(
        "SELECT public_id FROM contacts WHERE id = $1", people_dashboard.crowd.maria.contact_id
    )
    shown: dict[tuple[str, str], list[str]] = {}
    for path in [*paths, f"/dashboard/people/{person}"]:
        await page.goto(people_dashboard.url + path)
        for name, text in (await read_tabs(page)).items():
            shown[path, name] = VARIABLE.findall(text)
    everything = shown.pop(("/dashboard/settings", ALL_SETTINGS))
    assert "EVERTALK_HTTP_PORT" in everything
    assert {place: names for place, names in shown.items() if names} == {}
    assert len(shown) >= len(paths) + len(TABS)


async def test_refusal_of_a_request_names_settings_by_their_labels(people_dashboard: PeopleDashboard) -> None:
    page = await people_dashboard.operator("admin")
    await page.goto(f"{people_dashboard.url}/dashboard/settings?section=alerts")
    form = page.locator("form.site-form").filter(has=page.get_by_label("Telegram chats"))
    await form.get_by_role("button", name="Test").click()
    trouble = form.get_by_role("alert")
    await expect(trouble).to_contain_text("Alerts go to nobody yet: set Telegram chats, Webhook: address")
    assert VARIABLE.findall(await page.locator("body").inner_text()) == []
    await trouble.get_by_role("link", name="Mail server").click()
    await expect(page.get_by_label("Mail server", exact=True)).to_be_focused()
