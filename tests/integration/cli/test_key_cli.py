"""Keys at the terminal: shown once, kept as a hash, listed without their secret, ended at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import asyncpg
import pytest

from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.postgres.people.api_key_admin import PREFIX_CHARS
from shared.adapters.postgres.people.api_keys import PostgresApiKeys
from shared.adapters.postgres.people.operator_auth import Operators
from shared.cli.key import read_key_arguments, run_key
from shared.core.identity.api_keys import SCOPES


@dataclass(slots=True)
class Terminal:
    url: str
    pool: asyncpg.Pool[asyncpg.Record]

    async def key(self, *words: str) -> tuple[int, str, str]:
        said: list[str] = []
        told: list[str] = []
        code = await run_key(
            read_key_arguments(words), database_url=self.url, say=said.append, tell=told.append
        )
        return code, "\n".join(said), "\n".join(told)


@pytest.fixture
async def key_cli(database_url: str) -> AsyncIterator[Terminal]:
    pool = await open_pool(database_url, size=2)
    yield Terminal(url=database_url, pool=pool)
    await pool.close()


@pytest.mark.control("S37")
async def test_a_key_is_shown_once_and_kept_as_a_hash(key_cli: Terminal) -> None:
    code, token, told = await key_cli.key("create", "shop", "--scope", "sessions:read", "--expires", "30")
    assert code == 0
    assert token.startswith("evk_")
    assert token not in told
    (kept,) = await key_cli.pool.fetch("SELECT * FROM api_keys")
    row = dict(kept)
    assert token not in str(row)
    assert token[PREFIX_CHARS:] not in str(row)
    assert (row["expires_at"] - row["created_at"]).days == 30
    _, listed, _ = await key_cli.key("list")
    assert token[:PREFIX_CHARS] in listed
    assert token not in listed
    assert "never used" in listed


async def test_a_key_is_found_until_it_ends(key_cli: Terminal) -> None:
    _, token, _ = await key_cli.key("create", "shop", "--scope", "memory:read", "--scope", "sessions:read")
    keys = PostgresApiKeys(key_cli.pool)
    found = await keys.find(token)
    assert found is not None
    assert found.scopes == ("sessions:read", "memory:read")
    assert await keys.find(token[:-1] + ("A" if token[-1] != "A" else "B")) is None
    used = await key_cli.pool.fetchval("SELECT last_used_at FROM api_keys")
    assert (used.minute, used.second) == (0, 0)
    assert (await key_cli.key("revoke", "shop"))[0] == 0
    assert await keys.find(token) is None
    assert (await key_cli.key("revoke", "shop"))[0] == 1
    assert "revoked" in (await key_cli.key("list"))[1]
    operators = Operators(key_cli.pool)
    assert await operators.find_broken_audit_link() is None
    await operators.close()
    actions = await key_cli.pool.fetch("SELECT action FROM audit ORDER BY id")
    assert [row["action"] for row in actions] == ["key.made", "key.revoked"]


@pytest.mark.control("S13")
async def test_an_expired_key_is_unknown(key_cli: Terminal) -> None:
    _, token, _ = await key_cli.key("create", "shop", "--scope", "memory:read", "--expires", "1")
    await key_cli.pool.execute("UPDATE api_keys SET expires_at = now()")
    assert await PostgresApiKeys(key_cli.pool).find(token) is None


async def test_a_name_is_taken_until_its_key_is_revoked(key_cli: Terminal) -> None:
    made = ("create", "shop", "--scope", "memory:read")
    assert (await key_cli.key(*made))[0] == 0
    assert "already" in (await key_cli.key(*made))[2]
    await key_cli.key("revoke", "shop")
    assert (await key_cli.key(*made))[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("shop", "--scope", "everything"), "no scope everything"),
        (("", "--scope", "memory:read"), "name"),
        (("shop", "--scope", "memory:read", "--expires", "0"), "1 to"),
        (("shop", "--scope", "memory:read", "--site", "nowhere"), "no site nowhere"),
        (("shop", "--scope", "memory:read", "--agent", "nobody"), "no agent nobody"),
    ],
)
async def test_refused_api_key_names_the_reason(key_cli: Terminal, words: tuple[str, ...], said: str) -> None:
    code, key, told = await key_cli.key("create", *words)
    assert (code, key) == (1, "")
    assert said in told
    assert await key_cli.pool.fetchval("SELECT count(*) FROM api_keys") == 0


def test_the_help_tells_every_scope(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_key_arguments(["--help"])
    shown = capsys.readouterr().out
    assert all(scope in shown for scope in SCOPES)


async def test_a_key_goes_with_its_agent(key_cli: Terminal) -> None:
    await key_cli.pool.execute("INSERT INTO agents (name) VALUES ('clerk')")
    await key_cli.key("create", "shop", "--scope", "memory:read", "--agent", "clerk")
    await key_cli.pool.execute("DELETE FROM agents WHERE name = 'clerk'")
    assert await key_cli.pool.fetchval("SELECT count(*) FROM api_keys") == 0
