"""Operators at the terminal: let in by a link, given a password, listed, and locked out at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import asyncpg
import pytest

from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.postgres.people.operator_admin import OperatorAdmin
from shared.adapters.postgres.people.operator_auth import Operators, SignedIn, create_login_link
from shared.cli.operator import read_operator_arguments, run_operator
from shared.core.identity.operators import OfTheProvider
from tests.kit.audit import read_audit


@dataclass(slots=True)
class Terminal:
    url: str
    pool: asyncpg.Pool[asyncpg.Record]
    operators: Operators
    typed: list[str] = field(default_factory=list)

    async def operator(self, *words: str) -> tuple[int, str, str]:
        said: list[str] = []
        told: list[str] = []
        code = await run_operator(
            read_operator_arguments(words), database_url=self.url, say=said.append, tell=told.append,
            ask=lambda: self.typed.pop(0), url=lambda token: token,
        )  # fmt: skip
        return code, "\n".join(said), "\n".join(told)

    async def who(self, token: str) -> SignedIn | None:
        session = await self.operators.use_link(token=token, source="a")
        return await self.operators.authenticate(session) if isinstance(session, str) else None


@pytest.fixture
async def operator_cli(database_url: str) -> AsyncIterator[Terminal]:
    pool = await open_pool(database_url, size=2)
    operators = Operators(pool)
    yield Terminal(url=database_url, pool=pool, operators=operators)
    await operators.close()
    await pool.close()


async def test_an_operator_is_added_with_a_link_that_opens_once(operator_cli: Terminal) -> None:
    code, link, told = await operator_cli.operator("add", "grace", "--role", "admin")
    assert (code, "within 24 hours" in told, link in told) == (0, True, False)
    who = await operator_cli.who(link)
    assert who is not None
    assert (who.name, who.role) == ("grace", "admin")
    assert await operator_cli.who(link) is None
    _, listed, _ = await operator_cli.operator("list")
    assert "grace  admin  1 open  last login 20" in listed


async def test_without_operators_the_list_says_how_to_begin(operator_cli: Terminal) -> None:
    assert "operator add NAME" in (await operator_cli.operator("list"))[1]


async def test_a_password_is_set_and_ends_what_was_open(operator_cli: Terminal) -> None:
    _, link, _ = await operator_cli.operator("add", "grace")
    old = await operator_cli.operators.use_link(token=link, source="a")
    assert isinstance(old, str)
    operator_cli.typed = ["too short", "three yellow cups"]
    code, _, told = await operator_cli.operator("passwd", "grace")
    assert (code, "12 characters" in told) == (1, True)
    assert await operator_cli.operators.authenticate(old) is not None
    assert (await operator_cli.operator("passwd", "Grace"))[0] == 0
    assert await operator_cli.operators.authenticate(old) is None
    token = await operator_cli.operators.log_in(name="grace", password="three yellow cups", source="a")
    assert isinstance(token, str)
    entry = next(one for one in await read_audit(operator_cli.pool) if one.action == "password.set")
    grace = await operator_cli.pool.fetchval("SELECT public_id FROM operators WHERE name = 'grace'")
    assert (entry.actor, entry.about) == ("command line", f"operator:{grace}")


async def test_password_that_cannot_be_recorded_is_not_set(operator_cli: Terminal) -> None:
    await operator_cli.operator("add", "grace")
    await operator_cli.pool.execute("ALTER TABLE audit ADD CHECK (action <> 'password.set')")
    operator_cli.typed = ["three yellow cups"]
    with pytest.raises(asyncpg.CheckViolationError):
        await operator_cli.operator("passwd", "grace")
    assert (
        await operator_cli.pool.fetchval("SELECT password_hash FROM operators WHERE name = 'grace'") is None
    )


async def test_operator_of_the_provider_gets_no_password(operator_cli: Terminal) -> None:
    ida = await OperatorAdmin(operator_cli.pool).upsert_from_provider(
        issuer="https://id.example", subject="1", name="ida", role="viewer"
    )
    assert ida is not None
    with pytest.raises(OfTheProvider):
        await operator_cli.operators.set_password(ida, "three yellow cups", by="test")
    assert await operator_cli.pool.fetchval("SELECT password_hash FROM operators WHERE name = 'ida'") is None


async def test_login_link_is_recorded_with_its_operator(operator_cli: Terminal) -> None:
    await create_login_link(operator_cli.url)
    (entry,) = await read_audit(operator_cli.pool)
    admin = await operator_cli.pool.fetchval("SELECT public_id FROM operators")
    assert (entry.actor, entry.action) == ("command line", "login_link.made")
    assert entry.about == f"operator:{admin}"


async def test_revoked_operator_loses_access_and_last_admin_cannot_be_revoked(operator_cli: Terminal) -> None:
    await operator_cli.operator("add", "ada", "--role", "admin")
    _, link, _ = await operator_cli.operator("add", "grace", "--role", "admin")
    token = await operator_cli.operators.use_link(token=link, source="a")
    assert isinstance(token, str)
    assert (await operator_cli.operator("revoke", "grace"))[0] == 0
    assert await operator_cli.operators.authenticate(token) is None
    code, _, told = await operator_cli.operator("revoke", "ada")
    assert (code, "last admin" in told) == (1, True)
    assert "locked" in (await operator_cli.operator("list"))[1]
    assert await operator_cli.operators.find_broken_audit_link() is None


async def test_refused_operator_command_gives_advice(operator_cli: Terminal) -> None:
    await operator_cli.operator("add", "ada")
    await OperatorAdmin(operator_cli.pool).upsert_from_provider(
        issuer="https://id.example", subject="1", name="ida", role="viewer"
    )
    for words, advice in (
        (("add", "ADA"), "already"), (("add", "key:x"), "letters"), (("add", "nobody"), "audit log"),
        (("add", "CLI"), "audit log"),
        (("passwd", "eve"), "operator list"), (("revoke", "eve"), "operator list"),
        (("passwd", "ida"), "identity provider"),
    ):  # fmt: skip
        code, said, told = await operator_cli.operator(*words)
        assert (code, said) == (1, ""), words
        assert advice in told, words


@pytest.mark.control("S09", "S14")
async def test_a_second_factor_is_reset_at_the_machine(operator_cli: Terminal) -> None:
    await operator_cli.operator("add", "Grace")
    assert (await operator_cli.operator("totp", "reset", "Grace"))[0] == 1
    await operator_cli.pool.execute(
        """INSERT INTO operator_factors (operator_id, key_id, sealed, confirmed_at)
           SELECT id, 'k', '\\x01', now() FROM operators WHERE name = 'Grace'"""
    )
    assert "second factor" in str(await operator_cli.operator("list"))
    assert (await operator_cli.operator("totp", "reset", "Grace"))[0] == 0
    assert "second factor" not in str(await operator_cli.operator("list"))
    assert (
        await operator_cli.pool.fetchval("SELECT actor FROM audit ORDER BY id DESC LIMIT 1") == "command line"
    )
