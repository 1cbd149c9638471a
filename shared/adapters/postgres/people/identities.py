"""Signed-in people of sites, and codes that bring an anonymous conversation to another browser."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from shared.adapters.postgres.db.pool import store_method
from shared.adapters.postgres.people import identities_sql as sql
from shared.adapters.postgres.people.account_links import PostgresAccountLinks
from shared.adapters.postgres.people.account_links_sql import ONE_AT_A_TIME as ONE_JOIN_AT_A_TIME
from shared.adapters.postgres.people.visitors import VisitorRow, new_token, token_hash, visitor_of

Connection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"

IDENTIFIED_HOURS = 24
"""How long a token lives that was given for a signature; each new signature gives a new one."""
PATIENT_SECONDS = 30.0
"""So long an answer may be written before who signs in is no longer asked to wait for its end."""


class PostgresIdentities:
    """Each method is one transaction; raises StorageUnavailable."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], *, people: PostgresAccountLinks) -> None:
        self._pool = pool
        self._people = people

    @store_method
    async def identify(
        self, *, site: str, place: str, name: str, timezone: str | None, former: str | None
    ) -> tuple[VisitorRow, str] | Literal["busy", "later", "no_site"]:
        """One person of a site has one conversation, whichever browser they come with; with a new token.

        `former` is the token of this browser, which proves that its anonymous conversation is theirs: that
        goes on as theirs when they have none yet, and is kept as an earlier one when they have; what is
        reached from another place, too, stays there. Either way the former token, and all others of its
        place, open nothing afterwards. `busy` is over in a moment; `later` may
        last: a human is there, or an answer waits for its next attempt, or takes long.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(sql.ONE_AT_A_TIME, f"{site}:{place}")
            theirs = await connection.fetchval(sql.PLACE_OF, site, place)
            mine = None
            if former is not None:
                mine = await connection.fetchrow(sql.FORMER, token_hash(former), site)
            elsewhere = mine is not None and mine["address_id"] != theirs
            if (
                mine is not None
                and elsewhere
                and not await self._bring_along(connection, site, place, theirs, mine)
            ):
                later = await connection.fetchval(
                    sql.TAKES_LONG, [mine["session_id"]], PATIENT_SECONDS, theirs
                )
                return "later" if later else "busy"
            address = theirs or await connection.fetchval(sql.PLACE_OF, site, place)
            if address is None:
                address = await connection.fetchval(sql.NEW_PERSON, site, place, timezone)
            if address is None:
                return "no_site"
            if name:
                await connection.execute(sql.NAME, address, name)
            if mine is not None:
                await connection.execute(sql.REVOKE, token_hash(former or ""))
            token = new_token()
            row = await connection.fetchrow(sql.LET_IN, token_hash(token), site, address, IDENTIFIED_HOURS)
        assert row is not None
        return visitor_of(row), token

    async def _bring_along(
        self, connection: Connection, site: str, chat: str, theirs: int | None, mine: Any
    ) -> bool:
        """False when it cannot be now, because an answer is being written."""
        if mine["identified"]:
            return True
        # Before the row of the session, as everybody who joins does: else two could wait for each other.
        await connection.execute(ONE_JOIN_AT_A_TIME)
        place = mine["address_id"], mine["session_id"]
        if await connection.fetchval(sql.IS_SHARED, *place):
            # A browser proves nothing about the other place, which may be somebody else's Telegram: there the
            # conversation goes on, and whoever signs in may link it with a code from there.
            await connection.execute(sql.LEAVE_REMINDERS, *place)
            await connection.execute(sql.LEAVE_PLACE, *place, site, chat, False)
        elif theirs is not None and await connection.fetchval(sql.HAS_WORDS, mine["session_id"]):
            if not await self._people.join_places(connection, kept=theirs, joined=mine["address_id"]):
                return False
        else:
            await connection.execute(sql.LEAVE_PLACE, *place, site, chat, theirs is None)
        await connection.execute(sql.CLOSE_PLACE, mine["address_id"])
        return True

    @store_method
    async def issue_code(self, address_id: int, code_hash: bytes) -> bool:
        """In place of the former one; False where people are signed in."""
        done = await self._pool.fetchval(sql.ISSUE_CODE, address_id, code_hash)
        return done is not None

    @store_method
    async def recover(self, site: str, code_hash: bytes) -> tuple[VisitorRow, str] | None:
        """A token of its own for one more browser; the others keep theirs, and the code stays good."""
        token = new_token()
        row = await self._pool.fetchrow(sql.RECOVER, code_hash, site, token_hash(token))
        return None if row is None else (visitor_of(row), token)
