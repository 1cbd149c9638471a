"""Who may talk with a bot: codes that an operator approves, and links that make somebody an owner."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import asyncpg

from shared.adapters.postgres.db.pool import store_method
from shared.adapters.postgres.people.operator_auth import append_audit

AccessState = Literal["pending", "allowed", "refused"]
CODE_ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
"""Without 0, 1, I and O, which people mistake for each other."""
CODE_CHARS = 8
CODE_HOURS = 1
OWNER_LINK_MINUTES = 60
DECISION_TOLD_HOURS = 24
"""A decision that nobody could be told of for so long is no news any more."""
PENDING_AT_MOST = 50
"""Per bot: strangers must not fill the operator's list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRow:
    bot_id: int
    chat_id: int
    """A person's id, or a group's negative one."""
    state: AccessState
    owner: bool
    name: str
    username: str
    code: str | None
    asked_at: datetime
    told_at: datetime | None
    decided_by: str


_ROW = "bot_id, chat_id, state, owner, name, username, code, asked_at, told_at, decided_by"
_DECIDE = f"""
INSERT INTO telegram_access AS t (bot_id, chat_id, state, owner, name, decided_at, decided_by)
VALUES ($1, $2, $3, $4, $5, now(), $6)
ON CONFLICT (bot_id, chat_id) DO UPDATE
   SET state = excluded.state, owner = excluded.owner OR (t.owner AND excluded.state = 'allowed'),
       code = NULL, decided_at = now(), decided_by = excluded.decided_by,
       told_at = CASE WHEN $7 OR (t.state = 'allowed' AND excluded.state = 'refused') THEN now()
                      ELSE t.told_at END
RETURNING {_ROW}
"""
_LAPSED = "t.state = 'pending' AND t.asked_at < now() - make_interval(hours => $6)"


