"""Notifications of a closed page in Chromium: switched on by a press, shown by the worker, and pressed.

The shell of Chromium has no notifications, and the push service of the whole one is far away: the page gets a
subscription at the strict one of the tests, and what that one took is handed to the worker over the
developer's protocol.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, Worker, expect

from shared.adapters.postgres.handover.push import PostgresPush
from shared.adapters.postgres.people.visitors import generate_token
from shared.bootstrap.build_admin import build_push_sender
from shared.core.identity.handover import NewHandover
from shared.services.admin.push_sender import Present
from tests.browser.axe import look_for_faults
from tests.browser.dashboard.house import House
from tests.browser.dashboard.place import fits
from tests.kit.fakes.push.harness import RunningPush
from web.dashboard.access import COOKIE

pytestmark = pytest.mark.browser
SWITCH = "Notify this browser also when the page is closed"
STUB = """
  const kept = () => JSON.parse(localStorage.getItem("stub") ?? "null");
  const given = () => kept() && {
    endpoint: kept().endpoint, toJSON: () => ({ endpoint: kept().endpoint, keys: kept() }),
    unsubscribe: async () => { localStorage.removeItem("stub"); return true; },
  };
  if (self.PushManager) {
    PushManager.prototype.getSubscription = async () => given();
    PushManager.prototype.subscribe = async (options) => {
      if (!options.userVisibleOnly) throw new Error("it would be refused");
      localStorage.setItem("stub", await subscribe(options.applicationServerKey));
      return given();
    };
  }
