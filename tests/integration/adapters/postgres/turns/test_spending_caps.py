"""Spending caps on real Postgres: many rivals at the edge, a day that ends, processes that die."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from shared.core.session.turns import Caps, Claim
from shared.core.values.errors import CapReached
from tests.integration.adapters.postgres.turns.capped_claims import (
    ONE_CLAIM,
    caps,
    claim_of,
    day_of,
    end,
    sessions_of,
)
from tests.kit.app_driver import Visit
from tests.kit.dashboard.seed import ADD_UP

RIVALS = 100


async def claimed_at_once(found: Sequence[Visit], limits: Caps) -> list[Claim]:
    return list(await asyncio.gather(*(claim_of(one, limits) for one in found)))


@pytest.mark.control("S28")
async def test_hundred_sessions_stay_below_the_total_cap(guest: Visit) -> None:
    found = await sessions_of(guest, RIVALS)
    limits = caps(total=10 * ONE_CLAIM + ONE_CLAIM // 2)
    claims = await claimed_at_once(found, limits)
    assert sum(claim.reservation_id is not None for claim in claims) == 10
    assert {claim.refused_scope for claim in claims} == {None, "total"}
    assert await day_of(guest, "total") == (10 * ONE_CLAIM, 0)
    await asyncio.gather(*(end(one, claim, 0) for one, claim in zip(found, claims, strict=True)))
    assert await day_of(guest, "total") == (0, 0)


@pytest.mark.control("S28")
async def test_hundred_sessions_of_one_person_stay_below_the_personal_cap(guest: Visit) -> None:
    found = await sessions_of(guest, RIVALS, one_contact=True)
    limits = caps(person=20 * ONE_CLAIM, visitor=20 * ONE_CLAIM, session=2 * ONE_CLAIM, total=10**9)

    async def one_turn(one: Visit) -> bool:
        claim = await claim_of(one, limits)
        refused = claim.refused_scope is not None
        await end(one, claim, 0 if refused else ONE_CLAIM)
        return refused

    refused = await asyncio.gather(*(one_turn(one) for one in found))
    held, spent = await day_of(guest, "contact:%")
    assert (held, spent) == (0, 20 * ONE_CLAIM)
    assert sum(refused) == RIVALS - 20
    assert await day_of(guest, "total") == (0, 20 * ONE_CLAIM)


@pytest.mark.control("S28", "S30")
async def test_turns_and_background_calls_share_one_lid(guest: Visit) -> None:
    found = await sessions_of(guest, 40)
    limits = caps(total=15 * ONE_CLAIM)
    turns = guest.app.stores.turns

    async def in_background(one: Visit) -> int | None:
        try:
            return await turns.reserve(one.session_id, ONE_CLAIM, caps=limits)
        except CapReached:
            return None

    claims, jobs = await asyncio.gather(
        claimed_at_once(found, limits), asyncio.gather(*(in_background(one) for one in found))
    )
    granted = [claim.reservation_id for claim in claims if claim.refused_scope is None]
    granted += [job for job in jobs if job is not None]
    assert len(granted) == 15
    assert await day_of(guest, "total") == (15 * ONE_CLAIM, 0)
    # Each settles for more than it had reserved: what follows finds the cap exceeded by that alone.
    for id_ in granted:
        assert id_ is not None
        await turns.release_reservation(id_, spent_micro=ONE_CLAIM + 5)
    assert await day_of(guest, "total") == (0, 15 * (ONE_CLAIM + 5))
    assert await in_background(guest) is None
    for one, claim in zip(found, claims, strict=True):
        await end(one, claim, 0)


@pytest.mark.control("S28")
async def test_visitors_of_one_network_share_its_cap_however_many_they_are(guest: Visit) -> None:
    """Forty-nine visitors from one address, each with money of their own, and a few from another."""
    found = await sessions_of(guest, 52)
    for visitor, network in zip(found, ["ab" * 16] * 49 + ["cd" * 16] * 3, strict=True):
        await comes_from(visitor, network)
    limits = caps(visitor=ONE_CLAIM, network=3 * ONE_CLAIM, total=10**9)
    claims = await claimed_at_once(found, limits)
    granted = [claim.refused_scope is None for claim in claims]
    assert (sum(granted[:49]), sum(granted[49:])) == (3, 3)
    assert {claim.refused_scope for claim in claims} == {None, f"network:{'ab' * 16}"}
    await asyncio.gather(*(end(one, claim, 0) for one, claim in zip(found, claims, strict=True)))
    assert await day_of(guest, "network:%") == (0, 0)


@pytest.mark.control("S28")
async def test_all_visitors_together_have_a_share_of_the_day_in_an_hour(guest: Visit) -> None:
    found = await sessions_of(guest, 6)
    await guest.app.pool.execute(
        "UPDATE contacts SET anonymous = false WHERE id = (SELECT contact_id FROM sessions WHERE id = $1)",
        guest.session_id,
    )
    limits = caps(hour=4 * ONE_CLAIM, total=10**9)
    await guest.say("Hello")
    known = await claim_of(guest, limits)
    claims = await claimed_at_once(found, limits)
    assert sum(claim.refused_scope is None for claim in claims) == 4
    assert known.refused_scope is None
    assert await day_of(guest, "visitors:%") == (4 * ONE_CLAIM, 0)
    for one, claim in zip((guest, *found), (known, *claims), strict=True):
        await end(one, claim, 0)
    assert await day_of(guest, "visitors:%") == (0, 0)


async def test_sign_in_or_removed_cap_keeps_books_balanced(
    guest: Visit,
) -> None:
    await guest.say("Hello")
    await comes_from(guest, "ab" * 16)
    limits = caps(visitor=10**9, network=10**9, hour=10**9, total=10**9)
    claim = await claim_of(guest, limits)
    assert claim.reservation_id is not None
    await guest.app.pool.execute("UPDATE contacts SET anonymous = false, network = NULL, network_at = NULL")
    await guest.app.stores.turns.raise_reservation(
        claim.reservation_id, 2 * ONE_CLAIM, caps=caps(total=10**9)
    )
    assert await day_of(guest, "network:%") == await day_of(guest, "contact:%") == (2 * ONE_CLAIM, 0)
    await end(guest, claim, 70)
    for scope in ("network:%", "visitors:%", "contact:%", "total"):
        assert await day_of(guest, scope) == (0, 70)


async def comes_from(guest: Visit, network: str) -> None:
    await guest.app.pool.execute(
        """UPDATE contacts SET network = $2, network_at = now()
            WHERE id = (SELECT contact_id FROM sessions WHERE id = $1)""",
        guest.session_id, network,
    )  # fmt: skip


@pytest.mark.control("S28")
async def test_a_turn_that_grows_sets_more_aside_or_is_refused_whole(guest: Visit) -> None:
    await guest.say("Hello")
    limits = caps(session=3 * ONE_CLAIM, total=5 * ONE_CLAIM)
    claim = await claim_of(guest, limits)
    assert claim.reservation_id is not None
    await guest.app.stores.turns.raise_reservation(claim.reservation_id, 2 * ONE_CLAIM, caps=limits)
    assert await day_of(guest, "total") == await day_of(guest, "session:%") == (2 * ONE_CLAIM, 0)
    await guest.app.stores.turns.raise_reservation(claim.reservation_id, ONE_CLAIM, caps=limits)
    with pytest.raises(CapReached) as refused:
        await guest.app.stores.turns.raise_reservation(claim.reservation_id, 4 * ONE_CLAIM, caps=limits)
    assert refused.value.scope == "session"
    assert await day_of(guest, "total") == await day_of(guest, "session:%") == (2 * ONE_CLAIM, 0)
    await end(guest, claim, 70)
    assert await day_of(guest, "total") == (0, 70)


async def test_an_agents_own_caps_hold_where_they_are_smaller(guest: Visit) -> None:
    pool, limits = guest.app.pool, caps(person=10**9, visitor=10**9, session=ONE_CLAIM)
    for written, scope in (
        ('{"caps": {"person_per_day_usd": 0.000001}}', "contact"),
        ('{"caps": {"session_usd": 0.000001}}', "session"),
        ('{"caps": {"session_usd": "lots", "person_per_day_usd": null}}', None),
        ('{"caps": [1]}', None),
        ('{"caps": {"session_usd": 1e300, "person_per_day_usd": 5}}', None),
    ):
        await pool.execute("UPDATE agents SET config = $1::text::jsonb", written)
        await guest.say("Hello")
        claim = await claim_of(guest, limits)
        assert (claim.refused_scope or "").partition(":")[0] == (scope or ""), written
        await end(guest, claim, 0)


async def test_turn_begun_before_midnight_is_settled_on_its_reservation_day(guest: Visit) -> None:
    await guest.say("Hello")
    claim = await claim_of(guest, caps(total=10**9))
    for table in ("reservations", "spend_days"):
        await guest.app.pool.execute(f"UPDATE {table} SET day = day - 1")
    assert claim.reservation_id is not None
    await guest.app.stores.turns.raise_reservation(
        claim.reservation_id, 2 * ONE_CLAIM, caps=caps(total=10**9)
    )
    await end(guest, claim, 70)
    rows = await guest.app.pool.fetch("SELECT reserved_micro, spent_micro FROM spend_days")
    assert [tuple(row) for row in rows] == [(0, 70)]


async def job_of(guest: Visit) -> int:
    job_id: int = await guest.one(
        """INSERT INTO jobs (kind, session_id, key, trigger) VALUES ('flush', $1, 'a key', 'limit')
           RETURNING id""",
        guest.session_id,
    )
    return job_id


async def pay(guest: Visit, job_id: int, micro: int) -> None:
    await guest.app.pool.execute(
        f"""WITH t AS (UPDATE session_totals SET cost_micro = cost_micro + $3 WHERE session_id = $1), u AS (
           INSERT INTO usage (session_id, contact_id, job_id, purpose, status, model, input_tokens,
                              output_tokens, cache_read_tokens, cache_write_tokens, cost_micro)
           SELECT id, contact_id, $2, 'flush', 'done', 'a-model', 0, 0, 0, 0, $3 FROM sessions WHERE id = $1
           RETURNING *) {ADD_UP}""",
        guest.session_id, job_id, micro,
    )  # fmt: skip


async def test_what_a_job_left_behind_is_not_charged_twice(guest: Visit) -> None:
    """Its first worker died in a call; the second has settled what the ledger holds."""
    limits, turns, job_id = caps(total=10**9), guest.app.stores.turns, await job_of(guest)
    lost = [await turns.reserve(guest.session_id, 1_000, caps=limits, job_id=job_id) for _ in range(2)]
    again = await turns.reserve(guest.session_id, 1_000, caps=limits, job_id=job_id)
    assert all(lost)
    assert again is not None
    await turns.release_reservation(again, spent_micro=400)
    await pay(guest, job_id, 400)
    await guest.app.pool.execute("UPDATE reservations SET created_at = now() - interval '21 minutes'")
    assert await guest.app.stores.jobs.sweep_reservations() == 2
    assert await day_of(guest, "total") == (0, 400)


async def test_job_reservation_is_freed_when_its_holders_lease_lapses(guest: Visit) -> None:
    limits, turns, job_id = caps(total=10**9), guest.app.stores.turns, await job_of(guest)
    worker: int = await guest.one("INSERT INTO workers (role, pid) VALUES ('worker', 1) RETURNING id")
    assert await guest.app.stores.jobs.claim_job(job_id, worker_id=worker) is not None
    await turns.reserve(guest.session_id, 1_000, caps=limits, job_id=job_id)
    await guest.app.pool.execute(
        """WITH j AS (UPDATE jobs SET started_at = started_at - interval '10 s')
           UPDATE reservations SET created_at = created_at - interval '9 s'"""
    )
    assert await guest.app.stores.jobs.sweep_reservations() == 0, "its holder lives and is at it"
    await guest.app.pool.execute("UPDATE workers SET beat = now() - interval '5 s' WHERE id = $1", worker)
    assert await guest.app.stores.jobs.sweep_reservations() == 1
    assert await day_of(guest, "total") == (0, 0)


async def test_new_job_attempt_releases_the_former_reservation(guest: Visit) -> None:
    limits, turns, job_id = caps(total=10**9), guest.app.stores.turns, await job_of(guest)
    await turns.reserve(guest.session_id, 1_000, caps=limits, job_id=job_id)
    await guest.app.pool.execute("UPDATE reservations SET created_at = created_at - interval '9 s'")
    assert await guest.app.stores.jobs.claim_job(job_id, worker_id=guest.app.worker_id) is not None
    assert await guest.app.stores.jobs.sweep_reservations() == 1
    assert await day_of(guest, "total") == (0, 0)


@pytest.mark.control("S30")
async def test_what_a_job_has_used_and_not_settled_is_charged_once(guest: Visit) -> None:
    limits, turns, job_id = caps(total=10**9), guest.app.stores.turns, await job_of(guest)
    for _ in range(2):
        await turns.reserve(guest.session_id, 1_000, caps=limits, job_id=job_id)
    await pay(guest, job_id, 700)
    await guest.app.pool.execute("UPDATE reservations SET created_at = now() - interval '21 minutes'")
    assert await guest.app.stores.jobs.sweep_reservations() == 2
    assert await day_of(guest, "total") == (0, 700)


async def test_cap_warning_comes_once_per_day_and_scope(guest: Visit) -> None:
    found = await sessions_of(guest, 8)
    limits, notice = (
        caps(visitor=10 * ONE_CLAIM, total=10 * ONE_CLAIM),
        {"text": "Most is used.", "waiting": True},
    )
    first, *others = found
    claims = await claimed_at_once(found, limits)
    assert sum(claim.near_caps for claim in claims) == 1
    await end(first, claims[0], 8 * ONE_CLAIM)
    for one, claim in zip(others, claims[1:], strict=True):
        await end(one, claim, 0)
    told = await asyncio.gather(
        *(
            guest.app.stores.turns.record_spending_warning(claims[0], caps=limits, notice=notice)
            for _ in range(5)
        )
    )
    warned = [one for one in told if one is not None]
    assert [one.scopes for one in warned] == [("contact", "total")]
    assert warned[0].payload["text"] == "Most is used."
    await first.say("Again")
    again = await claim_of(first, limits)
    assert not again.near_caps
    await end(first, again, 0)
