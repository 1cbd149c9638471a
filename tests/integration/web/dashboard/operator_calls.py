"""Requests of operators by role."""

from __future__ import annotations

from typing import Any

from tests.kit.dashboard.fixtures import SAME_ORIGIN, Dashboard
from tests.kit.web.callers import make_operator


async def ask(
    house: Dashboard, method: str, path: str, *, role: str = "admin", match: str = "", **more: Any
) -> Any:
    """Status and answer, as an operator of this role."""
    known = house.commands.asked
    cookies = next((one for one in known if one["role"] == role), None)
    if cookies is None:
        cookies = {"role": role, **await make_operator(house.pool, role)}
        known.append(cookies)
    headers = {**SAME_ORIGIN, "Cookie": cookies["Cookie"], **({"If-Match": match} if match else {})}
    async with house.http.request(method, f"{house.url}/api/v1{path}", headers=headers, **more) as response:
        return response.status, await response.json()


async def put(house: Dashboard, seen: int, role: str = "admin", /, **changes: str | None) -> Any:
    return await ask(house, "PUT", "/settings", role=role, match=f'"{seen}"', json={"changes": changes})


async def rows_of(house: Dashboard) -> tuple[dict[str, Any], dict[str, Any]]:
    _, told = await ask(house, "GET", "/settings", role="operator")
    return told, {one["name"]: one for one in told["settings"]}
