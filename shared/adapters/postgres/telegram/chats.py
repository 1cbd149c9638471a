"""Store of Telegram's chats with their sessions, and of the row of each chat message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

import asyncpg

from shared.adapters.postgres.db.pool import Named, PoolStore, build_value, store_method
from shared.adapters.postgres.people.account_links_sql import ONE_AT_A_TIME
from shared.adapters.postgres.turns.feedback import PostgresFeedback
from shared.ports import AccessRow

ContactKind = Literal["person", "group"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BotRow:
    """Bot as it is configured; `problem` is "" if it works.

    `audience` is personal or public, `access` is pairing, allowlist or open, and `mode` is polling or
    webhook.
    """

    bot_id: int
    username: str
    agent: str
    audience: str
    access: str
    mode: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRow:
    """Chat, or a topic in one, with the session to which it leads."""

    address_id: int
    bot_id: int
    chat_id: int
    thread_id: int
    """Telegram's topic id; 0 for a chat without topics and for the General topic."""
    contact_id: int
    session_id: int
    session_public_id: UUID
    title: str
    settings: Mapping[str, Any]
    unreachable: bool
    """Whether the chat refused the last message."""
    will_be_tried: bool = False
    """Whether the chat is unreachable for now and the bot will try it again."""
    is_due: bool = False
    """Whether the next try of an unreachable chat is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRow:
    """Message of a chat, with the turn to which it belongs.

    It is an entry of a person, and `part` is None, or a part of an answer, and `seq` is None.
    """

    session_id: int
    turn: int
    seq: int | None
    part: int | None
    own_text: str | None = None
    """Text of this message alone, if its entry contains more; else None."""
    file_unique_id: str | None = None
    files: tuple[int, ...] = ()
    """Ids of the messages with a file in the same entry, including this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRow:
    """Summary that replaces older messages in requests; `messages` is their number."""

    compaction_id: int
    trigger: str
    messages: int
    text: str


