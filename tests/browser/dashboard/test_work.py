"""Daily work of an operator in a browser: failed jobs, answers in doubt, and pages that follow changes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from playwright.async_api import Browser, BrowserContext, Page, Route, expect

from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.postgres.people.operator_auth import create_login_link
from shared.config.settings import load_settings
from shared.core.session.turns import DueJob
from tests.browser.axe import look_in_both_schemes
from tests.browser.patience import WAIT_MS
from tests.kit.dashboard import seed, seed_work
from tests.kit.dashboard.fixtures import NobodyListens, Pool, make_job_admin
from tests.kit.dashboard.serve import served

pytestmark = pytest.mark.browser
PICTURES = os.environ.get("DASHBOARD_PICTURES", "")
"""A folder for pictures of the pages, for people who look at them."""


@dataclass(slots=True)
class Work:
    """A page of the dashboard over jobs and deliveries, and what went wrong on it."""

    url: str
    page: Page
    pool: Pool
    maria: seed.Seeded
    bob: seed.Seeded
    bell: list[DueJob]
    complaints: list[str] = field(default_factory=list)

    async def open(self, path: str, heading: str) -> None:
        await self.page.goto(f"{self.url}/dashboard/{path}")
        await expect(self.page.get_by_role("heading", name=heading, level=1)).to_be_visible()
        await expect(self.page.locator(".skeleton")).to_have_count(0)

    async def picture(self, name: str) -> None:
        if PICTURES:
            await self.page.screenshot(path=Path(PICTURES) / f"{name}.png", full_page=True)


@pytest.fixture
async def own_context(browser: Browser) -> AsyncIterator[BrowserContext]:
    opened = await browser.new_context(viewport={"width": 1360, "height": 900}, locale="en-GB")
    opened.set_default_timeout(WAIT_MS)
    yield opened
    await opened.close()


@pytest.fixture
async def work(own_context: BrowserContext, database_url: str) -> AsyncIterator[Work]:
    pool = await open_pool(database_url, size=4)
    maria, bob = await seed_work.jobs(pool), await seed_work.doubts(pool)
    bell: list[DueJob] = []
    async with served(
        web.Application(), pool=pool, settings=load_settings(), commands=None,
        job_admin=make_job_admin(pool, bell), news=NobodyListens(),
    ) as url:  # fmt: skip
        page = await own_context.new_page()
        work = Work(url=url, page=page, pool=pool, maria=maria, bob=bob, bell=bell)
        page.on("console", lambda line: work.complaints.append(line.text) if line.type == "error" else None)
        page.on("pageerror", lambda error: work.complaints.append(str(error)))
        await page.goto(f"{url}/dashboard/login?token={await create_login_link(database_url)}")
        await page.get_by_role("button", name="Log in").click()
        await expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
        yield work
        await page.close()
    await pool.close()
    assert work.complaints == []


async def test_one_failed_job_is_begun_again(work: Work) -> None:
    await work.open("jobs?state=dead", "Jobs")
    retry = work.page.get_by_role("button", name="Retry Summarise #1", exact=True)
    await retry.click()
    await work.page.get_by_role("button", name="Not now").click()
    assert work.bell == []
    await retry.click()
    await expect(work.page.get_by_role("heading", name="Retry Summarise #1?")).to_be_visible()
    await work.picture("jobs-sure")
    await work.page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    await expect(work.page.locator(".told")).to_have_text("1 job will run again.")
    await expect(work.page.locator("tbody a.row-link")).to_have_count(2)
    assert work.bell == [DueJob(id=1, kind="compact", attempt=3)]


async def test_retry_all_covers_filtered_jobs_and_confirms_their_number(work: Work) -> None:
    await work.open("jobs", "Jobs")
    await work.page.get_by_role("button", name="Failed", exact=True).click()
    await work.page.get_by_role("button", name="Retry all 3").click()
    await expect(work.page.get_by_role("heading", name="Retry 3 jobs?")).to_be_visible()
    await work.pool.execute("UPDATE jobs SET state = 'done' WHERE key = 'dead:2'")
    await work.page.get_by_role("button", name="Retry 3 jobs").click()
    await expect(work.page.locator(".told")).to_contain_text("2 jobs will run again.")
    await expect(work.page.get_by_text("No job fits these filters.")).to_be_visible()
    assert work.page.url.endswith("/dashboard/jobs?state=dead")


async def test_jobs_of_one_session_are_found_by_its_address(work: Work) -> None:
    await work.open("jobs", "Jobs")
    await work.page.get_by_role(
        "button", name="Filter: only jobs of the session of Summarise #1", exact=True
    ).click()
    await expect(work.page.locator(".chip")).to_be_visible()
    assert str(work.maria.public_id) in work.page.url
    await work.page.get_by_role("button", name="Cleanup", exact=True).click()
    await expect(work.page.locator("tbody a.row-link")).to_have_count(1)
    await work.page.reload()
    await expect(work.page.locator("tbody a.row-link")).to_have_count(1)
    await work.page.get_by_role("button", name="All sessions").click()
    await expect(work.page.locator(".chip")).to_have_count(0)


async def test_a_kind_is_paused_with_a_question_and_bounded_by_a_number(work: Work) -> None:
    await work.open("jobs", "Jobs")
    kinds = work.page.get_by_role("table", name="Job types")
    row = kinds.locator("tbody tr").filter(has_text="Summarise").filter(has_not_text="imports")
    await work.page.get_by_role("button", name="Pause Summarise", exact=True).click()
    dialog = work.page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Due jobs wait until you resume")
    await expect(dialog).to_contain_text("is handled without a worker")
    await dialog.get_by_role("button", name="Pause").click()
    await expect(work.page.locator(".told")).to_have_text("Summarise: paused in all workers.")
    await expect(row).to_contain_text("Paused")
    await row.get_by_role("spinbutton").fill("3")
    await work.page.keyboard.press("Enter")
    await expect(row.get_by_role("spinbutton")).to_have_value("3")

    async def somebody_is_faster(route: Route) -> None:
        await work.pool.execute("UPDATE job_kinds SET changed_at = changed_at + interval '1 s'")
        await route.continue_()

    await work.page.route("**/jobs/kinds/*", somebody_is_faster, times=1)
    await work.page.get_by_role("button", name="Resume Summarise", exact=True).click()
    await expect(work.page.get_by_text("Another operator changed this meanwhile")).to_be_visible()
    assert ["409" in one for one in work.complaints] == [True]
    work.complaints.clear()
    await work.page.get_by_role("button", name="Resume Summarise", exact=True).click()
    await expect(work.page.locator(".told")).to_have_text("Summarise: running, 3.")
    await work.picture("jobs-kinds")
    (stored,) = await work.pool.fetch("SELECT paused, concurrency, changed_by FROM job_kinds")
    assert tuple(stored) == (False, 3, "admin")
    await expect(work.page.get_by_role("slider", name="Save memory")).to_be_visible()
    await work.page.get_by_role("button", name="24 hours").click()
    await work.page.wait_for_url("**/dashboard/jobs?range=24h")


async def test_an_answer_in_doubt_is_settled(work: Work) -> None:
    await work.open("deliveries", "Delivery problems")
    await expect(work.page.get_by_text("the connection broke")).to_be_visible()
    await work.page.get_by_role("button", name="Send again: turn 2, part 1").click()
    await expect(work.page.get_by_text("If it was delivered, the person reads it twice.")).to_be_visible()
    await work.picture("deliveries-sure")
    await work.page.get_by_role("dialog").get_by_role("button", name="Send again").click()
    await expect(work.page.locator(".told")).to_have_text("1 part is being sent.")
    await work.page.get_by_role("button", name="Mark as delivered: turn 3, part 2").click()
    await work.page.get_by_role("button", name="It was delivered").click()
    await expect(work.page.locator("tbody a.row-link")).to_have_count(1)
    states = await work.pool.fetch("SELECT state FROM deliveries ORDER BY turn_no, part")
    assert [row["state"] for row in states] == ["delivered", "queued", "dead", "delivered"]


async def test_a_page_that_is_seen_follows_changes_over_one_stream(work: Work) -> None:
    """By itself it would look again after thirty seconds: nobody here waits so long."""
    answered: list[str] = []
    work.page.on("response", lambda response: answered.append(urlsplit(response.url).path))
    work.page.on("framenavigated", lambda _: answered.append("here"))
    await work.open("jobs?state=dead", "Jobs")
    await expect(work.page.locator("tbody a.row-link")).to_have_count(3)
    # The first may be seen because the page looks once more when the stream opens, the second by being told.
    for number in (4, 5):
        await work.pool.execute(
            """INSERT INTO jobs (kind, session_id, key, state, ended_at)
               SELECT 'tidy', session_id, $1, 'dead', now() FROM jobs LIMIT 1""",
            f"new {number}",
        )
        await expect(work.page.locator("tbody a.row-link")).to_have_count(number)
    await work.page.get_by_role("link", name="Delivery problems").click()
    await expect(work.page.get_by_role("heading", name="Delivery problems", level=1)).to_be_visible()
    here = answered[answered.index("here") :]  # the page before it had a stream of its own
    assert here.count("/api/v1/live") == 1


async def test_without_a_stream_pages_ask(work: Work) -> None:
    await work.page.route("**/api/v1/live", lambda route: route.fulfill(status=503, body="{}"))
    await work.open("jobs?state=dead", "Jobs")
    await expect(work.page.locator("tbody a.row-link")).to_have_count(3)
    await work.pool.execute(
        """INSERT INTO jobs (kind, session_id, key, state, ended_at)
           SELECT 'tidy', session_id, 'new', 'dead', now() FROM jobs LIMIT 1"""
    )
    await expect(work.page.locator("tbody a.row-link")).to_have_count(4)
    await expect(work.page.locator(".live")).to_have_text("Live")
    work.complaints.clear()  # the browser itself complains of the 503


async def test_a_viewer_reads_and_changes_nothing(work: Work) -> None:
    await work.open("jobs", "Jobs")  # what the overview asks as an admin is over
    await work.pool.execute("UPDATE operators SET role = 'viewer'")
    for path, heading in (("jobs", "Jobs"), ("deliveries", "Delivery problems")):
        await work.open(path, heading)
        await expect(work.page.locator("tbody a.row-link").first).to_be_visible()
        await expect(work.page.locator(".act, .work-all")).to_have_count(0)


@pytest.mark.parametrize(("path", "heading"), [("jobs", "Jobs"), ("deliveries", "Delivery problems")])
async def test_axe_finds_nothing_and_nothing_is_wider_than_a_telephone(
    work: Work, path: str, heading: str
) -> None:
    for width in (1360, 390):
        await work.page.set_viewport_size({"width": width, "height": 900})
        await work.open(path, heading)
        await expect(work.page.locator("tbody a.row-link").first).to_be_visible()
        await work.picture(f"{path}-{width}")
        assert await look_in_both_schemes(work.page) == []
        wide = await work.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0


async def test_duties_are_listed_with_the_late_one_and_its_error(work: Work) -> None:
    await work.pool.execute(
        """INSERT INTO duties (name, seconds, due_at, succeeded_at, duration_ms, failures, failed_runs, runs,
                                last_error)
           VALUES ('session_list', 2, now(), now(), 3, 0, 0, 900, ''),
                  ('hourly_stats', 15, now(), now() - interval '1 hour', 10002, 3, 3, 9,
                   'StorageUnavailable: TimeoutError'),
                  ('partitions', 300, now(), now(), 41, 0, 0, 3, '')"""
    )
    await work.open("jobs", "Jobs")
    duties = work.page.get_by_role("table", name="Scheduled tasks of the workers")
    late = duties.get_by_role("row", name="Count numbers by the hour")
    await expect(late).to_contain_text("Late")
    await expect(late).to_contain_text("StorageUnavailable: TimeoutError")
    healthy = duties.get_by_role("row", name="Prepare tables of the next months")
    await expect(healthy.locator(".state.answering")).to_have_text("On schedule")
    await expect(duties.locator("tbody tr")).to_have_count(3)
    await expect(duties).not_to_contain_text("session_list")
    assert await look_in_both_schemes(work.page) == []
    await work.picture("jobs-duties")
