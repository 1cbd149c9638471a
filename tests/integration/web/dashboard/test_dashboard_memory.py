"""Operators read notes and correct them by the person's own rules, and overwrite nobody."""

from __future__ import annotations

import pytest

from shared.adapters.postgres.people.operator_auth import Operators
from tests.integration.web.dashboard.note_calls import ask, note
from tests.kit.dashboard.fixtures import Dashboard
from tests.kit.dashboard.people_seed import Crowded, public_id_of
from tests.kit.web.callers import make_operator


async def test_the_list_has_every_note_that_has_words_the_newest_first(
    dashboard: Dashboard, crowd: Crowded
) -> None:
    page = await dashboard.get("/notes")
    rows = await dashboard.pool.fetch("SELECT public_id, text FROM notes WHERE text <> '' ORDER BY id DESC")
    assert [(one["id"], one["text"]) for one in page["notes"]] == [
        (str(row["public_id"]), row["text"]) for row in rows
    ]
    trip = await note(dashboard, crowd.notes["trip"])
    assert (trip["from_turn"], trip["agent"], trip["authority"]) == (1, "default", "person")
    assert trip["session"] == str(crowd.maria.public_id)
    assert trip["person"]["name"] == "Maria"


async def test_filters_and_pages_come_to_the_same_notes(dashboard: Dashboard, crowd: Crowded) -> None:
    jo = await public_id_of(dashboard.pool, crowd.jo)
    theirs = await dashboard.get(f"/notes?person={jo}")
    assert {one["text"] for one in theirs["notes"]} == {"Jo drives a red bus", "Has a cat called Miso"}
    assert theirs["person"]["name"] == "Jo"
    assert [one["id"] for one in (await dashboard.get("/notes?authority=tool"))["notes"]] == [
        str(crowd.notes["page"])
    ]
    assert len((await dashboard.get("/notes?kind=plan&state=kept"))["notes"]) == 1
    assert (await dashboard.get("/notes?q=100%25"))["notes"] == []
    seen, cursor = [], ""
    for _ in range(10):
        page = await dashboard.get(f"/notes?limit=2&cursor={cursor}")
        seen += [one["id"] for one in page["notes"]]
        if not (cursor := page["next"] or ""):
            break
    assert len(seen) == len(set(seen)) == 5


@pytest.mark.parametrize(
    "query", ["person=7", "kind=x", "state=erased", "authority=god", "cursor=%3F", "limit=0", "limit=1e3"]
)
async def test_a_query_that_means_nothing_is_refused(dashboard: Dashboard, query: str) -> None:
    status, told = await ask(dashboard, "GET", f"/notes?{query}")
    assert (status, told["code"]) == (400, "bad_query")


@pytest.mark.control("S23")
async def test_a_correction_is_a_newer_note_that_the_operator_vouches_for(
    dashboard: Dashboard, crowd: Crowded
) -> None:
    old = await note(dashboard, crowd.notes["page"])
    status, told = await ask(
        dashboard, "PATCH", f"/notes/{old['id']}", match=old["etag"], json={"text": "She likes sunshine"}
    )
    assert (status, told["changed"]) == (200, True)
    assert told["note"]["authority"] == "operator"
    assert told["note"]["text"] == "She likes sunshine"
    stood = await note(dashboard, crowd.notes["page"])
    assert (stood["state"], stood["superseded_by"]) == ("replaced", told["note"]["id"])
    event = await dashboard.pool.fetchval(
        "SELECT payload FROM events WHERE session_id = $1 AND kind = 'memory'", crowd.maria.session_id
    )
    assert (event["change"], event["text"]) == ("changed", "She likes sunshine")
    assert event["replaces"] == old["short_id"]


async def test_stale_note_edit_shows_both_versions_and_changes_nothing(
    dashboard: Dashboard, crowd: Crowded
) -> None:
    old = await note(dashboard, crowd.notes["trip"])
    path = f"/notes/{old['id']}"
    assert (await ask(dashboard, "PATCH", path, json={"text": "x"}))[0] == 428
    first = await ask(dashboard, "PATCH", path, match=old["etag"], json={"text": "Plans a trip to Porto"})
    assert first[0] == 200
    status, told = await ask(
        dashboard, "PATCH", path, match=old["etag"], json={"text": "Plans a trip to Rome"}
    )
    assert (status, told["code"]) == (409, "stale")
    assert told["details"]["yours"] == {"text": "Plans a trip to Rome"}
    assert told["details"]["theirs"]["text"] == "Plans a trip to Porto"
    texts = await dashboard.pool.fetch("SELECT text FROM notes WHERE superseded_by IS NULL")
    assert "Plans a trip to Rome" not in {row["text"] for row in texts}


@pytest.mark.parametrize("text", ["", "  ", "y" * 700, "sk-ant-api03-" + "A" * 90, 7, None])
async def test_what_may_not_be_kept_is_refused(dashboard: Dashboard, crowd: Crowded, text: object) -> None:
    old = await note(dashboard, crowd.notes["trip"])
    status, _ = await ask(dashboard, "PATCH", f"/notes/{old['id']}", match=old["etag"], json={"text": text})
    assert status == 400
    assert (await note(dashboard, old["id"])) == old


