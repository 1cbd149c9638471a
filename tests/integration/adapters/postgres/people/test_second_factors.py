"""A login asks for a code where one was set up: once each, guessed no faster than passwords."""

from __future__ import annotations

import asyncio
import base64
import functools
from typing import TypeAlias

import asyncpg
import pytest

from shared.adapters.encryption import CannotUnseal, Encryption
from shared.adapters.postgres.people.login_tries import LoginTries, build_keys
from shared.adapters.postgres.people.operator_admin import OperatorAdmin
from shared.adapters.postgres.people.operator_auth import (
    CodeNeeded,
    Operators,
    TooManyTries,
    create_login_link,
)
from shared.adapters.postgres.people.second_factors import (
    HasFactor,
    NoSuchFactor,
    SecondFactors,
    WrongCode,
    reset_factor,
)
from shared.core.identity.operators import OfTheProvider
from shared.core.identity.totp import RECOVERY_CODES
from shared.core.values.errors import StorageUnavailable
from shared.runtime import ignore_crash_point
from tests.kit.one_time_codes import one_time_code

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
PASSWORD = "three yellow cups"
SECRET_KEY = b"k" * 40


@pytest.fixture
async def factors(pool: Pool, operators: Operators) -> SecondFactors:
    return SecondFactors(
        pool,
        operators=operators,
        encryption=functools.cache(lambda: Encryption(SECRET_KEY)),
        crash_point=ignore_crash_point,
    )


@pytest.fixture
async def ada_id(pool: Pool, operators: Operators) -> int:
    await OperatorAdmin(pool).invite("ada", "admin", by="t")
    number: int = await pool.fetchval("SELECT id FROM operators WHERE name = 'ada'")
    await operators.set_password(number, PASSWORD, by="test")
    return number


async def set_up(pool: Pool, factors: SecondFactors, ada: int) -> tuple[str, tuple[str, ...]]:
    """The key, and the recovery codes; the code of the step before is spent."""
    begun = await factors.begin(ada)
    codes = await factors.confirm(ada, await one_time_code(pool, begun.key, later=-1), source="a")
    assert isinstance(codes, tuple)
    return begun.key, codes


async def half_way(operators: Operators, *, source: str = "a") -> str:
    outcome = await operators.log_in(name="ada", password=PASSWORD, source=source)
    assert isinstance(outcome, CodeNeeded)
    return outcome.token


@pytest.mark.control("S09")
async def test_a_factor_counts_from_its_first_right_code_on(
    pool: Pool, operators: Operators, factors: SecondFactors, ada_id: int
) -> None:
    begun = await factors.begin(ada_id)
    assert isinstance(await operators.log_in(name="ada", password=PASSWORD, source="a"), str)
    with pytest.raises(WrongCode):
        await factors.confirm(ada_id, "000000", source="a")
    assert await factors.load_state(ada_id) is None
    begun = await factors.begin(ada_id)  # another key: the first one was never used
    kept = await operators.log_in(name="ada", password=PASSWORD, source="a")
    other = await operators.log_in(name="ada", password=PASSWORD, source="a")
    assert isinstance(kept, str)
    assert isinstance(other, str)
    codes = await factors.confirm(ada_id, await one_time_code(pool, begun.key), source="a", keep=kept)
    assert isinstance(codes, tuple)
    assert len(set(codes)) == RECOVERY_CODES
    assert await operators.authenticate(kept) is not None
    assert await operators.authenticate(other) is None, "whoever was in without a code is out"
    with pytest.raises(HasFactor):
        await factors.begin(ada_id)
    found = await factors.load_state(ada_id)
    assert found is not None
    assert found[1] == RECOVERY_CODES


