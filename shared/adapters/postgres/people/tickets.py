"""Store of tickets, one-time codes that open an event stream, whose address may contain no secret."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.adapters.postgres.people.visitors import VisitorRow, build_visitor, generate_token

TICKET_SECONDS = 30
"""Seconds for which a ticket is valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketHolder:
    """Visitor for whom a ticket was issued, and the options of the stream stored with it.

    `wishes` are these options, empty if none were stored.
    """

    row: VisitorRow
    wishes: Mapping[str, Any]


class PostgresTickets(PoolStore):
    """Store of tickets, shared by all web processes.

    Each method is one transaction and raises StorageUnavailable.
    """

    @store_method
    async def issue(self, row: VisitorRow, wishes: Mapping[str, Any]) -> str:
        """Store a new ticket of a visitor, valid for TICKET_SECONDS, and return it; only its hash is stored.

        `wishes` are options of the stream, which `redeem` returns.
        """
        ticket = generate_token()
        await self._pool.execute(
            *_ISSUE(
                code_hash=_hash(ticket), contact_id=row.contact_id, address_id=row.address_id,
                wishes=dict(wishes), seconds=TICKET_SECONDS,
            ),
        )  # fmt: skip
        return ticket

    @store_method
    async def redeem(self, ticket: str) -> TicketHolder | None:
        """Use up a ticket and return its holder.

        Returns None if it is unknown, expired or used, or its address has no valid token.
        """
        row = await self._pool.fetchrow(*_REDEEM(code_hash=_hash(ticket)))
        return None if row is None else TicketHolder(row=build_visitor(row), wishes=row["wishes"] or {})


_REDEEM = Named("""
WITH c AS (
  UPDATE one_time_codes SET used_at = now()
   WHERE code_hash = :code_hash AND purpose = 'stream' AND used_at IS NULL AND expires_at > now()
  RETURNING address_id, wishes
)
SELECT c.wishes, w.name AS site, w.audience, a.contact_id, a.id AS address_id, a.session_id, s.public_id,
       v.identified, a.chat AS place
  FROM c JOIN addresses a ON a.id = c.address_id JOIN sessions s ON s.id = a.session_id
  JOIN sites w ON w.name = a.account
  JOIN LATERAL (
       SELECT v.identified FROM visitors v JOIN addresses m ON m.id = v.address_id
        WHERE m.channel = a.channel AND m.account = a.account AND m.chat = a.chat AND v.expires_at > now()
        LIMIT 1) v ON true
""")
"""Use up a ticket; only the first use returns a row."""


def _hash(ticket: str) -> bytes:
    return hashlib.sha256(ticket.encode()).digest()


_ISSUE = Named("""
INSERT INTO one_time_codes (code_hash, purpose, contact_id, address_id, wishes, expires_at)
VALUES (:code_hash, 'stream', :contact_id, :address_id, :wishes, now() + make_interval(secs => :seconds))
""")
