"""State of Telegram bots for operators: who serves each bot, and how many deliveries are uncertain."""

from __future__ import annotations

from dataclasses import dataclass

from shared.adapters.postgres.db.pool import PoolStore, store_method


@dataclass(frozen=True, slots=True, kw_only=True)
class BotState:
    """Telegram bot with its state, for operators.

    `access` is pairing, allowlist or open, and `mode` is polling or webhook.
    """

    bot_id: int
    username: str
    access: str
    mode: str
    problem: str
    """Problem of the bot for operators; "" if there is none."""
    served_by: int | None
    """System's process id of the living process that serves the bot; None if there is none."""
    uncertain: int
    """Parts of answers of the last 30 days whose delivery is uncertain."""


class PostgresTelegramBots(PoolStore):
    """Read-only queries of bots. They raise StorageUnavailable."""

    @store_method
    async def list_bots(self) -> list[BotState]:
        """Return all bots that were ever enrolled, ordered by id."""
        return [BotState(**dict(row)) for row in await self._pool.fetch(_BOTS)]


_BOTS = """
SELECT b.bot_id, b.username, b.access, b.mode, b.problem, w.pid AS served_by,
       (SELECT count(*) FROM deliveries d JOIN addresses a ON a.id = d.address_id
         WHERE d.channel = 'telegram' AND d.state = 'uncertain' AND a.account = b.bot_id::text
           AND d.created_at > now() - interval '30 days') AS uncertain
  FROM telegram_bots b
  LEFT JOIN leases l ON l.name = 'telegram:' || b.bot_id
  LEFT JOIN workers w ON w.id = l.leased_by AND worker_is_alive(w)
 ORDER BY b.bot_id
"""
