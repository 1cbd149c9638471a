"""Who may talk with a bot: codes that an operator approves, and links that make somebody an owner."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import asyncpg

from shared.adapters.postgres.db.pool import store_method

AccessState = Literal["pending", "allowed", "refused"]
CODE_ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
"""Without 0, 1, I and O, which people mistake for each other."""
CODE_CHARS = 8
CODE_HOURS = 1
OWNER_LINK_MINUTES = 60
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
        """This stranger was answered just now; the next polite refusal waits its time."""
        await self._pool.execute(
            "UPDATE telegram_access SET told_at = now() WHERE bot_id = $1 AND chat_id = $2", bot_id, chat_id
        )

    @store_method
    async def decide(
        self, bot_id: int, chat_id: int, *, allowed: bool, by: str, name: str = "", owner: bool = False
    ) -> AccessRow:
        row = await self._pool.fetchrow(
            f"""INSERT INTO telegram_access AS t (bot_id, chat_id, state, owner, name, decided_at, decided_by)
                VALUES ($1, $2, $3, $4, $5, now(), $6)
                ON CONFLICT (bot_id, chat_id) DO UPDATE
                   SET state = excluded.state,
                       owner = excluded.owner OR (t.owner AND excluded.state = 'allowed'),
                       code = NULL, decided_at = now(), decided_by = excluded.decided_by
                RETURNING {_ROW}""",
            bot_id, chat_id, "allowed" if allowed else "refused", owner, name, by,
        )  # fmt: skip
        assert row is not None
        return AccessRow(**dict(row))

    @store_method
    async def decide_by_code(self, code: str, *, allowed: bool, by: str) -> AccessRow | None:
        """None when no request with this code waits; a code older than an hour has lapsed."""
        row = await self._pool.fetchrow(
            f"""UPDATE telegram_access SET state = $2, code = NULL, decided_at = now(), decided_by = $3
                 WHERE code = $1 AND state = 'pending' AND asked_at > now() - make_interval(hours => $4)
                RETURNING {_ROW}""",
            code.strip().upper(), "allowed" if allowed else "refused", by, CODE_HOURS,
        )  # fmt: skip
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
                          decided_by = 'owner link'""",
                bot_id, chat_id, name,
            )  # fmt: skip
        return True


def new_code() -> str:
    """40 random bits that can be read aloud; guessing is limited by the hour and by the operator's eye."""
    return "".join(secrets.choice(CODE_ALPHABET) for _ in range(CODE_CHARS))


def _hash(code: str) -> bytes:
    return hashlib.sha256(code.encode()).digest()
