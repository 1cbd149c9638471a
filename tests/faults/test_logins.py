"""The web process dies in the middle of a login with two factors: the code that was brought still opens."""

from __future__ import annotations

import asyncio
import re

import aiohttp
import asyncpg

from tests.faults.crash_points import IN_A_LOGIN
from tests.faults.operator_browser import SAME_ORIGIN, Dashboard
from tests.kit.deployment.breakable_servers import Case, Recovery
from tests.kit.deployment.person import Person
from tests.kit.deployment.processes import CRASHED
from tests.kit.deployment.telegram import SECONDS
from tests.kit.one_time_codes import one_time_code

PASSWORD = "three yellow cups"


async def _form(http: aiohttp.ClientSession, url: str, **fields: str) -> tuple[int, str]:
    """Sent again until the house answers."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                async with http.post(
                    url, data=fields, headers=SAME_ORIGIN, allow_redirects=False
                ) as response:
                    return response.status, await response.text()
            except aiohttp.ClientError:
                await asyncio.sleep(0.1)


async def _second_factor(case: Case, operator: Dashboard) -> list[str]:
    await operator.call("me/password", {"password": PASSWORD})
    begun = await operator.call("me/second-factor", {})
    async with asyncpg.create_pool(case.database_url, min_size=1, max_size=1) as pool:
        code = await one_time_code(pool, str(begun["key"]), later=-1)
    made = await operator.call("me/second-factor/confirm", {"code": code})
    codes = made["codes"]
    assert isinstance(codes, list)
    return codes


async def test_a_recovery_code_is_not_spent_for_a_login_that_never_was(
    case: Case, recovery: Recovery
) -> None:
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        case.web(crash_point=IN_A_LOGIN) as web,
        Person(case.port) as person,
        aiohttp.ClientSession(cookie_jar=jar, timeout=aiohttp.ClientTimeout(total=20)) as http,
    ):
        operator, url = Dashboard(case, http), f"http://127.0.0.1:{case.port}/dashboard"
        await operator.log_in()
        codes = await _second_factor(case, operator)
        await _form(http, f"{url}/logout")
        status, page = await _form(http, f"{url}/login", name="admin", password=PASSWORD)
        step = re.search(r'name="step" value="([\w-]{43})"', page)
        assert step is not None, status
        status, page = await _form(http, f"{url}/login/code", step=step[1], code=codes[0])
        recovery.note("web died in a login", web.fell_at)
        assert web.exits == [CRASHED], web.words()
        assert status == 303, page
        left = await case.value("SELECT cardinality(recovery) FROM operator_factors")
        assert left == len(codes) - 1
        assert await case.value("SELECT count(*) FROM audit WHERE action = 'second_factor.recovery'") == 1
        status, page = await _form(http, f"{url}/login/code", step=step[1], code=codes[0])
        assert status != 303
        await person.ask("Good morning.")
        await case.promises_hold(person)
