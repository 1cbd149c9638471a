"""Store of access to bots: codes that an operator approves, and links that make a person an owner."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import asyncpg

from shared.adapters.postgres.db.pool import Named, PoolStore, store_method
from shared.adapters.postgres.people.operator_auth import append_audit, hash_secret
from shared.core.identity.people import CODE_ALPHABET, CODE_HOURS
from shared.ports import AccessRow, AccessState

CODE_CHARS = 8
"""Characters of a code for access."""
OWNER_LINK_MINUTES = 60
"""Minutes for which an owner link is valid."""
DECISION_TOLD_HOURS = 24
"""Hours after which an undelivered decision is no longer sent."""
PENDING_AT_MOST = 50
"""Maximum open requests per bot, so that strangers cannot fill the operator's list."""


class PostgresTelegramAccess(PoolStore):
    """Store of access; each method is one transaction and raises StorageUnavailable."""

    @store_method
    async def find(self, bot_id: int, chat_id: int) -> AccessRow | None:
        """Return the access of a chat to a bot; None if it never requested access."""
        return _row(await self._pool.fetchrow(*_FIND(bot_id=bot_id, chat_id=chat_id)))

    @store_method
    async def request_access(
        self, bot_id: int, chat_id: int, *, name: str, username: str
    ) -> AccessRow | None:
        """Store a request for access and return the chat's row.

        A pending code older than an hour is replaced. A chat that was decided keeps the decision, only its
        name is updated. Returns None if PENDING_AT_MOST requests are open for the bot and this chat has no
        row yet.
        """
        asked = _ASK(
            bot_id=bot_id, chat_id=chat_id, name=name, username=username, code=generate_code(),
            hours=CODE_HOURS, most=PENDING_AT_MOST,
        )  # fmt: skip
        return _row(await self._pool.fetchrow(*asked))

    @store_method
    async def mark_code_sent(self, bot_id: int, chat_id: int) -> None:
        """Record that the person was sent the code now; no effect unless the request is pending.

        The caller replies to repeated requests only after a pause since this time.
        """
        await self._pool.execute(*_TOLD(bot_id=bot_id, chat_id=chat_id, pending=True))

    @store_method
    async def mark_decision_sent(self, bot_id: int, chat_id: int) -> None:
        """Record that the person was sent the decision now; no effect while the request is pending."""
        await self._pool.execute(*_TOLD(bot_id=bot_id, chat_id=chat_id, pending=False))

    @store_method
    async def count_waiting(self, bot_id: int, *, up_to: int) -> int:
        """Return the position, from 1, of the chat `up_to` among the bot's pending chats.

        Only chats that got a code in the last hour count, in the order in which they got it.
        """
        found: int = await self._pool.fetchval(*_COUNT_WAITING(bot_id=bot_id, chat_id=up_to))
        return found

    @store_method
    async def list_unsent_decisions(self, bot_ids: Sequence[int]) -> list[AccessRow]:
        """Return at most 20 decided chats that got a code and were not sent the decision, oldest first.

        Decisions older than DECISION_TOLD_HOURS are left out. Changes nothing.
        """
        return _rows(await self._pool.fetch(*_TO_TELL(bot_ids=list(bot_ids), hours=DECISION_TOLD_HOURS)))

    async def decide(
        self,
        bot_id: int,
        chat_id: int,
        *,
        allowed: bool,
        by: str,
        name: str = "",
        owner: bool = False,
        told: bool = False,
        actor: str = "",
    ) -> AccessRow:
        """Store a decision on a chat's access and return its row; the chat need not have asked.

        `owner` makes the person an owner; an allowed owner stays one. `told` is True if the person learns of
        the decision in another way. `by` is stored with the row; `actor` is the author of the audit entry, ""
        writes none.
        """
        decided = _DECIDE(
            bot_id=bot_id, chat_id=chat_id, state=_STATES[allowed], owner=owner, name=name, by=by, told=told
        )
        row = await self._decide(decided, actor, "allow" if allowed else "block")
        assert row is not None
        return row

    async def decide_by_code(self, code: str, *, allowed: bool, by: str, actor: str = "") -> AccessRow | None:
        """Store the decision on the pending request with this code and return its row.

        Blanks around the code and the case of its letters do not matter. `actor` is the author of the audit
        entry, "" writes none. Returns None, without effect, if no request with the code is pending, or if it
        is older than an hour.
        """
        code = code.strip().upper()
        decided = _DECIDE_BY_CODE(code=code, state=_STATES[allowed], by=by, hours=CODE_HOURS)
        return await self._decide(decided, actor, "approve" if allowed else "refuse")

    async def decide_waiting(
        self, bot_id: int, chat_id: int, *, allowed: bool, by: str, actor: str
    ) -> AccessRow | None:
        """Store the decision on a chat's pending request, of any age, with an audit entry; return its row.

        Returns None, without effect, if the chat has no pending request, for example because it was decided
        before.
        """
        decided = _DECIDE_WAITING(bot_id=bot_id, chat_id=chat_id, state=_STATES[allowed], by=by)
        return await self._decide(decided, actor, "approve" if allowed else "refuse")

    @store_method
    async def _decide(
        self, decided: tuple[str, *tuple[object, ...]], actor: str, verdict: str
    ) -> AccessRow | None:
        async with self._pool.acquire() as connection, connection.transaction():
            row = _row(await connection.fetchrow(*decided))
            if row is not None and actor:
                about = f"telegram:{row.bot_id}:{row.chat_id}"
                await append_audit(connection, actor=actor, action=f"pairing.{verdict}", about=about)
        return row

    @store_method
    async def list_all(self, *, state: AccessState | None = None) -> list[AccessRow]:
        """Return at most 500 rows of access to all bots, pending first, then the latest requests.

        `state` None means every state.
        """
        return _rows(await self._pool.fetch(*_ALL(state=state)))

    @store_method
    async def list_owners(self, bot_id: int) -> list[int]:
        """Return the chat ids of the bot's owners whose access is allowed."""
        return [row["chat_id"] for row in await self._pool.fetch(*_OWNERS(bot_id=bot_id))]

    @store_method
    async def count_owners(self) -> dict[int, int]:
        """Return the number of owners by bot id; bots without owners are left out."""
        return {row["bot_id"]: row["owners"] for row in await self._pool.fetch(_OWNER_COUNTS)}

    @store_method
    async def issue_owner_code(self, bot_id: int, *, by: str) -> str:
        """Store a new code for `t.me/<bot>?start=<code>`, with an audit entry, and return it.

        The first person to open the link within OWNER_LINK_MINUTES becomes an owner of the bot. Only the
        code's hash is stored.
        """
        code = secrets.token_urlsafe(24)
        issued = _OWNER_CODE(hash=hash_secret(code), bot_id=bot_id, minutes=OWNER_LINK_MINUTES)
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(*issued)
            about = f"telegram:{bot_id}"
            await append_audit(connection, actor=by, action="pairing.owner_link", about=about)
        return code

    @store_method
    async def become_owner(self, bot_id: int, chat_id: int, *, code: str, name: str) -> bool:
        """Make a person an owner of the bot and use up the code.

        An owner may write, and decides on requests of others. Returns False, without effect, if the code is
        unknown, used, expired or of another bot.
        """
        owned = _DECIDE(
            bot_id=bot_id, chat_id=chat_id, state="allowed", owner=True, name=name, by="owner link", told=True
        )
        async with self._pool.acquire() as connection, connection.transaction():
            found = await connection.fetchval(*_SPEND_CODE(hash=hash_secret(code), bot_id=bot_id))
            if found:
                await connection.execute(*owned)
        return bool(found)