class PostgresTelegramChats(PoolStore):
    """Store of chats; each method writes in one transaction, and raises StorageUnavailable."""

    @store_method
    async def enrol(
        self, bot_id: int, *, username: str, agent: str, audience: str, access: str, mode: str
    ) -> BotRow:
        """Insert or update a bot with its present configuration, and return its row.

        An unknown agent is replaced by the one with the lowest id.
        """
        row = await self._pool.fetchrow(
            *_ENROL(
                bot_id=bot_id,
                username=username,
                agent=agent,
                audience=audience,
                access=access,
                mode=mode,
            )
        )
        assert row is not None
        return BotRow(**dict(row))

    @store_method
    async def record_problem(self, bot_id: int, problem: str) -> None:
        """Store the bot's problem for operators; "" if there is none."""
        await self._pool.execute(*_RECORD_PROBLEM(bot_id=bot_id, problem=problem))

    @store_method
    async def load_profile(self, bot_id: int) -> Mapping[str, str]:
        """Return digests of the menus and descriptions that Telegram shows, by their keys.

        Empty for an unknown bot.
        """
        return await self._pool.fetchval(*_LOAD_PROFILE(bot_id=bot_id)) or {}

    @store_method
    async def record_profile(self, bot_id: int, digests: Mapping[str, str]) -> None:
        """Add or replace digests of menus and descriptions that were sent to Telegram, by their keys."""
        await self._pool.execute(*_RECORD_PROFILE(bot_id=bot_id, digests=dict(digests)))

    @store_method
    async def open(
        self, bot_id: int, *, chat_id: int, thread_id: int, kind: ContactKind, title: str
    ) -> ChatRow:
        """Return the chat or topic, created with a session at its first message.

        A `title` that differs is stored; "" changes nothing. All topics of a chat have the same person. The
        bot must be enrolled.
        """
        row = await self._pool.fetchrow(
            *_PLACE(
                bot_id=str(bot_id),
                chat_id=str(chat_id),
                thread_id=_thread(thread_id),
            )
        )
        if row is not None and row["title"] == (title or row["title"]):
            return _place(row)
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(
                *_LOCK_PLACE(place=f"{bot_id}:{chat_id}"),
            )
            row = await connection.fetchrow(
                *_PLACE(
                    bot_id=str(bot_id),
                    chat_id=str(chat_id),
                    thread_id=_thread(thread_id),
                )
            )
            if row is None:
                # Not while this person is joined with another: the new session must belong to both.
                await connection.execute(ONE_AT_A_TIME)
                row = await connection.fetchrow(
                    *_CREATE(
                        bot_id=bot_id,
                        chat_id=str(chat_id),
                        thread_id=_thread(thread_id),
                        kind=kind,
                        title=title,
                    )
                )
            elif row["title"] != title and title:
                await connection.execute(*_RENAME(address_id=row["address_id"], title=title))
        assert row is not None
        return _place(row)

    @store_method
    async def find_with_access(
        self, bot_id: int, chat_id: int, thread_id: int
    ) -> tuple[ChatRow | None, AccessRow | None]:
        """Return the chat or topic, and the chat's access to the bot; each is None without a row."""
        row = await self._pool.fetchrow(
            *_PLACE_WITH_ACCESS(
                bot_id=bot_id, account=str(bot_id), chat_id=chat_id, chat=str(chat_id),
                thread_id=_thread(thread_id),
            )
        )  # fmt: skip
        assert row is not None
        access = (
            build_value(AccessRow, row, bot_id=bot_id, chat_id=chat_id) if row["state"] is not None else None
        )
        return None if row["address_id"] is None else _place(row), access

    @store_method
    async def find_chat(self, address_id: int) -> ChatRow | None:
        """Return the chat of an address; None if the address is not of Telegram."""
        row = await self._pool.fetchrow(*_FIND_CHAT(address_id=address_id))
        return None if row is None else _place(row)

    @store_method
    async def list_threads(self, bot_id: int, chat_id: int) -> list[ChatRow]:
        """Return all known topics of a chat, including the chat without a topic."""
        rows = await self._pool.fetch(
            *_LIST_THREADS(bot_id=str(bot_id), chat_id=str(chat_id)),
        )  # fmt: skip
        return [_place(row) for row in rows]

    @store_method
    async def find_chat_of_due_turn(self, session_id: int) -> ChatRow | None:
        """Return the chat from which the oldest unanswered turn of a session came.

        Returns None if it is not of Telegram.
        """
        row = await self._pool.fetchrow(
            *_FIND_CHAT_OF_DUE_TURN(session_id=session_id),
        )
        return None if row is None else _place(row)

    @store_method
    async def find_question_id(self, session_id: int, turn: int) -> int | None:
        """Return the lowest message id among the person's messages of a turn; None if none is known."""
        message_id: int | None = await self._pool.fetchval(
            *_FIND_QUESTION_ID(session_id=session_id, turn=turn),
        )  # fmt: skip
        return message_id

    @store_method
    async def find_answer_seq(self, session_id: int, turn: int) -> int | None:
        """Return the number of a turn's last entry by the assistant or an operator; None without one."""
        seq: int | None = await self._pool.fetchval(
            *_FIND_ANSWER_SEQ(session_id=session_id, turn=turn),
        )  # fmt: skip
        return seq

    @store_method
    async def load_newest_summary(self, session_id: int) -> SummaryRow | None:
        """Return the summary or digest that is the session's head; None if there is none."""
        row = await self._pool.fetchrow(
            *_LOAD_NEWEST_SUMMARY(session_id=session_id),
        )
        return None if row is None else SummaryRow(**dict(row))

    @store_method
    async def migrate(self, bot_id: int, *, old_chat: int, new_chat: int) -> None:
        """Move a group's addresses and access to the supergroup that it has become.

        Rows that the supergroup has already stay with the old chat id.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(
                *_MIGRATE(bot_id=str(bot_id), old_chat=str(old_chat), new_chat=str(new_chat)),
            )  # fmt: skip
            await connection.execute(
                *_MIGRATE_MESSAGES(bot_id=bot_id, old_chat=old_chat, new_chat=new_chat),
            )  # fmt: skip

    @store_method
    async def set_reachable(self, bot_id: int, chat_id: int, *, reachable: bool) -> None:
        """Record whether a chat and all its topics are reachable; also ends pauses after refusals.

        A chat that is not (blocked, kicked, deactivated) gets nothing until a person writes.
        """
        await self._pool.execute(
            *_SET_REACHABLE(bot_id=str(bot_id), chat_id=str(chat_id), reachable=reachable),
        )  # fmt: skip

    @store_method
    async def record_refusal(self, address_id: int, reason: str) -> None:
        """Record that a chat or topic refuses messages for now: closed, restricted, or without rights.

        Its next try is due after a minute, then after longer pauses of at most an hour. After a week of
        refusals it is not tried again. A message from a person makes it reachable at once.
        """
        await self._pool.execute(*_REFUSED(address_id=address_id, reason=reason[:300]))

    @store_method
    async def change_settings(self, address_id: int, changes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Change settings of a chat and return all of them; a value of None removes a setting."""
        settings: Mapping[str, Any] = await self._pool.fetchval(
            *_CHANGE_SETTINGS(address_id=address_id, changes=dict(changes)),
        )  # fmt: skip
        return settings

    @store_method
    async def find_message(self, bot_id: int, chat_id: int, message_id: int) -> MessageRow | None:
        """Return to which session and turn a chat message belongs; None if it is unknown.

        `seq` is the entry of a person's message; a part of an answer has `part` instead, and its `seq` is
        None.
        """
        row = await self._pool.fetchrow(
            *_FIND_MESSAGE(bot_id=bot_id, chat_id=chat_id, message_id=message_id),
        )  # fmt: skip
        return None if row is None else MessageRow(**{**row, "files": tuple(row["files"])})

    @store_method
    async def find_messages(
        self, bot_id: int, chat_id: int, asked: Sequence[tuple[int, int, int]]
    ) -> dict[tuple[int, int], int]:
        """Return the id of each entry's first message in this chat, by (session id, entry number).

        `asked` lists (session id, entry number, turn). An answer's entry has the messages of its turn.
        Entries without a known message are missing.
        """
        sessions, seqs, turns = ([one[at] for one in asked] for at in range(3))
        rows = await self._pool.fetch(
            *_FIND_MESSAGES(bot_id=bot_id, chat_id=chat_id, sessions=sessions, seqs=seqs, turns=turns),
        )  # fmt: skip
        return {(row["session_id"], row["seq"]): row["message_id"] for row in rows}

    @store_method
    async def record_opinion(self, session_id: int, turn: int, opinion: str | None, *, source: str) -> None:
        """Store a person's opinion of a turn's answer, `good` or `bad`; None deletes it.

        If it changed, an event for other screens is stored.
        """
        await PostgresFeedback(self._pool).record_opinion(session_id, turn, opinion, source=source)


