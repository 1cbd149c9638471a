"""A talk of many days and its history, page by page."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from shared.adapters.postgres.people.visitors import VisitorRow
from tests.kit.web.callers import bearer, make_visitor
from tests.kit.web.fixtures import Frame, Server
from tests.kit.web.long_talk import talk_long_ago
from tests.kit.web.rest_calls import call


async def talked(server: Server, *, turns: int = 10) -> tuple[VisitorRow, str]:
    """One question and one answer a day."""
    row, token = await make_visitor(server.services.pool)
    await talk_long_ago(server.services.pool, row.session_id, row.address_id, turns=turns)
    return row, token


async def page(server: Server, row: VisitorRow, token: str, **query: Any) -> Frame:
    words = "&".join(f"{name}={quote(str(value))}" for name, value in query.items())
    path = f"/sessions/{row.session_public_id}/history?{words}"
    status, told = await call(server, "GET", path, bearer(token))
    assert status == 200, told
    return told
