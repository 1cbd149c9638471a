"""An operator's browser, and the setting that lets operators take conversations."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import aiohttp

from shared.adapters.postgres.people.operator_auth import create_login_link
from tests.kit.deployment.breakable_servers import Case
from tests.kit.deployment.telegram import SECONDS

ON = {"EVERTALK_HANDOVER": "on"}
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


class Dashboard:
    """An operator's browser that tries again until it is heard."""

    def __init__(self, case: Case, http: aiohttp.ClientSession) -> None:
        self._case, self._http = case, http
        self._url = f"http://127.0.0.1:{case.port}"

    async def log_in(self) -> None:
        form = {"token": await create_login_link(self._case.database_url)}
        async with self._http.post(
            f"{self._url}/dashboard/login", data=form, headers=SAME_ORIGIN, allow_redirects=False
        ) as response:
            assert response.status == 303

    async def post(self, what: str, body: dict[str, str]) -> dict[str, object]:
        session = await self._case.value("SELECT public_id FROM sessions")
        return await self.call(f"sessions/{session}/{what}", body)

    async def call(
        self, path: str, body: Mapping[str, object] | None = None, *, method: str = "POST"
    ) -> dict[str, object]:
        url = f"{self._url}/api/v1/{path}"
        async with asyncio.timeout(SECONDS):
            while True:
                try:
                    async with self._http.request(method, url, json=body, headers=SAME_ORIGIN) as response:
                        if response.status < 500:
                            assert response.status == 200, await response.text()
                            told: dict[str, object] = await response.json()
                            return told
                except (aiohttp.ClientError, OSError):
                    pass
                await asyncio.sleep(0.1)