_ENROL = Named("""
WITH a AS (
  SELECT id, name FROM agents ORDER BY name <> :agent, id LIMIT 1
), b AS (
  INSERT INTO telegram_bots AS b (bot_id, username, agent_id, audience, access, mode)
  SELECT :bot_id, :username, a.id, :audience, :access, :mode FROM a
  ON CONFLICT (bot_id) DO UPDATE
     SET username = excluded.username, agent_id = excluded.agent_id, audience = excluded.audience,
         access = excluded.access, mode = excluded.mode
  RETURNING bot_id, username, audience, access, mode, problem
)
SELECT b.*, a.name AS agent FROM b, a
""")
"""Insert or update a bot; an unknown agent is replaced by the first one."""
_PLACE = Named("""
SELECT * FROM telegram_chats WHERE account = :bot_id AND chat = :chat_id AND thread = :thread_id
""")
_PLACE_WITH_ACCESS = Named("""
SELECT p.*, x.state, x.owner, x.name, x.username, x.code, x.asked_at, x.told_at, x.decided_by
  FROM (SELECT) one
  LEFT JOIN telegram_access x ON x.bot_id = :bot_id AND x.chat_id = :chat_id
  LEFT JOIN telegram_chats p ON p.account = :account AND p.chat = :chat AND p.thread = :thread_id
""")
"""Select a chat and its access, each NULL without a row."""
# People who write to a bot that is open to all have the spending limits of anonymous visitors.
_CREATE = Named("""
WITH b AS (
  SELECT bot_id::text AS account, agent_id, access = 'open' AS anybody FROM telegram_bots
     WHERE bot_id = :bot_id
), known AS (
  SELECT a.contact_id AS id FROM addresses a, b
   WHERE a.channel = 'telegram' AND a.account = b.account AND a.chat = :chat_id ORDER BY a.id LIMIT 1
), made AS (
  INSERT INTO contacts (kind, display_name, anonymous)
  SELECT :kind, :title, anybody FROM b WHERE NOT EXISTS (SELECT FROM known)
  RETURNING id
), p AS (
  SELECT id FROM known UNION ALL SELECT id FROM made
), s AS (
  INSERT INTO sessions (contact_id, agent_id)
  SELECT coalesce((SELECT o.merged_into FROM contacts o WHERE o.id = p.id), p.id), b.agent_id FROM p, b
  RETURNING id, public_id
), t AS (
  INSERT INTO session_totals (session_id) SELECT id FROM s
), a AS (
  INSERT INTO addresses (channel, account, chat, thread, contact_id, session_id, title)
  SELECT 'telegram', b.account, :chat_id, :thread_id, p.id, s.id, :title FROM b, p, s
  RETURNING id, account, chat, thread, contact_id, session_id, title, settings
)
SELECT a.id AS address_id, a.account, a.chat, a.thread, a.contact_id, a.session_id, s.public_id,
       a.title, a.settings, false AS unreachable, false AS will_be_tried, false AS is_due
  FROM a, s
""")
"""Insert a chat with session and address; its person is that of the chat's other topics."""
_REFUSED = Named("""
UPDATE addresses
   SET unreachable_since = coalesce(unreachable_since, now()), refusal = :reason,
       next_try_at = CASE WHEN unreachable_since < now() - interval '7 days' THEN NULL
         ELSE now() + greatest(interval '1 minute',
                               least(interval '1 hour', (now() - coalesce(unreachable_since, now())) / 2)) END
 WHERE id = :address_id
""")


