"""Store of reminders: stored once, started once as a turn, ended when delivered."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.adapters.postgres.memory.notes_sql import STILL_MINE
from shared.core.tools.reminders import (
    PENDING_AT_MOST,
    PER_HOUR,
    REPEATING_AT_MOST,
    DueReminder,
    NewReminder,
    Refusal,
    Reminder,
)
from shared.core.values.errors import LeaseLost
from shared.core.values.messages import Block, blocks_to_json

FAILED_SHOWN_DAYS = 30
"""Days for which a failed reminder stays in the list."""
_AT_ONCE = 50


class PostgresReminders(PoolStore):
    """Store of reminders; each method is one transaction and raises StorageUnavailable."""

    @store_method
    async def add(self, new: NewReminder) -> Refusal | None:
        """Store a reminder; return None if it is stored, also by an earlier call, else the refusal.

        Refusals: "public" for a public site or bot, "too_many" pending reminders, "too_many_repeat" repeating
        ones, and "crowded" with PER_HOUR reminders within an hour of the time. Raises LeaseLost if the turn
        was claimed again. Calls for one person wait for each other.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(*_LOCK(contact_id=new.contact_id))
            row = await connection.fetchrow(
                *_ROOM(key=new.key, contact_id=new.contact_id, due_at=new.due_at, address_id=new.address_id)
            )
            assert row is not None
            if row["known"]:
                return None
            if new.epoch and not await connection.fetchval(
                *STILL_MINE(session_id=new.session_id, epoch=new.epoch, turn=new.turn)
            ):
                raise LeaseLost(f"session {new.session_id}, epoch {new.epoch}")
            if row["audience"] == "public":
                return "public"
            if row["pending"] >= PENDING_AT_MOST:
                return "too_many"
            if new.repeat and row["repeating"] >= REPEATING_AT_MOST:
                return "too_many_repeat"
            if row["near"] >= PER_HOUR:
                return "crowded"
            await connection.execute(
                *_ADD(
                    key=new.key, contact_id=new.contact_id, session_id=new.session_id,
                    address_id=new.address_id,
                    text=new.text, due_at=new.due_at, repeat=new.repeat,
                ),
            )  # fmt: skip
        return None

    @store_method
    async def list_for_session(self, session_id: int) -> tuple[Reminder, ...]:
        """Return pending reminders of a session's person, soonest first, then failed ones.

        Failed ones are listed for FAILED_SHOWN_DAYS. Reminders of linked people are included.
        """
        rows = await self._pool.fetch(*_LIST(session_id=session_id, days=FAILED_SHOWN_DAYS))
        return tuple(Reminder(**dict(row)) for row in rows)

    @store_method
    async def cancel(self, session_id: int, reminder_id: int) -> bool:
        """Cancel a pending reminder; False if it is not of the session's person or no longer pending."""
        found = await self._pool.fetchval(
            *_CANCEL(session_id=session_id, reminder_id=reminder_id),
        )  # fmt: skip
        return found is not None

    @store_method
    async def pause(self, session_id: int, reminder_id: int) -> bool:
        """Pause a repeating reminder.

        Returns False if it is not of the session's person, does not repeat or is no longer pending.
        """
        found = await self._pool.fetchval(*_PAUSE(session_id=session_id, reminder_id=reminder_id))
        return found is not None

    @store_method
    async def resume(self, session_id: int, reminder_id: int, at: datetime) -> bool:
        """Resume a repeating reminder, due next at time `at`.

        Returns False if it is not of the session's person, does not repeat or is no longer pending.
        """
        found = await self._pool.fetchval(*_RESUME(session_id=session_id, reminder_id=reminder_id, at=at))
        return found is not None

    @store_method
    async def skip_until(self, reminder_id: int, at: datetime) -> None:
        """Move a pending reminder that cannot be delivered now to the time `at`.

        The person sees the new time.
        """
        await self._pool.execute(
            *_SKIP_UNTIL(reminder_id=reminder_id, at=at),
        )  # fmt: skip

    @store_method
    async def list_due(
        self, channel: str, *, accounts: Sequence[str] | None = None
    ) -> tuple[DueReminder, ...]:
        """Return at most 50 due reminders of a channel, without starting them.

        Reminders are left out while they are paused or an operator has the conversation. Also ends reminders
        whose turn was delivered ("done") or cannot be ("failed"). `accounts` are the channel's bots or sites;
        None means all.
        """
        named = None if accounts is None else list(accounts)
        rows = await self._pool.fetch(*_DUE(channel=channel, accounts=named, limit=_AT_ONCE))
        return tuple(DueReminder(**dict(row)) for row in rows)

    @store_method
    async def postpone_until(self, reminder_id: int, at: datetime) -> None:
        """Postpone the delivery of a pending reminder to `at`; the time shown to the person stays."""
        await self._pool.execute(*_POSTPONE_UNTIL(reminder_id=reminder_id, at=at))

    @store_method
    async def fail(self, reminder_id: int, reason: Literal["unreachable"]) -> None:
        """End a pending reminder as failed for this reason; no effect on another one."""
        await self._pool.execute(
            *_FAIL(reminder_id=reminder_id, reason=reason),
        )  # fmt: skip

    @store_method
    async def start_turn(
        self, reminder_id: int, *, blocks: Sequence[Block], tokens: int, again_at: datetime | None = None
    ) -> int | None:
        """Store a due reminder as a new turn, and its next repetition at `again_at`, in one commit.

        `again_at` None means no repetition; `tokens` is the estimate for `blocks`. Returns the session's id;
        None, without effect, if another process has started it, or if it is paused, not due, or its
        conversation is archived or with an operator. An open turn that still collects messages is closed, and
        answered first.
        """
        session_id: int | None = await self._pool.fetchval(
            *_BEGIN(reminder_id=reminder_id, blocks=blocks_to_json(blocks), tokens=tokens, again_at=again_at)
        )
        return session_id

    @store_method
    async def load_text(self, session_id: int, turn: int) -> str | None:
        """Return the text of the reminder that began a turn; None for other turns."""
        words: str | None = await self._pool.fetchval(*_LOAD_TEXT(session_id=session_id, turn=turn))
        return words

    @store_method
    async def count_overdue(self, minutes: int) -> int:
        """Return how many pending reminders are overdue by `minutes`.

        These wait for a process that serves their channel; paused ones and conversations with an operator do
        not count.
        """
        number: int = await self._pool.fetchval(
            *_COUNT_OVERDUE(minutes=minutes),
        )
        return number