_STATES: dict[bool, AccessState] = {True: "allowed", False: "refused"}
_FIND = Named("""
SELECT bot_id, chat_id, state, owner, name, username, code, asked_at, told_at, decided_by FROM telegram_access
 WHERE bot_id = :bot_id AND chat_id = :chat_id""")
_ASK = Named("""
INSERT INTO telegram_access AS t (bot_id, chat_id, name, username, code)
SELECT :bot_id, :chat_id, :name, :username, :code
 WHERE EXISTS (SELECT FROM telegram_access WHERE bot_id = :bot_id AND chat_id = :chat_id)
    OR (SELECT count(*) FROM telegram_access
         WHERE bot_id = :bot_id AND state = 'pending' AND asked_at > now() - make_interval(hours => :hours)
       ) < :most
ON CONFLICT (bot_id, chat_id) DO UPDATE
   SET name = excluded.name, username = excluded.username,
       code = CASE WHEN t.state = 'pending' AND t.asked_at < now() - make_interval(hours => :hours)
                   THEN excluded.code ELSE t.code END,
       asked_at = CASE WHEN t.state = 'pending' AND t.asked_at < now() - make_interval(hours => :hours)
                       THEN now() ELSE t.asked_at END
RETURNING bot_id, chat_id, state, owner, name, username, code, asked_at, told_at, decided_by""")
"""Insert or renew a chat's request; no row for a stranger beyond the limit of open requests."""
_TOLD = Named("""
UPDATE telegram_access SET told_at = now()
 WHERE bot_id = :bot_id AND chat_id = :chat_id AND (state = 'pending') = :pending""")