@pytest.mark.control("S09")
async def test_password_and_link_alone_open_no_more(
    pool: Pool, operators: Operators, factors: SecondFactors, ada_id: int, database_url: str
) -> None:
    key, _ = await set_up(pool, factors, ada_id)
    assert await operators.authenticate(await half_way(operators)) is None
    half = await operators.use_link(token=await create_login_link(database_url), source="a")
    assert isinstance(half, CodeNeeded)
    assert await operators.authenticate(half.token) is None
    assert await operators.log_in(name="ada", password="wrong", source="a") is None
    token = await factors.log_in(token=half.token, code=await one_time_code(pool, key), source="a")
    assert isinstance(token, str)
    assert await operators.authenticate(token) is not None
    how = "SELECT how FROM operator_sessions WHERE operator_id = $1"
    assert await pool.fetchval(how, ada_id) == "link"
    with pytest.raises(NoSuchFactor):  # its half was taken
        await factors.log_in(token=half.token, code=await one_time_code(pool, key, later=1), source="a")


@pytest.mark.control("S09")
async def test_a_code_opens_once_however_many_bring_it(
    pool: Pool, operators: Operators, factors: SecondFactors, ada_id: int
) -> None:
    key, _ = await set_up(pool, factors, ada_id)
    halves = [await half_way(operators) for _ in range(3)]
    now = await one_time_code(pool, key)
    outcomes = await asyncio.gather(*(factors.log_in(token=half, code=now, source="a") for half in halves))
    assert len([one for one in outcomes if isinstance(one, str)]) == 1
    left = halves[outcomes.index(None)]
    assert await factors.log_in(token=left, code=now, source="a") is None
    assert isinstance(
        await factors.log_in(token=left, code=await one_time_code(pool, key, later=1), source="a"), str
    )


@pytest.mark.control("S09")
async def test_a_recovery_code_opens_once_and_is_stored_as_a_hash(
    pool: Pool, operators: Operators, factors: SecondFactors, ada_id: int
) -> None:
    key, codes = await set_up(pool, factors, ada_id)
    stored = str(await pool.fetch("SELECT f::text FROM operator_factors f"))
    assert not [one for one in (key.replace(" ", ""), *codes) if one in stored]
    assert base64.b32decode(key.replace(" ", "")).hex() not in stored
    half = await half_way(operators)
    assert isinstance(await factors.log_in(token=half, code=codes[3].upper(), source="a"), str)
    assert await factors.log_in(token=await half_way(operators), code=codes[3], source="a") is None
    found = await factors.load_state(ada_id)
    assert found is not None
    assert found[1] == RECOVERY_CODES - 1