"""
PRESS = """async (tag) => {
  const calls = [];
  self.clients.openWindow = async (url) => { calls.push(["open", url]); };
  WindowClient.prototype.focus = async function () { calls.push(["focus", this.url]); return this; };
  WindowClient.prototype.navigate = async function (url) { calls.push(["navigate", url]); return this; };
  const [notification] = await registration.getNotifications({ tag });
  const event = new NotificationEvent("notificationclick", { notification });
  const waits = [];
  event.waitUntil = (work) => waits.push(work);
  dispatchEvent(event);
  await Promise.all(waits);
  return calls;
}"""


@pytest.fixture
def house_options(push: RunningPush) -> dict[str, Any]:
    return {"handover": "on", "push_services": push.origin, "secret_key": "s" * 32}


@pytest.fixture
def house_browser(whole_browser: Browser) -> Browser:
    return whole_browser


async def subscribable(page: Page, push: RunningPush, house: House, name: str) -> None:
    """From the next load on the page can be notified, and its browser has been asked before."""

    async def subscribe(key: str) -> str:
        return json.dumps(await push.subscribe(name, key))

    await page.expose_function("subscribe", subscribe)
    await page.add_init_script(STUB)
    await page.context.grant_permissions(["notifications"], origin=house.url)
    await page.reload()


async def worker_of(page: Page, scope: str) -> Worker:
    async with asyncio.timeout(30):
        while True:
            for one in page.context.service_workers:
                if await one.evaluate("registration.scope") == scope:
                    return one
            await asyncio.sleep(0.1)


async def deliver(page: Page, scope: str, message: Any) -> None:
    """As the push service of the browser does."""
    session = await page.context.new_cdp_session(page)
    found: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def updated(event: Any) -> None:
        for one in event["registrations"]:
            if one["scopeURL"] == scope and not found.done():
                found.set_result(one["registrationId"])

    session.on("ServiceWorker.workerRegistrationUpdated", updated)
    await session.send("ServiceWorker.enable")
    origin = scope.split("/", 3)[:3]
    wanted = {"origin": "/".join(origin), "registrationId": await asyncio.wait_for(found, 30)}
    await session.send("ServiceWorker.deliverPushMessage", {**wanted, "data": json.dumps(message)})
    await session.detach()


async def shown(worker: Worker) -> list[list[str]]:
    told: list[list[str]] = await worker.evaluate(
        "registration.getNotifications().then(all => all.map(one => [one.title, one.body, one.tag]))"
    )
    return sorted(told, key=lambda one: one[2])


async def notifies(page: Page, scope: str, worker: Worker, message: Any, *wanted: list[str]) -> None:
    """These are shown once the message is there.

    Chromium may drop one that the worker has shown: it compares its list with that of the desktop,
    which has it a moment later on a busy machine. Delivered again, the message takes its own place.
    """
    seen: list[list[str]] = []
    for _ in range(5):
        await deliver(page, scope, message)
        for _ in range(30):
            if (seen := await shown(worker)) == sorted(wanted, key=lambda one: one[2]):
                return
            await asyncio.sleep(0.1)
    raise AssertionError(seen)


async def until(house: House, statement: str) -> None:
    async with asyncio.timeout(30):
        while not await house.one(statement):
            await asyncio.sleep(0.1)


async def one_told(house: House, push: RunningPush) -> Any:
    """What the push service takes while nobody has a page open."""
    store = PostgresPush(house.app.pool, patience_seconds=0)
    sender = build_push_sender(store, house.app.settings, clock=house.app.clock)
    await sender.look(Present())
    await sender.settle()
    (taken,) = await push.requests()
    return taken["message"]


async def shot(page: Page, name: str) -> None:
    if folder := os.environ.get("PICTURES_FOLDER"):
        await page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


async def test_an_operator_is_notified_and_led_to_the_conversation(house: House, push: RunningPush) -> None:
    row = await house.app.stores.visitors.create(generate_token(), site="default")
    assert row is not None
    await house.app.stores.handovers.request_handover(
        NewHandover(session_id=row.session_id, address_id=row.address_id, asked_by="person")
    )
    page = await house.operator("anna", path="/dashboard/account")
    await subscribable(page, push, house, "desk")
    switch, test = page.get_by_label(SWITCH), page.get_by_role("button", name="Send a test")
    await expect(switch).not_to_be_checked()
    await expect(test).to_be_hidden()
    await switch.check()
    await expect(test).to_be_visible()
    assert await house.one("SELECT count(*) FROM push_subscriptions WHERE operator_id IS NOT NULL") == 1
    await test.click()
    await expect(page.get_by_text("A notification is on its way to this browser.")).to_be_visible()
    assert await look_for_faults(page) == []
    await shot(page, "push-account")
    (sent,) = await push.requests()
    scope = f"{house.url}/dashboard/"
    worker = await worker_of(page, scope)
    await notifies(
        page, scope, worker, sent["message"], ["Evertalk", "Notifications reach this browser.", "test"]
    )
    await page.set_viewport_size({"width": 390, "height": 844})
    await fits(page)
    await shot(page, "push-account-390")
    await page.bring_to_front()
    session = await house.one("SELECT public_id FROM sessions")
    await house.app.pool.execute("UPDATE push_subscriptions SET here_at = created_at - interval '1 minute'")
    await house.app.pool.execute("UPDATE push_subscriptions SET told_at = here_at")
    told = await one_told(house, push)
    await deliver(page, scope, told)
    await asyncio.sleep(1)
    assert len(await shown(worker)) == 1, "whoever looks at the dashboard sees it there"
    await page.goto("about:blank")
    await notifies(
        page, scope, worker, told,
        ["Evertalk", "Notifications reach this browser.", "test"],
        ["Evertalk", "A visitor is waiting for a human.", str(session)],
    )  # fmt: skip
    address = f"{house.url}/dashboard/inbox?at={session}"
    assert await worker.evaluate(PRESS, str(session)) == [["open", address]]
    assert [tag for *_, tag in await shown(worker)] == ["test"], "it was pressed"
    await page.goto(f"{house.url}/dashboard/inbox")
    again = {**told, "tag": "test"}
    await notifies(page, scope, worker, again, ["Evertalk", "A visitor is waiting for a human.", "test"])
    calls = await worker.evaluate(PRESS, "test")
    assert calls == [["focus", f"{house.url}/dashboard/inbox"], ["navigate", address]]
    await page.goto(address)
    await notifies(page, scope, worker, again, ["Evertalk", "A visitor is waiting for a human.", "test"])
    assert await worker.evaluate(PRESS, "test") == [["focus", address]]
    await expect(page.locator(".inbox-talk h2").first).to_be_visible()


async def test_push_subscription_moves_to_next_login_of_same_operator_only(
    house: House, push: RunningPush
) -> None:
    page = await house.operator("anna", path="/dashboard/account")
    await subscribable(page, push, house, "desk")
    await page.get_by_label(SWITCH).check()
    await expect(page.get_by_role("button", name="Send a test")).to_be_visible()
    await house.app.pool.execute("DELETE FROM push_subscriptions")
    await page.reload()
    await expect(page.get_by_label(SWITCH)).to_be_checked()
    await until(house, "SELECT count(*) = 1 FROM push_subscriptions")
    await page.get_by_role("button", name="Log out").click()
    await expect(page).to_have_url(f"{house.url}/dashboard/login?m=out")
    assert await house.one("SELECT count(*) FROM push_subscriptions") == 0
    other = await house.operator("ben", path="/dashboard/account")
    [login] = [one for one in await other.context.cookies() if one["name"] == COOKIE]
    await page.context.add_cookies([{"name": COOKIE, "value": login["value"], "url": house.url}])
    await page.goto(f"{house.url}/dashboard/account")
    await expect(page.get_by_label(SWITCH)).not_to_be_checked()
    assert await house.one("SELECT count(*) FROM push_subscriptions") == 0


async def test_switched_off_again_nothing_is_left(house: House, push: RunningPush) -> None:
    page = await house.operator("anna", path="/dashboard/account")
    await subscribable(page, push, house, "desk")
    await page.get_by_label(SWITCH).check()
    await expect(page.get_by_role("button", name="Send a test")).to_be_visible()
    await page.get_by_label(SWITCH).uncheck()
    await expect(page.get_by_role("button", name="Send a test")).to_be_hidden()
    assert await house.one("SELECT count(*) FROM push_subscriptions") == 0
    assert await page.evaluate("localStorage.getItem('stub')") is None


async def test_a_browser_that_does_not_allow_it_says_so(house: House) -> None:
    page = await house.operator("anna", path="/dashboard/account")
    await page.get_by_label(SWITCH).click()
    await expect(page.get_by_text("This browser does not allow notifications here.")).to_be_visible()
    await expect(page.get_by_label(SWITCH)).not_to_be_checked()
    await shot(page, "push-blocked")
    viewer = await house.operator("vera", role="viewer", path="/dashboard/account")
    await expect(viewer.get_by_role("heading", name="Notifications")).to_be_visible()
    await expect(viewer.get_by_label(SWITCH)).to_have_count(0)


async def test_visitor_subscribes_in_menu_and_push_leads_to_the_chat(house: House, push: RunningPush) -> None:
    page = await house.visitor()
    await subscribable(page, push, house, "phone")
    await page.set_viewport_size({"width": 390, "height": 844})
    await page.get_by_role("textbox", name="Message").fill("Hello")
    await page.keyboard.press("Enter")
    await expect(page.locator("article.assistant, .answer").first).to_be_visible()
    await until(house, "SELECT count(*) = 1 FROM entries WHERE author = 'assistant'")
    await page.get_by_role("button", name="Menu").click()
    await shot(page, "push-chat-menu-390")
    await page.get_by_role("menuitem", name="Notify me of answers").click()
    await expect(page.get_by_text("This browser now notifies you of answers").first).to_be_visible()
    await shot(page, "push-chat-on-390")
    assert await house.one("SELECT count(*) FROM push_subscriptions WHERE visitor_hash IS NOT NULL") == 1
    await house.app.pool.execute("UPDATE push_subscriptions SET here_at = created_at - interval '1 minute'")
    await house.app.pool.execute("UPDATE push_subscriptions SET told_at = here_at")
    told = await one_told(house, push)
    scope = f"{house.url}/chat"
    worker = await worker_of(page, scope)
    await page.goto("about:blank")
    session = str(await house.one("SELECT public_id FROM sessions"))
    await notifies(page, scope, worker, told, ["Evertalk", "There is a new answer.", session])
    assert await worker.evaluate(PRESS, session) == [["open", f"{house.url}/chat?site=default"]]
    await page.goto(f"{house.url}/chat")
    await page.get_by_role("textbox", name="Message").wait_for()
    await notifies(
        page, scope, worker, {**told, "tag": "test"}, ["Evertalk", "There is a new answer.", "test"]
    )
    assert await worker.evaluate(PRESS, "test") == [["focus", f"{house.url}/chat"]]
    await page.get_by_role("button", name="Menu").click()
    await page.get_by_role("menuitem", name="Stop notifying me").click()
    await expect(page.get_by_text("This browser no longer notifies you of answers.").first).to_be_visible()
    assert await house.one("SELECT count(*) FROM push_subscriptions") == 0


async def test_a_browser_that_its_push_service_forgot_is_switched_off(
    house: House, push: RunningPush
) -> None:
    page = await house.operator("anna", path="/dashboard/account")
    await subscribable(page, push, house, "desk")
    switch, test = page.get_by_label(SWITCH), page.get_by_role("button", name="Send a test")
    await switch.check()
    await push.next({"status": 410})
    await test.click()
    await expect(page.get_by_text("The push service of this browser rejected it: http_410.")).to_be_visible()
    await expect(switch).not_to_be_checked()
    await expect(test).to_be_hidden()
    assert await house.one("SELECT count(*) FROM push_subscriptions") == 0