_COUNT_WAITING = Named("""
SELECT count(*) FROM telegram_access a JOIN telegram_access last
    ON last.bot_id = a.bot_id AND last.chat_id = :chat_id
   AND (a.told_at, a.chat_id) <= (coalesce(last.told_at, 'infinity'), last.chat_id)
 WHERE a.bot_id = :bot_id AND a.state = 'pending' AND a.told_at > now() - interval '1 hour'""")
_TO_TELL = Named("""
SELECT bot_id, chat_id, state, owner, name, username, code, asked_at, told_at, decided_by FROM telegram_access
 WHERE bot_id = ANY (:bot_ids::bigint[]) AND state <> 'pending' AND told_at < decided_at
   AND decided_at > now() - make_interval(hours => :hours) ORDER BY decided_at LIMIT 20""")
_DECIDE = Named("""
INSERT INTO telegram_access AS t (bot_id, chat_id, state, owner, name, decided_at, decided_by)
VALUES (:bot_id, :chat_id, :state, :owner, :name, now(), :by)
ON CONFLICT (bot_id, chat_id) DO UPDATE
   SET state = excluded.state, owner = excluded.owner OR (t.owner AND excluded.state = 'allowed'),
       code = NULL, decided_at = now(), decided_by = excluded.decided_by,
       told_at = CASE WHEN :told OR (t.state = 'allowed' AND excluded.state = 'refused') THEN now()
                      ELSE t.told_at END
RETURNING bot_id, chat_id, state, owner, name, username, code, asked_at, told_at, decided_by""")
"""Store a decision; an allowed owner stays owner, and a revoked access is not announced."""
_DECIDE_BY_CODE = Named("""
UPDATE telegram_access SET state = :state, code = NULL, decided_at = now(), decided_by = :by
 WHERE code = :code AND state = 'pending' AND asked_at > now() - make_interval(hours => :hours)
RETURNING bot_id, chat_id, state, owner, name, username, code, asked_at, told_at, decided_by""")
_DECIDE_WAITING = Named("""
UPDATE telegram_access SET state = :state, code = NULL, decided_at = now(), decided_by = :by
 WHERE bot_id = :bot_id AND chat_id = :chat_id AND state = 'pending'
RETURNING bot_id, chat_id, state, owner, name, username, code, asked_at, told_at, decided_by""")
_ALL = Named("""
SELECT bot_id, chat_id, state, owner, name, username, code, asked_at, told_at, decided_by FROM telegram_access
 WHERE :state::text IS NULL OR state = :state
 ORDER BY state = 'pending' DESC, asked_at DESC LIMIT 500""")
_OWNERS = Named("SELECT chat_id FROM telegram_access WHERE bot_id = :bot_id AND owner AND state = 'allowed'")
_OWNER_COUNTS = """
SELECT bot_id, count(*) AS owners FROM telegram_access WHERE owner AND state = 'allowed' GROUP BY bot_id
"""
_OWNER_CODE = Named("""
INSERT INTO one_time_codes (code_hash, purpose, bot_id, expires_at)
VALUES (:hash, 'telegram_owner', :bot_id, now() + make_interval(mins => :minutes))""")
_SPEND_CODE = Named("""
UPDATE one_time_codes SET used_at = now()
 WHERE code_hash = :hash AND purpose = 'telegram_owner' AND bot_id = :bot_id
   AND used_at IS NULL AND expires_at > now() RETURNING true""")


def _row(row: asyncpg.Record | None) -> AccessRow | None:
    return None if row is None else AccessRow(**dict(row))


def _rows(rows: Sequence[asyncpg.Record]) -> list[AccessRow]:
    return [AccessRow(**dict(row)) for row in rows]


def generate_code() -> str:
    """Return a random code of 40 bits that can be read aloud.

    Guessing is limited by the code's hour and by the operator, who sees each request.
    """
    return "".join(secrets.choice(CODE_ALPHABET) for _ in range(CODE_CHARS))
