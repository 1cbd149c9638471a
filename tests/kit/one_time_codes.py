"""The code that somebody's telephone would show, by the clock of the database that judges it."""

from __future__ import annotations

import asyncio
import base64

import asyncpg

from shared.core.identity.totp import STEP_SECONDS, code_at, step_of

LEAST_SECONDS = 6
"""To bring a code in, on a busy machine."""


async def one_time_code(pool: asyncpg.Pool[asyncpg.Record], key: str, *, later: int = 0) -> str:
    """That of so many steps from now; the one before is good only as long as this one lasts."""
    while True:
        seconds = await pool.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
        left = STEP_SECONDS - seconds % STEP_SECONDS
        if later >= 0 or left > LEAST_SECONDS:
            return code_at(base64.b32decode(key.replace(" ", "")), step_of(seconds) + later)
        await asyncio.sleep(left)