@pytest.mark.control("S23")
async def test_archived_note_of_operator_is_restorable_unlike_a_persons_own(
    dashboard: Dashboard, crowd: Crowded
) -> None:
    path = f"/notes/{crowd.notes['trip']}"
    status, told = await ask(dashboard, "DELETE", path)
    assert (status, told["note"]["state"]) == (200, "put_away")
    assert (await ask(dashboard, "DELETE", path))[1]["changed"] is False
    assert (await ask(dashboard, "POST", f"{path}/restore"))[1]["note"]["state"] == "kept"
    await dashboard.pool.execute(
        """UPDATE notes SET forgotten_at = now() - interval '1 hour', undo_until = now() + interval '1 day'
            WHERE public_id = $1""",
        crowd.notes["joined"],
    )
    status, told = await ask(dashboard, "POST", f"/notes/{crowd.notes['joined']}/restore")
    assert (status, told["code"]) == (409, "not_yours")


async def test_what_the_person_had_forgotten_does_not_come_back_by_an_edit(
    dashboard: Dashboard, crowd: Crowded
) -> None:
    await dashboard.pool.execute(
        "UPDATE notes SET forgotten_at = now() - interval '1 h', undo_until = now() + interval '1 day',"
        " hash = sha256(convert_to('x', 'UTF8')) WHERE public_id = $1",
        crowd.notes["page"],
    )
    from shared.core.context.memory import gist_of, note_hash

    forgotten = "A page said that she likes rain"
    await dashboard.pool.execute(
        "UPDATE notes SET hash = $2, gist = $3 WHERE public_id = $1",
        crowd.notes["page"], note_hash(forgotten), list(gist_of(forgotten)),
    )  # fmt: skip
    trip = await note(dashboard, crowd.notes["trip"])
    status, told = await ask(
        dashboard, "PATCH", f"/notes/{trip['id']}", match=trip["etag"], json={"text": forgotten}
    )
    assert (status, told["code"]) == (409, "blocked")


@pytest.mark.control("S14")
async def test_the_audit_names_notes_and_never_their_words(dashboard: Dashboard, crowd: Crowded) -> None:
    old = await note(dashboard, crowd.notes["trip"])
    await ask(dashboard, "PATCH", f"/notes/{old['id']}", match=old["etag"], json={"text": "To Porto in May"})
    await ask(dashboard, "DELETE", f"/notes/{crowd.notes['jo']}")
    rows = await dashboard.pool.fetch("SELECT actor, action, object, detail::text FROM audit ORDER BY id")
    actions = [(row["action"], row["object"]) for row in rows]
    assert ("note.changed", f"note:{old['id']}") in actions
    assert ("note.put_away", f"note:{crowd.notes['jo']}") in actions
    assert any(action == "read.notes" for action, _ in actions)
    told = "\n".join(str(tuple(row)) for row in rows)
    assert "Porto" not in told
    assert "Lisbon" not in told
    operators = Operators(dashboard.pool)
    assert await operators.find_broken_audit_link() is None
    await operators.close()


async def test_a_viewer_reads_and_changes_nothing(dashboard: Dashboard, crowd: Crowded) -> None:
    viewer = await make_operator(dashboard.pool, "viewer")
    dashboard.http.cookie_jar.clear()
    async with dashboard.http.get(f"{dashboard.url}/api/v1/notes", headers=viewer) as response:
        assert response.status == 200
    for method, path in (("PATCH", ""), ("DELETE", ""), ("POST", "/restore")):
        url = f"{dashboard.url}/api/v1/notes/{crowd.notes['trip']}{path}"
        async with dashboard.http.request(method, url, headers=viewer, json={"text": "x"}) as response:
            assert response.status == 403


@pytest.mark.control("S23")
async def test_operator_sees_who_changed_a_note_and_restores_a_text(
    dashboard: Dashboard, crowd: Crowded
) -> None:
    first = await note(dashboard, crowd.notes["trip"])
    status, answer = await ask(
        dashboard, "PATCH", f"/notes/{first['id']}", match=first["etag"], json={"text": "Goes to Faro."}
    )
    assert status == 200
    second = answer["note"]["id"]
    versions = (await dashboard.get(f"/notes/{second}/versions"))["versions"]
    name = await dashboard.pool.fetchval("SELECT actor FROM audit WHERE action = 'note.changed'")
    assert [(one["id"], one["cause"], one["by"], one["replaced"], one["current"]) for one in versions] == [
        (second, "operator", name, first["text"], True),
        (first["id"], "tool", None, None, False),
    ]
    other = (await note(dashboard, crowd.notes["page"]))["id"]
    assert (await ask(dashboard, "POST", f"/notes/{second}/versions/{other}/restore"))[0] == 404
    status, answer = await ask(dashboard, "POST", f"/notes/{second}/versions/{first['id']}/restore")
    assert (status, answer["note"]["id"], answer["note"]["text"]) == (200, first["id"], first["text"])
    assert len((await dashboard.get(f"/notes/{first['id']}/versions"))["versions"]) == 3
