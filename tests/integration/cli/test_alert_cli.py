"""`evertalk alert test`: what is said when nobody is told, nobody sends, and when it arrives."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from shared.adapters.postgres.dashboard.alerts import PostgresAlerts
from shared.adapters.postgres.db.workers import PostgresWorkers
from shared.cli.alert import read_alert_arguments, run_alert
from shared.core.ops.alerts import AlertRefused, NotSent, Outcome, Sent
from tests.kit.audit import read_audit


async def run(database_url: str, *targets: str, wait_seconds: float = 20.0) -> tuple[int, list[str]]:
    said: list[str] = []
    code = await run_alert(
        database_url=database_url, targets=targets, say=said.append, wait_seconds=wait_seconds
    )
    return code, said


async def bring(pool: asyncpg.Pool[asyncpg.Record], worker: int, outcomes: dict[str, Outcome]) -> None:
    store, left = PostgresAlerts(pool), set(outcomes)
    while left:
        sending = await store.claim(tuple(left), worker_id=worker)
        if sending is not None:
            await store.record_outcome(sending, outcomes[sending.target], worker_id=worker)
            left.discard(sending.target)
        await asyncio.sleep(0.02)


async def test_without_targets_it_says_what_to_set(database_url: str) -> None:
    code, said = await run(database_url)
    assert (code, "EVERTALK_ALERT_TELEGRAM_CHATS" in said[0]) == (1, True)


async def test_where_nothing_runs_nothing_is_left_behind(
    database_url: str, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    code, said = await run(database_url, "webhook")
    assert (code, "./evertalk up" in said[0]) == (1, True)
    assert await pool.fetchval("SELECT count(*) FROM alerts") == 0


async def test_it_says_what_became_of_each(database_url: str, pool: asyncpg.Pool[asyncpg.Record]) -> None:
    worker = await PostgresWorkers(pool).register("web")
    outcomes: dict[str, Outcome] = {"webhook": Sent(), "telegram:5": AlertRefused(code="chat_gone")}
    bringing = asyncio.create_task(bring(pool, worker, outcomes))
    code, said = await run(database_url, "webhook", "telegram:5")
    await bringing
    assert code == 1
    assert said[0] == "webhook: sent"
    assert said[1].startswith("telegram:5: failed (chat_gone). The bot cannot write to this chat.")


async def test_what_arrived_everywhere_is_success(
    database_url: str, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    worker = await PostgresWorkers(pool).register("web")
    bringing = asyncio.create_task(bring(pool, worker, {"email": Sent()}))
    assert await run(database_url, "email") == (0, ["email: sent"])
    await bringing
    (entry,) = await read_audit(pool)
    alert = await pool.fetchval("SELECT public_id FROM alerts")
    assert (entry.actor, entry.action, entry.detail) == ("command line", "alert.test", {"targets": 1})
    assert entry.about == f"alert:{alert}"


async def test_waiting_alert_is_listed_with_its_reason(
    database_url: str, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    worker = await PostgresWorkers(pool).register("web")
    bringing = asyncio.create_task(bring(pool, worker, {"email": NotSent(code="no_connection")}))
    code, said = await run(database_url, "email", wait_seconds=2.0)
    await bringing
    assert (code, said[0].partition(")")[0]) == (1, "email: not sent yet (no_connection")


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["test", "more"]])
def test_other_words_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        read_alert_arguments(arguments)
