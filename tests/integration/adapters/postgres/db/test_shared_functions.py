"""Functions of the database that several statements call, beside the constants of the code."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

import pytest

from shared.adapters.postgres.db.leases import LEASE_SECONDS
from shared.core.compaction.jobs import LATE
from shared.core.session.channels import GUEST_CHANNEL, SECRETARY_CHANNEL
from shared.core.session.turns import GUEST_NETWORK, SECRETARY_NETWORK, Caps

CAPS = Caps(
    visitor=1, person=2, session=3, total=4, network=5, visitors_hour=6, guests=7, secretary=8, customer=9
)


@pytest.mark.parametrize(
    ("silent_seconds", "is_alive"), [(LEASE_SECONDS - 1, True), (LEASE_SECONDS + 0.1, False)]
)
async def test_worker_is_alive_until_its_leases_lapse(
    pool: Any, silent_seconds: float, is_alive: bool
) -> None:
    beat = f"now() - interval '{silent_seconds} s'"
    await pool.execute(f"INSERT INTO workers (role, pid, beat) VALUES ('web', 1, {beat}), ('bot', 2, {beat})")
    await pool.execute("UPDATE workers SET stopped_at = now() WHERE role = 'bot'")
    alive = [row["role"] for row in await pool.fetch("SELECT role FROM workers w WHERE worker_is_alive(w)")]
    assert alive == (["web"] if is_alive else [])


@pytest.mark.parametrize(
    ("network", "anonymous", "hour", "caps"),
    [
        (None, False, None, {"person": 2, "session": 3, "total": 4}),
        ("10.1.2.0/24", True, "09", {"person": 1, "session": 3, "total": 4, "network": 5, "visitors": 6}),
        (GUEST_NETWORK, True, None, {"person": 1, "session": 3, "total": 4, "network": 7}),
        (f"{SECRETARY_NETWORK}5", False, None, {"person": 9, "session": 3, "total": 4, "network": 8}),
    ],
)
async def test_each_scope_of_a_call_has_its_cap(
    pool: Any, network: str | None, anonymous: bool, hour: str | None, caps: dict[str, int]
) -> None:
    rows = await pool.fetch(
        "SELECT * FROM spending_caps($1, '{}'::jsonb, 17, 4, $2, $3, $4)",
        CAPS.limits,
        anonymous,
        network,
        hour,
    )
    scopes = {row["scope"].partition(":")[0]: row["cap"] for row in rows}
    scopes["person"] = scopes.pop("contact")
    assert scopes == caps


async def test_smaller_cap_of_deployment_and_agent_holds(pool: Any) -> None:
    config = {"caps": {"person_per_day_usd": 0.000001, "session_usd": 5}}
    rows = await pool.fetch(
        "SELECT * FROM spending_caps($1, $2, 17, 4, false, NULL, NULL)", CAPS.limits, config
    )
    assert {row["scope"]: row["cap"] for row in rows} == {"contact:17": 1, "session:4": 3, "total": 4}


async def test_traits_of_a_session_are_planned_as_a_part_of_their_statement(pool: Any) -> None:
    rows = await pool.fetch(
        """EXPLAIN SELECT traits.* FROM sessions s
             CROSS JOIN LATERAL session_traits(s.id, s.contact_id, true) traits WHERE s.id = 1"""
    )
    plan = "\n".join(row[0] for row in rows)
    assert "Function Scan" not in plan
    assert "addresses" in plan


async def test_shared_conditions_are_planned_as_a_part_of_their_statement(pool: Any) -> None:
    for statement in (
        "SELECT note_state(n) FROM notes n",
        "SELECT name FROM operators o WHERE may_write(o)",
        """SELECT p.seq - m.shift
             FROM copied_ranges('[]') m
             JOIN pins p ON p.session_id = 1 AND p.seq BETWEEN m.first AND m.last""",
        "SELECT t.bot_id FROM telegram_chats_of('{1}') c JOIN telegram_access t ON t.bot_id = c.bot_id",
    ):
        rows = await pool.fetch(f"EXPLAIN (VERBOSE) {statement}")
        plan = "\n".join(row[0] for row in rows)
        assert not re.search("note_state|may_write|copied_ranges|telegram_chats_of", plan), plan


async def test_chats_of_a_person_differ_by_caller_and_owner(pool: Any) -> None:
    contact = await pool.fetchval("INSERT INTO contacts DEFAULT VALUES RETURNING id")
    agent = await pool.fetchval("INSERT INTO agents (name) VALUES ('a') RETURNING id")
    session = await pool.fetchval(
        "INSERT INTO sessions (contact_id, agent_id) VALUES ($1, $2) RETURNING id", contact, agent
    )
    for channel, account, chat in (
        ("telegram", "7", "41"),
        (GUEST_CHANNEL, "7", "42:51"),
        (SECRETARY_CHANNEL, "7", "61:43"),
        ("web", "site", "44"),
    ):
        await pool.execute(
            """INSERT INTO addresses (channel, account, chat, contact_id, session_id)
               VALUES ($1, $2, $3, $4, $5)""",
            channel,
            account,
            chat,
            contact,
            session,
        )
    rows = await pool.fetch("SELECT * FROM telegram_chats_of($1) ORDER BY chat_id", [contact])
    assert [tuple(row) for row in rows] == [
        (7, "41", None, None),
        (7, "42", "51", None),
        (7, "43", None, "61"),
    ]


@pytest.mark.parametrize(
    "calls",
    [
        "sessions s, session_state(s.id, s.answered_turn, s.next_turn, s.leased_by, s.troubled_at) x",
        "sessions s, session_title(s.id, s.head) x",
        "sessions s, newest_call(s.id) x",
        "contacts s, family_ids(s.id) x",
        "contacts s, family_sums(ARRAY[s.id]) x",
        "session_list s, person_last_active_in(s.id, s.contact_id) x",
    ],
)
async def test_shared_function_is_planned_as_a_part_of_its_statement(pool: Any, calls: str) -> None:
    rows = await pool.fetch(f"EXPLAIN (VERBOSE) SELECT x.* FROM {calls} WHERE s.id = 1")
    assert "Function Scan" not in "\n".join(row[0] for row in rows)


async def test_ids_that_begin_with_a_search_are_found_by_their_index(pool: Any) -> None:
    rows = await pool.fetch("SELECT lowest_id(w), highest_id(w) FROM unnest('{12A-b,xyz,12}'::text[]) w")
    zeros, last = "0" * 28, "f" * 28
    assert [tuple(row) for row in rows] == [
        (UUID(f"12ab{zeros}"), UUID(f"12ab{last}")),
        (None, None),
        (UUID(f"1200{zeros}"), UUID(f"12ff{last}")),
    ]
    plan = await pool.fetch("EXPLAIN (VERBOSE) SELECT lowest_id(display_name) FROM contacts")
    assert "lowest_id" not in "\n".join(row[0] for row in plan)


async def test_sessions_of_an_alert_are_named_up_to_a_limit(pool: Any) -> None:
    await pool.execute("INSERT INTO contacts DEFAULT VALUES")
    ids = await pool.fetch(
        """INSERT INTO sessions (contact_id, agent_id)
           SELECT p.id, a.id FROM contacts p, (SELECT id FROM agents LIMIT 1) a, generate_series(1, 3)
           RETURNING public_id::text"""
    )
    names = sorted(row["public_id"] for row in ids)
    assert await pool.fetchval("SELECT name_sessions('[1, 2, 3, 99]', 2)") == ", ".join(names[:2])
    assert await pool.fetchval("SELECT name_sessions('[]', 2)") is None


@pytest.mark.parametrize(("trigger", "may_cancel"), [("auto", True), (LATE, False)])
async def test_late_flush_cannot_be_cancelled(pool: Any, trigger: str, may_cancel: bool) -> None:
    await pool.execute("INSERT INTO contacts DEFAULT VALUES")
    await pool.execute(
        "INSERT INTO sessions (contact_id, agent_id) SELECT p.id, a.id FROM contacts p, agents a LIMIT 1"
    )
    await pool.execute(
        "INSERT INTO jobs (session_id, kind, key, trigger) VALUES (1, 'flush', 'flush:1:1', $1)", trigger
    )
    assert await pool.fetchval("SELECT may_cancel FROM job_options") is may_cancel
