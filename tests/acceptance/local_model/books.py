"""What Postgres and the model's server say of a conversation once it has come to rest."""

from __future__ import annotations

import asyncpg

from shared.adapters.postgres.operations.invariants import Violation, check_activity, check_invariants
from tests.kit.replay.evidence import DatabaseProbe, Evidence

SQL_SECONDS = 20.0

_LARGEST = "SELECT coalesce(max(input_tokens + cache_read_tokens + cache_write_tokens), 0) FROM usage"
_CALLS = "SELECT purpose, count(*) AS calls FROM usage GROUP BY purpose ORDER BY purpose"
_GIVEN_UP = "SELECT count(*) FROM jobs WHERE state = 'dead' AND trigger <> 'upgrade'"
_BASE = "SELECT base_turn FROM sessions WHERE public_id = $1::uuid"
_SESSION = """
SELECT s.public_id::text FROM sessions s JOIN entries e ON e.session_id = s.id WHERE e.cid = $1
"""


class Books:
    """`async with Books(database_url) as books`; reads only."""

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url

    async def __aenter__(self) -> Books:
        self._witness = await DatabaseProbe.connect(self._database_url)
        self._connection = await asyncpg.connect(self._database_url, timeout=60)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close(timeout=30)
        await self._witness.close()

    async def at_rest(self, session: str) -> Evidence:
        """When no job is due any more."""
        assert await self._witness.wait_for_jobs([session]) == 0
        evidence = await self._witness.collect(session)
        assert evidence is not None
        return evidence

    async def session_of(self, cid: str) -> str:
        """The public id of the session that a message was said in."""
        return str(await self._connection.fetchval(_SESSION, cid, timeout=SQL_SECONDS))

    async def base_turn(self, session: str) -> int:
        """Up to here a summary stands in for what was said."""
        return int(await self._connection.fetchval(_BASE, session, timeout=SQL_SECONDS))

    async def largest_request(self) -> int:
        """As the model's server counted it, the silent jobs' requests included."""
        return int(await self._connection.fetchval(_LARGEST, timeout=SQL_SECONDS))

    async def given_up(self) -> int:
        """Jobs that are dead, but for those that tried to write a summary in a digest's place: it stays."""
        return int(await self._connection.fetchval(_GIVEN_UP, timeout=SQL_SECONDS))

    async def calls(self) -> dict[str, int]:
        rows = await self._connection.fetch(_CALLS, timeout=SQL_SECONDS)
        return {row["purpose"]: row["calls"] for row in rows}

    async def broken_promises(self) -> list[Violation]:
        return [*await check_invariants(self._connection), *await check_activity(self._connection)]
