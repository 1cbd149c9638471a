"""The JSON of the dashboard: pages, refusals in words, undo by command, and what the audit keeps."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from shared.core.values.errors import StaleView
from tests.kit.dashboard import seed
from tests.kit.dashboard.fixtures import SAME_ORIGIN, Dashboard

SENSELESS = (
    "/sessions?sort=secret",
    "/sessions?limit=0",
    "/sessions?limit=9999999999999999999999",
    "/sessions?cursor=%00",
    "/sessions?q=%00",
    "/sessions?min_pct=nan",
    "/sessions?from=yesterday",
    "/jobs?state=x",
    "/jobs?before=1e9",
    "/jobs?before=99999999999999999999",
)


async def long_session(dashboard: Dashboard, **how: Any) -> tuple[seed.Seeded, list[UUID]]:
    async with dashboard.pool.acquire() as connection:
        return await seed.a_long_session(connection, **how)


async def actions(dashboard: Dashboard) -> list[str]:
    return [row["action"] for row in await dashboard.pool.fetch("SELECT action FROM audit ORDER BY id")]


async def test_each_page_answers(dashboard: Dashboard) -> None:
    seeded, links = await long_session(dashboard)
    listed = await dashboard.get("/sessions?q=maria&channel=telegram&min_pct=1&sort=-cost")
    assert [row["id"] for row in listed["sessions"]] == [str(seeded.public_id)]
    path = f"/sessions/{seeded.public_id}"
    assert (await dashboard.get(path))["turns"] == 412
    assert len((await dashboard.get(f"{path}/timeline?max_points=100"))["points"]) <= 102
    assert len((await dashboard.get(f"{path}/compactions"))["compactions"]) == len(links)
    assert len((await dashboard.get(f"{path}/context?limit=7"))["calls"]) == 7
    assert len((await dashboard.get(f"{path}/messages?before=5.9&limit=200"))["messages"]) == 8
    assert (await dashboard.get(f"/compactions/{links[0]}/messages"))["session"] == str(seeded.public_id)
    assert (await dashboard.get("/jobs?state=dead"))["jobs"][0]["state"] == "dead"
    overview = await dashboard.get("/overview")
    assert (overview["cap_micro"], overview["demo"]) == (5_000_000, False)


async def test_what_cannot_be_asked_is_refused_in_words(dashboard: Dashboard) -> None:
    for path in SENSELESS:
        async with dashboard.http.get(f"{dashboard.url}/api/v1{path}") as response:
            assert response.status == 400, path
            told = await response.json()
        assert told["code"] == "bad_query"
        assert told["message"].startswith("That cannot be shown: ")
        assert told["request_id"]


async def test_what_is_not_there_is_not_found(dashboard: Dashboard) -> None:
    for path in (
        "/sessions/{}",
        "/sessions/{}/messages",
        "/sessions/{}/timeline",
        "/compactions/{}/messages",
    ):
        for name in (str(uuid4()), "not-an-id", "1"):
            assert await dashboard.status("GET", "/api/v1" + path.format(name)) == 404
    assert await dashboard.status("POST", f"/api/v1/compactions/{uuid4()}/undo", headers=SAME_ORIGIN) == 404


async def test_undo_runs_the_command_for_the_newest_summary(dashboard: Dashboard) -> None:
    seeded, links = await long_session(dashboard)
    await dashboard.pool.execute("UPDATE turn_context_audit SET hard_limit = 500000")
    path = f"/api/v1/compactions/{links[-1]}/undo"
    assert await dashboard.status("POST", path, headers=SAME_ORIGIN) == 200
    assert [(run["session_id"], run["name"]) for run in dashboard.commands.asked] == [
        (seeded.session_id, "undo")
    ]
    assert "compaction.undo" in await actions(dashboard)


async def test_undo_of_an_older_summary_says_why_not(dashboard: Dashboard) -> None:
    _, links = await long_session(dashboard)
    path = f"{dashboard.url}/api/v1/compactions/{links[0]}/undo"
    async with dashboard.http.post(path, headers=SAME_ORIGIN) as response:
        assert response.status == 409
        assert (await response.json())["message"].startswith("A newer summary builds on this one.")
    assert dashboard.commands.asked == []


async def test_restore_brings_back_what_was_undone(dashboard: Dashboard) -> None:
    seeded, links = await long_session(dashboard)
    await dashboard.pool.execute(
        "UPDATE compactions SET active = false, undone_at = now() WHERE public_id = $1", links[-1]
    )
    await dashboard.pool.execute(
        "UPDATE sessions SET redo = head, head = (SELECT parent FROM compactions WHERE id = head)"
        " WHERE id = $1",
        seeded.session_id,
    )
    path = f"/api/v1/compactions/{links[-1]}/restore"
    assert await dashboard.status("POST", path, headers=SAME_ORIGIN) == 200
    assert dashboard.commands.asked[0]["name"] == "restore"


@pytest.mark.parametrize("outcome", [{"success": False, "error": "It does not fit."}, StaleView()])
async def test_failed_command_is_reported_with_its_own_error(dashboard: Dashboard, outcome: Any) -> None:
    _, links = await long_session(dashboard)
    await dashboard.pool.execute("UPDATE turn_context_audit SET hard_limit = 500000")
    dashboard.commands.outcome = outcome
    path = f"{dashboard.url}/api/v1/compactions/{links[-1]}/undo"
    async with dashboard.http.post(path, headers=SAME_ORIGIN) as response:
        assert response.status == 409
        said = (await response.json())["message"]
    assert said == (outcome["error"] if isinstance(outcome, dict) else outcome.advice)


@pytest.mark.control("S14")
async def test_reading_a_transcript_is_written_down_and_a_refresh_is_not(dashboard: Dashboard) -> None:
    seeded, links = await long_session(dashboard)
    await dashboard.get(f"/sessions/{seeded.public_id}/messages")
    await dashboard.get(f"/sessions/{seeded.public_id}/messages", **{"X-Evertalk-Refresh": "1"})
    await dashboard.get(f"/compactions/{links[0]}/messages")
    rows = await dashboard.pool.fetch("SELECT actor, action, object, detail::text FROM audit ORDER BY id")
    assert [row["action"] for row in rows] == ["login_link.made", "login", "read.messages", "read.originals"]
    assert (rows[2]["actor"], rows[2]["object"]) == ("admin", str(seeded.public_id))
    assert "says something" not in str(rows)


async def test_first_reading_is_audited_when_a_page_refreshes_itself(dashboard: Dashboard) -> None:
    seeded, links = await long_session(dashboard)
    replay = f"/sessions/{seeded.public_id}/replay?turn="
    paths = (f"{replay}1", f"{replay}2", f"/compactions/{links[0]}/diff", "/notes", "/notes", "/pairing")
    for path in paths:
        await dashboard.get(path, **{"X-Evertalk-Refresh": "1"})
    rows = await dashboard.pool.fetch("SELECT action FROM audit WHERE action LIKE 'read.%' ORDER BY id")
    expected = ["read.replay", "read.replay", "read.diff", "read.notes", "read.pairing"]
    assert [row["action"] for row in rows] == expected


async def test_audit_names_an_object_by_its_id_however_it_was_spelled(dashboard: Dashboard) -> None:
    seeded, links = await long_session(dashboard)
    session, summary = str(seeded.public_id), str(links[0])
    for spelled in (session, session.upper(), session.replace("-", "")):
        for part in ("", "/messages", "/compactions", "/replay", "/export"):
            assert await dashboard.status("GET", f"/api/v1/sessions/{spelled}{part}") == 200
        await dashboard.get(f"/search?q=something&session={spelled}")
        path = f"/api/v1/sessions/{spelled}/flush"
        assert await dashboard.status("POST", path, json={}, headers=SAME_ORIGIN) == 200
        for part in ("messages", "diff"):
            path = f"/api/v1/compactions/{summary.upper()}/{part}"
            assert await dashboard.status("GET", path) == 200
    rows = await dashboard.pool.fetch(
        "SELECT object, count(*) FROM audit WHERE action LIKE 'read.%' OR action = 'session.flush' GROUP BY 1"
    )
    assert {row["object"]: row["count"] for row in rows} == {session: 21, summary: 6}


async def test_metrics_tell_the_four_counters_of_the_seed(dashboard: Dashboard) -> None:
    _, links = await long_session(dashboard)
    async with dashboard.http.get(f"{dashboard.url}/metrics") as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = await response.text()
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    average = await dashboard.pool.fetchval(
        "SELECT avg(reported_input_tokens)::float8 FROM turn_context_audit"
    )
    assert values["evertalk_summaries_total"] == str(len(links))
    assert values["evertalk_prunes_total"] == "0"
    assert "# HELP evertalk_prunes_total Turns that shortened a batch of old tool results." in text
    assert values["evertalk_overflow_rejects_total"] == "0"
    assert float(values["evertalk_prompt_tokens_per_call"]) == pytest.approx(average)
    assert values['evertalk_jobs{state="dead"}'] == "1"
    assert values['evertalk_tokens_total{kind="cache_read"}'] == "8700000"
    assert float(values["evertalk_cost_dollars_total"]) == pytest.approx(14.62)


async def test_metrics_are_read_by_prometheus(dashboard: Dashboard) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    async with dashboard.http.get(f"{dashboard.url}/metrics") as response:
        families = list(text_string_to_metric_families(await response.text()))
    assert len(families) >= 8
    assert all(family.documentation for family in families)
    labels = {label for family in families for sample in family.samples for label in sample.labels}
    assert labels <= {"state", "kind", "role", "outcome", "stage", "transport", "le", "version", "python"}


async def test_what_is_unknown_has_no_series(dashboard: Dashboard) -> None:
    async with dashboard.http.get(f"{dashboard.url}/metrics") as response:
        assert "evertalk_prompt_tokens_per_call" not in await response.text()


async def test_unreachable_database_is_reported_with_503(dashboard: Dashboard) -> None:
    dashboard.pool.terminate()
    async with dashboard.http.get(f"{dashboard.url}/api/v1/sessions") as response:
        assert response.status == 503
        told = await response.json()
    assert told["code"] == "storage_unavailable"
    assert "database" in told["message"]


@pytest.mark.control("S14", "S48")
async def test_a_visitors_file_is_for_operators_and_reading_it_is_written_down(dashboard: Dashboard) -> None:
    await long_session(dashboard)
    public_id = await dashboard.pool.fetchval(
        """INSERT INTO attachments (session_id, sha256, mime, size, state, body, name, words, arrived_sha256)
           SELECT min(id), '\\x01', 'text/plain', 5, 'stored', 'words', 'a.html', 'words', '\\x01'
             FROM sessions
           RETURNING public_id"""
    )
    path = f"{dashboard.url}/api/v1/attachments/{public_id.hex}"
    async with dashboard.http.get(path) as response:
        assert (response.status, await response.read()) == (200, b"words")
        assert response.headers["Content-Disposition"].startswith("attachment;")
        assert response.headers["Content-Security-Policy"] == "sandbox; default-src 'none'"
        assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert await dashboard.status("GET", f"/api/v1/attachments/{str(public_id).upper()}") == 200
    rows = await dashboard.pool.fetch("SELECT object FROM audit WHERE action = 'read.attachment'")
    assert [row["object"] for row in rows] == [public_id.hex] * 2
    for unknown in (uuid4().hex, "x"):
        assert await dashboard.status("GET", f"/api/v1/attachments/{unknown}") == 404
