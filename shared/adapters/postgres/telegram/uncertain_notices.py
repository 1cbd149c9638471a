"""Store of notices about uncertain deliveries, with a button by which a person gets the answer again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method

FIRST_PAUSE_SECONDS = 2.0
"""Seconds before the second try of a notice."""
QUICK_TRIES = 5
"""Number of tries whose pauses are doubled."""
MOST_TRIES = 9
"""Maximum tries of a notice that may or may not have arrived itself.

The first five take a minute, with doubled pauses; later pauses grow eightfold. All nine take at most six
hours.
"""

BY_PERSON = "its person asked for it"
"""Text stored as the error of a part that its person requested again."""

PressResult = Literal["brought", "before", "gone"]
"""Result of a press: the answer is sent again, it was sent before, or there is no such notice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UncertainNotice:
    """Notice in a chat that an answer may not have arrived.

    `chat_id` and `message_id` are None while it is not shown. `round` grows when a new notice replaces it, so
    that buttons of older ones have no effect. `tries` counts attempts to send it.
    """

    id: int
    session_id: int
    turn: int
    address_id: int
    round: int
    tries: int
    chat_id: int | None
    message_id: int | None
    is_needed: bool
    """Whether a part of the answer is still uncertain; if not, the notice is to be deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PressOutcome:
    """Outcome of a press of a notice's button.

    With `brought`, `session_id` and `turn` name the answer to send. `leftover` is the id of a notice's
    message that must be deleted from the chat, None if there is none.
    """

    what: PressResult
    session_id: int = 0
    turn: int = 0
    leftover: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UncertainPart:
    """Part of an answer of which it is unknown whether it is in the chat."""

    session_id: int
    turn: int
    part: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSpan:
    """Range of message ids in which the lost parts of an answer lie, above the id `after`."""

    after: int
    known_here: tuple[int, ...]
    """Ids in the range of known messages of the chat."""
    known_elsewhere: tuple[int, ...]
    """Ids in the range of known messages in other chats of the bot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOutcome:
    """Outcome of a search: number of found messages that became parts, and whether the notice became one."""

    taken: int
    is_notice_used: bool


