"""Operators search what people said; whose words they were shown is in the audit log, the words are not."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from tests.kit.dashboard.fixtures import Dashboard
from tests.kit.web.callers import make_visitor
from tests.kit.web.long_talk import talk_long_ago


@pytest.mark.control("S42")
async def test_what_was_said_is_found_in_all_conversations_and_in_one(dashboard: Dashboard) -> None:
    talked, _ = await make_visitor(dashboard.pool)
    other, _ = await make_visitor(dashboard.pool)
    await talk_long_ago(dashboard.pool, talked.session_id, talked.address_id, turns=25)
    await talk_long_ago(dashboard.pool, other.session_id, other.address_id, turns=2)
    found = await dashboard.get("/search?q=question")
    ids = {one["id"]: [hit["turn"] for hit in one["hits"]] for one in found["sessions"]}
    assert ids[str(talked.session_public_id)] == [25, 24, 23]
    assert ids[str(other.session_public_id)] == [2, 1]
    assert found["next"] is None
    within = f"/search?q=question&session={talked.session_public_id}"
    page = await dashboard.get(within)
    assert [hit["turn"] for hit in page["sessions"][0]["hits"]] == list(range(25, 5, -1))
    more = await dashboard.get(f"{within}&cursor={quote(page['next'])}")
    assert [hit["turn"] for hit in more["sessions"][0]["hits"]] == list(range(5, 0, -1))
    rows = await dashboard.pool.fetch(
        "SELECT actor, object, detail FROM audit WHERE action = 'read.search' ORDER BY id"
    )
    assert [row["object"] for row in rows] == ["", *[str(talked.session_public_id)] * 2]
    assert set(rows[0]["detail"]["sessions"]) == set(ids)
    assert "uestion" not in json.dumps([dict(row) for row in rows])


async def test_what_cannot_be_searched_is_refused(dashboard: Dashboard) -> None:
    for path, status in (
        ("/search", 400), ("/search?q=%20", 400), (f"/search?q={'x' * 301}", 400),
        ("/search?q=a&cursor=1", 400), ("/search?q=a&session=nonsense", 404),
    ):  # fmt: skip
        async with dashboard.http.get(f"{dashboard.url}/api/v1{path}") as answer:
            assert answer.status == status, path
