"""Inserts people with notes in all states, with linked browsers and channels."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from tests.kit.dashboard import seed
from tests.kit.dashboard.seed import HOSTILE, Seeded

if TYPE_CHECKING:
    from shared.adapters.postgres.db.pool import Pool
    from tests.kit.dashboard.seed import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowded:
    """Seeded people: Maria on Telegram with four notes, Jo with a linked second browser, and one with a
    hostile name.
    """

    maria: Seeded
    jo: Seeded
    joined: Seeded
    hostile: Seeded
    notes: dict[str, UUID]


async def a_note(
    connection: Connection, seeded: Seeded, text: str, *, kind: str = "fact", authority: str = "person",
    turn: int | None = 1,
) -> UUID:  # fmt: skip
    note: UUID = await connection.fetchval(
        """INSERT INTO notes (contact_id, scope, kind, text, session_id, from_turn, through_turn, authority,
                              hash)
           VALUES ($1, 'default', $2, $3, $4, $5, $5, $6, $7) RETURNING public_id""",
        seeded.contact_id, kind, text, seeded.session_id, turn, authority,
        hashlib.sha256(f"{seeded.contact_id}/{text}".encode()).digest(),
    )  # fmt: skip
    return note


async def public_id_of(connection: Connection | Pool, seeded: Seeded) -> UUID:
    found: UUID = await connection.fetchval("SELECT public_id FROM contacts WHERE id = $1", seeded.contact_id)
    return found


async def people(connection: Connection) -> Crowded:
    maria = await seed.a_session(
        connection, person="Maria", channel="telegram", turns=5, tokens=(900, 100, 7_000, 2_000),
        cost_micro=12_000, minutes_ago=3,
    )  # fmt: skip
    await connection.execute("UPDATE addresses SET account = '777' WHERE id = $1", maria.address_id)
    jo = await seed.a_session(connection, person="Jo", turns=2, minutes_ago=50, cost_unknown_calls=2)
    joined = await seed.a_session(
        connection, turns=4, tokens=(50, 5, 0, 0), cost_micro=700, cost_unknown_calls=1, minutes_ago=10
    )
    await connection.execute(
        "UPDATE contacts SET merged_into = $2 WHERE id = $1", joined.contact_id, jo.contact_id
    )
    hostile = await seed.a_session(connection, person=HOSTILE, turns=1, minutes_ago=90)
    notes = {
        "trip": await a_note(connection, maria, "Plans a trip to Lisbon in May", kind="plan"),
        "page": await a_note(connection, maria, "A page said that she likes rain", authority="tool", turn=2),
        "jo": await a_note(connection, jo, "Jo drives a red bus", turn=None),
        "joined": await a_note(connection, joined, "Has a cat called Miso", kind="profile"),
        "hostile": await a_note(connection, hostile, HOSTILE),
    }
    return Crowded(maria=maria, jo=jo, joined=joined, hostile=hostile, notes=notes)


async def a_bot(connection: Connection) -> None:
    """Insert a bot, and people with each state of access: requested, expired, allowed, and one with a hostile
    name.
    """
    await connection.execute(
        """INSERT INTO telegram_bots (bot_id, username, agent_id, mode, access)
           VALUES (777, 'ever_bot', $1, 'polling', 'pairing') ON CONFLICT DO NOTHING""",
        await seed.an_agent(connection),
    )
    await connection.execute(
        """INSERT INTO telegram_access (bot_id, chat_id, state, owner, name, username, code, asked_at,
                                        decided_at)
           VALUES (777, 4001, 'pending', false, 'Nadia', 'nadia', 'ABCD2345', now(), NULL),
                  (777, 4002, 'pending', false, 'Late', '', 'WXYZ6789', now() - interval '3 h', NULL),
                  (777, 4003, 'allowed', true, 'Owner', 'owner', NULL, now() - interval '9 d', now()),
                  (777, -4004, 'pending', false, $1, '', 'HHHH2222', now() - interval '5 min', NULL)""",
        HOSTILE,
    )


async def a_site(connection: Connection) -> None:
    await connection.execute(
        """INSERT INTO sites (name, agent_id, audience, allowed_origins, config)
           VALUES ('shop', $1, 'public', '{https://shop.example.org}',
                   '{"title": "The Shop", "welcome": "Hello at the shop",
                     "starters": ["Where is my order?"]}')""",
        await seed.an_agent(connection),
    )
