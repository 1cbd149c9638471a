"""An operator in a real browser: logs in by the link, finds a session, reads its chart and its summaries."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from playwright.async_api import Browser, Route, expect

from shared.adapters.postgres.people.operator_auth import create_login_link
from tests.browser.axe import look_for_faults, look_in_both_schemes
from tests.browser.dashboard.news import REFRESHES, without_news
from tests.browser.dashboard.place import TABS, Place, Seen, Stored, fits
from tests.kit.dashboard import seed
from tests.kit.dashboard.fixtures import Pool
from tests.kit.night import rest_at_night

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
async def seeded(place_pool: Pool) -> Stored:
    async with place_pool.acquire() as connection:
        stored = await seed.a_long_session(connection, turns=2000)
        await seed.a_session(connection, person=seed.HOSTILE, turns=7, minutes_ago=30)
        for n in range(60):
            await seed.a_session(connection, person=f"Person {n:02}", turns=n + 1, minutes_ago=60 + n)
    return stored


async def test_the_link_leads_to_the_list_and_the_list_to_the_session(seen: Seen, place: Place) -> None:
    page = seen.page
    await page.goto(f"{place.url}/dashboard/sessions")
    await page.get_by_role("link", name="Maria").click()
    await expect(page.get_by_role("heading", name="Maria", level=1)).to_be_visible()
    assert page.url == place.session_url
    await page.get_by_role("tab", name="Context").click()
    await expect(page.locator("path.area")).to_have_count(5)
    await expect(page.locator(".mark-line")).to_have_count(3)
    await expect(page.locator(".fold")).to_have_count(len(place.links))
    await expect(page.locator("#chart-words")).to_contain_text("of 2,000 turns")
    assert page.url == place.tab("context")


async def test_the_crosshair_the_table_and_sql_agree(seen: Seen, place: Place) -> None:
    page = seen.page
    await page.goto(place.tab("context"))
    stage = page.get_by_role("slider", name="Turn")
    await stage.focus()
    await page.keyboard.press("Home")
    for _ in range(7):
        await page.keyboard.press("ArrowRight")
    turn = int(await stage.get_attribute("aria-valuenow") or 0)
    row = await place.pool.fetchrow(
        "SELECT context_tokens, parts FROM turn_context_audit WHERE session_id = $1 AND turn_id = $2",
        place.seeded.session_id,
        turn,
    )
    assert row is not None
    await page.get_by_text("Show as table").click()
    row_shown = page.locator(".chart tbody tr").nth(7)
    await expect(row_shown).to_be_visible()
    cells = await row_shown.locator("td").all_inner_texts()
    numbers = [int(cell.replace(",", "")) for cell in cells[:7]]
    assert numbers[0] == turn
    assert numbers[6] == row["context_tokens"] == sum(numbers[1:6])
    estimate = sum(row["parts"].values())
    for name, shown in zip(("system", "memory", "summary", "history", "tools"), numbers[1:6], strict=True):
        assert abs(shown - row["parts"][name] * row["context_tokens"] / estimate) <= 1
    tip = await page.locator(".tip .sum dd").inner_text()
    assert tip == await page.evaluate(
        "async (n) => (await import('/static/shared/fmt.js')).tokens(n)", row["context_tokens"]
    )
    assert str(turn) in (await stage.get_attribute("aria-valuetext") or "")


async def test_the_cards_are_what_sql_says(seen: Seen, place: Place) -> None:
    page = seen.page
    await page.goto(place.tab("context"))
    share = await place.pool.fetchval(
        "SELECT context_tokens * 100.0 / context_limit FROM sessions WHERE id = $1", place.seeded.session_id
    )
    cards = page.locator(".kpi b")
    await expect(cards).to_have_text([f"{round(share)}\u202f%", "9.9M", "$14.62", str(len(place.links))])
    await expect(page.get_by_text("Cache hit rate: 90\u202f%")).to_be_visible()
    await page.get_by_role("tab", name="Requests").click()
    await expect(page.get_by_label("Spend", exact=True).locator("tbody tr").last).to_contain_text("–")


async def test_strip_above_the_transcript_leads_to_the_summaries(seen: Seen, place: Place) -> None:
    page = seen.page
    await page.goto(place.session_url)
    strip, transcript = page.locator("dl.strip"), page.get_by_label("Transcript", exact=True)
    await expect(strip.locator(".kpi")).to_have_count(4)
    await expect(transcript).to_be_visible()
    above, below = await strip.bounding_box(), await transcript.bounding_box()
    assert above is not None
    assert below is not None
    assert above["y"] + above["height"] <= below["y"]
    await strip.get_by_role("button", name="Summaries").click()
    newest = page.locator(".fold-item").first
    await newest.locator("summary").first.click()
    await expect(newest.locator(".summary-text .md")).to_be_visible()


async def test_summary_and_original_are_read_by_keyboard_and_undo_is_run(seen: Seen, place: Place) -> None:
    page = seen.page
    await place.pool.execute("UPDATE turn_context_audit SET hard_limit = 500000")
    await page.goto(place.tab("summaries"))
    newest = page.locator(".fold-item").first
    await newest.locator("summary").first.click()
    await expect(newest.locator(".summary-text")).to_contain_text("They plan a trip to Lisbon.")
    await newest.get_by_role("tab", name="Summary").focus()
    await page.keyboard.press("ArrowRight")
    await expect(newest.get_by_role("tab", name="Original")).to_have_attribute("aria-selected", "true")
    span = await place.pool.fetchrow("SELECT * FROM compactions WHERE public_id = $1", place.links[-1])
    assert span is not None
    await expect(newest.locator(".message").last).to_contain_text(f"turn {span['through_turn']}")
    await newest.get_by_role("button", name="Undo").click()
    await expect(page.locator("#say")).to_have_text("The summary is undone.")
    assert [run["name"] for run in place.commands.asked] == ["undo"]


async def test_an_older_summary_says_why_it_cannot_be_undone(seen: Seen, place: Place) -> None:
    page = seen.page
    await page.goto(place.tab("summaries"))
    oldest = page.locator(".fold-item").last
    await oldest.locator("summary").first.click()
    button = oldest.get_by_role("button", name="Undo")
    await expect(button).to_be_disabled()
    await expect(button).to_have_accessible_description(re.compile("A newer summary builds on this one"))


@pytest.mark.control("S19")
async def test_hostile_words_stay_words(seen: Seen, place: Place) -> None:
    page = seen.page
    await page.goto(f"{place.url}/dashboard?q=script")
    await expect(page.locator("a.row-link")).to_have_text(seed.HOSTILE)
    await place.pool.execute(
        "UPDATE compactions SET summary_text = $1 WHERE public_id = $2", seed.HOSTILE, place.links[0]
    )
    await page.goto(f"{place.session_url}#c-{place.links[0]}")
    await expect(page.locator(".summary-text")).to_have_text(seed.HOSTILE)
    await page.locator(".fold-item").last.get_by_role("tab", name="Original").click()
    originals = page.locator(".fold-item .transcript")
    for count in (150, 168):
        await originals.get_by_role("button", name="Load earlier").click()
        await expect(originals.locator(".message")).to_have_count(count)
    await expect(originals.get_by_text(seed.HOSTILE)).to_have_count(2)
    assert await page.locator("main script, main img").count() == 0


async def test_the_address_holds_filters_order_and_page(seen: Seen, place: Place) -> None:
    page = seen.page
    await page.goto(f"{place.url}/dashboard/sessions")
    await page.get_by_role("button", name="Turns").click()
    await expect(page.locator("a.row-link").first).to_have_text("Maria")
    await expect(page.get_by_role("columnheader", name="Turns")).to_have_attribute("aria-sort", "descending")
    await page.get_by_role("button", name="Next page").click()
    await expect(page.locator("a.row-link")).to_have_count(12)
    address = page.url
    assert "sort=-turns" in address
    await page.reload()
    await expect(page.locator("a.row-link")).to_have_count(12)
    await page.go_back()
    await expect(page.locator("a.row-link")).to_have_count(50)
    await page.keyboard.press("/")
    await page.keyboard.type("person 07")
    await expect(page.locator("a.row-link")).to_have_text(["Person 07"])
    await page.keyboard.press("Control+a")
    await page.keyboard.type("nobody at all")
    await expect(page.get_by_text("No session matches.")).to_be_visible()


async def test_keys_move_through_the_list(seen: Seen, place: Place) -> None:
    page = seen.page
    await page.goto(f"{place.url}/dashboard/sessions")
    await expect(page.locator("a.row-link").first).to_be_visible()
    for key in ("j", "j", "k", "j"):
        await page.keyboard.press(key)
    await expect(page.locator("a.row-link").nth(1)).to_be_focused()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()
    await page.keyboard.type("gj")
    await expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
    await expect(page.get_by_text("The summary was empty.")).to_be_visible()
    await page.keyboard.type("gs")
    await expect(page.get_by_role("heading", name="Sessions")).to_be_visible()


async def test_unreachable_server_is_reported_and_retried(seen: Seen, place: Place) -> None:
    """What the page asks by itself finds nobody, so that only the button brings the list."""
    page, asked = seen.page, list[str]()

    async def away(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) == 1 or REFRESHES in route.request.headers:
            await route.fulfill(status=503, json={"message": "Away."})
        else:
            await route.fallback()

    await page.route("**/api/v1/sessions?**", away)
    await page.goto(f"{place.url}/dashboard/sessions")
    await expect(page.get_by_role("alert")).to_contain_text("Away.")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.locator("a.row-link").first).to_be_visible()
    seen.complaints = [line for line in seen.complaints if "503" not in line]


async def test_a_lost_login_leads_to_the_login_page(browser: Browser, place: Place) -> None:
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(place.session_url)
    assert page.url == f"{place.url}/dashboard/login?next=/dashboard/sessions/{place.seeded.public_id}"
    await expect(page.get_by_label("Password")).to_be_visible()
    await context.close()


async def test_a_login_that_ends_meanwhile_leads_back_to_the_same_filters(seen: Seen, place: Place) -> None:
    page, wanted = seen.page, "/dashboard/sessions?q=Person+0&sort=-turns"
    await page.route("**/api/v1/**", without_news())  # which would be told first that the login is over
    await page.goto(f"{place.url}{wanted}")
    await expect(page.locator("a.row-link").first).to_be_visible()
    await page.context.clear_cookies()
    await page.get_by_role("button", name="Turns").click()
    await expect(page.get_by_label("Password")).to_be_visible()
    token = await create_login_link(place.database_url)
    back = parse_qs(urlsplit(page.url).query)["next"]
    assert back == [wanted.replace("-turns", "turns")]
    await page.goto(f"{place.url}/dashboard/login?{urlencode({'token': token, 'next': back[0]})}")
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("searchbox")).to_have_value("Person 0")
    await expect(page.get_by_role("columnheader", name="Turns")).to_have_attribute("aria-sort", "ascending")
    seen.complaints = [line for line in seen.complaints if "401" not in line and "503" not in line]


@pytest.mark.parametrize(
    "path",
    [
        "/dashboard",
        "/dashboard/sessions",
        "/dashboard/costs",
        "/dashboard/jobs",
        "/dashboard/account",
        *TABS,
    ],
)
async def test_a_telephone_never_scrolls_sideways(seen: Seen, place: Place, path: str) -> None:
    page = seen.page
    await page.set_viewport_size({"width": 390, "height": 844})
    await page.goto(place.tab(path) if path in TABS else place.url + path)
    await expect(page.locator("main h1")).to_be_visible()
    await expect(page.locator(".skeleton")).to_have_count(0)
    await fits(page)
    small = await page.evaluate(
        """[...document.querySelectorAll('main button, main select, main input')].filter((node) => {
             const box = node.getBoundingClientRect(); return box.width && box.height < 24; }).length"""
    )
    assert small == 0


async def test_every_control_has_a_name_and_every_id_is_one(seen: Seen, place: Place) -> None:
    page = seen.page
    for path in (
        "/dashboard",
        "/dashboard/sessions",
        "/dashboard/costs",
        "/dashboard/jobs",
        *(place.tab(name) for name in TABS),
    ):
        await page.goto(path if path.startswith("http") else place.url + path)
        await expect(page.locator("main h1")).to_be_visible()
        await expect(page.locator(".skeleton")).to_have_count(0)
        nameless = await page.evaluate(
            """[...document.querySelectorAll(
                  'a, button, input:not([type=hidden]), select, [role=slider], [role=region]')]
                .filter((node) => !node.hidden && !node.closest('[hidden]')
                  && !(node.textContent.trim() || node.ariaLabel || node.labels?.length)).length"""
        )
        assert nameless == 0
        ids = await page.evaluate("[...document.querySelectorAll('[id]')].map((node) => node.id)")
        assert len(ids) == len(set(ids))


async def test_axe_finds_nothing(seen: Seen, place: Place, browser: Browser) -> None:
    page = seen.page
    found = {}
    ours = ("/dashboard", "/dashboard/sessions", "/dashboard/costs", "/dashboard/jobs", "/dashboard/account")
    for path in (*ours, *(place.tab(name) for name in TABS)):
        await page.goto(path if path.startswith("http") else place.url + path)
        await expect(page.locator("main h1")).to_be_visible()
        await expect(page.locator(".skeleton")).to_have_count(0)
        found[path] = await look_in_both_schemes(page)
    stranger = await browser.new_page()
    await stranger.goto(f"{place.url}/dashboard/login")
    found["login"] = await look_in_both_schemes(stranger)
    await stranger.close()
    assert {path: some for path, some in found.items() if some} == {}


async def test_axe_finds_nothing_in_an_open_summary(seen: Seen, place: Place) -> None:
    page = seen.page
    await page.goto(place.tab("context"))
    await page.get_by_text("Show as table").click()
    assert await look_for_faults(page) == []
    await page.get_by_role("tab", name="Summaries").click()
    await page.locator(".fold-item").first.locator("summary").first.click()
    await expect(page.locator(".summary-text").first).to_be_visible()
    assert await look_for_faults(page) == []


async def test_each_tab_has_an_address_and_asks_only_for_what_it_shows(seen: Seen, place: Place) -> None:
    page, asked = seen.page, list[str]()
    page.on("request", lambda one: asked.append(urlsplit(one.url).path.rpartition("/")[2]))
    reads = {"messages", "timeline", "now", "compactions", "context", "notes"}
    of_tab = {
        "conversation": {"messages", "timeline"},
        "context": {"timeline", "now"},
        "summaries": {"compactions"},
        "requests": {"context"},
        "memory": {"notes"},
    }
    assert tuple(of_tab) == TABS
    for name, wanted in of_tab.items():
        asked.clear()
        await page.goto(place.tab(name))
        tab = page.get_by_role("tab", name=name.capitalize())
        await expect(tab).to_have_attribute("aria-selected", "true")
        await expect(page.locator(".skeleton")).to_have_count(0)
        await page.wait_for_load_state("load")
        assert reads & set(asked) <= wanted, name
    await expect(page.get_by_role("tabpanel")).to_have_count(1)


async def test_the_tabs_are_gone_through_by_keyboard(seen: Seen, place: Place) -> None:
    page = seen.page
    await page.goto(place.tab("memory"))
    first, last = page.get_by_role("tab", name="Conversation"), page.get_by_role("tab", name="Memory")
    await last.focus()
    for key, name in (
        ("Home", "conversation"),
        ("ArrowLeft", "memory"),
        ("ArrowRight", "conversation"),
        ("End", "memory"),
        ("Home", "conversation"),
        ("ArrowRight", "context"),
    ):
        await page.keyboard.press(key)
        await expect(page.get_by_role("tab", name=name.capitalize())).to_be_focused()
        await expect(page).to_have_url(place.tab(name))
    assert [await one.get_attribute("tabindex") for one in (first, last)] == ["-1", "-1"]
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("tabpanel")).to_be_focused()
    await page.reload()
    await expect(page.get_by_role("slider", name="Turn")).to_be_visible()


async def test_a_turn_is_reached_by_its_number_and_by_its_link(seen: Seen, place: Place) -> None:
    page = seen.page
    await page.goto(f"{place.session_url}#turn-700")
    here = page.locator(".message[aria-current]")
    await expect(here).to_contain_text("person says something in turn 700")
    await expect(here).to_be_in_viewport()
    await expect(page.get_by_text("person says something in turn 703")).to_be_attached()
    await page.get_by_role("spinbutton", name="Turn number").fill("1500")
    await page.keyboard.press("Enter")
    await expect(here).to_contain_text("person says something in turn 1500")
    assert page.url == f"{place.session_url}#turn-1500"
    await page.get_by_role("spinbutton", name="Turn number").fill("2000")
    await page.get_by_role("button", name="Go to").last.click()
    await expect(here).to_contain_text("person says something in turn 2000")
    await page.go_back()
    await expect(here).to_contain_text("person says something in turn 1500")
    assert await look_for_faults(page) == []
    await page.get_by_role("button", name="Show the newest messages").click()
    await expect(page.get_by_text("assistant says something in turn 2000")).to_be_in_viewport()
    await page.get_by_role("tab", name="Context").click()
    await page.evaluate("location.hash = '#turn-12'")
    await expect(here).to_contain_text("person says something in turn 12")
    await expect(page.get_by_role("tab", name="Conversation")).to_have_attribute("aria-selected", "true")


MARKED = """**Bold** and `code`

