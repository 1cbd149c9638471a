"""Alerts in Postgres: opened and ended by what is so, told to each target once, whoever looks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from shared.adapters.postgres.dashboard.alerts import PostgresAlerts, Rules
from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.postgres.db.workers import PostgresWorkers
from shared.adapters.postgres.operations.invariants import check_invariants
from shared.core.ops.alerts import AlertOutcomeUnknown, AlertRefused, NotSent, Outage, Sending, Sent, message
from tests.kit.dashboard.seed import a_session
from tests.kit.midday import MIDDAY, TODAY

TARGETS = ("telegram:-100", "webhook", "email")
RULES = Rules(cap_micro=5_000_000, over_seconds=0.0, handover_seconds=300.0, timezone=MIDDAY)
CANARY = "canary-7f3a9b"


class AlertDriver:
    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], worker_id: int) -> None:
        self.pool, self.store, self.worker_id = pool, PostgresAlerts(pool), worker_id

    async def look(self, rules: Rules = RULES, targets: tuple[str, ...] = TARGETS) -> tuple[int, int]:
        swept = await self.store.sweep(rules, worker_id=self.worker_id, targets=targets)
        assert swept is not None
        return swept.opened, swept.ended

    async def open(self) -> list[tuple[str, str, Any]]:
        rows = await self.pool.fetch(
            "SELECT kind, key, detail FROM alerts WHERE ended_at IS NULL ORDER BY kind, key"
        )
        return [tuple(row) for row in rows]

    async def claim(self, *targets: str) -> Sending | None:
        return await self.store.claim(targets or TARGETS, worker_id=self.worker_id)

    async def claimed(self, *targets: str) -> Sending:
        found = await self.claim(*targets)
        assert found is not None
        return found

    async def states(self) -> dict[tuple[str, str], str]:
        rows = await self.pool.fetch("SELECT target, phase, state FROM alert_sends ORDER BY id")
        return {(row["target"], row["phase"]): row["state"] for row in rows}

    async def spend(self, micro: int) -> None:
        await self.pool.execute(
            f"""INSERT INTO spend_days (scope, day, spent_micro)
               VALUES ('total', {TODAY}, $1)
               ON CONFLICT (scope, day) DO UPDATE SET spent_micro = excluded.spent_micro""",
            micro,
        )


@pytest.fixture
async def alerts(database_url: str) -> AsyncIterator[AlertDriver]:
    pool = await open_pool(database_url, size=6)
    workers = PostgresWorkers(pool)
    await workers.register("worker")
    made = AlertDriver(pool, await workers.register("web"))
    yield made
    connection = await asyncpg.connect(database_url)
    try:
        # Money and jobs are put there by hand here: only what is said of alerts must hold.
        assert [one for one in await check_invariants(connection) if "alert" in one.where] == []
    finally:
        await connection.close()
    await pool.close()


async def test_healthy_deployment_opens_no_alert(alerts: AlertDriver) -> None:
    assert await alerts.look() == (0, 0)
    assert await alerts.claim() is None


async def test_cap_alert_opens_once_at_80_and_100_percent(alerts: AlertDriver) -> None:
    await alerts.spend(3_999_999)
    assert await alerts.look() == (0, 0)
    await alerts.spend(4_000_000)
    assert await alerts.look() == (1, 0)
    assert await alerts.look() == (0, 0)
    await alerts.spend(5_000_000)
    assert await alerts.look() == (1, 0)
    assert await alerts.open() == [
        (kind, "total", {"used_micro": 5_000_000, "cap_micro": 5_000_000})
        for kind in ("spend_100", "spend_80")
    ]
    await alerts.spend(0)
    assert await alerts.look() == (0, 2)
    assert await alerts.open() == []


RICH = replace(RULES, cap_micro=50_000_000)
"""Nobody takes a third of that."""


async def test_agent_cap_alert_opens_once_per_agent_and_threshold(alerts: AlertDriver) -> None:
    """With numbers alone: who it is stands on the pages, not in a chat of operators."""
    async with alerts.pool.acquire() as connection:
        seeded = [await a_session(connection, person=CANARY) for _ in range(3)]
    await alerts.pool.execute(
        """UPDATE agents SET config = '{"caps": {"session_usd": 1, "person_per_day_usd": 2}}'"""
    )
    spent = f"""INSERT INTO spend_days (scope, day, spent_micro, warned_at)
               VALUES ($1, {TODAY} - $3::int, $2::bigint,
                       CASE WHEN $2::bigint >= 800000 THEN now() END)
               ON CONFLICT (scope, day) DO UPDATE
                  SET spent_micro = excluded.spent_micro, warned_at = excluded.warned_at"""

    async def spend(scope: str, micro: int, days_ago: int = 0) -> None:
        await alerts.pool.execute(spent, scope, micro, days_ago)

    name = await alerts.pool.fetchval("SELECT name FROM agents")
    await spend(f"session:{seeded[0].session_id}", 799_999)
    await spend(f"session:{seeded[1].session_id}", 999_999, days_ago=1)
    assert await alerts.look(RICH) == (0, 0)
    await spend(f"session:{seeded[0].session_id}", 800_000)
    assert await alerts.look(RICH) == (1, 0)
    assert await alerts.look(RICH) == (0, 0)
    contact = await alerts.pool.fetchval(
        "SELECT contact_id FROM sessions WHERE id = $1", seeded[1].session_id
    )
    await spend(f"contact:{contact}", 1_700_000)
    assert await alerts.look(RICH) == (0, 0)
    assert await alerts.open() == [("agent_cap_80", name, {"agent": name, "count": 2})]
    await spend(f"contact:{contact}", 2_000_000)
    assert await alerts.look(RICH) == (1, 0)
    assert await alerts.open() == [
        ("agent_cap_100", name, {"agent": name, "count": 1}),
        ("agent_cap_80", name, {"agent": name, "count": 2}),
    ]
    sending = await alerts.claimed("webhook")
    assert CANARY not in message(sending.alert, "opened", dashboard_url="http://d")
    await alerts.pool.execute("DELETE FROM spend_days")
    assert await alerts.look(RICH) == (0, 2)


async def test_refusal_by_agent_cap_opens_used_up_alert(alerts: AlertDriver) -> None:
    """What a call may cost is set aside before: the last cents of a cap are never spent."""
    async with alerts.pool.acquire() as connection:
        seeded = await a_session(connection, person=CANARY)
    await alerts.pool.execute(
        "UPDATE agents SET name = 'An odd name', config = '{\"caps\": {\"session_usd\": 1}}'"
    )
    await alerts.pool.execute(
        f"""INSERT INTO spend_days (scope, day, spent_micro, warned_at)
           VALUES ($1, {TODAY}, 950000, now())""",
        f"session:{seeded.session_id}",
    )
    assert await alerts.look() == (1, 0)
    for other in ("total", "contact", None):
        await alerts.pool.execute(REFUSED, seeded.session_id, other)
        assert await alerts.look() == (0, 0)
    await alerts.pool.execute(REFUSED, seeded.session_id, "session")
    assert await alerts.look() == (1, 0)
    agent = f"agent-{await alerts.pool.fetchval('SELECT id FROM agents')}"
    assert [row[:2] for row in await alerts.open()] == [("agent_cap_100", agent), ("agent_cap_80", agent)]
    await alerts.pool.execute("UPDATE agents SET config = '{}'")
    assert await alerts.look() == (0, 2)


REFUSED = """UPDATE turns SET state = 'refused', error_code = 'cap_reached', refused_scope = $2,
                               opened_at = now(), ended_at = now()
              WHERE session_id = $1 AND turn_no = 3"""


async def test_refusal_by_total_cap_opens_alert_until_it_is_raised(alerts: AlertDriver) -> None:
    """The cap is known since the processes began: whoever was refused before had met another one."""
    async with alerts.pool.acquire() as connection:
        seeded = await a_session(connection, person=CANARY)
    await alerts.pool.execute(REFUSED, seeded.session_id, "total")
    await alerts.spend(3_999_999)
    assert await alerts.look() == (0, 0)
    await alerts.spend(4_700_000)
    assert await alerts.look() == (2, 0)
    assert await alerts.open() == [
        (kind, "total", {"used_micro": 4_700_000, "cap_micro": 5_000_000})
        for kind in ("spend_100", "spend_80")
    ]
    await alerts.pool.execute("UPDATE workers SET started_at = now() WHERE role = 'web'")
    assert await alerts.look(replace(RULES, cap_micro=5_500_000)) == (0, 1)
    assert [row[0] for row in await alerts.open()] == ["spend_80"]
    await alerts.pool.execute(REFUSED, seeded.session_id, "total")
    assert await alerts.look(replace(RULES, cap_micro=5_500_000)) == (1, 0)


async def test_a_refusal_of_before_is_none_by_the_total_cap(alerts: AlertDriver) -> None:
    """Answered since, or of another day."""
    async with alerts.pool.acquire() as connection:
        seeded = [await a_session(connection, person=CANARY) for _ in range(3)]
    for one in seeded:
        await alerts.pool.execute(REFUSED, one.session_id, "total")
    await alerts.pool.execute("UPDATE sessions SET answered_turn = 2 WHERE id = $1", seeded[0].session_id)
    await alerts.pool.execute(
        "UPDATE turns SET opened_at = now() - interval '1 day' WHERE session_id = ANY ($1)",
        [one.session_id for one in seeded[1:]],
    )
    await alerts.spend(4_700_000)
    assert await alerts.look() == (1, 0)
    assert [row[0] for row in await alerts.open()] == ["spend_80"]
    await alerts.pool.execute(
        "UPDATE turns SET opened_at = now() WHERE session_id = $1", seeded[2].session_id
    )
    assert await alerts.look() == (1, 0)
    assert [row[0] for row in await alerts.open()] == ["spend_100", "spend_80"]


@pytest.mark.parametrize("scope", ["contact", "session", None])
async def test_personal_cap_opens_no_alert_of_the_total(alerts: AlertDriver, scope: str | None) -> None:
    """However little was spent of it: a cap below the price of one call refuses the first message."""
    async with alerts.pool.acquire() as connection:
        seeded = await a_session(connection, person=CANARY)
    await alerts.pool.execute(REFUSED, seeded.session_id, scope)
    await alerts.spend(4_990_000)
    assert await alerts.look() == (1, 0)
    assert [row[0] for row in await alerts.open()] == ["spend_80"]
    await alerts.spend(5_000_000)
    assert await alerts.look() == (1, 0)


@pytest.mark.parametrize(
    ("state", "code", "scope"),
    [
        ("answered", None, "total"),
        ("failed", "cap_reached", "total"),
        ("refused", "too_long", "contact"),
        ("refused", None, "session"),
        ("refused", "cap_reached", "contact:7"),
    ],
)
async def test_only_a_turn_that_a_cap_refused_says_whose(
    alerts: AlertDriver, state: str, code: str | None, scope: str
) -> None:
    async with alerts.pool.acquire() as connection:
        seeded = await a_session(connection, person=CANARY)
    with pytest.raises(asyncpg.CheckViolationError, match="turn_scope_refused"):
        await alerts.pool.execute(
            """UPDATE turns SET state = $2, error_code = $3, refused_scope = $4, ended_at = now()
                WHERE session_id = $1""",
            seeded.session_id, state, code, scope,
        )  # fmt: skip


async def test_spender_of_a_third_of_the_money_raises_one_alert(alerts: AlertDriver) -> None:
    network = f"network:{'ab' * 16}"
    rows = [
        ("contact:7", 1_666_666),
        (network, 1_700_000),
        ("session:9", 4_000_000),
        ("visitors:03", 3_000_000),
    ]
    await alerts.pool.executemany(
        f"INSERT INTO spend_days (scope, day, spent_micro, warned_at) VALUES ($1, {TODAY}, $2, now())", rows
    )
    assert await alerts.look() == (1, 0)
    told = {"source": "network:abababab", "used_micro": 1_700_000, "cap_micro": 5_000_000}
    assert await alerts.open() == [("spend_source", network, told)]
    await alerts.pool.execute("UPDATE spend_days SET spent_micro = 1700000 WHERE scope = 'contact:7'")
    assert await alerts.look() == (1, 0)
    assert await alerts.look() == (0, 0)


async def test_without_a_cap_money_is_no_alert(alerts: AlertDriver) -> None:
    await alerts.spend(9_000_000)
    assert await alerts.look(replace(RULES, cap_micro=None)) == (0, 0)


@pytest.mark.parametrize(("refused", "kind"), [(True, "provider_refused"), (False, "breaker_open")])
async def test_provider_outage_alert_stays_while_a_living_process_reports_it(
    alerts: AlertDriver, refused: bool, kind: str
) -> None:
    out = {"provider": "api.example.org", "open": True, "refused": refused}
    workers = PostgresWorkers(alerts.pool, health=lambda: {"providers": [out]})
    for worker in (await workers.register("web"), await workers.register("bot")):
        await workers.beat(worker)
    assert await alerts.look() == (1, 0)
    assert await alerts.open() == [(kind, "api.example.org", {"provider": "api.example.org"})]
    await alerts.pool.execute("UPDATE workers SET stopped_at = now() WHERE health <> '{}'")
    assert await alerts.look() == (0, 1)


async def test_dead_jobs_open_one_alert_per_kind_reopened_on_growth(alerts: AlertDriver) -> None:
    async with alerts.pool.acquire() as connection:
        seeded = await a_session(connection, person=CANARY)
    insert = """INSERT INTO jobs (kind, session_id, key, state, ended_at, last_error)
                VALUES ('compact', $1, $2, 'dead', now(), $3)"""
    await alerts.pool.execute(insert, seeded.session_id, "a", CANARY)
    assert await alerts.look() == (1, 0)
    assert await alerts.open() == [("dead_job", "compact", {"job": "compact", "count": 1})]
    public_id = await alerts.pool.fetchval("SELECT public_id FROM alerts")
    assert await alerts.store.mark_seen(public_id, by="anna") is True
    assert await alerts.store.mark_seen(public_id, by="bert") is False
    await alerts.pool.execute(insert, seeded.session_id, "b", CANARY)
    assert await alerts.look() == (0, 0)
    row = await alerts.pool.fetchrow("SELECT seen_at, detail FROM alerts")
    assert row is not None
    assert (row["seen_at"], row["detail"]["count"]) == (None, 2)
    await alerts.pool.execute("UPDATE jobs SET state = 'due', ended_at = NULL WHERE key = 'a'")
    await alerts.pool.execute("DELETE FROM jobs WHERE key = 'b'")
    assert await alerts.look() == (0, 1)


async def test_long_wait_for_an_operator_raises_one_alert(alerts: AlertDriver) -> None:
    async with alerts.pool.acquire() as connection:
        seeded = await a_session(connection, person=CANARY)
    await alerts.pool.execute(
        """INSERT INTO handovers (session_id, address_id, asked_by, reason, asked_at)
           VALUES ($1, $2, 'person', $3, now() - interval '4 min')""",
        seeded.session_id, seeded.address_id, CANARY,
    )  # fmt: skip
    assert await alerts.look() == (0, 0)
    await alerts.pool.execute("UPDATE handovers SET asked_at = now() - interval '6 min'")
    assert await alerts.look(replace(RULES, handover_seconds=0.0)) == (0, 0)
    assert await alerts.look() == (1, 0)
    session = str(seeded.public_id)
    assert await alerts.open() == [("handover_waiting", session, {"session": session, "minutes": 5})]
    await alerts.pool.execute("UPDATE handovers SET state = 'ended', ended_at = now(), ended_by = 'person'")
    assert await alerts.look() == (0, 1)


async def test_uncertain_delivery_raises_an_alert(alerts: AlertDriver) -> None:
    async with alerts.pool.acquire() as connection:
        seeded = await a_session(connection, channel="telegram")
    await alerts.pool.execute(
        """INSERT INTO deliveries (session_id, turn_no, part, channel, address_id, state, error)
           SELECT session_id, turn_no, 0, 'telegram', $2, 'uncertain', $3 FROM turns
            WHERE session_id = $1 LIMIT 1""",
        seeded.session_id, seeded.address_id, CANARY,
    )  # fmt: skip
    assert await alerts.look() == (1, 0)
    assert await alerts.open() == [("uncertain_delivery", "telegram", {"count": 1})]
    await alerts.pool.execute("UPDATE deliveries SET state = 'delivered'")
    assert await alerts.look() == (0, 1)


async def test_full_disk_raises_an_alert(alerts: AlertDriver) -> None:
    room = {"free": 2**30, "total": 100 * 2**30}
    workers = PostgresWorkers(alerts.pool, health=lambda: {"disk": room})
    await workers.beat(alerts.worker_id)
    assert await alerts.look() == (1, 0)
    assert await alerts.open() == [("disk_low", "data", {"free_bytes": 2**30, "total_bytes": 100 * 2**30})]
    room["free"] = 50 * 2**30
    await workers.beat(alerts.worker_id)
    assert await alerts.look() == (0, 1)


async def test_failed_backup_raises_an_alert_until_one_succeeds(alerts: AlertDriver) -> None:
    health: dict[str, bool] = {"backup_failed": True}
    workers = PostgresWorkers(alerts.pool, health=lambda: health)
    await workers.beat(alerts.worker_id)
    assert await alerts.look() == (1, 0)
    assert await alerts.open() == [("no_backup", "data", {})]
    health.clear()
    await workers.beat(alerts.worker_id)
    assert await alerts.look() == (0, 1)


async def test_missing_worker_raises_an_alert_after_its_start_time(alerts: AlertDriver) -> None:
    await alerts.pool.execute("DELETE FROM workers WHERE role = 'worker'")
    assert await alerts.look() == (0, 0)
    await alerts.pool.execute("UPDATE workers SET started_at = now() - interval '1 min'")
    assert await alerts.look() == (1, 0)
    assert await alerts.open() == [("no_worker", "", {"seconds": 30})]
    await PostgresWorkers(alerts.pool).register("worker")
    assert await alerts.look() == (0, 1)


async def test_what_comes_and_goes_is_one_alert(alerts: AlertDriver) -> None:
    patient = replace(RULES, over_seconds=60.0)
    await alerts.spend(4_000_000)
    assert await alerts.look(patient) == (1, 0)
    await alerts.spend(0)
    assert await alerts.look(patient) == (0, 0)
    await alerts.spend(4_000_000)
    assert await alerts.look(patient) == (0, 0)
    assert await alerts.pool.fetchval("SELECT count(*) FROM alerts") == 1


async def test_alert_is_sent_once_per_target_and_at_its_end(alerts: AlertDriver) -> None:
    await alerts.spend(4_000_000)
    await alerts.look()
    for target in TARGETS:
        sending = await alerts.claimed(target)
        assert (sending.target, sending.phase, sending.alert.kind) == (target, "opened", "spend_80")
        assert await alerts.claim(target) is None
        assert await alerts.store.record_outcome(sending, Sent(), worker_id=alerts.worker_id)
    await alerts.spend(0)
    await alerts.look()
    assert {(await alerts.claimed(target)).phase for target in TARGETS} == {"ended"}
    await alerts.look()
    assert await alerts.claim() is None


async def test_alert_end_waits_for_beginning_and_is_never_sent_alone(alerts: AlertDriver) -> None:
    await alerts.spend(4_000_000)
    await alerts.look(targets=("webhook",))
    first = await alerts.claimed()
    await alerts.spend(0)
    assert await alerts.look(targets=("webhook",)) == (0, 1)
    assert await alerts.claim() is None
    await alerts.store.record_outcome(first, AlertRefused(code="http_410"), worker_id=alerts.worker_id)
    await alerts.look(targets=("webhook",))
    assert await alerts.states() == {("webhook", "opened"): "failed", ("webhook", "ended"): "failed"}


async def test_rivals_open_one_alert_and_claim_each_message_once(alerts: AlertDriver) -> None:
    await alerts.spend(5_000_000)
    swept = await asyncio.gather(
        *(alerts.store.sweep(RULES, worker_id=alerts.worker_id, targets=TARGETS) for _ in range(6))
    )
    assert sum(one.opened for one in swept if one) == 2
    claimed = await asyncio.gather(*(alerts.claim() for _ in range(12)))
    ids = [one.send_id for one in claimed if one]
    assert len(ids) == len(set(ids))


async def test_interrupted_alert_is_repeated_only_for_receivers_with_idempotency_key(
    alerts: AlertDriver,
) -> None:
    await alerts.spend(4_000_000)
    await alerts.look()
    other = await PostgresWorkers(alerts.pool).register("bot")
    sendings = [await alerts.store.claim([target], worker_id=other) for target in TARGETS]
    await alerts.look()
    assert set((await alerts.states()).values()) == {"sending"}
    await PostgresWorkers(alerts.pool).stop(other)
    await alerts.look()
    assert await alerts.states() == {
        ("telegram:-100", "opened"): "uncertain",
        ("webhook", "opened"): "due",
        ("email", "opened"): "uncertain",
    }
    for late in sendings:
        assert late is not None
        assert not await alerts.store.record_outcome(late, Sent(), worker_id=other)
    again = await alerts.claimed()
    assert sendings[1] is not None
    assert (again.target, again.send_key, again.attempt) == ("webhook", sendings[1].send_key, 2)


async def test_what_surely_failed_is_tried_again_later_and_not_for_ever(alerts: AlertDriver) -> None:
    await alerts.spend(4_000_000)
    await alerts.look(targets=("webhook",))
    for attempt in range(1, 13):
        sending = await alerts.claimed()
        assert sending.attempt == attempt
        await alerts.store.record_outcome(sending, NotSent(code="http_500"), worker_id=alerts.worker_id)
        assert await alerts.claim() is None
        await alerts.pool.execute("UPDATE alert_sends SET due_at = now()")
    assert await alerts.claim() is None
    row = await alerts.pool.fetchrow("SELECT state, error FROM alert_sends")
    assert row is not None
    assert tuple(row) == ("failed", "http_500")


async def test_an_unknown_end_is_never_repeated(alerts: AlertDriver) -> None:
    await alerts.spend(4_000_000)
    await alerts.look(targets=("email",))
    await alerts.store.record_outcome(
        await alerts.claimed(), AlertOutcomeUnknown(code="lost_connection"), worker_id=alerts.worker_id
    )
    await alerts.look(targets=("email",))
    assert await alerts.claim() is None
    assert await alerts.states() == {("email", "opened"): "uncertain"}


async def test_nothing_is_due_for_ever(alerts: AlertDriver) -> None:
    await alerts.spend(4_000_000)
    await alerts.look()
    await alerts.pool.execute(
        "UPDATE alert_sends SET created_at = now() - interval '25 h' WHERE target = 'email'"
    )
    await alerts.look(targets=("webhook", "email"))
    rows = await alerts.pool.fetch("SELECT target, state, error FROM alert_sends ORDER BY target")
    assert [tuple(row) for row in rows] == [
        ("email", "failed", "expired"), ("telegram:-100", "failed", "not_configured"), ("webhook", "due", ""),
    ]  # fmt: skip


async def test_a_test_goes_to_every_target_and_is_over_at_once(alerts: AlertDriver) -> None:
    made = await alerts.store.send_test(TARGETS, by="anna")
    assert await alerts.open() == []
    sending = await alerts.claimed("webhook")
    assert (sending.alert.kind, sending.alert.public_id) == ("test", str(made))
    await alerts.store.record_outcome(sending, Sent(), worker_id=alerts.worker_id)
    assert ("webhook", "sent", "") in await alerts.store.list_results(made)
    await alerts.look()
    assert ("webhook", "ended") not in await alerts.states()


@pytest.mark.control("S36")
async def test_no_word_of_people_is_in_any_alert(alerts: AlertDriver) -> None:
    await test_dead_jobs_open_one_alert_per_kind_reopened_on_growth(alerts)
    await test_uncertain_delivery_raises_an_alert(alerts)
    text = await alerts.pool.fetchval("SELECT string_agg(a::text, ' ') FROM alerts a")
    assert CANARY not in text


async def test_outage_that_is_over_is_stored_once_and_its_end_is_due(alerts: AlertDriver) -> None:
    outage = Outage(
        public_id="0f0c4b9e-7d7e-4a5a-9a53-1d0e6f0f7a11", opened_at=datetime.now(UTC) + timedelta(hours=1),
        detail={"state": "read-only", "seconds": 60},
    )  # fmt: skip
    await alerts.store.record_outage(outage, {"webhook": Sent(), "email": NotSent(code="timeout")})
    await alerts.store.record_outage(outage, {"webhook": Sent(), "telegram:-100": None})
    assert await alerts.open() == []
    assert await alerts.states() == {
        ("webhook", "opened"): "sent", ("webhook", "ended"): "due", ("email", "opened"): "failed",
        ("telegram:-100", "opened"): "uncertain", ("telegram:-100", "ended"): "due",
    }  # fmt: skip
    sending = await alerts.claimed("webhook")
    assert (sending.alert.kind, sending.phase) == ("database_lost", "ended")
    assert "Over: the database takes no writes" in message(sending.alert, "ended", dashboard_url="http://x")


async def test_older_processes_of_the_same_role_are_counted(alerts: AlertDriver) -> None:
    assert await alerts.store.count_older_processes(alerts.worker_id) == 0
    workers = PostgresWorkers(alerts.pool)
    second, other = await workers.register("web"), await workers.register("bot")
    assert await alerts.store.count_older_processes(second) == 1
    assert await alerts.store.count_older_processes(other) == 0
    await workers.stop(alerts.worker_id)
    assert await alerts.store.count_older_processes(second) == 0


async def test_late_duty_is_one_alert_until_it_succeeds(alerts: AlertDriver) -> None:
    """A worker that has just started is given time, and a duty that runs rarely as well."""
    await alerts.pool.execute(
        """INSERT INTO duties (name, seconds, due_at, succeeded_at)
           VALUES ('hourly_stats', 15, now(), now() - interval '6 minutes'),
                  ('reservations', 5, now(), now()), ('retention', 3600, now(), now() - interval '3 hours')"""
    )
    await PostgresWorkers(alerts.pool).register("worker")
    assert await alerts.look() == (0, 0)
    await alerts.pool.execute("UPDATE workers SET started_at = now() - interval '1 day'")
    assert await alerts.look() == (1, 0)
    assert await alerts.open() == [("duty_late", "hourly_stats", {"duty": "hourly_stats"})]
    await alerts.pool.execute("UPDATE duties SET succeeded_at = now() WHERE name = 'hourly_stats'")
    assert await alerts.look() == (0, 1)