@pytest.mark.control("S09")
async def test_committed_login_is_reported_when_postgres_stops_afterwards(
    pool: Pool, operators: Operators, factors: SecondFactors, ada_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(*_: object, **__: object) -> None:
        raise StorageUnavailable("the connection is gone")

    monkeypatch.setattr(LoginTries, "record_success", gone)
    _, codes = await set_up(pool, factors, ada_id)
    assert len(codes) == RECOVERY_CODES
    monkeypatch.undo()
    half = await half_way(operators)
    monkeypatch.setattr(LoginTries, "record_success", gone)
    token = await factors.log_in(token=half, code=codes[0], source="a")
    assert isinstance(token, str)
    assert await operators.authenticate(token) is not None


HELD_BY_NOBODY = "SELECT FROM operators FOR NO KEY UPDATE NOWAIT"


@pytest.mark.parametrize("by", ["code", "link"])
async def test_login_and_change_of_second_factor_lock_in_one_order(
    pool: Pool, operators: Operators, factors: SecondFactors, ada_id: int, database_url: str, by: str
) -> None:
    link = await create_login_link(database_url)
    _, codes = await set_up(pool, factors, ada_id) if by == "code" else ("", ("",))
    half = await half_way(operators) if by == "code" else ""
    async with pool.acquire() as admin, admin.transaction():
        await admin.execute("LOCK TABLE operators IN SHARE ROW EXCLUSIVE MODE")
        opening = asyncio.ensure_future(
            factors.log_in(token=half, code=codes[0], source="a")
            if by == "code"
            else operators.use_link(token=link, source="a")
        )
        while not await pool.fetchval(
            "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'operators'::regclass)"
        ):
            await asyncio.sleep(0.01)
        await admin.execute(HELD_BY_NOBODY)
    assert isinstance(await opening, str)


async def test_a_link_is_not_spent_for_a_login_that_never_was(
    operators: Operators, ada_id: int, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def falls(*_: object, **__: object) -> None:
        raise StorageUnavailable("the connection is gone")

    link = await create_login_link(database_url)
    monkeypatch.setattr("shared.adapters.postgres.people.operator_auth.append_audit", falls)
    with pytest.raises(StorageUnavailable):
        await operators.use_link(token=link, source="a")
    monkeypatch.undo()
    monkeypatch.setattr(LoginTries, "record_success", falls)
    token = await operators.use_link(token=link, source="a")
    assert isinstance(token, str)
    assert await operators.authenticate(token) is not None
    monkeypatch.undo()
    assert await operators.use_link(token=link, source="a") is None


@pytest.mark.control("S09", "S10")
async def test_codes_are_guessed_no_faster_than_passwords(
    pool: Pool, operators: Operators, factors: SecondFactors, ada_id: int
) -> None:
    key, _ = await set_up(pool, factors, ada_id)
    waits, last = [], ""
    for _ in range(6):
        # Who knows the password begins anew each time, and that takes no guess back.
        half = await operators.log_in(name="ada", password=PASSWORD, source="a")
        if isinstance(half, TooManyTries):
            waits.append(half)
            break
        assert isinstance(half, CodeNeeded)
        last = half.token
        outcome = await factors.log_in(token=half.token, code="000000", source="a")
        waits += [outcome] if isinstance(outcome, TooManyTries) else []
    assert waits, "after five tries of both together it takes a minute"
    right = await one_time_code(pool, key)
    assert isinstance(await factors.log_in(token=last, code=right, source="a"), TooManyTries)
    elsewhere = await factors.log_in(token=last, code=right, source="192.0.2.9")
    assert isinstance(elsewhere, str), "whoever guesses locks out themselves alone"


@pytest.mark.control("S09", "S10")
async def test_operator_with_second_factor_is_asked_instead_of_locked_out(
    pool: Pool, operators: Operators, factors: SecondFactors, ada_id: int
) -> None:
    _, codes = await set_up(pool, factors, ada_id)
    for number in range(60):
        source = f"203.0.113.{number % 13}"
        assert await operators.log_in(name="ada", password=f"guess {number}", source=source) is None
    half = await half_way(operators, source="198.51.100.7")
    assert isinstance(await factors.log_in(token=half, code=codes[0], source="198.51.100.7"), str)


@pytest.mark.control("S09", "S10")
async def test_second_factor_guesses_are_limited_except_at_known_places(pool: Pool) -> None:
    operators = Operators(pool, place_key=lambda: b"k" * 32)
    await OperatorAdmin(pool).invite("ada", "admin", by="t")
    ada = await pool.fetchval("SELECT id FROM operators WHERE name = 'ada'")
    await operators.set_password(ada, PASSWORD, by="test")
    factors = SecondFactors(
        pool,
        operators=operators,
        encryption=functools.cache(lambda: Encryption(SECRET_KEY)),
        crash_point=ignore_crash_point,
    )
    _, codes = await set_up(pool, factors, ada)
    half = await half_way(operators, source="198.51.100.7")
    assert isinstance(await factors.log_in(token=half, code=codes[0], source="198.51.100.7"), str)
    stolen = await half_way(operators, source="203.0.113.200")
    for number in range(50):
        source = f"203.0.113.{number}"
        assert await factors.log_in(token=stolen, code="000000", source=source) is None
    guessed = await factors.log_in(token=stolen, code=codes[1], source="203.0.113.99")
    assert isinstance(guessed, TooManyTries)
    half = await half_way(operators, source="198.51.100.7")
    assert isinstance(await factors.log_in(token=half, code=codes[1], source="198.51.100.7"), str)
    await operators.close()


async def test_a_login_by_two_steps_leaves_no_failure_behind(
    pool: Pool, operators: Operators, factors: SecondFactors, ada_id: int
) -> None:
    _, codes = await set_up(pool, factors, ada_id)
    for one in codes[:4]:
        half = await half_way(operators)
        assert isinstance(await factors.log_in(token=half, code=one, source="a"), str)
    assert await pool.fetchval("SELECT coalesce(sum(failures), 0) FROM login_tries") == 0
    assert await LoginTries(pool).begin(build_keys(name="ada", address="a")) == 0


@pytest.mark.control("S09")
async def test_half_login_ends_by_age_new_password_and_lock(
    pool: Pool, operators: Operators, factors: SecondFactors, ada_id: int
) -> None:
    key, _ = await set_up(pool, factors, ada_id)
    half = await half_way(operators)
    await pool.execute("UPDATE operator_steps SET expires_at = now()")
    with pytest.raises(NoSuchFactor):
        await factors.log_in(token=half, code=await one_time_code(pool, key), source="a")
    half = await half_way(operators)
    await operators.set_password(ada_id, PASSWORD + " more", by="test")
    with pytest.raises(NoSuchFactor):
        await factors.log_in(token=half, code=await one_time_code(pool, key), source="a")
    with pytest.raises(NoSuchFactor):
        await factors.log_in(token="x" * 43, code=await one_time_code(pool, key), source="a")
    await OperatorAdmin(pool).invite("grace", "admin", by="t")
    half = await operators.log_in(name="ada", password=PASSWORD + " more", source="a")  # type: ignore[assignment]
    assert isinstance(half, CodeNeeded)
    await OperatorAdmin(pool).change(await OperatorAdmin(pool).find_by_name("ada"), by="t", locked=True)
    with pytest.raises(NoSuchFactor):
        await factors.log_in(token=half.token, code=await one_time_code(pool, key), source="a")


@pytest.mark.control("S09", "S14")
async def test_second_factor_removal_needs_code_or_shell_and_is_audited(
    pool: Pool, operators: Operators, factors: SecondFactors, ada_id: int
) -> None:
    key, codes = await set_up(pool, factors, ada_id)
    with pytest.raises(WrongCode):
        await factors.remove(ada_id, "000000", source="a")
    assert await factors.remove(ada_id, await one_time_code(pool, key), source="a") is None
    assert isinstance(await operators.log_in(name="ada", password=PASSWORD, source="a"), str)
    with pytest.raises(NoSuchFactor):
        await factors.remove(ada_id, codes[0], source="a")
    await set_up(pool, factors, ada_id)
    assert await reset_factor(pool, ada_id, by="command line")
    assert not await reset_factor(pool, ada_id, by="command line")
    assert isinstance(await operators.log_in(name="ada", password=PASSWORD, source="a"), str)
    rows = await pool.fetch("SELECT actor, action FROM audit WHERE action LIKE 'second_factor.%' ORDER BY id")
    assert [tuple(row) for row in rows] == [
        ("ada", "second_factor.on"), ("ada", "second_factor.off"), ("ada", "second_factor.on"),
        ("command line", "second_factor.reset"),
    ]  # fmt: skip
    assert await operators.find_broken_audit_link() is None


async def test_another_secret_key_opens_nothing_and_says_so(
    pool: Pool, operators: Operators, factors: SecondFactors, ada_id: int
) -> None:
    key, _ = await set_up(pool, factors, ada_id)
    other = SecondFactors(
        pool, operators=operators, encryption=lambda: Encryption(b"o" * 40), crash_point=ignore_crash_point
    )
    with pytest.raises(CannotUnseal):
        await other.log_in(token=await half_way(operators), code=await one_time_code(pool, key), source="a")


async def test_who_comes_by_a_provider_has_its_second_factor(pool: Pool, factors: SecondFactors) -> None:
    number = await OperatorAdmin(pool).upsert_from_provider(
        issuer="https://id.example", subject="1", name="Bo", role="admin"
    )
    assert number is not None
    with pytest.raises(OfTheProvider):
        await factors.begin(number)
