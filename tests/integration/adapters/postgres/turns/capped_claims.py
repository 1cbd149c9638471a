"""Claims under caps, and what a day's books say."""

from __future__ import annotations

from shared.adapters.postgres.turns.turns import PostgresTurns
from shared.core.session.turns import Caps, Claim, Outcome, Spending
from shared.core.values.messages import Text
from tests.kit.app_driver import Visit, visit
from tests.kit.midday import MIDDAY

ONE_CLAIM = 6_000
"""What a claim sets aside at one micro-dollar per token: 2,000 at least, and 4,000 for what is new."""


def caps(
    *,
    total: int | None = None,
    person: int | None = None,
    visitor: int | None = None,
    session: int | None = None,
    network: int | None = None,
    hour: int | None = None,
) -> Caps:
    return Caps(
        total=total, person=person, visitor=visitor, session=session, network=network, visitors_hour=hour,
        timezone=MIDDAY,
    )  # fmt: skip


def cost(micro: int) -> tuple[Spending, ...]:
    return (
        Spending(
            model="a-model", input_tokens=1, output_tokens=1, cache_read_tokens=0, cache_write_tokens=0,
            known=True, cost_micro=micro,
        ),
    )  # fmt: skip


async def sessions_of(guest: Visit, number: int, *, one_contact: bool = False) -> list[Visit]:
    found = [await visit(guest.app) for _ in range(number)]
    if one_contact:
        await guest.app.pool.execute(
            "UPDATE sessions SET contact_id = (SELECT min(contact_id) FROM sessions)"
        )
        await guest.app.pool.execute(
            "UPDATE addresses SET contact_id = (SELECT min(contact_id) FROM sessions)"
        )
    for one in found:
        await one.say("Hello")
    return found


async def claim_of(guest: Visit, limits: Caps) -> Claim:
    claim = await guest.app.stores.turns.claim(
        guest.session_id, channel="web", worker_id=guest.app.worker_id, caps=limits,
        micro_per_input_token=1.0, micro_output=0.0,
    )  # fmt: skip
    assert claim is not None
    return claim


async def end(guest: Visit, claim: Claim, micro: int, *, turns: PostgresTurns | None = None) -> None:
    blocks = (Text(text="So it is."),) if micro else None
    await (turns or guest.app.stores.turns).record_answer(
        claim,
        Outcome(
            state="answered" if micro else "refused", blocks=blocks, tokens=1, screen={"text": "So it is."},
            spent=cost(micro) if micro else (), settled_micro=micro,
        ),
    )  # fmt: skip


async def day_of(guest: Visit, scope: str) -> tuple[int, int]:
    row = await guest.app.pool.fetchrow(
        "SELECT sum(reserved_micro)::bigint AS held, sum(spent_micro)::bigint AS spent FROM spend_days"
        " WHERE scope LIKE $1",
        scope,
    )
    assert row is not None
    return (row["held"] or 0, row["spent"] or 0)