def _thread(thread_id: int) -> str:
    return str(thread_id) if thread_id else ""


def _place(row: asyncpg.Record) -> ChatRow:
    return build_value(
        ChatRow,
        row,
        bot_id=int(row["account"]),
        chat_id=int(row["chat"]),
        thread_id=int(row["thread"] or 0),
        session_public_id=row["public_id"],
    )


_RECORD_PROBLEM = Named("""
UPDATE telegram_bots SET problem = :problem WHERE bot_id = :bot_id AND problem <> :problem
""")
_LOAD_PROFILE = Named("SELECT profile FROM telegram_bots WHERE bot_id = :bot_id")
_RECORD_PROFILE = Named("""
UPDATE telegram_bots SET profile = profile || :digests::jsonb WHERE bot_id = :bot_id
""")
_LOCK_PLACE = Named("SELECT pg_advisory_xact_lock(hashtextextended('evertalk.telegram' || :place, 0))")
_RENAME = Named("UPDATE addresses SET title = :title WHERE id = :address_id")
_FIND_CHAT = Named("SELECT * FROM telegram_chats WHERE address_id = :address_id")
_LIST_THREADS = Named("SELECT * FROM telegram_chats WHERE account = :bot_id AND chat = :chat_id")
_FIND_CHAT_OF_DUE_TURN = Named("""
SELECT p.* FROM telegram_chats p
  JOIN turns t ON t.address_id = p.address_id AND t.session_id = p.session_id AND t.turn_no = p.due_turn
 WHERE p.session_id = :session_id
""")
_FIND_QUESTION_ID = Named("""
SELECT min(m.message_id) FROM telegram_messages m
 WHERE m.session_id = :session_id AND m.turn_no = :turn AND m.seq IS NOT NULL
""")
_FIND_ANSWER_SEQ = Named("""
SELECT max(te.seq) FROM turn_entries te JOIN entries e USING (session_id, seq)
 WHERE te.session_id = :session_id AND te.turn_no = :turn
   AND e.author IN ('assistant', 'operator')
""")
_LOAD_NEWEST_SUMMARY = Named("""
SELECT l.id AS compaction_id, l.trigger, l.summary_text AS text,
       (SELECT count(*) FROM turn_entries te JOIN entries e USING (session_id, seq)
         WHERE te.session_id = l.session_id
           AND te.turn_no BETWEEN l.from_turn AND l.through_turn
           AND e.author IN ('person', 'assistant', 'operator')) AS messages
  FROM sessions s JOIN compactions l ON l.id = s.head
 WHERE s.id = :session_id AND l.active AND l.kind IN ('summary', 'digest')
""")
"""Select the summary in a session's next request."""
_MIGRATE = Named("""
UPDATE addresses a SET chat = :new_chat
 WHERE channel = 'telegram' AND account = :bot_id AND chat = :old_chat AND NOT EXISTS (
   SELECT FROM addresses b WHERE b.channel = 'telegram' AND b.account = :bot_id
      AND b.chat = :new_chat AND b.thread = a.thread)
""")
_MIGRATE_MESSAGES = Named("""
UPDATE telegram_access a SET chat_id = :new_chat WHERE bot_id = :bot_id AND chat_id = :old_chat
   AND NOT EXISTS (
     SELECT FROM telegram_access b WHERE b.bot_id = :bot_id AND b.chat_id = :new_chat)
""")
_SET_REACHABLE = Named("""
UPDATE addresses
   SET unreachable_since = CASE WHEN NOT :reachable THEN coalesce(unreachable_since, now()) END,
       next_try_at = NULL, refusal = ''
 WHERE channel = 'telegram' AND account = :bot_id AND chat = :chat_id
   AND ((unreachable_since IS NULL) <> :reachable OR next_try_at IS NOT NULL)
""")
_CHANGE_SETTINGS = Named("""
UPDATE addresses SET settings = jsonb_strip_nulls(settings || :changes::jsonb)
 WHERE id = :address_id RETURNING settings
""")
_FIND_MESSAGE = Named("""
SELECT m.session_id, m.turn_no AS turn, m.seq, m.part, m.own_text, m.file_unique_id,
       ARRAY (SELECT o.message_id FROM telegram_messages o
               WHERE o.session_id = m.session_id AND o.seq = m.seq AND o.bot_id = m.bot_id
                 AND o.file_unique_id IS NOT NULL ORDER BY o.message_id) AS files
  FROM telegram_messages m WHERE m.bot_id = :bot_id AND m.chat_id = :chat_id AND m.message_id = :message_id
""")
_FIND_MESSAGES = Named("""
SELECT x.session_id, x.seq, min(m.message_id) AS message_id
  FROM unnest(:sessions::bigint[], :seqs::bigint[], :turns::bigint[]) AS x(session_id, seq, turn_no)
  JOIN entry_rows e ON e.session_id = x.session_id AND e.seq = x.seq
  JOIN telegram_messages m ON m.session_id = x.session_id AND m.turn_no = x.turn_no
   AND (m.seq = x.seq OR m.seq IS NULL AND e.author <> 'person')
 WHERE m.bot_id = :bot_id AND m.chat_id = :chat_id GROUP BY x.session_id, x.seq
""")
