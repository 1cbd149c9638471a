"""What is older than its retention goes, in batches; what is younger, or still needed, stays."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from shared.adapters.postgres.operations.invariants import check_invariants
from shared.adapters.postgres.privacy.retention import RULES, Sweep
from shared.core.values.errors import StorageUnavailable
from tests.kit.app_driver import Visit, visit
from tests.kit.canaries import dumped
from worker.duties import run_duty

OLD = """
INSERT INTO telegram_updates (bot_id, update_id, body, handled_at) VALUES
  (7, 1, '{"update_id": 1, "message": {"text": "old words"}}', now() - interval '17 days'),
  (7, 2, '{"update_id": 2, "message": {"text": "young words"}}', now() - interval '13 days'),
  (7, 3, '{"update_id": 3, "message": {"text": "waiting words"}}', NULL);
INSERT INTO jobs (kind, session_id, key, state, ended_at)
  SELECT 'tidy', id, 'a', 'done', now() - interval '33 days' FROM sessions;
INSERT INTO jobs (kind, session_id, key, state, ended_at)
  SELECT 'tidy', id, 'b', 'done', now() - interval '29 days' FROM sessions;
INSERT INTO workers (role, pid, beat, stopped_at) VALUES ('web', 1, now() - interval '10 days', now());
INSERT INTO prompt_parts (sha256, body, created_at) VALUES ('\\x01', 'orphan', now() - interval '5 days');
INSERT INTO attachments (session_id, sha256, mime, size, state, created_at)
  SELECT id, '\\x02', 'image/png', 1, 'stored', now() - interval '5 days' FROM sessions;
INSERT INTO one_time_codes (code_hash, purpose, expires_at)
  VALUES ('\\x03', 'link', now() - interval '5 days');
INSERT INTO checkpoints (session_id, from_turn, through_turn, created_at)
  SELECT id, 1, 1, now() - interval '100 days' FROM sessions;
INSERT INTO erasures (contact_hash, actor, scope, state, finished_at, at)
  VALUES ('\\x04', 'person', 'everything', 'done', now(), now() - interval '1100 days');
"""


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"retention_days": 30}


@pytest.fixture(autouse=True)
async def first_turn(guest: Visit) -> None:
    await guest.ask("Hello there")


async def broken(guest: Visit) -> list[str]:
    url = guest.app.settings.database_url
    assert url is not None
    connection = await asyncpg.connect(url.get_secret_value())
    try:
        return [str(violation) for violation in await check_invariants(connection)]
    finally:
        await connection.close()


@pytest.mark.control("S42")
async def test_only_what_is_too_old_goes(guest: Visit) -> None:
    await guest.app.pool.execute(OLD)
    assert any(found.startswith("I11") for found in await broken(guest))
    gone = await guest.app.retention.sweep()
    assert gone == {
        "telegram_updates": 1, "jobs": 1, "workers": 1, "prompt_parts": 1, "attachments": 1,
        "one_time_codes": 1, "checkpoints": 1, "erasures": 1,
    }  # fmt: skip
    left = await dumped(guest.app.settings)
    assert "old words" not in left
    assert "young words" in left
    assert "waiting words" in left
    assert await guest.app.retention.sweep() == {}
    assert await broken(guest) == []
    assert await guest.ask("Are you still there?")


@pytest.mark.control("S42")
async def test_whole_months_go_with_their_partitions(guest: Visit) -> None:
    pool = guest.app.pool
    await pool.execute(
        """CREATE TABLE usage_2020_01 PARTITION OF usage FOR VALUES FROM ('2020-01-01 00:00+00')
             TO ('2020-02-01 00:00+00')"""
    )
    await pool.execute(
        """INSERT INTO usage (at, session_id, contact_id, purpose, model, input_tokens, output_tokens,
                              cache_read_tokens, cache_write_tokens)
           SELECT '2020-01-15', s.id, s.contact_id, 'chat', 'm', 1, 1, 0, 0 FROM sessions s"""
    )
    assert (await guest.app.retention.sweep()) == {"usage": 1}
    assert await pool.fetchval("SELECT to_regclass('usage_2020_01')") is None
    assert await pool.fetchval("SELECT count(*) FROM usage") == 1


@pytest.mark.control("S42")
async def test_unused_conversation_is_deleted_and_the_person_kept(guest: Visit) -> None:
    other = await visit(guest.app)
    await other.ask("Please remember that my cat is called Miso.")
    await guest.app.pool.execute(
        "UPDATE sessions SET last_active_at = now() - interval '31 days' WHERE id = $1", other.session_id
    )
    await guest.app.stores.session_list.catch_up()
    assert (await guest.app.retention.sweep())["conversations"] == 1
    said = await guest.app.pool.fetchval(
        "SELECT string_agg(blocks::text, ' ') FROM entries WHERE session_id = $1", other.session_id
    )
    assert "Miso" not in said
    assert "Miso" in await guest.one("SELECT text FROM notes")
    assert "Hello there" in await dumped(guest.app.settings)
    assert await broken(guest) == []
    assert "conversations" not in await guest.app.retention.sweep()


@pytest.mark.control("S42")
def test_every_rule_has_a_time_and_a_key() -> None:
    for table, rule in RULES.items():
        if isinstance(rule, Sweep):
            assert "interval :age" in rule.where, table
            assert rule.key, table


async def test_retention_duty_fails_with_each_tables_reason(guest: Visit) -> None:
    pool = guest.app.pool
    await pool.execute(OLD)
    await pool.execute(
        """CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'no % today', TG_TABLE_NAME USING ERRCODE = 'disk_full'; END $$;
           CREATE TRIGGER fail BEFORE DELETE ON jobs EXECUTE FUNCTION fail();
           CREATE TRIGGER fail BEFORE DELETE ON checkpoints EXECUTE FUNCTION fail()"""
    )
    more, error = await run_duty(guest.app, "retention")
    assert not more
    assert "jobs: " in error
    assert "no jobs today" in error
    assert "no checkpoints today" in error
    left = "SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM workers WHERE stopped_at IS NOT NULL)"
    assert [tuple(row) for row in await pool.fetch(left)] == [(2, 0)]
    await pool.execute("DROP FUNCTION fail CASCADE")
    assert await run_duty(guest.app, "retention") == (False, "")
    assert await pool.fetchval("SELECT count(*) FROM jobs") == 1


async def test_retention_duty_fails_when_a_statement_is_wrong(
    guest: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    await guest.app.pool.execute(OLD)
    wrong = Sweep(days=1, key="id", where="no_such_column < now() - interval :age", period="a day")
    monkeypatch.setitem(RULES, "reminders", wrong)
    more, error = await run_duty(guest.app, "retention")
    assert not more
    assert "no_such_column" in error
    assert await guest.app.pool.fetchval("SELECT count(*) FROM workers WHERE stopped_at IS NOT NULL") == 0


@pytest.mark.parametrize("rows_by_hand", [True], ids=["by_hand"])
async def test_idle_conversation_is_forgotten_although_a_table_fails(guest: Visit) -> None:
    pool = guest.app.pool
    await pool.execute(
        """UPDATE sessions SET last_active_at = now() - interval '31 days';
           UPDATE session_list SET last_active_at = now() - interval '31 days';
           ALTER TABLE login_tries RENAME TO other_tries"""
    )
    with pytest.raises(StorageUnavailable, match="login_tries"):
        await guest.app.retention.sweep()
    assert await pool.fetchval("SELECT erased_turn > 0 FROM sessions WHERE id = $1", guest.session_id)
