"""Requests for notes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.kit.dashboard.fixtures import SAME_ORIGIN, Dashboard


async def ask(dashboard: Dashboard, method: str, path: str, *, match: str = "", **more: Any) -> Any:
    """Status and answer."""
    headers = {**SAME_ORIGIN, **({"If-Match": match} if match else {})}
    async with dashboard.http.request(
        method, f"{dashboard.url}/api/v1{path}", headers=headers, **more
    ) as response:
        return response.status, await response.json()


async def note(dashboard: Dashboard, which: object) -> Mapping[str, Any]:
    found = await dashboard.get(f"/notes?q={which}")
    assert len(found["notes"]) == 1
    one: Mapping[str, Any] = found["notes"][0]
    return one
