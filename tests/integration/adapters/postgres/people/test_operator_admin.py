"""Operators are invited, change roles and are locked; somebody always stays who may let others in."""

from __future__ import annotations

import asyncio
from typing import TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest

from shared.adapters.postgres.people.operator_admin import Invitation, OperatorAdmin
from shared.adapters.postgres.people.operator_auth import Operators, create_login_link
from shared.core.identity.operators import (
    BadOperator,
    LastAdmin,
    OfTheProvider,
    OperatorExists,
    OperatorLocked,
    StaleOperator,
    UnknownOperator,
    presentable_name,
)

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"


@pytest.fixture
async def roster(pool: Pool) -> OperatorAdmin:
    return OperatorAdmin(pool)


async def entered(operators: Operators, invitation: Invitation, *, browser: str = "") -> str:
    token = await operators.use_link(token=invitation.token, source="192.0.2.7", browser=browser)
    assert isinstance(token, str)
    return token


async def test_an_invited_operator_comes_in_once_by_the_link(
    roster: OperatorAdmin, operators: Operators
) -> None:
    invited = await roster.invite("  Grace   Hopper ", "operator", by="ada")
    assert invited.name == "Grace Hopper"
    agent = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
    token = await entered(operators, invited, browser=agent)
    who = await operators.authenticate(token)
    assert who is not None
    assert (who.name, who.role, who.by_provider) == ("Grace Hopper", "operator", False)
    assert await operators.use_link(token=invited.token, source="192.0.2.7") is None
    (row,) = await roster.list_all()
    assert (row["id"], row["last_login_at"] is not None, row["link_until"]) == (str(invited.id), True, None)
    (login,) = row["logins"]
    assert (login["how"], login["source"], login["browser"]) == ("link", "192.0.2.7", "Firefox on Linux")


async def test_invitation_under_a_taken_or_invalid_name_is_refused(roster: OperatorAdmin) -> None:
    await roster.invite("Grace", "viewer", by="ada")
    with pytest.raises(OperatorExists):
        await roster.invite("grace", "viewer", by="ada")
    for name in ("", " ", "a" * 65, "x\ny:z", "<script>", "nobody", "Command line", "key:shop", "a\x00b"):
        with pytest.raises(BadOperator):
            await roster.invite(name, "viewer", by="ada")
    with pytest.raises(BadOperator):
        await roster.invite("Eve", "root", by="ada")


async def test_only_the_newest_link_opens(roster: OperatorAdmin, operators: Operators) -> None:
    first = await roster.invite("Grace", "viewer", by="ada")
    second = await roster.link(first.id, by="ada")
    assert await operators.use_link(token=first.token, source="a") is None
    await entered(operators, second)


async def test_the_last_admin_stays_whatever_is_asked(
    roster: OperatorAdmin, database_url: str, pool: Pool
) -> None:
    await create_login_link(database_url)
    ada = await roster.find_by_name("admin")
    for change in ({"role": "viewer"}, {"locked": True}, {"role": "operator", "locked": True}):
        with pytest.raises(LastAdmin):
            await roster.change(ada, by="admin", **change)
    grace = await roster.invite("Grace", "admin", by="admin")
    assert (await roster.change(ada, by="admin", role="viewer"))["role"] == "viewer"
    with pytest.raises(LastAdmin):
        await roster.change(grace.id, by="admin", locked=True)
    assert await pool.fetchval("SELECT count(*) FROM audit WHERE action = 'operator.changed'") == 1


async def test_two_admins_who_demote_each_other_do_not_both_succeed(roster: OperatorAdmin) -> None:
    both = [await roster.invite(name, "admin", by="x") for name in ("Ada", "Grace")]
    outcomes = await asyncio.gather(
        *(roster.change(one.id, by="x", role="viewer") for one in both), return_exceptions=True
    )
    assert sorted(type(one).__name__ for one in outcomes) == ["LastAdmin", "dict"]


async def test_a_locked_operator_is_out_at_once_and_comes_back_unlocked(
    roster: OperatorAdmin, operators: Operators, database_url: str
) -> None:
    await create_login_link(database_url)
    invited = await roster.invite("Grace", "operator", by="admin")
    token = await entered(operators, invited)
    link = await roster.link(invited.id, by="admin")
    await roster.change(invited.id, by="admin", locked=True)
    assert await operators.authenticate(token) is None
    assert await operators.use_link(token=link.token, source="a") is None
    with pytest.raises(OperatorLocked):
        await roster.link(invited.id, by="admin")
    await roster.change(invited.id, by="admin", locked=False)
    assert await operators.authenticate(token) is None
    await entered(operators, await roster.link(invited.id, by="admin"))
    assert await operators.find_broken_audit_link() is None


