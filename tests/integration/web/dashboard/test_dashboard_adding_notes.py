"""An operator adds a note: checked as typed, kept by the rules of all notes, taken back like any of them."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from shared.core.context.memory import gist_of, note_hash
from shared.core.identity.operators import Role
from tests.integration.web.dashboard.note_calls import ask, note
from tests.kit.dashboard.fixtures import Dashboard
from tests.kit.dashboard.people_seed import Crowded, public_id_of
from tests.kit.web.callers import make_operator

FACT = "Allergic to shellfish since childhood"
SECRET = "sk-ant-api03-" + "A" * 90


@pytest.fixture
async def maria(dashboard: Dashboard, crowd: Crowded) -> str:
    return str(await public_id_of(dashboard.pool, crowd.maria))


async def add(dashboard: Dashboard, **body: Any) -> Any:
    return await ask(dashboard, "POST", "/notes", json=body)


@pytest.mark.control("S23")
async def test_note_added_by_operator_is_marked_and_reaches_the_screens(
    dashboard: Dashboard, crowd: Crowded, maria: str
) -> None:
    status, told = await add(dashboard, person=maria, text=f"  {FACT} ", kind="profile")
    assert (status, told["changed"], told["redacted"]) == (200, True, False)
    one = told["note"]
    assert (one["text"], one["kind"], one["authority"], one["importance"]) == (
        FACT, "profile", "operator", 8,
    )  # fmt: skip
    assert (one["from_turn"], one["agent"], one["session"]) == (None, "default", str(crowd.maria.public_id))
    row = await dashboard.pool.fetchrow("SELECT hash, gist FROM notes WHERE public_id = $1", one["id"])
    assert row is not None
    assert tuple(row) == (note_hash(FACT), list(gist_of(FACT)))
    event = await dashboard.pool.fetchval(
        "SELECT payload FROM events WHERE session_id = $1 AND kind = 'memory'", crowd.maria.session_id
    )
    assert (event["change"], event["text"]) == ("saved", FACT)
    audit = await dashboard.pool.fetchrow(
        "SELECT actor, object, detail FROM audit WHERE action = 'note.added'"
    )
    assert audit is not None
    assert tuple(audit) == ("admin", f"person:{maria}", {"agent": "default", "kind": "profile"})


async def test_a_note_that_is_known_is_no_second_one(dashboard: Dashboard, maria: str) -> None:
    _, first = await add(dashboard, person=maria, text=FACT)
    both = await asyncio.gather(*[add(dashboard, person=maria, text=f"{FACT}.") for _ in range(4)])
    assert {(status, told["changed"], told["note"]["id"]) for status, told in both} == {
        (200, False, first["note"]["id"])
    }
    assert len((await dashboard.get("/notes?authority=operator"))["notes"]) == 1


async def test_a_note_is_taken_back_like_any_other(dashboard: Dashboard, maria: str) -> None:
    _, told = await add(dashboard, person=maria, text=FACT)
    path = f"/notes/{told['note']['id']}"
    assert (await ask(dashboard, "DELETE", path))[1]["note"]["state"] == "put_away"
    assert (await add(dashboard, person=maria, text=FACT))[0] == 409
    assert (await ask(dashboard, "POST", f"{path}/restore"))[1]["note"]["state"] == "kept"


async def test_what_the_person_had_forgotten_or_corrected_does_not_come_back(
    dashboard: Dashboard, crowd: Crowded, maria: str
) -> None:
    _, told = await add(dashboard, person=maria, text=FACT)
    old = await note(dashboard, told["note"]["id"])
    await ask(dashboard, "PATCH", f"/notes/{old['id']}", match=old["etag"], json={"text": "Eats everything"})
    assert (await add(dashboard, person=maria, text=FACT))[1]["code"] == "replaced"
    await dashboard.pool.execute(
        "UPDATE notes SET text = '', subject = '', forgotten_at = now() WHERE superseded_by IS NULL"
        " AND contact_id = $1",
        crowd.maria.contact_id,
    )
    assert (await add(dashboard, person=maria, text="Eats everything"))[1]["code"] == "blocked"


async def test_a_secret_is_left_out_and_said_to_be(dashboard: Dashboard, maria: str) -> None:
    status, told = await add(dashboard, person=maria, text=f"Her key for the heating at home is {SECRET}")
    assert (status, told["redacted"]) == (200, True)
    assert SECRET not in told["note"]["text"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"text": ""}, "bad_note"),
        ({"text": " \u00a0"}, "bad_note"),
        ({"text": "y" * 601}, "bad_note"),
        ({"text": SECRET}, "bad_note"),
        ({"kind": "gossip"}, "bad_note"),
        ({"importance": 0}, "bad_note"),
        ({"importance": 10}, "bad_note"),
        ({"importance": True}, "bad_note"),
        ({"importance": "9"}, "bad_note"),
        ({"event_date": "in May"}, "bad_note"),
        ({"text": 7}, "bad_input"),
        ({"kind": None}, "bad_input"),
        ({"authority": "person"}, "bad_input"),
        ({"agent": "nobody"}, "unknown_person"),
        ({"person": "7"}, "unknown_person"),
        ({"person": str(uuid4())}, "unknown_person"),
    ],
)
async def test_forbidden_note_is_refused_with_a_reason_and_not_stored(
    dashboard: Dashboard, maria: str, body: dict[str, Any], code: str
) -> None:
    before = await dashboard.pool.fetchval("SELECT count(*) FROM notes")
    status, told = await add(dashboard, **{"person": maria, "text": FACT, **body})
    assert (status, told["code"]) == (404 if code == "unknown_person" else 400, code)
    assert len(told["message"]) > 10
    assert await dashboard.pool.fetchval("SELECT count(*) FROM notes") == before
    assert await dashboard.pool.fetchval("SELECT count(*) FROM audit WHERE action = 'note.added'") == 0


@pytest.mark.control("S13")
@pytest.mark.parametrize(("role", "wanted"), [("viewer", 403), ("operator", 200), ("admin", 200)])
async def test_who_may_add(dashboard: Dashboard, maria: str, role: Role, wanted: int) -> None:
    headers = await make_operator(dashboard.pool, role, name="grace")
    dashboard.http.cookie_jar.clear()
    async with dashboard.http.post(
        f"{dashboard.url}/api/v1/notes", headers=headers, json={"person": maria, "text": FACT}
    ) as response:
        assert response.status == wanted


async def test_note_for_a_merged_person_belongs_to_the_whole_person(
    dashboard: Dashboard, crowd: Crowded
) -> None:
    joined = str(await public_id_of(dashboard.pool, crowd.joined))
    _, told = await add(dashboard, person=joined, text="Sails at weekends")
    assert told["note"]["person"]["name"] == "Jo"
    assert await dashboard.pool.fetchval(
        "SELECT contact_id FROM notes WHERE public_id = $1", told["note"]["id"]
    ) == (crowd.jo.contact_id)
