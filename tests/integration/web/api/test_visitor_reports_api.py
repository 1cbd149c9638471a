"""What a visitor's page tells operators: where somebody is, and what they thought of the help."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.web.fixtures import Frame, Server


async def tell(server: Server, method: str, path: str, welcome: Frame | None, body: Any) -> tuple[int, Any]:
    headers = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Firefox/130.0", "Accept-Language": "de-AT, en"}
    if welcome is not None:
        headers["Authorization"] = f"Bearer {welcome['token']}"
    async with server.client.request(
        method, f"{server.url}/api/v1/{path}", json=body, headers=headers
    ) as answer:
        return answer.status, await answer.json()


async def resolved(server: Server, welcome: Frame) -> int:
    number: int = await server.services.pool.fetchval(
        """INSERT INTO handovers (session_id, address_id, asked_by, state, ended_at, ended_by)
           SELECT s.id, a.id, 'person', 'ended', now(), 'resolved'
             FROM sessions s JOIN addresses a ON a.session_id = s.id WHERE s.public_id = $1 RETURNING id""",
        welcome["session"],
    )
    return number


async def test_the_page_is_kept_without_what_may_be_secret(server: Server) -> None:
    _, mine = await server.greet()
    page = "https://me:pw@shop.example/cart/7?token=secret#here"
    assert (await tell(server, "PUT", "contact", mine, {"page": page}))[0] == 200
    contact = await server.services.pool.fetchval("SELECT contact FROM addresses")
    assert contact == {
        "page": "https://shop.example/cart/7", "browser": "Firefox on Linux", "language": "de-AT",
    }  # fmt: skip
    for hostile in ("javascript:alert(1)", "https://[bad", "x"):
        assert (await tell(server, "PUT", "contact", mine, {"page": hostile}))[0] == 200
        assert (await server.services.pool.fetchval("SELECT contact ->> 'page' FROM addresses")) == ""
    assert (await tell(server, "PUT", "contact", mine, {"page": "https://a/" + "x" * 5_000}))[0] == 400
    assert (await tell(server, "PUT", "contact", None, {"page": page}))[0] == 401


async def test_the_first_rating_counts_and_is_of_ones_own_conversation(server: Server) -> None:
    _, mine = await server.greet()
    _, other = await server.greet()
    handover = await resolved(server, mine)
    assert (await tell(server, "POST", "ratings", other, {"handover": handover, "rating": 1}))[0] == 404
    body = {"handover": handover, "rating": 4}
    assert await tell(server, "POST", "ratings", mine, body) == (200, {"rating": 4})
    assert await tell(server, "POST", "ratings", mine, {**body, "rating": 1}) == (200, {"rating": 4})
    assert await server.services.pool.fetchval("SELECT rating FROM handovers") == 4


@pytest.mark.parametrize("rating", [0, 6, "5", True, None])
async def test_a_rating_is_one_to_five(server: Server, rating: Any) -> None:
    _, mine = await server.greet()
    handover = await resolved(server, mine)
    assert (await tell(server, "POST", "ratings", mine, {"handover": handover, "rating": rating}))[0] == 400
