"""A process dies around a notification of a closed browser: it comes once at most, and the next one comes."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from tests.faults.crash_points import AFTER_PUSH, BEFORE_PUSH
from tests.faults.operator_browser import ON, Dashboard
from tests.kit.deployment.breakable_servers import Case, Recovery
from tests.kit.deployment.person import PATIENCE_SECONDS, Person
from tests.kit.deployment.processes import CRASHED
from tests.kit.fakes.push.harness import RunningPush

TOLD = "SELECT told_at > created_at FROM push_subscriptions"


@pytest.mark.parametrize(("point", "sent"), [(BEFORE_PUSH, 1), (AFTER_PUSH, 2)])
async def test_a_notification_is_sent_once_at_most_though_the_web_process_dies(
    point: str, sent: int, case: Case, recovery: Recovery
) -> None:
    jar, patience = aiohttp.CookieJar(unsafe=True), aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
    async with (
        RunningPush() as service,
        case.web(crash_point=point, EVERTALK_SECRET_KEY="s" * 32, **ON, **service.settings) as web,
        Person(case.port) as person,
        aiohttp.ClientSession(cookie_jar=jar, timeout=patience) as http,
    ):
        await person.ask("Good morning.")
        dashboard = Dashboard(case, http)
        await dashboard.log_in()
        key = str((await dashboard.call("push-key", method="GET"))["key"])
        await dashboard.call("me/push", await service.subscribe("desk", key), method="PUT")
        await person.command("human", "a refund")
        await web.crashed()
        recovery.note(f"web died {point.replace('_', ' ')}", web.fell_at)
        assert web.exits == [CRASHED], web.words()
        assert await case.value(TOLD), "what was taken counts as told"
        said = await person.say("Is anybody there?")
        await person.until(lambda: said in person.acks, "the acknowledgement")
        taken: list[dict[str, Any]] = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(taken) < sent:
                await asyncio.sleep(0.2)
                taken += await service.requests()
        assert [one["status"] for one in taken] == [201] * sent
        assert {one["message"]["body"] for one in taken} == {"A visitor is waiting for a human."}
        await case.until("SELECT succeeded_at IS NOT NULL FROM push_subscriptions")
        await person.command("human", "cancel")
        await person.answered()
        await case.promises_hold(person)
