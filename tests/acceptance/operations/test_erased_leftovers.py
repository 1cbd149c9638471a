"""After `/forget everything` the words are in no log and no file but freed places of tables."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
import structlog

from shared.adapters.embedded import EmbeddedServers
from shared.adapters.postgres.db.migrate import migrate
from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.postgres.privacy.leftovers import LEAST_SECONDS, PostgresLeftovers
from tests.kit.app_driver import Visit, running_app, settings_for, visit
from tests.kit.temp_folders import short_folder
from worker.jobs import keep_erasure_log

CANARY = "zwitschernder-Kanarienvogel-5150"
PATIENCE_SECONDS = 60


@pytest.fixture
async def two_people(tmp_path: Path) -> AsyncIterator[tuple[Path, Visit, Visit]]:
    """A data folder with servers of its own, and two people in it."""
    folder = short_folder("evl-")
    folder.chmod(0o711)
    async with EmbeddedServers(folder / "servers") as servers:
        await migrate(servers.database_url)
        settings = settings_for(servers.database_url, servers.redis_url, data_dir=folder, secret_key="k" * 48)
        async with running_app(settings) as app:
            yield folder, await visit(app), await visit(app)
    shutil.rmtree(folder, ignore_errors=True)


def places_of(folder: Path) -> set[str]:
    """Files of the data folder that hold the word, by the first folder of the cluster that they lie in."""
    found = [path for path in folder.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]
    return {str(path.relative_to(folder)).removeprefix("servers/pg/").partition("/")[0] for path in found}


async def until_nowhere_but_in_tables(folder: Path) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await asyncio.to_thread(places_of, folder) - {"base"}:
            await asyncio.sleep(0.2)


@pytest.mark.control("S40")
async def test_erased_words_are_in_no_log_of_the_data_folder(two_people: tuple[Path, Visit, Visit]) -> None:
    folder, goes, stays = two_people
    for number in range(8):
        await goes.ask(f"My dog {CANARY} is number {number}. " + "We walked along the river. " * 20)
        await stays.ask(f"Number {number}. " + "They swam across the lake. " * 20)
    assert "pg_wal" in places_of(folder)
    forgetting = asyncio.create_task(keep_erasure_log(goes.app))
    try:
        await goes.app.erasure.erase_everything(goes.session_id, "person")
        await until_nowhere_but_in_tables(folder)
        # Later changes log whole pages anew, those in which the words stood among them.
        for number in range(4):
            await stays.ask(f"And number {number}. " + "They swam back again. " * 20)
            await goes.ask("Good morning.")
        await stays.app.pool.execute("CHECKPOINT")
        await stays.ask("One more thing.")
        assert places_of(folder) <= {"base"}
    finally:
        forgetting.cancel()
        await asyncio.wait([forgetting])


async def test_a_checkpoint_comes_once_for_many_who_go_and_not_without_one(database_url: str) -> None:
    now = [0.0]
    pool = await open_pool(database_url, size=1)
    try:
        leftovers = PostgresLeftovers(pool, clock=lambda: now[0])
        assert not await leftovers.clear()
        await _erased(pool)
        assert await leftovers.clear()
        await _erased(pool)
        assert not await leftovers.clear(), "so soon after another"
        now[0] += LEAST_SECONDS
        assert await leftovers.clear()
        now[0] += LEAST_SECONDS
        assert not await leftovers.clear(), "nothing was erased since"
    finally:
        await pool.close()


async def test_a_role_that_may_not_says_so_once(database_url: str) -> None:
    owner = await asyncpg.connect(database_url)
    pool = await open_pool(database_url, size=1)
    try:
        await _erased(owner)
        await owner.execute("CREATE ROLE few_rights; GRANT SELECT ON erasures TO few_rights")
        await pool.execute("SET ROLE few_rights")
        leftovers = PostgresLeftovers(pool, clock=lambda: 0.0)
        with structlog.testing.capture_logs() as told:
            assert not await leftovers.clear()
            assert not await leftovers.clear()
        assert [line["event"] for line in told] == ["log_not_rotated_after_erasure"]
    finally:
        await pool.close()
        await owner.execute("DROP OWNED BY few_rights; DROP ROLE few_rights")
        await owner.close()


async def _erased(database: asyncpg.Connection | asyncpg.Pool) -> None:
    await database.execute(
        """INSERT INTO erasures (contact_hash, actor, scope, state, finished_at)
           VALUES (sha256('x'), 'person', 'everything', 'done', clock_timestamp())"""
    )
