"""A conversation is searched by the person whose it is, on a public site too, and by nobody else."""

from __future__ import annotations

from urllib.parse import quote

from tests.integration.web.api.past_talks import page, talked
from tests.kit.web.callers import bearer, make_visitor
from tests.kit.web.fixtures import Frame, Server
from tests.kit.web.rest_calls import call


async def search(server: Server, session: object, token: str, **query: object) -> tuple[int, Frame]:
    words = "&".join(f"{name}={quote(str(value))}" for name, value in query.items())
    return await call(server, "GET", f"/sessions/{session}/search?{words}", bearer(token))


async def test_search_finds_messages_by_page_with_their_place(server: Server) -> None:
    row, token = await talked(server, turns=12)
    met: list[str] = []
    told: Frame = {"next": None}
    while not met or told["next"] is not None:
        before = {"before": told["next"]} if told["next"] else {}
        status, told = await search(server, row.session_public_id, token, q="question", limit=4, **before)
        assert status == 200, told
        met += [hit["mid"] for hit in told["hits"]]
    assert met == [f"m{2 * turn - 1}" for turn in range(12, 0, -1)]
    hit = told["hits"][-1]
    assert (hit["here"], hit["role"], hit["turn"]) == (True, "person", 1)
    assert hit["excerpt"][0] == {"text": "Question", "hit": True}
    there = await page(server, row, token, around=hit["mid"])
    assert "m1" in [event["mid"] for event in there["events"]]


async def test_only_its_person_may_search(server: Server) -> None:
    row, token = await talked(server)
    _, other = await make_visitor(server.services.pool)
    assert (await search(server, row.session_public_id, other, q="question"))[0] == 404
    assert (await search(server, row.session_public_id, "nonsense", q="question"))[0] == 401
    for wrong in ({}, {"q": ""}, {"q": "x" * 301}, {"q": "a", "before": "1-2"}):
        status, told = await search(server, row.session_public_id, token, **wrong)
        assert (status, told["code"]) == (400, "bad_field")
