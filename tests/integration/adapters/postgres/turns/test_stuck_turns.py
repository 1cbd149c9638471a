"""A turn that a living process holds and does not know is found by the invariants, and operators are told."""

from __future__ import annotations

import pytest

from shared.adapters.postgres.dashboard.alerts import PostgresAlerts, Rules
from shared.adapters.postgres.operations.invariants import check_invariants
from tests.kit.app_driver import Visit
from tests.kit.midday import MIDDAY

FORGOTTEN = """
WITH w AS (
  INSERT INTO workers (role, pid, health) VALUES ('web', 1, '{"turns": []}') RETURNING id
), t AS (
  UPDATE turns SET state = 'claimed', epoch = 1, attempt = 1, claimed_at = now() WHERE session_id = $1
)
UPDATE sessions SET leased_by = w.id, leased_at = now() - interval '16 s', turn_epoch = 1, open_turn = NULL
  FROM w WHERE sessions.id = $1 RETURNING w.id
"""
AT_ONCE = FORGOTTEN.replace("leased_at = now() - interval '16 s'", "leased_at = NULL").replace(
    "claimed_at = now()", "claimed_at = now() - interval '16 s'"
)
"""Claimed with its message: the turn has the time."""
KNOWN = "UPDATE workers SET health = jsonb_build_object('turns', jsonb_build_array($2::bigint)) WHERE id = $1"


async def found(guest: Visit) -> tuple[list[str], list[str]]:
    """What the invariants say, and which alerts are open."""
    rules = Rules(timezone=MIDDAY, cap_micro=None, handover_seconds=0.0, over_seconds=0.0)
    await PostgresAlerts(guest.app.pool).sweep(rules, worker_id=guest.app.worker_id, targets=())
    rows = await guest.app.pool.fetch(
        "SELECT kind FROM alerts WHERE ended_at IS NULL AND kind = 'stuck_turn'"
    )
    async with guest.app.pool.acquire() as connection:
        broken = await check_invariants(connection)  # type: ignore[arg-type]
    return [one.what for one in broken if "does not work on it" in one.what], [row["kind"] for row in rows]


@pytest.mark.parametrize("claimed", [FORGOTTEN, AT_ONCE])
async def test_turn_forgotten_by_its_living_holder_is_reported(guest: Visit, claimed: str) -> None:
    await guest.say("Hello?")
    assert await found(guest) == ([], [])
    holder = await guest.one(claimed, guest.session_id)
    assert await found(guest) == (
        ["a turn is leased by a living process that does not work on it"],
        ["stuck_turn"],
    )
    await guest.app.pool.execute(KNOWN, holder, guest.session_id)
    assert await found(guest) == ([], [])
    await guest.app.pool.execute("UPDATE workers SET stopped_at = now() WHERE id = $1", holder)
    await guest.answered()