class PostgresUncertainNotices(PoolStore):
    """Store of notices about uncertain deliveries.

    Each method is one transaction and raises StorageUnavailable. A trigger of `deliveries` inserts the rows.
    """

    @store_method
    async def list_due(self, accounts: Sequence[int], *, limit: int = 50) -> tuple[UncertainNotice, ...]:
        """Return at most `limit` due notices of these bots, the longest due first; claims none.

        A notice with `is_needed` is to be shown, any other to be deleted from the chat.
        """
        rows = await self._pool.fetch(*_TO_DO(accounts=[str(account) for account in accounts], limit=limit))
        return tuple(UncertainNotice(**dict(row)) for row in rows)

    @store_method
    async def list_due_up_to(self, session_id: int, turn: int) -> tuple[UncertainNotice, ...]:
        """Return the due notices to show about turns up to this one of the session, ordered by turn."""
        rows = await self._pool.fetch(*_DUE_UP_TO(session_id=session_id, turn=turn))
        return tuple(UncertainNotice(**dict(row)) for row in rows)

    @store_method
    async def begin(self, notice: UncertainNotice) -> bool:
        """Mark a due notice as being sent, before the request, and count the try.

        Returns False, without effect, if another process has it, or if it is not needed any more.
        """
        found = await self._pool.fetchval(
            *_BEGIN(notice_id=notice.id, round=notice.round, tries=notice.tries),
        )  # fmt: skip
        return found is not None

    @store_method
    async def mark_shown(self, notice: UncertainNotice, *, chat_id: int, message_id: int) -> bool:
        """Record that a notice is in the chat as message `message_id`.

        Returns False if another notice replaced it, so that the caller must delete the message. If the answer
        has arrived in the meantime, the notice is due to be deleted.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(*_LOCK(notice_id=notice.id))
            # A separate statement sees what other processes wrote before this one got the lock.
            found = await connection.fetchval(
                *_SHOWN(
                    notice_id=notice.id,
                    round=notice.round,
                    tries=notice.tries + 1,
                    chat_id=chat_id,
                    message_id=message_id,
                )
            )
            return found is not None or await connection.fetchval(
                *_IS_OURS(
                    address_id=notice.address_id,
                    message_id=message_id,
                )
            )

    @store_method
    async def mark_not_shown(self, notice: UncertainNotice, *, surely: bool) -> None:
        """Plan another try of a notice, in a second if it `surely` did not arrive.

        Otherwise the pause grows with each try. After MOST_TRIES tries the notice is not sent again.
        """
        await self._pool.execute(
            *_NOT_SHOWN(
                notice_id=notice.id,
                round=notice.round,
                tries=notice.tries + 1,
                surely=surely,
            )
        )

    @store_method
    async def recover_interrupted(self, accounts: Sequence[int]) -> int:
        """Plan notices again that a dead process was sending; return their number.

        A process calls it when it begins to serve these bots. Such a notice may be in the chat already.
        """
        rows = await self._pool.fetch(*_LEFT_BY_THE_DEAD(accounts=[str(account) for account in accounts]))
        return len(rows)

    @store_method
    async def settle(self, notice: UncertainNotice) -> None:
        """Record that a notice was deleted from the chat, and end it.

        If parts of the answer are uncertain by now, a new notice becomes due instead.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(*_LOCK(notice_id=notice.id))
            await connection.execute(*_SETTLE(notice_id=notice.id, round=notice.round))

    @store_method
    async def press(
        self, notice_id: int, *, address_id: int, round_number: int, message_id: int | None
    ) -> PressOutcome:
        """Record a press of a notice's button; only the first press in each round has an effect.

        Then the first uncertain part is to be sent in place of the notice's message, and other parts below
        it; the caller sends them. `message_id` is that of the pressed notice, None if unknown.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            row = await connection.fetchrow(*_LOCK(notice_id=notice_id))
            if row is None or row["address_id"] != address_id:
                return PressOutcome(what="gone")
            brought = False
            if row["state"] != "over" and row["round"] == round_number:
                brought = await connection.fetchval(*_BRING(notice_id=notice_id, message_id=message_id))
            if brought:
                other = row["message_id"] if row["message_id"] != message_id else None
                return PressOutcome(
                    what="brought", session_id=row["session_id"], turn=row["turn_no"], leftover=other
                )
            ours = await connection.fetchval(*_IS_OURS(address_id=address_id, message_id=message_id))
        return PressOutcome(what="before", leftover=None if ours else message_id)

    @store_method
    async def find_span(
        self, notice: UncertainNotice, *, bot_id: int, chat_id: int, before: int
    ) -> MessageSpan | None:
        """Return the range of message ids in which the lost parts of a turn lie, below the id `before`.

        Returns None if no earlier message of the chat is known.
        """
        row = await self._pool.fetchrow(
            *_SPAN(
                session_id=notice.session_id,
                turn=notice.turn,
                bot_id=bot_id,
                chat_id=chat_id,
                before=before,
            )
        )
        if row is None or row["after"] is None:
            return None
        return MessageSpan(
            after=row["after"], known_here=tuple(row["here"] or ()), known_elsewhere=tuple(row["there"] or ())
        )

    @store_method
    async def resolve(
        self, notice: UncertainNotice, *, found: Sequence[int], message_id: int
    ) -> SearchOutcome | None:
        """Record found messages as the uncertain parts, in order; `found` has their message ids.

        The first part without a message takes the notice's message, and later ones are queued to be sent
        again. Returns None, without effect, if the notice changed in the meantime.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            row = await connection.fetchrow(*_LOCK(notice_id=notice.id))
            current = row is not None and (row["state"], row["round"], row["message_id"])
            if current != ("shown", notice.round, message_id):
                return None
            parts: int = await connection.fetchval(
                *_RESOLVE(
                    notice_id=notice.id,
                    found=list(found),
                    message_id=message_id,
                )
            )
        return SearchOutcome(taken=min(parts, len(found)), is_notice_used=parts > len(found))

    @store_method
    async def list_shown(self, accounts: Sequence[int]) -> tuple[UncertainNotice, ...]:
        """Return at most 50 shown notices of the last day whose answer is still uncertain, oldest first."""
        rows = await self._pool.fetch(*_STILL_SHOWN(accounts=[str(account) for account in accounts]))
        return tuple(UncertainNotice(**dict(row)) for row in rows)

    @store_method
    async def list_uncertain_parts(self, session_id: int, *, address_id: int) -> tuple[UncertainPart, ...]:
        """Return at most 20 uncertain parts of a session at an address, the newest turn first."""
        rows = await self._pool.fetch(*_UNCERTAIN_PARTS(session_id=session_id, address_id=address_id))
        return tuple(UncertainPart(**dict(row)) for row in rows)

    @store_method
    async def mark_seen(
        self, session_id: int, turn: int, part: int | None, *, address_id: int, message_id: int
    ) -> None:
        """Mark an uncertain part as delivered, since the chat shows it as message `message_id`.

        With `part` None, it is the turn's last part. Nothing changes if that message is known already.
        """
        await self._pool.execute(
            *_SEEN(
                address_id=address_id,
                message_id=message_id,
                session_id=session_id,
                turn=turn,
                part=part,
            )
        )