- one
- two

| a | b |
|---|---|
| 1 | 2 |

```python
print(1)
```"""


@pytest.mark.parametrize(
    ("scheme", "width"), [*rest_at_night([("light", 1360)], by_day=()), ("dark", 1360), ("light", 390)]
)
async def test_messages_are_drawn_as_the_visitor_sees_them(
    seen: Seen, place: Place, scheme: Any, width: int
) -> None:
    page = seen.page
    async with place.pool.acquire() as connection:
        talked = await seed.a_session(connection, person="Mark", turns=3)
        await seed.talk(connection, talked, turns=3, answer=MARKED)
    await page.emulate_media(color_scheme=scheme)
    await page.set_viewport_size({"width": width, "height": 844})
    await page.goto(f"{place.url}/dashboard/sessions/{talked.public_id}")
    said = page.locator(".message.assistant").last
    await expect(said.locator("strong")).to_have_text("Bold")
    await expect(said.locator("li")).to_have_text(["one", "two"])
    await expect(said.locator("td")).to_have_text(["1", "2"])
    await expect(said.locator(".hl-n")).to_have_text("1")
    assert await look_for_faults(page) == []
    await fits(page)
    if folder := os.environ.get("PICTURES_FOLDER"):
        for name in TABS:
            await page.get_by_role("tab", name=name.capitalize()).click()
            await page.screenshot(path=Path(folder) / f"tab-{name}-{scheme}-{width}.png")
            await page.goto(place.tab(name))
            await expect(page.locator(".skeleton")).to_have_count(0)
            await page.screenshot(path=Path(folder) / f"long-{name}-{scheme}-{width}.png", full_page=True)
            await page.goto(f"{place.url}/dashboard/sessions/{talked.public_id}")
