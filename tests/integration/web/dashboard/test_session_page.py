"""The page of one session: its line over very many turns, bad questions, roles, and what is on record."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from shared.core.values.errors import StaleView, StorageUnavailable
from tests.kit.dashboard import seed
from tests.kit.dashboard.fixtures import SAME_ORIGIN, Dashboard, RunCommands
from web.dashboard import api

MANY = 12_000


async def long_session(dashboard: Dashboard, **how: Any) -> tuple[seed.Seeded, list[Any]]:
    async with dashboard.pool.acquire() as connection:
        return await seed.a_long_session(connection, **how)


async def test_context_line_of_many_turns_keeps_ends_and_summary_drops(
    dashboard: Dashboard,
) -> None:
    seeded, links = await long_session(dashboard, turns=MANY)
    line = await dashboard.get(f"/sessions/{seeded.public_id}/timeline?max_points=300")
    rows = await dashboard.pool.fetch(
        "SELECT turn_id, context_tokens FROM turn_context_audit WHERE session_id = $1", seeded.session_id
    )
    known = {row["turn_id"]: row["context_tokens"] for row in rows}
    turns = [point["turn"] for point in line["points"]]
    assert line["sampled"]
    assert line["turns"] == MANY
    assert turns == sorted(set(turns))
    assert (turns[0], turns[-1]) == (1, MANY)
    assert all(point["context"] == known[point["turn"]] for point in line["points"])
    assert 100 <= len(turns) <= 3 * 300
    assert line["summaries"] == len(links)
    for fold in line["compactions"]:
        assert fold["turn"] in turns
        assert known[fold["turn"]] > known[fold["turn"] + 1]
    late = await dashboard.get(f"/sessions/{seeded.public_id}/timeline?from_turn={MANY - 49}")
    assert [point["turn"] for point in late["points"]] == list(range(MANY - 49, MANY + 1))
    assert not late["sampled"]


async def test_senseless_questions_are_refused_in_words(dashboard: Dashboard) -> None:
    seeded, _ = await long_session(dashboard, turns=40)
    base = f"{dashboard.url}/api/v1/sessions/{seeded.public_id}"
    senseless = ("replay?turn=0", "replay?turn=x", "replay?call=-1", "estimate?do=x", "timeline?from_turn=e")
    for query in senseless:
        async with dashboard.http.get(f"{base}/{query}") as response:
            assert response.status == 400, query
            assert (await response.json())["code"] == "bad_query"
    bodies: tuple[Any, ...] = ({"focus": 5}, {"focus": "x" * 301}, {"force": "yes"}, [])
    for body in bodies:
        async with dashboard.http.post(f"{base}/compact", json=body, headers=SAME_ORIGIN) as response:
            assert response.status == 400, body
    assert dashboard.commands.asked == []
    for path in ("now", "replay", "estimate", "timeline"):
        assert await dashboard.status("GET", f"/api/v1/sessions/{uuid4()}/{path}") == 404
    assert await dashboard.status("GET", f"/api/v1/compactions/{uuid4()}/diff") == 404


async def test_a_turn_whose_parts_are_gone_says_so(dashboard: Dashboard) -> None:
    seeded, _ = await long_session(dashboard, turns=40)
    seen = await dashboard.get(f"/sessions/{seeded.public_id}/replay")
    assert (seen["turn"], seen["newest"], seen["pieces"]) == (40, 40, [])
    assert seen["gone"].startswith("Parts of this request were erased")


async def test_compact_and_flush_run_the_commands_and_are_on_record(dashboard: Dashboard) -> None:
    seeded, _ = await long_session(dashboard, turns=40)
    path = f"/api/v1/sessions/{seeded.public_id}"
    told = {"focus": "the  river ", "force": True}
    assert await dashboard.status("POST", f"{path}/compact", json=told, headers=SAME_ORIGIN) == 200
    assert await dashboard.status("POST", f"{path}/flush", json={}, headers=SAME_ORIGIN) == 200
    asked = [(one["session_id"], one["name"], one["args"]) for one in dashboard.commands.asked]
    assert asked == [(seeded.session_id, "compact", "the river --force"), (seeded.session_id, "flush", "")]
    rows = await dashboard.pool.fetch("SELECT * FROM audit WHERE action LIKE 'session.%' ORDER BY id")
    assert [(row["action"], row["object"]) for row in rows] == [
        ("session.compact", str(seeded.public_id)),
        ("session.flush", str(seeded.public_id)),
    ]
    assert await dashboard.status("POST", f"{path}/flush", json={}) == 403


@pytest.mark.parametrize("outcome", [{"success": False, "error": "It runs already."}, StaleView()])
async def test_failed_session_command_is_reported_with_its_own_error(
    dashboard: Dashboard, outcome: Any
) -> None:
    seeded, _ = await long_session(dashboard, turns=40)
    dashboard.commands.outcome = outcome
    path = f"{dashboard.url}/api/v1/sessions/{seeded.public_id}/compact"
    async with dashboard.http.post(path, json={}, headers=SAME_ORIGIN) as response:
        assert response.status == 409
        said = (await response.json())["message"]
    assert said == (outcome["error"] if isinstance(outcome, dict) else outcome.advice)


async def test_database_outage_in_a_command_is_reported_with_503(dashboard: Dashboard) -> None:
    seeded, _ = await long_session(dashboard, turns=40)
    dashboard.commands.outcome = StorageUnavailable("the database is away")
    path = f"{dashboard.url}/api/v1/sessions/{seeded.public_id}/compact"
    async with dashboard.http.post(path, json={}, headers=SAME_ORIGIN) as response:
        told = await response.json()
    assert (response.status, told["code"]) == (503, "storage_unavailable")
    assert told["message"] == "The database does not answer just now. Try again."


async def test_slow_command_is_not_reported_as_a_database_outage(
    dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait_for_ever(*_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    seeded, _ = await long_session(dashboard, turns=40)
    monkeypatch.setattr(RunCommands, "run", wait_for_ever)
    monkeypatch.setattr(api, "COMMAND_SECONDS", 0)
    path = f"{dashboard.url}/api/v1/sessions/{seeded.public_id}/compact"
    async with dashboard.http.post(path, json={}, headers=SAME_ORIGIN) as response:
        told = await response.json()
    assert (response.status, told["code"]) == (503, "timeout")
    assert "database" not in told["message"]


async def test_a_viewer_looks_and_neither_estimates_nor_acts(dashboard: Dashboard) -> None:
    seeded, links = await long_session(dashboard, turns=412)
    await dashboard.pool.execute("UPDATE operators SET role = 'viewer'")
    path = f"/api/v1/sessions/{seeded.public_id}"
    for read in (f"{path}/now", f"{path}/replay", f"/api/v1/compactions/{links[0]}/diff"):
        assert await dashboard.status("GET", read) == 200
    assert await dashboard.status("GET", f"{path}/estimate") == 403
    for act in ("compact", "flush"):
        assert await dashboard.status("POST", f"{path}/{act}", json={}, headers=SAME_ORIGIN) == 403
    assert dashboard.commands.asked == []


async def test_summary_diff_is_against_the_former_one_and_audited(dashboard: Dashboard) -> None:
    _, links = await long_session(dashboard, turns=412)
    first, second = links[0], links[1]
    assert (await dashboard.get(f"/compactions/{first}/diff"))["former"] is None
    diff = await dashboard.get(f"/compactions/{second}/diff")
    assert diff["former"] == str(first)
    assert [line["change"] for line in diff["lines"]] == ["same", "same", "removed", "added"]
    assert diff["notes"] == [{"text": "Prefers aisle seats (1)", "said": False}]
    actions = [row["action"] for row in await dashboard.pool.fetch("SELECT action FROM audit")]
    assert actions.count("read.diff") == 2


@pytest.mark.parametrize(
    ("body", "wishes"),
    [
        ({"automatic": False}, ["off"]),
        ({"automatic": True, "limit": 30_000}, ["at 30000", "on"]),
        ({"limit": 0}, ["at default"]),
    ],
)
async def test_choice_of_summaries_runs_the_command_and_is_on_record(
    dashboard: Dashboard, body: dict[str, Any], wishes: list[str]
) -> None:
    seeded, _ = await long_session(dashboard, turns=40)
    path = f"/api/v1/sessions/{seeded.public_id}/compaction"
    assert await dashboard.status("POST", path, json=body, headers=SAME_ORIGIN) == 200
    assert [(one["name"], one["args"]) for one in dashboard.commands.asked] == [
        ("compact", wish) for wish in wishes
    ]
    rows = await dashboard.pool.fetch("SELECT action, object FROM audit WHERE action LIKE 'session.%'")
    assert {tuple(row) for row in rows} == {("session.compaction", str(seeded.public_id))}


async def test_choice_of_summaries_is_refused_when_nothing_or_nonsense_is_sent(dashboard: Dashboard) -> None:
    seeded, _ = await long_session(dashboard, turns=40)
    path = f"/api/v1/sessions/{seeded.public_id}/compaction"
    for body in ({}, {"limit": -1}, {"limit": "x"}, {"automatic": "no"}, {"limit": 10_000_001}):
        assert await dashboard.status("POST", path, json=body, headers=SAME_ORIGIN) == 400, body
    unknown = f"/api/v1/sessions/{uuid4()}/compaction"
    told = {"automatic": False}
    assert await dashboard.status("POST", unknown, json=told, headers=SAME_ORIGIN) == 404
    await dashboard.pool.execute("UPDATE operators SET role = 'viewer'")
    assert await dashboard.status("POST", path, json=told, headers=SAME_ORIGIN) == 403
    assert dashboard.commands.asked == []


async def test_page_of_a_session_names_its_chosen_limit(dashboard: Dashboard) -> None:
    seeded, _ = await long_session(dashboard, turns=40)
    assert (await dashboard.get(f"/sessions/{seeded.public_id}"))["compact_at"] is None
    await dashboard.pool.execute("UPDATE sessions SET compact_at = 30000 WHERE id = $1", seeded.session_id)
    assert (await dashboard.get(f"/sessions/{seeded.public_id}"))["compact_at"] == 30_000


async def test_page_of_a_session_says_when_the_next_summary_comes(dashboard: Dashboard) -> None:
    seeded, _ = await long_session(dashboard, turns=40)
    path = f"/sessions/{seeded.public_id}/now"
    assert (await dashboard.get(path))["next"]["withheld"] == ""
    await dashboard.pool.execute(
        "UPDATE sessions SET compaction = 'off', view_epoch = view_epoch + 1 WHERE id = $1", seeded.session_id
    )
    assert (await dashboard.get(path))["next"]["withheld"] == "off"