_TO_DO = Named(
    """
SELECT id, session_id, turn, address_id, round, tries, chat_id, message_id, is_needed
  FROM due_uncertain_notices
 WHERE channel = 'telegram' AND account = ANY (:accounts::text[])
   AND CASE WHEN is_needed THEN state = 'due' AND tries < :most_tries ELSE NOT is_under_way END
 ORDER BY due_at LIMIT :limit
""",
    most_tries=MOST_TRIES,
)
"""Select notices to show, and notices to delete since their answer has arrived, the longest due first."""
_DUE_UP_TO = Named(
    """
SELECT id, session_id, turn, address_id, round, tries, chat_id, message_id, is_needed
  FROM due_uncertain_notices
 WHERE session_id = :session_id AND turn <= :turn AND is_needed AND state = 'due' AND tries < :most_tries
 ORDER BY turn
""",
    most_tries=MOST_TRIES,
)
"""Select the notices to show about turns of a session up to this one, ordered by turn."""

_SHOWN = Named("""
UPDATE uncertain_notices n SET state = 'shown', chat_id = :chat_id, message_id = :message_id,
       due_at = CASE WHEN EXISTS (
         SELECT FROM deliveries d
          WHERE d.session_id = n.session_id AND d.turn_no = n.turn_no AND d.state = 'uncertain')
         THEN 'infinity' ELSE now() END
 WHERE id = :notice_id AND round = :round AND tries = :tries
   AND (state = 'sending' OR state = 'shown' AND message_id = :message_id)
RETURNING id
""")
"""Store a notice that is in the chat; it is due to be deleted if its answer has arrived meanwhile."""
_NOT_SHOWN = Named(
    """
UPDATE uncertain_notices SET state = 'due', tries = tries - :surely::bool::int,
       due_at = CASE WHEN :surely THEN now() + interval '1 s'
         ELSE CASE WHEN tries >= :most_tries THEN 'infinity'
                   ELSE now() + :first_pause * 2 ^ (least(tries, :quick_tries) - 1)
                                * 8 ^ greatest(tries - :quick_tries, 0) * interval '1 s' END END
 WHERE id = :notice_id AND round = :round AND tries = :tries AND state = 'sending'
""",
    most_tries=MOST_TRIES,
    first_pause=FIRST_PAUSE_SECONDS,
    quick_tries=QUICK_TRIES,
)
"""Plan the next try; the pauses grow, and after `most_tries` tries there is none.

A notice that surely did not arrive is tried again in a second, and the try does not count.
"""
_LEFT_BY_THE_DEAD = Named(
    """
UPDATE uncertain_notices n SET state = 'due',
       due_at = CASE WHEN tries >= :most_tries THEN 'infinity'
                     ELSE now() + :first_pause * 2 ^ (least(tries, :quick_tries) - 1)
                                  * 8 ^ greatest(tries - :quick_tries, 0) * interval '1 s' END
  FROM addresses a
 WHERE a.id = n.address_id AND n.state = 'sending' AND a.account = ANY (:accounts::text[]) RETURNING n.id
""",
    most_tries=MOST_TRIES,
    first_pause=FIRST_PAUSE_SECONDS,
    quick_tries=QUICK_TRIES,
)
"""Plan the next try of notices whose sender died, with the pause of a notice that may have arrived."""
_LOCK = Named("SELECT * FROM uncertain_notices WHERE id = :notice_id FOR UPDATE")
_SETTLE = Named("""
WITH answer AS (
  SELECT n.id, EXISTS (SELECT FROM deliveries d
                        WHERE d.session_id = n.session_id AND d.turn_no = n.turn_no
                          AND d.state = 'uncertain') AS is_uncertain
    FROM uncertain_notices n WHERE n.id = :notice_id
)
UPDATE uncertain_notices n SET state = CASE WHEN is_uncertain THEN 'due' ELSE 'over' END,
       round = round + is_uncertain::int, tries = CASE WHEN is_uncertain THEN 0 ELSE tries END,
       chat_id = NULL, message_id = NULL, due_at = now()
  FROM answer
 WHERE n.id = answer.id AND round = :round AND state IN ('due', 'shown') AND NOT EXISTS (
   SELECT FROM deliveries d
    WHERE d.session_id = n.session_id AND d.turn_no = n.turn_no AND d.state IN ('queued', 'sending', 'sent'))
""")
"""End a notice whose answer is settled, or begin its next round; no effect while a part is under way."""
_BRING = Named(
    """
WITH p AS (
  SELECT d.session_id, d.turn_no, d.part,
         d.part = min(d.part) OVER () AND :message_id::bigint IS NOT NULL AS in_place
    FROM deliveries d JOIN uncertain_notices n ON d.session_id = n.session_id AND d.turn_no = n.turn_no
   WHERE n.id = :notice_id AND d.state = 'uncertain'
), d AS (
  UPDATE deliveries d SET state = CASE WHEN p.in_place THEN 'sent' ELSE 'queued' END,
         remote_id = CASE WHEN p.in_place THEN :message_id::bigint::text END, error = :by_person
    FROM p WHERE (d.session_id, d.turn_no, d.part) = (p.session_id, p.turn_no, p.part) RETURNING d.*
), n AS (
  UPDATE uncertain_notices SET state = 'over', chat_id = NULL, message_id = NULL WHERE id = :notice_id
), m AS (
  INSERT INTO telegram_messages (bot_id, chat_id, message_id, session_id, turn_no, part)
  SELECT a.account::bigint, a.chat::bigint, d.remote_id::bigint, d.session_id, d.turn_no, d.part
    FROM d JOIN addresses a ON a.id = d.address_id WHERE d.remote_id IS NOT NULL ON CONFLICT DO NOTHING
)
SELECT count(*) > 0 FROM d
""",
    by_person=BY_PERSON,
)
"""Queue the uncertain parts again; the first one takes the place of the notice."""
_STILL_SHOWN = Named("""
SELECT n.id, n.session_id, n.turn_no AS turn, n.address_id, n.round, n.tries, n.chat_id, n.message_id,
       true AS is_needed
  FROM uncertain_notices n JOIN addresses a ON a.id = n.address_id
 WHERE n.state = 'shown' AND n.created_at > now() - interval '1 day' AND a.channel = 'telegram'
   AND a.account = ANY (:accounts::text[]) AND a.chat = n.chat_id::text AND a.unreachable_since IS NULL
   AND EXISTS (SELECT FROM deliveries d
                WHERE d.session_id = n.session_id AND d.turn_no = n.turn_no AND d.state = 'uncertain')
 ORDER BY n.id LIMIT 50
""")
"""Select shown notices of the last day that are still needed, in chats that can be reached."""
_SPAN = Named("""
WITH span AS (
  SELECT coalesce(
           (SELECT min(message_id) FROM telegram_messages
             WHERE session_id = :session_id AND turn_no = :turn AND seq IS NOT NULL AND bot_id = :bot_id
               AND chat_id = :chat_id),
           (SELECT max(message_id) FROM telegram_messages
             WHERE session_id = :session_id AND turn_no < :turn AND bot_id = :bot_id
               AND chat_id = :chat_id)) AS after
)
SELECT after,
       (SELECT array_agg(m.message_id) FROM telegram_messages m WHERE m.bot_id = :bot_id
        AND m.chat_id = :chat_id
           AND m.message_id > after AND m.message_id < :before) AS here,
       (SELECT array_agg(DISTINCT m.message_id) FROM telegram_messages m WHERE m.bot_id = :bot_id
           AND m.chat_id <> :chat_id AND m.message_id > after AND m.message_id < :before
           AND :before - after < 1000) AS there
  FROM span
""")
"""Message numbers that are known between the question and what came after it, here and in other chats."""
_RESOLVE = Named("""
WITH p AS (
  SELECT d.session_id, d.turn_no, d.part, row_number() OVER (ORDER BY d.part) AS place,
         cardinality(:found::bigint[]) AS found
    FROM deliveries d JOIN uncertain_notices n ON d.session_id = n.session_id AND d.turn_no = n.turn_no
   WHERE n.id = :notice_id AND d.state = 'uncertain'
), d AS (
  UPDATE deliveries d SET state = CASE WHEN p.place <= p.found + 1 THEN 'sent' ELSE 'queued' END,
         remote_id = CASE WHEN p.place <= p.found THEN (:found::bigint[])[p.place]::text
                          WHEN p.place = p.found + 1 THEN :message_id::bigint::text END,
         error = 'settled by the numbers of messages'
    FROM p WHERE (d.session_id, d.turn_no, d.part) = (p.session_id, p.turn_no, p.part) RETURNING d.*
), n AS (
  UPDATE uncertain_notices SET state = 'over', chat_id = NULL, message_id = NULL WHERE id = :notice_id
), m AS (
  INSERT INTO telegram_messages (bot_id, chat_id, message_id, session_id, turn_no, part)
  SELECT a.account::bigint, a.chat::bigint, d.remote_id::bigint, d.session_id, d.turn_no, d.part
    FROM d JOIN addresses a ON a.id = d.address_id WHERE d.remote_id IS NOT NULL ON CONFLICT DO NOTHING
)
SELECT count(*) FROM d
""")
"""Uncertain parts by the numbers of messages: found ones are sent, the others are sent again."""
_IS_OURS = Named("""
SELECT EXISTS (SELECT FROM telegram_messages m JOIN addresses a ON a.account::bigint = m.bot_id
                AND a.chat::bigint = m.chat_id WHERE a.id = :address_id AND m.message_id = :message_id)
""")
_UNCERTAIN_PARTS = Named("""
SELECT d.session_id, d.turn_no AS turn, d.part
  FROM uncertain_notices n JOIN deliveries d ON d.session_id = n.session_id AND d.turn_no = n.turn_no
 WHERE n.session_id = :session_id AND n.address_id = :address_id AND d.state = 'uncertain'
 ORDER BY 2 DESC, 3 LIMIT 20
""")
_SEEN = Named("""
WITH d AS (
  UPDATE deliveries d SET state = 'delivered', delivered_at = now(), error = '',
     remote_id = :message_id::bigint::text
   WHERE d.address_id = :address_id AND d.session_id = :session_id AND d.turn_no = :turn
     AND d.state = 'uncertain'
     AND d.part = coalesce(:part, (SELECT max(part) FROM deliveries
                                    WHERE session_id = :session_id AND turn_no = :turn))
     AND NOT (EXISTS (SELECT FROM telegram_messages m JOIN addresses a ON a.account::bigint = m.bot_id
                         AND a.chat::bigint = m.chat_id
                       WHERE a.id = :address_id AND m.message_id = :message_id)) RETURNING d.*
)
INSERT INTO telegram_messages (bot_id, chat_id, message_id, session_id, turn_no, part)
SELECT a.account::bigint, a.chat::bigint, d.remote_id::bigint, d.session_id, d.turn_no, d.part
  FROM d JOIN addresses a ON a.id = d.address_id WHERE d.remote_id IS NOT NULL ON CONFLICT DO NOTHING
""")
"""An uncertain part that its chat shows, where no other part has that number."""
_BEGIN = Named("""
UPDATE uncertain_notices n SET state = 'sending', tries = tries + 1
 WHERE id = :notice_id AND round = :round AND tries = :tries AND state = 'due'
   AND EXISTS (SELECT FROM deliveries d
                WHERE d.session_id = n.session_id AND d.turn_no = n.turn_no AND d.state = 'uncertain')
RETURNING id
""")