_ROOM = Named("""
SELECT EXISTS (SELECT FROM reminders WHERE key = :key) AS known,
       (SELECT coalesce(b.audience, w.audience)
          FROM addresses a
          LEFT JOIN telegram_bots b ON a.channel = 'telegram' AND b.bot_id::text = a.account
          LEFT JOIN sites w ON a.channel = 'web' AND w.name = a.account
         WHERE a.id = :address_id) AS audience,
       count(*) AS pending, count(*) FILTER (WHERE repeat <> '') AS repeating,
       count(*) FILTER (WHERE due_at > :due_at::timestamptz - interval '1 hour'
                          AND due_at < :due_at::timestamptz + interval '1 hour') AS near
  FROM reminders WHERE state = 'pending' AND contact_id IN (SELECT contact_family(:contact_id))
""")
"""Count reminders for the limits on a new one, and whether the same one is stored."""
_ADD = Named("""
INSERT INTO reminders (key, contact_id, session_id, address_id, text, due_at, tell_at, repeat)
VALUES (:key, :contact_id, :session_id, :address_id, :text, :due_at, :due_at, :repeat)
""")
# Only a repeating reminder of the session's own person that has not started.
_PAUSE = Named("""
UPDATE reminders SET paused_at = coalesce(paused_at, now())
 WHERE id = :reminder_id AND state = 'pending' AND repeat <> '' AND contact_id IN (
       SELECT contact_family(s.contact_id) FROM sessions s WHERE s.id = :session_id)
RETURNING id
""")
_RESUME = Named("""
UPDATE reminders SET paused_at = NULL, due_at = :at, tell_at = :at
 WHERE id = :reminder_id AND state = 'pending' AND repeat <> '' AND contact_id IN (
       SELECT contact_family(s.contact_id) FROM sessions s WHERE s.id = :session_id)
RETURNING id
""")
_LIST = Named("""
SELECT r.id, r.text, r.due_at, r.state, r.reason, p.timezone, r.repeat, r.paused_at IS NOT NULL AS paused
  FROM sessions s JOIN contacts p ON p.id = s.contact_id
  JOIN reminders r ON r.contact_id IN (SELECT contact_family(s.contact_id))
 WHERE s.id = :session_id AND (r.state = 'pending'
                      OR r.state = 'failed' AND r.ended_at > now() - make_interval(days => :days))
 ORDER BY r.state = 'failed', r.due_at, r.id
""")
# On the web a stored message counts as shown, so a process that died before it noted that changes nothing.
_DUE = Named("""
WITH over AS (
  SELECT r.id, EXISTS (SELECT FROM deliveries d WHERE d.session_id = r.session_id AND d.turn_no = r.turn_no
                          AND d.state IN ('queued', 'sending', 'sent', 'dead')) AS is_dead
    FROM reminders r JOIN turns t ON t.session_id = r.session_id AND t.turn_no = r.turn_no
   WHERE r.state = 'claimed' AND t.ended_at IS NOT NULL AND NOT EXISTS (
         SELECT FROM deliveries d WHERE d.session_id = r.session_id AND d.turn_no = r.turn_no
            AND d.channel <> 'web' AND d.state IN ('queued', 'sending', 'sent')
            AND NOT EXISTS (SELECT FROM addresses a WHERE a.id = d.address_id
                               AND a.unreachable_since IS NOT NULL AND a.next_try_at IS NULL))
), ended AS (
  UPDATE reminders r
     SET state = CASE WHEN over.is_dead THEN 'failed' ELSE 'done' END,
         reason = CASE WHEN over.is_dead THEN 'unreachable' ELSE '' END, ended_at = now()
    FROM over WHERE r.id = over.id AND r.state = 'claimed'
)
SELECT r.id, r.text, r.created_at AS asked_at, r.due_at, now() AS now, p.timezone,
       a.unreachable_since IS NULL OR a.next_try_at IS NOT NULL AS reachable, r.repeat
  FROM reminders r JOIN addresses a ON a.id = r.address_id
  JOIN sessions s ON s.id = a.session_id JOIN contacts p ON p.id = s.contact_id
 WHERE r.state = 'pending' AND r.paused_at IS NULL AND r.tell_at <= now() AND a.channel = :channel
   AND s.held_after IS NULL
   AND (:accounts::text[] IS NULL OR a.account = ANY (:accounts))
 ORDER BY r.tell_at LIMIT :limit
""")
"""Select due reminders of a channel; end those whose turn has been delivered or never can be."""
_BEGIN = Named("""
WITH r AS (
  SELECT r.id, a.id AS address_id, a.channel, a.session_id, r.key, r.text, r.created_at, r.repeat
    FROM reminders r JOIN addresses a ON a.id = r.address_id
   WHERE r.id = :reminder_id AND r.state = 'pending' AND r.paused_at IS NULL AND r.tell_at <= now()
     FOR UPDATE OF r SKIP LOCKED
), s AS (
  UPDATE sessions s SET next_seq = next_seq + 1, next_turn = next_turn + 1, open_turn = NULL,
                        last_channel = r.channel
    FROM r WHERE s.id = r.session_id AND s.archived_at IS NULL AND s.held_after IS NULL
      AND (s.left_by IS NULL OR NOT r.address_id = ANY (s.left_by))
  RETURNING s.id, s.contact_id, s.next_seq - 1 AS seq, s.next_turn - 1 AS turn_no
), t AS (
  INSERT INTO turns (session_id, turn_no, channel, address_id)
  SELECT s.id, s.turn_no, r.channel, r.address_id FROM s, r
), e AS (
  INSERT INTO entries (session_id, seq, role, author, blocks, tokens, dedupe_key)
  SELECT s.id, s.seq, 'user', 'program', :blocks::jsonb, :tokens, 'reminder:' || r.id FROM s, r
), te AS (
  INSERT INTO turn_entries (session_id, seq, turn_no, step) SELECT id, seq, turn_no, seq FROM s
), again AS (
  INSERT INTO reminders (key, contact_id, session_id, address_id, text, due_at, tell_at, created_at, repeat)
  SELECT regexp_replace(r.key, '@[0-9]+$', '') || '@' || extract(epoch FROM :again_at::timestamptz)::bigint,
         s.contact_id, s.id, r.address_id, r.text, :again_at, :again_at, r.created_at, r.repeat
    FROM r, s WHERE :again_at IS NOT NULL
), begun AS (
  UPDATE reminders SET state = 'claimed', session_id = s.id, contact_id = s.contact_id, turn_no = s.turn_no,
                       claimed_at = now()
    FROM s WHERE reminders.id = :reminder_id
)
SELECT id FROM s
""")
"""Start a reminder's turn and insert its next repetition in one commit.

Skip it if another process has it locked.
"""
_LOCK = Named("SELECT pg_advisory_xact_lock(hashtextextended('evertalk.reminders', :contact_id))")
_CANCEL = Named("""
UPDATE reminders SET state = 'cancelled', ended_at = now(), paused_at = NULL
 WHERE id = :reminder_id AND state = 'pending' AND contact_id IN (
       SELECT contact_family(s.contact_id) FROM sessions s WHERE s.id = :session_id) RETURNING id
""")
_SKIP_UNTIL = Named(
    "UPDATE reminders SET due_at = :at, tell_at = :at WHERE id = :reminder_id AND state = 'pending'"
)
_POSTPONE_UNTIL = Named("UPDATE reminders SET tell_at = :at WHERE id = :reminder_id AND state = 'pending'")
_FAIL = Named("""
UPDATE reminders SET state = 'failed', reason = :reason, ended_at = now()
 WHERE id = :reminder_id AND state = 'pending'
""")
_LOAD_TEXT = Named("SELECT text FROM reminders WHERE session_id = :session_id AND turn_no = :turn")
_COUNT_OVERDUE = Named("""
SELECT count(*) FROM reminders r JOIN addresses a ON a.id = r.address_id
  JOIN sessions s ON s.id = a.session_id
 WHERE r.state = 'pending' AND r.paused_at IS NULL
   AND r.tell_at < now() - make_interval(mins => :minutes)
   AND s.held_after IS NULL
""")
