"""Logging in leaves only hashes behind, ends when it should, and every step is chained to the one before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from shared.adapters.postgres.people.login_tries import PLACES_AT_MOST, LoginTries, build_keys
from shared.adapters.postgres.people.operator_admin import OperatorAdmin
from shared.adapters.postgres.people.operator_auth import (
    Operators,
    TooManyTries,
    WeakPassword,
    create_login_link,
    hash_secret,
)
from shared.adapters.postgres.privacy.retention import PostgresRetention
from tests.kit.audit_tampering import forge

PASSWORD = "correct horse battery"


async def later(pool: asyncpg.Pool[asyncpg.Record], seconds: int) -> None:
    """So much time goes by for those who failed to log in."""
    await pool.execute(
        """UPDATE login_tries SET last_at = last_at - make_interval(secs => $1),
                                  refused_until = refused_until - make_interval(secs => $1)""",
        seconds,
    )


async def with_password(operators: Operators, pool: asyncpg.Pool[asyncpg.Record]) -> int:
    operator: int = await pool.fetchval("INSERT INTO operators (name) VALUES ('ada') RETURNING id")
    await operators.set_password(operator, PASSWORD, by="test")
    return operator


async def test_a_link_makes_the_first_operator_and_logs_in_once(
    database_url: str, operators: Operators
) -> None:
    token = await create_login_link(database_url)
    session = await operators.use_link(token=token, source="127.0.0.1")
    assert isinstance(session, str)
    who = await operators.authenticate(session)
    assert who is not None
    assert (who.name, who.role, who.has_password) == ("admin", "admin", False)
    assert await operators.use_link(token=token, source="127.0.0.1") is None


async def test_a_second_link_is_for_the_same_operator(
    database_url: str, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    await asyncio.gather(*(create_login_link(database_url) for _ in range(3)))
    assert await pool.fetchval("SELECT count(*) FROM operators") == 1
    assert await pool.fetchval("SELECT count(*) FROM login_links") == 3


async def test_an_old_link_is_worth_nothing(
    database_url: str, operators: Operators, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    token = await create_login_link(database_url)
    await pool.execute("UPDATE login_links SET expires_at = now()")
    assert await operators.use_link(token=token, source="127.0.0.1") is None


@pytest.mark.control("S09", "S11")
async def test_tokens_and_passwords_are_stored_as_hashes_only(
    database_url: str, operators: Operators, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    token = await create_login_link(database_url)
    session = await operators.use_link(token=token, source="127.0.0.1")
    assert isinstance(session, str)
    await operators.set_password(
        (await pool.fetchval("SELECT id FROM operators")), PASSWORD, keep=session, by="test"
    )
    stored = "".join(
        [
            str(await pool.fetch(f"SELECT * FROM {table}"))
            for table in ("operators", "login_links", "operator_sessions")
        ]
    )
    assert "$argon2id$" in stored
    assert not any(secret in stored for secret in (token, session, PASSWORD))
    assert await pool.fetchval("SELECT token_hash FROM operator_sessions") == hash_secret(session)


async def test_a_password_logs_in_and_a_wrong_one_does_not(
    operators: Operators, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    await with_password(operators, pool)
    assert isinstance(await operators.log_in(name="ada", password=PASSWORD, source="a"), str)
    assert await operators.log_in(name="ada", password="wrong", source="a") is None
    assert await operators.log_in(name="nobody", password=PASSWORD, source="a") is None


@pytest.mark.control("S09")
async def test_an_operator_without_a_password_cannot_log_in_by_one(
    database_url: str, operators: Operators
) -> None:
    await create_login_link(database_url)
    assert await operators.log_in(name="admin", password="", source="a") is None


@pytest.mark.control("S10")
async def test_the_sixth_try_is_refused_before_hashing_and_time_heals(
    operators: Operators, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    await with_password(operators, pool)
    for _ in range(5):
        assert await operators.log_in(name="ada", password="wrong", source="a") is None
    refused = await operators.log_in(name="ada", password=PASSWORD, source="a")
    assert isinstance(refused, TooManyTries)
    assert 0 < refused.retry_after_seconds <= 60
    assert isinstance(await operators.log_in(name="ada", password=PASSWORD, source="b"), str)
    await later(pool, 61)
    assert isinstance(await operators.log_in(name="ada", password=PASSWORD, source="a"), str)
    for _ in range(4):
        assert await operators.log_in(name="ada", password="wrong", source="a") is None
    assert isinstance(await operators.log_in(name="ada", password=PASSWORD, source="a"), str)


@pytest.mark.control("S10")
async def test_each_failure_after_a_wait_makes_the_next_wait_longer(
    operators: Operators, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    waits = []
    for _ in range(4):
        await operators.log_in(name="ada", password="wrong", source="a")
    for _ in range(7):
        assert await operators.log_in(name="ada", password="wrong", source="a") is None
        refused = await operators.log_in(name="ada", password="wrong", source="a")
        assert isinstance(refused, TooManyTries)
        waits.append(refused.retry_after_seconds)
        await later(pool, refused.retry_after_seconds + 1)
    assert waits == [60, 120, 240, 480, 900, 900, 900]
    await later(pool, 25 * 3600)
    for _ in range(5):
        assert await operators.log_in(name="ada", password="wrong", source="a") is None


@pytest.mark.control("S10")
async def test_another_process_and_a_restart_know_of_the_tries(
    operators: Operators, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    await with_password(operators, pool)
    other = Operators(pool)
    for one in (operators, other, operators, other, operators):
        assert await one.log_in(name="ada", password="wrong", source="a") is None
    await other.close()
    born = Operators(pool)
    assert isinstance(await born.log_in(name="ADA", password=PASSWORD, source="a"), TooManyTries)
    await born.close()


@pytest.mark.control("S10")
async def test_many_tries_at_once_are_no_more_than_many_in_a_row(
    operators: Operators, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    tries = LoginTries(pool)
    waits = await asyncio.gather(*(tries.begin(build_keys(name="ada", address="a")) for _ in range(20)))
    assert waits.count(0) == 5


@pytest.mark.control("S10")
async def test_an_operator_cannot_be_guessed_from_everywhere_either(
    pool: asyncpg.Pool[asyncpg.Record],
) -> None:
    tries = LoginTries(pool)
    for number in range(50):
        assert await tries.begin(build_keys(name="ada", address=f"10.0.0.{number}")) == 0
    assert await tries.begin(build_keys(name="ada", address="10.0.1.1")) > 0
    assert await tries.begin(build_keys(name="eve", address="10.0.1.1")) == 0


OWN = "198.51.100.7"


@pytest.fixture
async def at_home(pool: asyncpg.Pool[asyncpg.Record]) -> AsyncIterator[Operators]:
    """As the dashboard has them: places are remembered."""
    made = Operators(pool, place_key=lambda: b"k" * 32)
    yield made
    await made.close()


async def under_attack(operators: Operators) -> None:
    """Fifty wrong passwords from thirteen addresses."""
    for number in range(50):
        source = f"203.0.113.{number % 13}"
        assert await operators.log_in(name="ada", password=f"guess {number}", source=source) is None
    guessed = await operators.log_in(name="ada", password=PASSWORD, source="203.0.113.99")
    assert isinstance(guessed, TooManyTries)


@pytest.mark.control("S10")
@pytest.mark.parametrize("how", ["password", "link"])
async def test_failed_logins_of_strangers_lock_no_known_place(
    database_url: str, at_home: Operators, pool: asyncpg.Pool[asyncpg.Record], how: str
) -> None:
    ada = await with_password(at_home, pool)
    if how == "password":
        assert isinstance(await at_home.log_in(name="ada", password=PASSWORD, source=OWN), str)
    else:
        await pool.execute("UPDATE operators SET role = 'admin'")
        token = await create_login_link(database_url)
        assert isinstance(await at_home.use_link(token=token, source=OWN), str)
    await under_attack(at_home)
    assert isinstance(await at_home.log_in(name="ada", password=PASSWORD, source=OWN), str)
    assert await pool.fetchval("SELECT operator_id FROM login_places") == ada
    for _ in range(5):
        assert await at_home.log_in(name="ada", password="wrong", source=OWN) is None
    refused = await at_home.log_in(name="ada", password=PASSWORD, source=OWN)
    assert isinstance(refused, TooManyTries), "there, too, only so many guesses are free"


@pytest.mark.control("S10")
async def test_login_place_belongs_to_one_operator_and_key_and_expires(
    at_home: Operators, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    ada = await with_password(at_home, pool)
    eve = await pool.fetchval("INSERT INTO operators (name) VALUES ('eve') RETURNING id")
    assert isinstance(await at_home.log_in(name="ada", password=PASSWORD, source=OWN), str)
    assert await at_home.places.has_place(ada, OWN)
    assert not await at_home.places.has_place(eve, OWN)
    assert not await at_home.places.has_place(ada, "198.51.100.8")
    other = Operators(pool, place_key=lambda: b"j" * 32)
    assert not await other.places.has_place(ada, OWN)
    await other.close()
    assert OWN.encode() not in await pool.fetchval("SELECT key FROM login_places")
    await pool.execute("UPDATE login_places SET at = now() - interval '91 days'")
    assert await PostgresRetention(pool).sweep("login_places") == 1


async def test_of_many_places_the_newest_are_remembered(
    at_home: Operators, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    ada = await with_password(at_home, pool)
    for number in range(PLACES_AT_MOST + 3):
        await at_home.begin(ada, how="password", source=f"198.51.100.{number}")
    assert await pool.fetchval("SELECT count(*) FROM login_places") == PLACES_AT_MOST
    known = [
        await at_home.places.has_place(ada, f"198.51.100.{number}") for number in range(PLACES_AT_MOST + 3)
    ]
    assert known == [False] * 3 + [True] * PLACES_AT_MOST


async def test_locked_operator_loses_all_login_places(
    at_home: Operators, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    ada = await with_password(at_home, pool)
    await pool.execute("INSERT INTO operators (name, role) VALUES ('boss', 'admin')")
    await at_home.begin(ada, how="password", source=OWN)
    await OperatorAdmin(pool).change(
        await pool.fetchval("SELECT public_id FROM operators WHERE id = $1", ada), by="boss", locked=True
    )
    assert await pool.fetchval("SELECT count(*) FROM login_places") == 0


def test_a_network_of_ipv6_is_one_address_and_nothing_readable_is_stored() -> None:
    one, other = (build_keys(name="ada", address=f"2001:db8:0:{host}") for host in ("0::1", "ff::beef"))
    assert one == other
    assert one != build_keys(name="ada", address="2001:db8:0:100::1")
    assert build_keys(name="ada", address="::ffff:10.0.0.1") == build_keys(name="ada", address="10.0.0.1")
    assert {len(key) for key in one.values()} == {32}


@pytest.mark.control("S10")
async def test_one_source_cannot_try_many_names(
    operators: Operators, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    for number in range(20):
        assert await operators.log_in(name=f"n{number}", password="x", source="a") is None
    assert isinstance(await operators.log_in(name="other", password="x", source="a"), TooManyTries)
    assert isinstance(await operators.use_link(token="x" * 43, source="a"), TooManyTries)


async def test_automatic_repeated_reads_are_audited_once(
    operators: Operators, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    for about in ("s1", "s1", "s2"):
        await operators.record_once(actor="ada", action="read.messages", about=about)
    assert await pool.fetchval("SELECT count(*) FROM audit") == 2
    await forge(pool, "UPDATE audit SET at = at - interval '16 minutes'")
    await operators.record_once(actor="ada", action="read.messages", about="s1")
    assert await pool.fetchval("SELECT count(*) FROM audit") == 3


@pytest.mark.control("S11")
@pytest.mark.parametrize(
    "lapse",
    ["expires_at = now()", "seen_at = now() - interval '31 minutes'", "seen_at = now() - interval '3 days'"],
)
async def test_a_session_ends_by_age_and_by_idleness(
    database_url: str, operators: Operators, pool: asyncpg.Pool[asyncpg.Record], lapse: str
) -> None:
    session = await operators.use_link(token=await create_login_link(database_url), source="a")
    assert isinstance(session, str)
    await pool.execute(f"UPDATE operator_sessions SET {lapse}")
    assert await operators.authenticate(session) is None


async def test_only_a_person_keeps_a_session_alive(
    database_url: str, operators: Operators, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    session = await operators.use_link(token=await create_login_link(database_url), source="a")
    assert isinstance(session, str)
    idle = "SELECT now() - seen_at > interval '20 minutes' FROM operator_sessions"
    await pool.execute("UPDATE operator_sessions SET seen_at = now() - interval '25 minutes'")
    await operators.authenticate(session, present=False)
    assert await pool.fetchval(idle) is True
    await operators.authenticate(session)
    assert await pool.fetchval(idle) is False


@pytest.mark.control("S11")
async def test_logging_out_and_a_disabled_operator_end_it(
    database_url: str, operators: Operators, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    first = await operators.use_link(token=await create_login_link(database_url), source="a")
    second = await operators.use_link(token=await create_login_link(database_url), source="a")
    assert isinstance(first, str)
    assert isinstance(second, str)
    await operators.log_out(first)
    assert await operators.authenticate(first) is None
    assert await operators.authenticate(second) is not None
    await pool.execute("UPDATE operators SET disabled_at = now()")
    assert await operators.authenticate(second) is None


@pytest.mark.control("S11")
async def test_a_new_password_ends_the_other_sessions(
    operators: Operators, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    operator = await with_password(operators, pool)
    kept, other = [await operators.log_in(name="ada", password=PASSWORD, source="a") for _ in range(2)]
    assert isinstance(kept, str)
    assert isinstance(other, str)
    await operators.set_password(operator, "another long password", keep=kept, by="test")
    assert await operators.authenticate(kept) is not None
    assert await operators.authenticate(other) is None


@pytest.mark.control("S09")
async def test_a_short_password_is_refused(operators: Operators, pool: asyncpg.Pool[asyncpg.Record]) -> None:
    with pytest.raises(WeakPassword):
        await operators.set_password(1, "short", by="test")


@pytest.mark.control("S14")
async def test_the_audit_chain_holds_under_many_writers_and_shows_a_forgery(
    operators: Operators, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    await asyncio.gather(
        *(operators.record(actor="ada", action=f"read.{n}", detail={"n": n}) for n in range(12))
    )
    assert await pool.fetchval("SELECT count(*) FROM audit") == 12
    assert await operators.find_broken_audit_link() is None
    forged = await pool.fetchval("SELECT id FROM audit ORDER BY id OFFSET 5 LIMIT 1")
    await forge(pool, "UPDATE audit SET actor = 'eve' WHERE id = $1", forged)
    assert await operators.find_broken_audit_link() == forged


@pytest.mark.control("S14")
async def test_a_removed_audit_row_breaks_the_chain(
    operators: Operators, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    for number in range(4):
        await operators.record(actor="ada", action=f"read.{number}")
    second, third = await pool.fetch("SELECT id FROM audit ORDER BY id OFFSET 1 LIMIT 2")
    await forge(pool, "DELETE FROM audit WHERE id = $1", second["id"])
    assert await operators.find_broken_audit_link() == third["id"]
