"""Operators take conversations over the dashboard's routes: by role, one at a time, and on the record."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import aiohttp
import asyncpg
import pytest
from aiohttp import web

from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.postgres.dashboard.job_list_sql import PULSE
from shared.adapters.postgres.handover.handovers import PostgresHandovers
from shared.adapters.postgres.operations.invariants import check_invariants
from shared.adapters.postgres.people.visitors import PostgresVisitors, generate_token
from shared.config.settings import load_settings
from shared.core.identity.handover import NewHandover
from shared.core.values.messages import Text
from shared.runtime import ignore_crash_point
from shared.services.tools.handover import HandoverService
from tests.kit.dashboard.fixtures import SAME_ORIGIN, Dashboard, RunCommands
from tests.kit.dashboard.serve import served
from tests.kit.operator_driver import Unheard


@asynccontextmanager
async def serving(
    pool: asyncpg.Pool[asyncpg.Record], database_url: str, **settings: Any
) -> AsyncIterator[Dashboard]:
    service = HandoverService(
        PostgresHandovers(pool), Unheard(), VocabularyCounter(), crash_point=ignore_crash_point
    )
    commands = RunCommands()
    http = aiohttp.ClientSession(
        cookie_jar=aiohttp.CookieJar(unsafe=True), timeout=aiohttp.ClientTimeout(total=20)
    )
    app = web.Application()
    async with (
        served(
            app, pool=pool, settings=load_settings(**settings), commands=commands, handovers=service
        ) as url,
        http,
    ):
        yield Dashboard(url=url, database_url=database_url, pool=pool, http=http, commands=commands)


@pytest.fixture
async def anna(pool: asyncpg.Pool[asyncpg.Record], database_url: str) -> AsyncIterator[Dashboard]:
    async with serving(pool, database_url, handover="on") as dashboard:
        await dashboard.log_in()
        await pool.execute("UPDATE operators SET role = 'operator', name = 'anna'")
        yield dashboard


async def waiting(dashboard: Dashboard) -> str:
    row = await PostgresVisitors(dashboard.pool).create(generate_token(), site="default")
    assert row is not None
    await PostgresHandovers(dashboard.pool).request_handover(
        NewHandover(
            session_id=row.session_id, address_id=row.address_id, asked_by="person", reason="a refund"
        )
    )
    return str(row.session_public_id)


async def post(dashboard: Dashboard, path: str, body: Any, **headers: str) -> tuple[int, dict[str, Any]]:
    url = f"{dashboard.url}/api/v1/sessions/{path}"
    async with dashboard.http.post(url, json=body, headers={**SAME_ORIGIN, **headers}) as response:
        return response.status, await response.json()


async def test_who_waits_is_listed_taken_answered_and_given_back(anna: Dashboard) -> None:
    session = await waiting(anna)
    listed = (await anna.get("/handovers?state=waiting"))["handovers"]
    assert [(one["session"], one["reason"], one["asked_by"]) for one in listed] == [
        (session, "a refund", "person")
    ]
    for path, body in (("replies", {"cid": "r1", "text": "Hi"}), ("typing", {})):
        status, told = await post(anna, f"{session}/{path}", body)
        assert (status, told["code"]) == (409, "not_taken")
    status, told = await post(anna, f"{session}/handover", {"action": "take"})
    assert (status, told) == (200, {"state": "human", "changed": True, "name": "Support"})
    assert (await anna.get("/handovers?state=waiting"))["handovers"] == []
    _, first = await post(anna, f"{session}/replies", {"cid": "r1", "text": "Hi"})
    _, again = await post(anna, f"{session}/replies", {"cid": "r1", "text": "Hi"})
    assert again == {**first, "dup": True}
    assert (await post(anna, f"{session}/handover", {"action": "return"}))[1]["state"] == "bot"
    assert (await post(anna, f"{session}/handover", {"action": "return"}))[1]["changed"] is False
    reached = await anna.pool.fetchval(
        "SELECT (SELECT json_agg(v) FROM events v)::text || (SELECT json_agg(e) FROM entries e)::text"
    )
    assert "Support" in reached
    assert "anna" not in reached, "no login name reaches a person"
    audit = [row["action"] for row in await anna.pool.fetch("SELECT action FROM audit ORDER BY id")]
    assert [one for one in audit if "handover" in one] == [
        "read.handovers", "handover.take", "read.handovers", "handover.reply", "handover.return",
    ]  # fmt: skip


async def test_what_cannot_be_put_on_record_is_not_said(anna: Dashboard) -> None:
    session = await waiting(anna)
    await post(anna, f"{session}/handover", {"action": "take"})
    row = await anna.pool.fetchrow("SELECT session_id, operator_id FROM handovers WHERE ended_at IS NULL")
    assert row is not None
    session_id, operator_id = row
    store, words = PostgresHandovers(anna.pool), (Text(text="Hi"),)
    await anna.pool.execute(
        "ALTER TABLE audit ADD CONSTRAINT full_disk CHECK (action <> 'handover.reply') NOT VALID"
    )
    with pytest.raises(asyncpg.CheckViolationError):
        await store.record_reply(session_id, operator_id=operator_id, cid="r1", blocks=words, tokens=1)
    assert await anna.pool.fetchval("SELECT count(*) FROM entries WHERE author = 'operator'") == 0
    await anna.pool.execute("ALTER TABLE audit DROP CONSTRAINT full_disk")
    for _ in range(2):
        await store.record_reply(session_id, operator_id=operator_id, cid="r1", blocks=words, tokens=1)
    rows = await anna.pool.fetch("SELECT actor, object, detail FROM audit WHERE action = 'handover.reply'")
    assert [(row["actor"], row["object"], row["detail"]) for row in rows] == [
        ("anna", session, {"mid": "m1"})
    ]


async def test_a_session_tells_who_has_it_and_its_transcript_how_that_came(anna: Dashboard) -> None:
    session = await waiting(anna)
    page = await anna.get(f"/sessions/{session}")
    assert page["newest_seq"] == 0
    held = page["handover"]
    assert (held["state"], held["asked_by"], held["reason"], held["mine"]) == (
        "waiting", "person", "a refund", False,
    )  # fmt: skip
    await post(anna, f"{session}/handover", {"action": "take"})
    await post(anna, f"{session}/replies", {"cid": "r1", "text": "Hi"})
    held = (await anna.get(f"/sessions/{session}"))["handover"]
    assert (held["state"], held["operator"], held["mine"]) == ("human", "anna", True)
    await post(anna, f"{session}/handover", {"action": "return"})
    assert (await anna.get(f"/sessions/{session}"))["handover"] is None
    said = await anna.get(f"/sessions/{session}/messages")
    assert [(one["author"], one["name"]) for one in said["messages"]] == [("operator", "anna")]
    assert [(one["asked_by"], one["operator"], one["ended_by"]) for one in said["handovers"]] == [
        ("person", "anna", "operator")
    ]
    assert (await anna.get("/me"))["can_take"] is True
    await anna.pool.execute("UPDATE operators SET role = 'viewer'")
    assert (await anna.get("/me"))["can_take"] is False


async def test_second_operator_sees_who_took_the_conversation(
    anna: Dashboard, pool: asyncpg.Pool[asyncpg.Record], database_url: str
) -> None:
    session = await waiting(anna)
    await post(anna, f"{session}/handover", {"action": "take"})
    async with serving(pool, database_url, handover="on") as bert:
        await bert.log_in()
        await pool.execute("UPDATE operators SET role = 'operator', name = 'bert' WHERE role = 'admin'")
        for path, body in (
            ("handover", {"action": "take"}),
            ("handover", {"action": "return"}),
            ("replies", {"cid": "x", "text": "Me!"}),
        ):
            status, told = await post(bert, f"{session}/{path}", body)
            assert (status, told["code"]) == (409, "taken_by_other")
            assert told["details"] == {"operator": "anna"}
        await pool.execute("UPDATE operators SET role = 'admin' WHERE name = 'bert'")
        assert (await post(bert, f"{session}/handover", {"action": "return"}))[0] == 200


async def test_a_conversation_is_assigned_labelled_snoozed_and_resolved(
    anna: Dashboard, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    session = await waiting(anna)
    for name, role in (("bert", "operator"), ("vera", "viewer")):
        await pool.execute("INSERT INTO operators (name, role) VALUES ($1, $2)", name, role)
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()

    async def act(version: int, **body: Any) -> tuple[int, Any]:
        status, told = await post(anna, f"{session}/handover", {"version": version, **body})
        return status, told.get("code", told.get("state"))

    assert await act(0, action="label", labels=["Refund", " refund ", "VIP  guest"]) == (200, "waiting")
    assert await act(0, action="label", labels=[]) == (409, "changed_meanwhile")
    assert await act(1, action="label", labels=["x" * 41]) == (400, "bad_labels")
    assert await act(1, action="snooze", until=soon) == (200, "waiting")
    assert await act(2, action="snooze", until="2020-01-01T00:00:00Z") == (400, "bad_snooze")
    (one,) = (await anna.get("/handovers"))["handovers"]
    assert (one["labels"], one["version"], one["snoozed_until"] is None) == (
        ["Refund", "VIP guest"],
        2,
        False,
    )
    assert await act(2, action="assign", operator="vera") == (400, "unknown_assignee")
    assert await act(2, action="assign", operator="bert") == (200, "human")
    (one,) = (await anna.get("/handovers"))["handovers"]
    assert (one["operator"], one["snoozed_until"]) == ("bert", None)
    for body in ({"action": "resolve"}, {"action": "snooze", "until": soon, "version": 3}):
        assert (await post(anna, f"{session}/handover", body))[1]["code"] == "taken_by_other"
    assert await act(3, action="assign", operator="anna") == (200, "human")
    assert await act(0, action="resolve") == (200, "bot")
    assert await act(4, action="label", labels=[]) == (409, "not_taken")
    assert (await anna.get("/handovers"))["handovers"] == []
    (one,) = (await anna.get("/handovers?state=resolved"))["handovers"]
    assert (one["operator"], one["labels"]) == ("anna", ["Refund", "VIP guest"])
    choices = await anna.get("/handover-choices")
    assert (choices["assignees"], choices["labels"]) == (["anna", "bert"], ["Refund", "VIP guest"])
    audit = [row["action"] for row in await pool.fetch("SELECT action FROM audit ORDER BY id")]
    assert [one for one in audit if one.startswith("handover")] == [
        "handover.label", "handover.snooze", "handover.assign", "handover.assign", "handover.resolve",
    ]  # fmt: skip
    await pool.execute("UPDATE operators SET role = 'viewer' WHERE name = 'anna'")
    assert (await act(4, action="assign", operator="bert"))[0] == 403


async def test_private_notes_are_stored_once_and_deleted_by_their_author(
    anna: Dashboard, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    session = await waiting(anna)
    _, first = await post(anna, f"{session}/private-notes", {"cid": "n1", "text": "Careful"})
    _, again = await post(anna, f"{session}/private-notes", {"cid": "n1", "text": "Careful"})
    assert first == again
    assert (await post(anna, f"{session}/private-notes", {"cid": "n2", "text": "x" * 4_001}))[0] == 400
    assert (await post(anna, f"{uuid4()}/private-notes", {"cid": "n", "text": "x"}))[0] == 404
    said = await anna.get(f"/sessions/{session}/messages")
    assert [(one["operator"], one["body"]) for one in said["private_notes"]] == [("anna", "Careful")]
    assert [one["can_remove"] for one in said["private_notes"]] == [True]
    path = f"/api/v1/sessions/{session}/private-notes/{first['id']}"
    await pool.execute("INSERT INTO operators (name, role) VALUES ('bert', 'operator')")
    await pool.execute(
        "UPDATE private_notes SET operator_id = (SELECT id FROM operators WHERE name = 'bert')"
    )
    assert await anna.status("DELETE", path, headers=SAME_ORIGIN) == 404
    assert await can_remove(anna, session) == [False]
    await pool.execute("UPDATE operators SET role = 'admin' WHERE name = 'anna'")
    assert await can_remove(anna, session) == [True]
    await pool.execute("UPDATE operators SET role = 'viewer' WHERE name = 'anna'")
    await pool.execute(
        "UPDATE private_notes SET operator_id = (SELECT id FROM operators WHERE name = 'anna')"
    )
    assert await can_remove(anna, session) == [False]
    assert await anna.status("DELETE", path, headers=SAME_ORIGIN) == 403
    await pool.execute("UPDATE operators SET role = 'operator' WHERE name = 'anna'")
    assert await anna.status("DELETE", path, headers=SAME_ORIGIN) == 200
    assert await pool.fetchval("SELECT count(*) FROM private_notes") == 0
    assert await anna.status("DELETE", path, headers=SAME_ORIGIN) == 404
    actions = await pool.fetch(
        "SELECT action, object FROM audit WHERE action LIKE 'private_note.%' ORDER BY id"
    )
    assert [tuple(row) for row in actions][-1] == ("private_note.deleted", session)
    await pool.execute("UPDATE operators SET role = 'viewer' WHERE name = 'anna'")
    assert (await post(anna, f"{session}/private-notes", {"cid": "n3", "text": "x"}))[0] == 403


async def test_the_stream_tells_that_any_private_note_was_removed(
    anna: Dashboard, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    session = await waiting(anna)
    first = (await post(anna, f"{session}/private-notes", {"cid": "n1", "text": "One"}))[1]["id"]
    await post(anna, f"{session}/private-notes", {"cid": "n2", "text": "Two"})
    pulse, shown = json.loads(await pool.fetchval(PULSE))["handovers"], await facts(anna, session)
    path = f"/api/v1/sessions/{session}/private-notes/{first}"
    assert await anna.status("DELETE", path, headers=SAME_ORIGIN) == 200
    assert json.loads(await pool.fetchval(PULSE))["handovers"] != pulse
    await post(anna, f"{session}/private-notes", {"cid": "n3", "text": "Three"})
    assert await facts(anna, session) != shown


async def facts(anna: Dashboard, session: str) -> Any:
    return (await anna.get(f"/sessions/{session}"))["private_notes"]


async def can_remove(anna: Dashboard, session: str) -> list[bool]:
    return [one["can_remove"] for one in (await anna.get(f"/sessions/{session}/messages"))["private_notes"]]


async def test_slower_editor_of_a_canned_reply_is_refused(anna: Dashboard) -> None:
    async def put(name: str, body: str, version: int) -> tuple[int, Any]:
        url = f"{anna.url}/api/v1/canned-replies/{name}"
        async with anna.http.put(
            url, json={"body": body, "version": version}, headers=SAME_ORIGIN
        ) as response:
            told = await response.json()
            return response.status, told.get("version", told.get("code"))

    assert await put("hello", "Hello {{name}}!", 0) == (200, 1)
    assert await put("hello", "Hi!", 0) == (409, "changed_meanwhile")
    assert await put("hello", "Hi {{name}}!", 1) == (200, 2)
    assert await put("hello", "Late", 1) == (409, "changed_meanwhile")
    assert (await put("No Name", "x", 0))[0] in (400, 404)
    assert (await put("empty", " ", 0))[0] == 400
    canned = (await anna.get("/handover-choices"))["canned"]
    assert [(one["name"], one["body"], one["changed_by"]) for one in canned] == [
        ("hello", "Hi {{name}}!", "anna")
    ]
    assert await anna.status("DELETE", "/api/v1/canned-replies/hello", headers=SAME_ORIGIN) == 200
    assert (await anna.get("/handover-choices"))["canned"] == []


async def test_what_cannot_be_used_is_refused_and_changes_nothing(anna: Dashboard) -> None:
    session = await waiting(anna)
    for path, body in (
        (f"{session}/handover", {"action": "steal"}),
        (f"{session}/handover", ["take"]),
        (f"{session}/replies", {"cid": "", "text": "Hi"}),
        (f"{session}/replies", {"cid": "a\u0000", "text": "Hi"}),
        (f"{session}/replies", {"cid": "a", "text": 7}),
        (f"{session}/replies", {"cid": "a", "text": "  "}),
        (f"{session}/replies", {"cid": "a", "text": "x" * 9_000}),
        (f"{session}/replies", {"cid": "a", "text": "a\u0000b"}),
    ):
        status, told = await post(anna, path, body)
        assert (status, bool(told["message"])) == (400, True), body
    assert (await post(anna, f"{uuid4()}/handover", {"action": "take"}))[0] == 404
    assert (await post(anna, "nonsense/replies", {"cid": "a", "text": "Hi"}))[0] == 404
    foreign = {"Sec-Fetch-Site": "cross-site"}
    assert (await post(anna, f"{session}/handover", {"action": "take"}, **foreign))[0] == 403
    await anna.pool.execute("UPDATE operators SET role = 'viewer'")
    assert (await post(anna, f"{session}/handover", {"action": "take"}))[0] == 403
    assert (await post(anna, f"{session}/replies", {"cid": "a", "text": "Hi"}))[0] == 403
    assert await anna.pool.fetchval("SELECT state FROM handovers") == "waiting"
    assert await anna.status("GET", "/api/v1/handovers?state=ended") == 400


async def test_disabled_handover_cannot_be_taken(
    pool: asyncpg.Pool[asyncpg.Record], database_url: str
) -> None:
    async with serving(pool, database_url, handover="off") as dashboard:
        await dashboard.log_in()
        session = await waiting(dashboard)
        status, told = await post(dashboard, f"{session}/handover", {"action": "take"})
        assert (status, told["code"]) == (409, "handover_off")


async def move_all(dashboard: Dashboard, action: str, chosen: list[dict[str, Any]], **more: Any) -> Any:
    url = f"{dashboard.url}/api/v1/handovers/moves"
    body = {"action": action, "conversations": chosen, **more}
    async with dashboard.http.post(url, json=body, headers=SAME_ORIGIN) as response:
        return response.status, await response.json()


async def listed(dashboard: Dashboard) -> dict[str, Any]:
    return {one["session"]: one for one in (await dashboard.get("/handovers"))["handovers"]}


async def choose(dashboard: Dashboard, *sessions: str) -> list[dict[str, Any]]:
    rows = await listed(dashboard)
    return [{"session": one, "version": rows[one]["version"]} for one in sessions]


async def test_several_conversations_are_labelled_assigned_snoozed_and_resolved(anna: Dashboard) -> None:
    first, second, other = [await waiting(anna) for _ in range(3)]
    version = (await listed(anna))[first]["version"]
    label = {"action": "label", "version": version, "labels": ["VIP"]}
    assert (await post(anna, f"{first}/handover", label))[0] == 200
    later = (datetime.now(UTC) + timedelta(hours=4)).isoformat()
    for action, more in (
        ("label", {"labels": ["Refund", "vip"]}),
        ("assign", {"operator": "anna"}),
        ("snooze", {"until": later}),
    ):
        status, told = await move_all(anna, action, await choose(anna, first, second), **more)
        assert status == 200, told
        assert (status, {one["changed"] for one in told["conversations"]}) == (200, {True})
    rows = await listed(anna)
    assert (rows[first]["labels"], rows[second]["labels"]) == (["VIP", "Refund"], ["Refund", "vip"])
    assert [rows[one]["operator"] for one in (first, second, other)] == ["anna", "anna", ""]
    assert [rows[one]["snoozed_until"] is None for one in (first, second, other)] == [False, False, True]
    for changed in (True, False):
        _, told = await move_all(anna, "resolve", [{"session": one, "version": 0} for one in (first, second)])
        assert [one["changed"] for one in told["conversations"]] == [changed, changed]
    assert list(await listed(anna)) == [other]


async def test_refused_conversation_does_not_keep_the_others_from_changing(anna: Dashboard) -> None:
    first, second, held = [await waiting(anna) for _ in range(3)]
    await anna.pool.execute("INSERT INTO operators (name, role) VALUES ('ben', 'operator')")
    assert (await move_all(anna, "assign", await choose(anna, held), operator="ben"))[0] == 200
    chosen = await choose(anna, first, second, held)
    assert (await move_all(anna, "label", chosen[:1], labels=["New"]))[0] == 200
    nobody = {"session": str(uuid4()), "version": 0}
    status, told = await move_all(anna, "assign", [*chosen[:2], nobody, chosen[1]], operator="anna")
    assert status == 200
    found = {one["session"]: one.get("error", "") for one in told["conversations"]}
    assert found == {first: "changed_meanwhile", second: "", nobody["session"]: "not_found"}
    _, told = await move_all(anna, "resolve", [chosen[2], chosen[0]])
    assert [one.get("error") for one in told["conversations"]] == ["taken_by_other", None]
    assert "ben" in told["conversations"][0]["reason"]
    rows = await listed(anna)
    assert (first in rows, rows[second]["operator"], rows[held]["operator"]) == (False, "anna", "ben")


@pytest.mark.parametrize(
    "body",
    [
        {"action": "take", "conversations": [{"session": str(uuid4()), "version": 0}]},
        {"action": "resolve", "conversations": []},
        {"action": "resolve", "conversations": [{"session": "x", "version": 0}]},
        {"action": "resolve", "conversations": [{"session": str(uuid4()), "version": 0}] * 101},
        {"action": "label"},
    ],
)
async def test_malformed_move_of_several_conversations_is_refused(anna: Dashboard, body: Any) -> None:
    url = f"{anna.url}/api/v1/handovers/moves"
    async with anna.http.post(url, json=body, headers=SAME_ORIGIN) as response:
        assert response.status == 400


async def test_viewer_cannot_change_several_conversations(anna: Dashboard) -> None:
    session = await waiting(anna)
    await anna.pool.execute("UPDATE operators SET role = 'viewer'")
    assert (await move_all(anna, "resolve", [{"session": session, "version": 0}]))[0] == 403
    assert session in await listed(anna)


async def save_macro(dashboard: Dashboard, name: str, **body: Any) -> tuple[int, dict[str, Any]]:
    url = f"{dashboard.url}/api/v1/macros/{name}"
    async with dashboard.http.put(url, json=body, headers=SAME_ORIGIN) as response:
        return response.status, await response.json()


async def test_macro_labels_assigns_replies_and_resolves_in_one_call(anna: Dashboard) -> None:
    session = await waiting(anna)
    reply = "Hello {{name}}, done."
    status, saved = await save_macro(
        anna, "refund", labels=["Refund", "refund"], assignee="*", reply=reply, resolve=True
    )
    assert (status, saved["labels"], saved["version"], saved["changed_by"]) == (200, ["Refund"], 1, "anna")
    assert [one["name"] for one in (await anna.get("/handover-choices"))["macros"]] == ["refund"]
    assert (await post(anna, f"{session}/macros/refund", {"cid": "c1"}))[0] == 400
    assert await anna.pool.fetchval("SELECT state FROM handovers") == "waiting"
    for _ in range(2):
        body = {"cid": "c1", "text": "Hello Ada, done."}
        status, told = await post(anna, f"{session}/macros/refund", body)
        assert (status, told["state"]) == (200, "bot")
    rows = await anna.pool.fetch("SELECT ended_by, labels, operator_name FROM handovers")
    assert [tuple(row) for row in rows] == [("resolved", ["Refund"], "anna")]
    said = await anna.pool.fetch("SELECT blocks::text FROM entries WHERE author = 'operator'")
    assert ["Hello Ada, done." in row["blocks"] for row in said] == [True]
    audit = await anna.pool.fetchval("SELECT count(*) FROM audit WHERE action = 'macro.run'")
    assert audit == 1


async def test_interrupted_macro_continues_when_it_is_repeated(anna: Dashboard) -> None:
    session = await waiting(anna)
    await save_macro(anna, "bye", labels=["Done"], reply="Bye.", resolve=True)
    assert (await post(anna, f"{session}/handover", {"action": "take"}))[0] == 200
    assert (await post(anna, f"{session}/replies", {"cid": "c9", "text": "Bye."}))[0] == 200
    assert (await post(anna, f"{session}/macros/bye", {"cid": "c9"}))[0] == 200
    rows = await anna.pool.fetch("SELECT ended_by, labels FROM handovers")
    assert [tuple(row) for row in rows] == [("resolved", ["Done"])]
    assert await anna.pool.fetchval("SELECT count(*) FROM entries WHERE author = 'operator'") == 1


async def test_macro_assigns_another_operator_without_taking(anna: Dashboard) -> None:
    session = await waiting(anna)
    await anna.pool.execute("INSERT INTO operators (name, role) VALUES ('ben', 'operator')")
    await save_macro(anna, "to-ben", labels=["VIP"], assignee="ben")
    assert (await post(anna, f"{session}/macros/to-ben", {"cid": "c1"}))[0] == 200
    (row,) = (await anna.get("/handovers"))["handovers"]
    assert (row["operator"], row["labels"], row["state"]) == ("ben", ["VIP"], "human")
    assert (await post(anna, f"{session}/macros/none", {"cid": "c1"}))[0] == 404
    await save_macro(anna, "hello", reply="Hello.")
    status, told = await post(anna, f"{session}/macros/hello", {"cid": "c2"})
    assert (status, told["code"]) == (409, "taken_by_other")
    assert await anna.pool.fetchval("SELECT count(*) FROM entries WHERE author = 'operator'") == 0


@pytest.mark.parametrize(
    "body",
    [
        {}, {"labels": []}, {"reply": "  "}, {"labels": ["x" * 41]}, {"resolve": True, "assignee": "ben"},
        {"reply": "x" * 4001},
    ],
)  # fmt: skip
async def test_macro_that_does_nothing_sensible_is_refused(anna: Dashboard, body: Any) -> None:
    assert (await save_macro(anna, "odd", **body))[0] == 400
    assert await anna.pool.fetchval("SELECT count(*) FROM macros") == 0


async def test_slower_editor_of_a_macro_is_refused(anna: Dashboard) -> None:
    assert (await save_macro(anna, "bye", resolve=True))[1]["version"] == 1
    assert (await save_macro(anna, "bye", resolve=True, version=1))[1]["version"] == 2
    for version in (0, 1):
        assert (await save_macro(anna, "bye", reply="Bye.", version=version))[0] == 409
    assert await anna.status("DELETE", "/api/v1/macros/bye", headers=SAME_ORIGIN) == 200
    assert (await anna.get("/handover-choices"))["macros"] == []
    await anna.pool.execute("UPDATE operators SET role = 'viewer'")
    assert (await save_macro(anna, "bye", resolve=True))[0] == 403


async def test_label_that_no_conversation_can_have_breaks_an_invariant(anna: Dashboard) -> None:
    await save_macro(anna, "bye", labels=["Done"])
    await anna.pool.execute("UPDATE macros SET labels = ARRAY[repeat('x', 41)]")
    connection = await asyncpg.connect(anna.database_url)
    found = [str(one) for one in await check_invariants(connection)]
    await connection.close()
    assert [one for one in found if "macro bye" in one]
    await anna.pool.execute("DELETE FROM macros")
