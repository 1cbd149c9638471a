"""Jobs and deliveries for operators: every number against SQL, and changes that skip what has moved on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.dashboard import seed, seed_work
from tests.kit.dashboard.fixtures import SAME_ORIGIN, Dashboard

BAD = [
    "/jobs?kind=x",
    "/jobs?session=7",
    "/deliveries?state=sent",
    "/deliveries?cursor=AAAA",
    "/jobs?limit=201",
]


async def post(dashboard: Dashboard, path: str, body: Any, *, status: int = 200) -> Any:
    url = f"{dashboard.url}/api/v1{path}"
    async with dashboard.http.post(url, json=body, headers=SAME_ORIGIN) as response:
        assert response.status == status, await response.text()
        return await response.json()


async def states(dashboard: Dashboard) -> dict[str, str]:
    return {row["key"]: row["state"] for row in await dashboard.pool.fetch("SELECT key, state FROM jobs")}


async def audited(dashboard: Dashboard, action: str) -> list[Any]:
    return await dashboard.pool.fetch("SELECT * FROM audit WHERE action = $1 ORDER BY id", action)


async def test_every_number_of_the_jobs_page_is_what_sql_says(dashboard: Dashboard) -> None:
    await seed_work.jobs(dashboard.pool)
    page, ask = await dashboard.get("/jobs"), dashboard.pool.fetchval
    for state in ("due", "running", "done", "dead"):
        assert page["states"][state] == await ask("SELECT count(*) FROM jobs WHERE state = $1", state)
    assert page["failing"] == await ask(
        "SELECT count(*) FROM jobs WHERE state IN ('due', 'running') AND last_error <> ''"
    )
    assert (page["retry_all"], page["cancel_all"]) == ({"jobs": 4, "more": False}, {"jobs": 2, "more": False})
    assert page["dead_lately"] == 3
    oldest = await ask("SELECT to_json(min(due_at))#>>'{}' FROM jobs WHERE state = 'due' AND due_at <= now()")
    assert page["oldest_due"] == oldest
    assert int(page["newest"]) == await ask("SELECT max(id) FROM jobs")
    assert [job["can_cancel"] for job in page["jobs"]] == [
        False,
        False,
        False,
        True,
        True,
        False,
        False,
        False,
    ]
    (worker,) = page["workers"]
    assert (worker["alive"], worker["job"]) == (True, page["jobs"][1]["id"])


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("state=dead", 3),
        ("state=failing", 1),
        ("kind=flush", 2),
        ("kind=tidy&state=running", 1),
        ("state=done", 1),
    ],
)
async def test_filters_show_what_they_name(dashboard: Dashboard, query: str, count: int) -> None:
    seeded = await seed_work.jobs(dashboard.pool)
    assert len((await dashboard.get(f"/jobs?{query}"))["jobs"]) == count
    assert len((await dashboard.get(f"/jobs?{query}&session={seeded.public_id}"))["jobs"]) == count
    async with dashboard.pool.acquire() as connection:
        other = await seed.a_session(connection)
    assert (await dashboard.get(f"/jobs?{query}&session={other.public_id}"))["jobs"] == []


async def test_pages_show_each_job_and_each_part_once(dashboard: Dashboard) -> None:
    await seed_work.jobs(dashboard.pool, dead=7)
    await seed_work.doubts(dashboard.pool)
    jobs: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    before = cursor = ""
    while before is not None:
        page = await dashboard.get(f"/jobs?limit=3&before={before}")
        jobs, before = [*jobs, *page["jobs"]], page["before"]
    assert [job["id"] for job in jobs] == [
        row["id"] for row in await dashboard.pool.fetch("SELECT id FROM jobs ORDER BY id DESC")
    ]
    while cursor is not None:
        page = await dashboard.get(f"/deliveries?limit=1&cursor={cursor}")
        parts, cursor = [*parts, *page["deliveries"]], page["next"]
    assert [(part["turn"], part["part"]) for part in parts] == [(3, 1), (3, 0), (2, 0)]


async def test_jobs_name_the_reason_why_no_summary_was_made(dashboard: Dashboard) -> None:
    await seed_work.jobs(dashboard.pool)
    assert {job["reason"] for job in (await dashboard.get("/jobs"))["jobs"]} == {None}
    for state, outcome in (
        ("done", {"nothing": "hook", "detail": "x"}),
        ("dead", {"nothing": "thrashing"}),
        ("due", {"deferred": "backoff"}),
    ):
        await dashboard.pool.execute("UPDATE jobs SET outcome = $2 WHERE state = $1", state, outcome)
    jobs = (await dashboard.get("/jobs"))["jobs"]
    assert {(job["state"], job["reason"]) for job in jobs} == {
        ("done", "hook"), ("dead", "thrashing"), ("due", "backoff"), ("running", None)
    }  # fmt: skip


@pytest.mark.parametrize("path", BAD)
async def test_invalid_job_filter_is_refused(dashboard: Dashboard, path: str) -> None:
    assert await dashboard.status("GET", f"/api/v1{path}") == 400


async def test_retried_dead_job_has_all_attempts_and_rings(dashboard: Dashboard) -> None:
    await seed_work.jobs(dashboard.pool)
    number = await dashboard.pool.fetchval("SELECT id FROM jobs WHERE key = 'dead:2'")
    assert (await post(dashboard, "/jobs/retry", {"ids": [number]}))["changed"] == 1
    row = await dashboard.pool.fetchrow("SELECT * FROM jobs WHERE id = $1", number)
    assert row is not None
    assert (row["state"], row["faults"], row["ended_at"], row["attempt"]) == ("due", 0, None, 3)
    assert [(job.id, job.attempt) for job in dashboard.bell] == [(number, 3)]
    assert [line["object"] for line in await audited(dashboard, "job.retry")] == [f"job:{number}"]
    again = await post(dashboard, "/jobs/retry", {"ids": [number]})
    assert (again["changed"], again["why"][0]["why"]) == (0, "it waits for a worker already")
    assert len(await audited(dashboard, "job.retry")) == 1


async def test_all_that_match_are_those_the_page_counted(dashboard: Dashboard) -> None:
    await seed_work.jobs(dashboard.pool)
    page = await dashboard.get("/jobs?state=dead")
    await dashboard.pool.execute(
        """INSERT INTO jobs (kind, session_id, key, state, ended_at)
           SELECT 'compact', session_id, 'after the page was shown', 'dead', now() FROM jobs LIMIT 1"""
    )
    body = {"match": {"state": "dead"}, "through": page["newest"]}
    done = await post(dashboard, "/jobs/retry", body)
    assert (done["changed"], done["left"]) == (page["retry_all"]["jobs"], 0)
    assert (await post(dashboard, "/jobs/retry", body))["changed"] == 0


async def test_job_that_changed_meanwhile_is_skipped_and_reported(dashboard: Dashboard) -> None:
    seeded = await seed_work.jobs(dashboard.pool)
    ids = [row["id"] for row in await dashboard.pool.fetch("SELECT id FROM jobs ORDER BY id")]
    await dashboard.pool.execute(
        "INSERT INTO jobs (kind, session_id, key) VALUES ('compact', $1, 'dead:1')", seeded.session_id
    )
    await dashboard.pool.execute("UPDATE jobs SET state = 'done' WHERE key = 'dead:2'")
    done = await post(dashboard, "/jobs/retry", {"ids": [*ids, 10**9]})
    assert done["changed"] == 2
    reasons = {row["what"]: row["why"] for row in done["why"]}
    assert reasons[str(ids[0])] == "the same was requested again since"
    assert reasons[str(ids[1])] == "it is done"
    assert reasons[str(10**9)] == "there is no such job"
    assert reasons[str(ids[6])] == "it runs just now"


async def test_two_dead_jobs_of_one_key_become_one(dashboard: Dashboard) -> None:
    await seed_work.jobs(dashboard.pool)
    await dashboard.pool.execute("UPDATE jobs SET key = 'same' WHERE key LIKE 'dead:%'")
    page = await dashboard.get("/jobs?state=dead")
    done = await post(dashboard, "/jobs/retry", {"match": {"state": "dead"}, "through": page["newest"]})
    assert done["changed"] == page["retry_all"]["jobs"] == 1


async def test_nothing_of_an_erased_conversation_begins_again(dashboard: Dashboard) -> None:
    seeded = await seed_work.jobs(dashboard.pool)
    await dashboard.pool.execute(
        "UPDATE sessions SET erased_turn = answered_turn, base_turn = answered_turn WHERE id = $1",
        seeded.session_id,
    )
    number = await dashboard.pool.fetchval("SELECT id FROM jobs WHERE key = 'dead:2'")
    done = await post(dashboard, "/jobs/retry", {"ids": [number]})
    assert done["why"][0]["why"] == "its conversation was erased"


async def test_cancelling_puts_away_what_waits_and_nothing_else(dashboard: Dashboard) -> None:
    await seed_work.jobs(dashboard.pool)
    page = await dashboard.get("/jobs")
    done = await post(dashboard, "/jobs/cancel", {"match": {}, "through": page["newest"]})
    assert done["changed"] == page["cancel_all"]["jobs"] == 2
    after = await states(dashboard)
    assert (after["later"], after["due"], after["late"], after["runs"]) == ("dead", "dead", "due", "running")
    assert (await dashboard.get("/jobs"))["dead_lately"] == page["dead_lately"]
    (line,) = await audited(dashboard, "job.cancel")
    assert line["detail"]["count"] == 2


async def test_a_job_whose_worker_died_can_be_put_away(dashboard: Dashboard) -> None:
    await seed_work.jobs(dashboard.pool)
    await dashboard.pool.execute("UPDATE workers SET beat = now() - interval '1 min'")
    number = await dashboard.pool.fetchval("SELECT id FROM jobs WHERE key = 'runs'")
    assert (await post(dashboard, "/jobs/cancel", {"ids": [number]}))["changed"] == 1


@pytest.mark.parametrize(
    "body",
    [
        {}, [], {"ids": []}, {"ids": ["x"]}, {"ids": [-1]}, {"ids": [True]}, {"ids": [2**70]},
        {"ids": [1] * 501},
        {"match": {}}, {"match": {"stat": "dead"}, "through": "9"}, {"match": {"state": 1}, "through": "9"},
        {"match": {"state": "lost"}, "through": "9"}, {"match": {"session": "x"}, "through": "9"},
        {"match": [], "through": "9"}, {"match": {}, "through": "1e3"}, {"match": {}, "through": None},
        {"match": {"session": 5}, "through": "9"}, {"ids": [1], "match": {}},
    ],
)  # fmt: skip
async def test_bad_wishes_change_nothing(dashboard: Dashboard, body: Any) -> None:
    await seed_work.jobs(dashboard.pool)
    before = await states(dashboard)
    await post(dashboard, "/jobs/cancel", body, status=400)
    assert await states(dashboard) == before


async def test_the_deliveries_page_is_what_sql_says(dashboard: Dashboard) -> None:
    seeded = await seed_work.doubts(dashboard.pool)
    page = await dashboard.get("/deliveries")
    assert page["states"] == {"uncertain": 1, "dead": 2, "waiting": 0}
    assert page["on_their_way"] == 0
    assert [part["error"] for part in page["deliveries"]] == ["chat not found"] * 2 + ["the connection broke"]
    assert {part["session"] for part in page["deliveries"]} == {str(seeded.public_id)}
    assert [part["parts"] for part in page["deliveries"]] == [2, 2, 1]
    (part,) = (await dashboard.get(f"/deliveries?state=uncertain&session={seeded.public_id}"))["deliveries"]
    assert (part["turn"], part["can_send"], part["told"]) == (2, True, False)
    await dashboard.pool.execute(
        "UPDATE uncertain_notices SET state = 'shown', chat_id = 42, message_id = 7, due_at = 'infinity'"
    )
    assert [part["told"] for part in (await dashboard.get("/deliveries"))["deliveries"]] == [
        False,
        False,
        True,
    ]


def part_of(seeded: seed.Seeded, turn: int, part: int = 0) -> dict[str, Any]:
    return {"session": str(seeded.public_id), "turn": turn, "part": part}


async def test_an_operator_can_say_that_a_part_arrived(dashboard: Dashboard) -> None:
    seeded = await seed_work.doubts(dashboard.pool)
    done = await post(dashboard, "/deliveries/arrived", {"parts": [part_of(seeded, 2), part_of(seeded, 1)]})
    assert (done["changed"], done["why"][0]["why"]) == (1, "it has been delivered")
    assert (await dashboard.get("/deliveries"))["states"] == {"uncertain": 0, "dead": 2, "waiting": 0}
    (line,) = await audited(dashboard, "delivery.arrived")
    assert line["object"] == f"delivery:{seeded.public_id}/2/0"


async def test_a_part_to_be_sent_again_is_queued_for_the_bot(dashboard: Dashboard) -> None:
    seeded = await seed_work.doubts(dashboard.pool)
    body = {"parts": [part_of(seeded, 3), part_of(seeded, 3, 1), part_of(seeded, 9)]}
    done = await post(dashboard, "/deliveries/send-again", body)
    assert (done["changed"], done["why"][0]["why"]) == (2, "there is no such part")
    again = await post(dashboard, "/deliveries/send-again", body)
    assert (again["changed"], again["why"][0]["why"]) == (0, "it is on its way already")
    assert (await dashboard.get("/deliveries"))["on_their_way"] == 2


async def test_answer_that_waits_for_its_chat_is_listed(dashboard: Dashboard) -> None:
    seeded = await seed_work.doubts(dashboard.pool)
    await post(dashboard, "/deliveries/send-again", {"parts": [part_of(seeded, 3)]})
    assert (await dashboard.get("/deliveries?state=waiting"))["deliveries"] == []
    await dashboard.pool.execute("UPDATE addresses SET unreachable_since = now()")
    page = await dashboard.get("/deliveries?state=waiting&total=true")
    assert [(part["turn"], part["state"], part["can_send"]) for part in page["deliveries"]] == [
        (3, "waiting", False)
    ]
    assert page["states"] == {"uncertain": 1, "dead": 1, "waiting": 1}
    done = await post(dashboard, "/deliveries/arrived", {"parts": [part_of(seeded, 3)]})
    assert (done["changed"], done["why"][0]["why"]) == (0, "it is on its way already")


async def test_a_chat_that_is_gone_is_not_written_to(dashboard: Dashboard) -> None:
    seeded = await seed_work.doubts(dashboard.pool)
    await dashboard.pool.execute("UPDATE addresses SET unreachable_since = now()")
    done = await post(dashboard, "/deliveries/send-again", {"parts": [part_of(seeded, 3)]})
    assert (done["changed"], done["why"][0]["why"]) == (0, "the chat cannot be reached any more")


@pytest.mark.parametrize("parts", [None, [], [{}], [{"session": "x", "turn": 1, "part": 0}], [[]]])
async def test_parts_that_are_none_are_refused(dashboard: Dashboard, parts: Any) -> None:
    await post(dashboard, "/deliveries/send-again", {"parts": parts}, status=400)


async def set_kind(dashboard: Dashboard, kind: str, version: str, body: Any, *, status: int = 200) -> Any:
    url, headers = f"{dashboard.url}/api/v1/jobs/kinds/{kind}", {**SAME_ORIGIN, "If-Match": version}
    async with dashboard.http.put(url, json=body, headers=headers) as response:
        assert response.status == status, await response.text()
        return await response.json()


async def test_job_kind_is_paused_and_limited_by_version(dashboard: Dashboard) -> None:
    await seed_work.jobs(dashboard.pool)
    kinds = {one["kind"]: one for one in (await dashboard.get("/jobs"))["kinds"]}
    assert list(kinds) == ["flush", "compact", "tidy", "import"]
    assert (kinds["flush"]["due"], kinds["tidy"]["running"], kinds["flush"]["version"]) == (2, 1, "0")
    page = await set_kind(dashboard, "flush", "0", {"paused": True, "concurrency": 3})
    flush = page["kinds"][0]
    assert (flush["paused"], flush["concurrency"], flush["changed_by"]) == (True, 3, "admin")
    refused = await set_kind(dashboard, "flush", "0", {"paused": False}, status=409)
    assert refused["details"]["theirs"]["paused"] is True
    await set_kind(dashboard, "flush", flush["version"], {"paused": False})
    (first, second) = await audited(dashboard, "job.kind")
    assert (first["object"], first["detail"]) == ("job_kind:flush", {"paused": True, "concurrency": 3})
    assert second["detail"] == {"paused": False, "concurrency": None}


@pytest.mark.parametrize(
    ("kind", "version", "body", "status"),
    [("mail", "0", {"paused": True}, 404), ("flush", "", {"paused": True}, 428),
     ("flush", "x", {"paused": True}, 400), ("flush", "0", {"paused": True, "concurrency": 0}, 400),
     ("flush", "0", {"paused": "yes"}, 400), ("flush", "0", {}, 400)],
)  # fmt: skip
async def test_a_senseless_change_of_a_kind_is_refused(
    dashboard: Dashboard, kind: str, version: str, body: Any, status: int
) -> None:
    await set_kind(dashboard, kind, version, body, status=status)
    assert await audited(dashboard, "job.kind") == []


async def test_a_viewer_pauses_nothing(dashboard: Dashboard) -> None:
    await dashboard.pool.execute("UPDATE operators SET role = 'viewer'")
    await set_kind(dashboard, "flush", "0", {"paused": True}, status=403)
