"""Who there is, in numbers that SQL confirms; a copy of somebody, and their canary nowhere afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.canaries import tables_of
from tests.kit.dashboard import seed
from tests.kit.dashboard.fixtures import SAME_ORIGIN, Dashboard
from tests.kit.dashboard.people_seed import Crowded, a_note, public_id_of
from tests.kit.dashboard.seed import HOSTILE
from tests.kit.web.callers import make_operator

CANARY = "trillernder-Zeisig-5519"


async def ask(dashboard: Dashboard, method: str, path: str, **more: Any) -> Any:
    async with dashboard.http.request(
        method, f"{dashboard.url}/api/v1{path}", headers=SAME_ORIGIN, **more
    ) as response:
        return response.status, await response.json()


async def test_everybody_is_listed_once_and_the_last_one_seen_comes_first(
    dashboard: Dashboard, crowd: Crowded
) -> None:
    page = await dashboard.get("/people")
    assert [one["name"] for one in page["people"]] == ["Maria", "Jo", HOSTILE]
    assert page["next"] is None
    for one in page["people"]:
        row = await dashboard.pool.fetchrow(
            """WITH p AS (SELECT f AS id FROM contacts r, contact_family(r.id) f
                           WHERE r.public_id = $1::text::uuid)
               SELECT count(*) AS sessions, sum(s.next_turn - 1) AS turns, max(s.last_active_at) AS seen,
                      sum(t.cost_micro) AS cost, sum(t.cost_unknown_calls) AS unknown,
                      sum(t.input_tokens + t.cache_read_tokens + t.cache_write_tokens
                          + t.output_tokens) AS tokens,
                      (SELECT count(*) FROM notes WHERE contact_id IN (SELECT id FROM p)) AS notes,
                      (SELECT array_agg(DISTINCT channel ORDER BY channel) FROM addresses
                        WHERE contact_id IN (SELECT id FROM p)) AS channels
                 FROM sessions s LEFT JOIN session_totals t ON t.session_id = s.id
                WHERE s.contact_id IN (SELECT id FROM p)""",
            one["id"],
        )
        assert row is not None
        told = (one["sessions"], one["turns"], one["notes"], one["channels"], one["cost_unknown_calls"])
        assert told == (row["sessions"], row["turns"], row["notes"], row["channels"], row["unknown"])
        assert one["tokens"] == row["tokens"]
        unknown = row["unknown"] and not row["cost"]
        assert one["cost_micro"] == (None if unknown else row["cost"])
        assert one["last_active_at"][:19] == row["seen"].isoformat()[:19]


async def test_the_tokens_of_a_person_are_all_that_was_read_and_said(
    dashboard: Dashboard, crowd: Crowded
) -> None:
    """Also what the provider had read before: most of what a long conversation is made of."""
    (maria, *_) = (await dashboard.get("/people"))["people"]
    assert (maria["tokens"], maria["cache_read_tokens"], maria["output_tokens"]) == (10_000, 7_000, 100)


async def test_pages_searches_and_channels_agree(dashboard: Dashboard, crowd: Crowded) -> None:
    async with dashboard.pool.acquire() as connection:
        for number in range(9):
            await seed.a_session(connection, person=f"Person {number}", minutes_ago=200 + number)
    seen, cursor = [], ""
    for _ in range(20):
        page = await dashboard.get(f"/people?limit=4&cursor={cursor}")
        seen += [one["id"] for one in page["people"]]
        if not (cursor := page["next"] or ""):
            break
    roots = await dashboard.pool.fetchval("SELECT count(*) FROM contacts WHERE merged_into IS NULL")
    assert len(seen) == len(set(seen)) == roots
    found = await dashboard.get("/people?q=mari")
    assert [one["name"] for one in found["people"]] == ["Maria"]
    assert [one["name"] for one in (await dashboard.get("/people?channel=telegram"))["people"]] == ["Maria"]
    assert (await dashboard.get("/people?kind=group"))["people"] == []
    for query in ("kind=x", "limit=0", "cursor=AAAA"):
        assert (await ask(dashboard, "GET", f"/people?{query}"))[0] == 400


async def test_one_person_has_the_conversations_and_places_of_all_who_were_joined(
    dashboard: Dashboard, crowd: Crowded
) -> None:
    for of in (crowd.jo, crowd.joined):
        found = await dashboard.get(f"/people/{await public_id_of(dashboard.pool, of)}")
        assert (found["name"], found["joined"], found["sessions"], found["turns"]) == ("Jo", 1, 2, 6)
        assert {one["id"] for one in found["conversations"]} == {
            str(crowd.jo.public_id), str(crowd.joined.public_id),
        }  # fmt: skip
        assert len(found["places"]) == 2
        assert (found["cost_micro"], found["cost_unknown_calls"]) == (700, 3)
    assert (await ask(dashboard, "GET", "/people/7"))[0] == 404
    assert (await ask(dashboard, "GET", f"/people/{crowd.jo.public_id}"))[0] == 404


@pytest.mark.control("S14", "S41")
async def test_an_export_holds_what_there_is_and_is_in_the_audit(
    dashboard: Dashboard, crowd: Crowded
) -> None:
    async with dashboard.pool.acquire() as connection:
        await seed.talk(connection, crowd.maria, turns=5)
        maria = await public_id_of(connection, crowd.maria)
    async with dashboard.http.get(f"{dashboard.url}/api/v1/people/{maria}/export?format=md") as response:
        assert response.status == 200
        assert response.headers["Content-Disposition"].startswith("attachment")
        assert "Lisbon" in await response.text()
    exported = await dashboard.get(f"/people/{maria}/export")
    assert "Lisbon" in str(exported)
    assert "Miso" not in str(exported)
    rows = await dashboard.pool.fetch("SELECT object FROM audit WHERE action = 'person.export'")
    assert [row["object"] for row in rows] == [str(maria)] * 2


@pytest.mark.control("S40")
async def test_erased_canary_is_nowhere_and_others_keep_their_text(
    dashboard: Dashboard, crowd: Crowded
) -> None:
    async with dashboard.pool.acquire() as connection:
        await seed.talk(connection, crowd.maria, turns=5)
        await a_note(connection, crowd.maria, f"Her bird is called {CANARY}")
        await connection.execute(
            "UPDATE sessions SET goal = $2 WHERE id = $1", crowd.maria.session_id, CANARY
        )
        maria = await public_id_of(connection, crowd.maria)
    path = f"/people/{maria}/erasure"
    before = await dashboard.get(path)
    assert before["erasure"] is None
    assert (before["counts"]["entries"], before["counts"]["notes"]) == (10, 3)
    for typed in ("", "maria", "Jo", CANARY):
        status, told = await ask(dashboard, "POST", path, json={"confirm": typed})
        assert (status, told["code"]) == (409, "not_confirmed")
    assert (await ask(dashboard, "POST", path, json={}))[0] == 400
    assert CANARY in await tables_of(dashboard.database_url)
    status, told = await ask(dashboard, "POST", path, json={"confirm": " Maria "})
    assert (status, told["finished"]) == (200, True)
    left = await tables_of(dashboard.database_url)
    assert CANARY not in left
    assert "Miso" in left
    after = await dashboard.get(path)
    assert after["erasure"]["state"] == "done"
    assert after["erasure"]["counts"] == told["counts"]
    assert not any(after["counts"].values())
    row = await dashboard.pool.fetchrow("SELECT actor, object FROM audit WHERE action = 'person.erase'")
    assert row is not None
    assert (row["actor"], row["object"]) == ("admin", str(maria))


@pytest.mark.control("S13")
async def test_only_an_admin_forgets_and_only_operators_take_a_copy(
    dashboard: Dashboard, crowd: Crowded
) -> None:
    jo = await public_id_of(dashboard.pool, crowd.jo)
    dashboard.http.cookie_jar.clear()
    allowed = {"viewer": (403, 403), "operator": (200, 403)}
    for role, (export, erase) in allowed.items():
        headers = await make_operator(dashboard.pool, role)
        url = f"{dashboard.url}/api/v1/people/{jo}"
        async with dashboard.http.get(f"{url}/export", headers=headers) as response:
            assert response.status == export
        async with dashboard.http.post(f"{url}/erasure", headers=headers, json={"confirm": "Jo"}) as response:
            assert response.status == erase
    assert await dashboard.pool.fetchval("SELECT count(*) FROM erasures") == 0


@pytest.mark.control("S14", "S42")
async def test_person_on_hold_cannot_be_forgotten(dashboard: Dashboard, crowd: Crowded) -> None:
    path = await _first(dashboard)
    assert (await dashboard.get(path))["hold"] is None
    assert await ask(dashboard, "POST", f"{path}/hold", json={"on": True}) == (200, {"changed": True})
    shown = await dashboard.get(path)
    assert shown["hold"]["by"] == "admin"
    status, told = await ask(dashboard, "POST", f"{path}/erasure", json={"confirm": shown["id"]})
    assert (status, told["code"]) == (409, "on_hold")
    assert await ask(dashboard, "POST", f"{path}/hold", json={"on": False}) == (200, {"changed": True})
    assert (await ask(dashboard, "POST", f"{path}/hold", json={"on": 1}))[0] == 400
    rows = await dashboard.pool.fetch("SELECT action FROM audit WHERE actor = 'admin' ORDER BY id")
    assert [row["action"] for row in rows if row["action"] != "login"] == ["person.hold", "person.release"]


async def _first(dashboard: Dashboard) -> str:
    return f"/people/{(await dashboard.get('/people'))['people'][0]['id']}"
