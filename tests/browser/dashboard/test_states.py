"""What is not there, what no filter leaves, and what a narrow screen must not squeeze together."""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

import pytest
from playwright.async_api import Page, Route, expect

from tests.browser.axe import look_for_faults
from tests.browser.dashboard.people_dashboard import PeopleDashboard
from tests.kit.dashboard import seed_work
from tests.kit.dashboard.people_seed import a_site

pytestmark = pytest.mark.browser
NOBODY = UUID(int=0)


@pytest.mark.parametrize(
    ("path", "words", "back"),
    [
        (f"sessions/{NOBODY}", "There is no such session.", "All sessions"),
        (f"people/{NOBODY}", "There is no such person.", "All people"),
        ("agents/nobody", "There is no such agent.", "All agents"),
        ("sites/nowhere", "There is no such site.", "All sites"),
    ],
)
async def test_what_is_not_there_is_said_with_a_way_back(
    people_dashboard: PeopleDashboard, path: str, words: str, back: str
) -> None:
    page = await people_dashboard.operator("admin")
    await page.goto(f"{people_dashboard.url}/dashboard/{path}")
    await expect(page.get_by_role("heading", name=words, level=1)).to_be_visible()
    people_dashboard.complaints = [line for line in people_dashboard.complaints if "404" not in line]
    await page.get_by_role("link", name=back).click()
    await expect(
        page.get_by_role("heading", name=back.removeprefix("All ").capitalize(), level=1)
    ).to_be_visible()
    await page.go_back()
    await expect(page.get_by_role("heading", name=words, level=1)).to_be_visible()
    people_dashboard.complaints = [line for line in people_dashboard.complaints if "404" not in line]
    assert await look_for_faults(page) == []


async def test_filters_that_leave_no_job_are_cleared_by_a_button(people_dashboard: PeopleDashboard) -> None:
    await seed_work.jobs(people_dashboard.pool)
    page = await people_dashboard.operator()
    await page.goto(f"{people_dashboard.url}/dashboard/jobs?state=dead&kind=tidy")
    await page.get_by_role("button", name="Clear the filters").click()
    await expect(page.locator(".work-grid tbody tr")).to_have_count(8)
    await expect(page).to_have_url(f"{people_dashboard.url}/dashboard/jobs")
    await expect(page.locator(".kpi").filter(has_text="Done")).to_contain_text("in the last day")


async def test_bounded_count_is_shown_with_a_plus(people_dashboard: PeopleDashboard) -> None:
    """As the server says it of a very long queue; here of a short one."""
    await seed_work.jobs(people_dashboard.pool)

    async def bounded(route: Route) -> None:
        answer = await route.fetch()
        found = {**await answer.json(), "counted_to": 3, "retry_all": {"jobs": 4, "more": True}}
        await route.fulfill(response=answer, json={**found, "cancel_all": {"jobs": 0, "more": True}})

    page = await people_dashboard.operator()
    await page.route("**/api/v1/jobs?**", bounded)
    await page.goto(f"{people_dashboard.url}/dashboard/jobs")
    await expect(page.locator(".kpi").filter(has_text="Failed").locator("b")).to_have_text("3+")
    await expect(page.locator(".kpi").filter(has_text="Running").locator("b")).to_have_text("1")
    await expect(page.get_by_role("button", name="Cancel all older")).to_be_visible()
    await page.get_by_role("button", name="Retry all 4+").click()
    await expect(page.get_by_role("heading", name="Retry 4+ jobs?")).to_be_visible()


async def test_the_page_of_an_agent_leads_to_its_conversations_and_its_sites(
    people_dashboard: PeopleDashboard,
) -> None:
    async with people_dashboard.pool.acquire() as connection:
        await a_site(connection)
    page = await people_dashboard.operator("admin")
    await page.goto(f"{people_dashboard.url}/dashboard/agents/default")
    pairs = page.get_by_label("Used by")
    await pairs.get_by_role("link", name="4", exact=True).click()
    await expect(page.get_by_role("heading", name="Sessions", level=1)).to_be_visible()
    await expect(page).to_have_url(f"{people_dashboard.url}/dashboard/sessions?agent=default")
    await page.go_back()
    await pairs.get_by_role("link", name="shop").click()
    await expect(page.get_by_role("heading", name="shop", level=1)).to_be_visible()


async def test_on_a_narrow_screen_nothing_lies_over_its_neighbour(people_dashboard: PeopleDashboard) -> None:
    page = await people_dashboard.operator("admin")
    await page.set_viewport_size({"width": 390, "height": 844})
    await people_dashboard.open(page, query="?tab=summaries")
    await page.goto(f"{people_dashboard.url}/dashboard/audit")
    await expect(page.locator(".audit-grid tbody tr", has_text="read.compactions")).to_be_visible()
    await apart(page, ".audit-filters input[type=date], .audit-filters a.csv")
    cells = await page.locator(".audit-grid td").evaluate_all(
        "(all) => all.map((one) => one.scrollWidth - one.clientWidth)"
    )
    assert max(cells) <= 0
    await page.goto(f"{people_dashboard.url}/dashboard/agents/default")
    await expect(page.locator(".numbers-grid tbody tr").first).to_be_visible()
    lines = await page.locator(".numbers-grid td.num").evaluate_all(
        """(cells) => cells.filter((cell) => /^[0-9,.]+$/.test(cell.textContent)).map((cell) => {
             const text = document.createRange();
             text.selectNodeContents(cell);
             return text.getClientRects().length;
           })"""
    )
    assert set(lines) == {1}


async def apart(page: Page, chosen: str) -> None:
    """No two of these overlap, in the order of reading."""
    boxes = await page.locator(chosen).evaluate_all(
        """(all) => all.map((one) => {
             const box = one.getBoundingClientRect();
             return [box.left, box.top, box.right, box.bottom];
           })"""
    )
    assert len(boxes) == 3
    for (_, _, right, bottom), (left, top, _, _) in pairwise(boxes):
        assert left >= right or top >= bottom, boxes
