"""The codes of an authenticator app, by the clock of the database that checks them."""

from __future__ import annotations

import asyncio
import base64

import asyncpg

from shared.core.identity.totp import STEP_SECONDS, code_at, step_of

LEAST_SECONDS = 6
"""Least seconds that a code must still be valid, so that a slow machine can enter it."""


async def one_time_code(pool: asyncpg.Pool[asyncpg.Record], key: str, *, later: int = 0) -> str:
    """Return the code that is valid `later` steps from now.

    For a past step, waits until enough of the present step is left.
    """
    while True:
        seconds = await pool.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
        left = STEP_SECONDS - seconds % STEP_SECONDS
        if later >= 0 or left > LEAST_SECONDS:
            return code_at(base64.b32decode(key.replace(" ", "")), step_of(seconds) + later)
        await asyncio.sleep(left)