async def test_a_stale_change_is_refused_with_what_stands(roster: OperatorAdmin) -> None:
    invited = await roster.invite("Grace", "viewer", by="ada")
    await roster.change(invited.id, by="ada", version=1, role="operator")
    with pytest.raises(StaleOperator) as stale:
        await roster.change(invited.id, by="eve", version=1, locked=True)
    assert stale.value.current["role"] == "operator"
    assert stale.value.current["version"] == 2
    unchanged = await roster.change(invited.id, by="ada", version=2, role="operator", locked=False)
    assert unchanged["version"] == 2


async def test_logins_end_one_by_one_or_all(roster: OperatorAdmin, operators: Operators) -> None:
    invited = await roster.invite("Grace", "viewer", by="ada")
    tokens = [await entered(operators, invited)]
    tokens += [await entered(operators, await roster.link(invited.id, by="ada"))]
    tokens += [await entered(operators, await roster.link(invited.id, by="ada"))]
    who = await operators.authenticate(tokens[0])
    assert who is not None
    logins = await roster.list_logins(who.operator_id, tokens[0])
    assert [login["this"] for login in logins] == [True, False, False]
    assert await roster.end_login(invited.id, UUID(logins[1]["id"]), by="ada")
    assert not await roster.end_login(invited.id, UUID(logins[1]["id"]), by="ada")
    assert await roster.end_own(who.operator_id, keep=tokens[0]) == 1
    assert await operators.authenticate(tokens[0]) is not None
    assert await roster.end_logins(invited.id, by="ada") == 1
    assert await operators.authenticate(tokens[0]) is None


async def test_operator_cannot_end_another_operators_login(
    roster: OperatorAdmin, operators: Operators
) -> None:
    grace, eve = [await roster.invite(name, "viewer", by="ada") for name in ("Grace", "Eve")]
    kept, mine = await entered(operators, grace), await entered(operators, eve)
    who = await operators.authenticate(mine)
    victim = await operators.authenticate(kept)
    assert who is not None
    assert victim is not None
    (login,) = await roster.list_logins(victim.operator_id)
    assert await roster.end_own(who.operator_id, keep=mine, login=UUID(login["id"])) == 0
    assert not await roster.end_login(eve.id, UUID(login["id"]), by="Eve")
    assert await operators.authenticate(kept) is not None


async def test_who_is_not_there_cannot_be_changed(roster: OperatorAdmin) -> None:
    for act in (
        roster.change(uuid4(), by="ada", role="viewer"), roster.link(uuid4(), by="ada"),
        roster.end_logins(uuid4(), by="ada"), roster.find_by_name("nobody"),
    ):  # fmt: skip
        with pytest.raises(UnknownOperator):
            await act


async def test_the_provider_decides_on_its_operators(roster: OperatorAdmin, pool: Pool) -> None:
    who = {"issuer": "https://id.example", "subject": "42"}
    first = await roster.upsert_from_provider(**who, name="Grace", role="operator")
    assert first is not None
    assert await roster.upsert_from_provider(**who, name="Renamed", role="admin") == first
    row = await pool.fetchrow("SELECT * FROM operators")
    assert row is not None
    assert (row["name"], row["role"]) == ("Grace", "admin")
    with pytest.raises(OfTheProvider):
        await roster.change(row["public_id"], by="ada", role="viewer")
    with pytest.raises(OfTheProvider):
        await roster.link(row["public_id"], by="ada")
    await roster.invite("Ada", "admin", by="command line")
    await roster.change(row["public_id"], by="ada", locked=True)
    assert await roster.upsert_from_provider(**who, name="Grace", role="admin") is None


async def test_provider_login_cannot_take_over_an_existing_operator(
    roster: OperatorAdmin, pool: Pool
) -> None:
    await roster.invite("Grace", "admin", by="ada")
    made = await roster.upsert_from_provider(
        issuer="https://id.example", subject="1", name="grace", role="viewer"
    )
    assert await pool.fetchval("SELECT name FROM operators WHERE id = $1", made) == "grace 2"
    assert await pool.fetchval("SELECT role FROM operators WHERE name = 'Grace'") == "admin"


async def test_terminal_login_link_is_never_for_a_provider_operator(
    roster: OperatorAdmin, operators: Operators, database_url: str
) -> None:
    await roster.upsert_from_provider(issuer="https://id.example", subject="1", name="Grace", role="admin")
    token = await operators.use_link(token=await create_login_link(database_url), source="a")
    assert isinstance(token, str)
    who = await operators.authenticate(token)
    assert who is not None
    assert (who.name, who.by_provider) == ("admin", False)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("Ada L", "Ada L"),
        ("<b>Ada</b>", "bAdab"),
        ("key:shop", "keyshop"),
        ("nobody", "s1"),
        ("", "s1"),
        ("@x", "x"),
    ],
)
def test_provider_display_name_becomes_a_valid_operator_name(said: str, name: str) -> None:
    assert presentable_name(said, fallback="s1") == name