class PostgresTelegramAccess:
    """Each method is one transaction; raises StorageUnavailable."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    @store_method
    async def find(self, bot_id: int, chat_id: int) -> AccessRow | None:
        row = await self._pool.fetchrow(
            f"SELECT {_ROW} FROM telegram_access WHERE bot_id = $1 AND chat_id = $2", bot_id, chat_id
        )
        return None if row is None else AccessRow(**dict(row))

    @store_method
    async def ask(self, bot_id: int, chat_id: int, *, name: str, username: str) -> AccessRow | None:
        """A stranger's request with its code, a fresh one after an hour; None when too many wait already."""
        row = await self._pool.fetchrow(
            f"""INSERT INTO telegram_access AS t (bot_id, chat_id, name, username, code)
                SELECT $1, $2, $3, $4, $5
                 WHERE EXISTS (SELECT FROM telegram_access WHERE bot_id = $1 AND chat_id = $2)
                    OR (SELECT count(*) FROM telegram_access
                         WHERE bot_id = $1 AND state = 'pending'
                           AND asked_at > now() - make_interval(hours => $6)) < $7
                ON CONFLICT (bot_id, chat_id) DO UPDATE
                   SET name = excluded.name, username = excluded.username,
                       code = CASE WHEN {_LAPSED} THEN excluded.code ELSE t.code END,
                       asked_at = CASE WHEN {_LAPSED} THEN now() ELSE t.asked_at END
                RETURNING {_ROW}""",
            bot_id, chat_id, name, username, new_code(), CODE_HOURS, PENDING_AT_MOST,
        )  # fmt: skip
        return None if row is None else AccessRow(**dict(row))

    @store_method
    async def told(self, bot_id: int, chat_id: int) -> None:
        """This stranger has their code as of now; the next polite refusal waits its time."""
        await self._pool.execute(
            """UPDATE telegram_access SET told_at = now()
                WHERE bot_id = $1 AND chat_id = $2 AND state = 'pending'""",
            bot_id, chat_id,
        )  # fmt: skip

    @store_method
    async def count_waiting(self, bot_id: int) -> int:
        """Those who were given a code within the last hour and wait for a decision."""
        found: int = await self._pool.fetchval(
            """SELECT count(*) FROM telegram_access
                WHERE bot_id = $1 AND state = 'pending' AND told_at > now() - interval '1 hour'""",
            bot_id,
        )
        return found

    @store_method
    async def decisions_to_tell(self, bot_ids: Sequence[int]) -> list[AccessRow]:
        """Those who were given a code and do not know yet what was decided."""
        rows = await self._pool.fetch(
            f"""SELECT {_ROW} FROM telegram_access
                 WHERE bot_id = ANY ($1::bigint[]) AND state <> 'pending' AND told_at < decided_at
                   AND decided_at > now() - make_interval(hours => $2) ORDER BY decided_at LIMIT 20""",
            list(bot_ids), DECISION_TOLD_HOURS,
        )  # fmt: skip
        return [AccessRow(**dict(row)) for row in rows]

    @store_method
    async def decision_told(self, bot_id: int, chat_id: int) -> None:
        await self._pool.execute(
            """UPDATE telegram_access SET told_at = now()
                WHERE bot_id = $1 AND chat_id = $2 AND state <> 'pending'""",
            bot_id, chat_id,
        )  # fmt: skip

    @store_method
    async def decide(
        self,
        bot_id: int,
        chat_id: int,
        *,
        allowed: bool,
        by: str,
        name: str = "",
        owner: bool = False,
        told: bool = False,
        actor: str = "",
    ) -> AccessRow:
        """`told`: they hear of it anyhow. Whoever is shut out later is not told. `actor` is for the audit."""
        async with self._pool.acquire() as connection, connection.transaction():
            row = await connection.fetchrow(
                _DECIDE, bot_id, chat_id, "allowed" if allowed else "refused", owner, name, by, told
            )
            assert row is not None
            await _audited(connection, row, actor, "allow" if allowed else "block")
        return AccessRow(**dict(row))

    @store_method
    async def decide_by_code(self, code: str, *, allowed: bool, by: str, actor: str = "") -> AccessRow | None:
        """None when no request with this code waits; a code older than an hour has lapsed."""
        async with self._pool.acquire() as connection, connection.transaction():
            row = await connection.fetchrow(
                f"""UPDATE telegram_access SET state = $2, code = NULL, decided_at = now(), decided_by = $3
                     WHERE code = $1 AND state = 'pending' AND asked_at > now() - make_interval(hours => $4)
                    RETURNING {_ROW}""",
                code.strip().upper(), "allowed" if allowed else "refused", by, CODE_HOURS,
            )  # fmt: skip
            await _audited(connection, row, actor, "approve" if allowed else "refuse")
        return None if row is None else AccessRow(**dict(row))

    @store_method
    async def decide_waiting(
        self, bot_id: int, chat_id: int, *, allowed: bool, by: str, actor: str
    ) -> AccessRow | None:
        """By a button, which says who asked and does not lapse; None when it was decided before."""
        async with self._pool.acquire() as connection, connection.transaction():
            row = await connection.fetchrow(
                f"""UPDATE telegram_access SET state = $3, code = NULL, decided_at = now(), decided_by = $4
                     WHERE bot_id = $1 AND chat_id = $2 AND state = 'pending' RETURNING {_ROW}""",
                bot_id, chat_id, "allowed" if allowed else "refused", by,
            )  # fmt: skip
            await _audited(connection, row, actor, "approve" if allowed else "refuse")
        return None if row is None else AccessRow(**dict(row))

    @store_method
    async def all(self, *, state: AccessState | None = None) -> list[AccessRow]:
        rows = await self._pool.fetch(
            f"""SELECT {_ROW} FROM telegram_access WHERE $1::text IS NULL OR state = $1
                ORDER BY state = 'pending' DESC, asked_at DESC LIMIT 500""",
            state,
        )
        return [AccessRow(**dict(row)) for row in rows]

    @store_method
    async def owners(self, bot_id: int) -> list[int]:
        rows = await self._pool.fetch(
            "SELECT chat_id FROM telegram_access WHERE bot_id = $1 AND owner AND state = 'allowed'", bot_id
        )
        return [row["chat_id"] for row in rows]

    @store_method
    async def owner_code(self, bot_id: int) -> str:
        """A new code for `t.me/<bot>?start=<code>`; whoever opens it first owns the bot."""
        code = secrets.token_urlsafe(24)
        await self._pool.execute(
            """INSERT INTO one_time_codes (code_hash, purpose, bot_id, expires_at)
               VALUES ($1, 'telegram_owner', $2, now() + make_interval(mins => $3))""",
            _hash(code), bot_id, OWNER_LINK_MINUTES,
        )  # fmt: skip
        return code

    @store_method
    async def become_owner(self, bot_id: int, chat_id: int, *, code: str, name: str) -> bool:
        """True for the first who brings a code that lives; they may talk from now on, and decide who else."""
        async with self._pool.acquire() as connection, connection.transaction():
            found = await connection.fetchval(
                """UPDATE one_time_codes SET used_at = now()
                    WHERE code_hash = $1 AND purpose = 'telegram_owner' AND bot_id = $2
                      AND used_at IS NULL AND expires_at > now() RETURNING true""",
                _hash(code), bot_id,
            )  # fmt: skip
            if not found:
                return False
            await connection.execute(
                """INSERT INTO telegram_access AS t
                          (bot_id, chat_id, state, owner, name, decided_at, decided_by)
                   VALUES ($1, $2, 'allowed', true, $3, now(), 'owner link')
                   ON CONFLICT (bot_id, chat_id) DO UPDATE
                      SET state = 'allowed', owner = true, code = NULL, decided_at = now(),
                          told_at = now(), decided_by = 'owner link'""",
                bot_id, chat_id, name,
            )  # fmt: skip
        return True


async def _audited(connection: Any, row: asyncpg.Record | None, actor: str, verdict: str) -> None:
    if row is not None and actor:
        about = f"telegram:{row['bot_id']}:{row['chat_id']}"
        await append_audit(connection, actor=actor, action=f"pairing.{verdict}", about=about)


def new_code() -> str:
    """40 random bits that can be read aloud; guessing is limited by the hour and by the operator's eye."""
    return "".join(secrets.choice(CODE_ALPHABET) for _ in range(CODE_CHARS))


def _hash(code: str) -> bytes:
    return hashlib.sha256(code.encode()).digest()
