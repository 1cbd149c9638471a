"""Store of links that join the persons of two channels, and that separate them again."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import asyncpg

from shared.adapters.postgres.db.pool import Connection, Named, PoolStore, Record, store_method
from shared.adapters.postgres.people import account_links_sql as sql
from shared.adapters.postgres.people.operator_auth import hash_secret
from shared.core.context.build_context import plain_text
from shared.core.identity.people import (
    CODE_ALPHABET,
    CODE_CHARS,
    CODE_MINUTES,
    CODES_PER_HOUR,
    GUESS_MINUTES,
    GUESSES,
    GUESSES_OF_ALL,
    AccountLink,
    ArchivedLine,
    ArchivedSession,
    LinkedContacts,
    LinkRefusal,
    UnlinkedContact,
    UnlinkRefusal,
    parse_code,
)
from shared.core.values.messages import blocks_from_json

SESSIONS_SHOWN = 20
"""Maximum archived conversations that `list_archived` returns."""
MESSAGES_SHOWN = 200
"""Maximum messages of each conversation that `list_archived` returns."""


class PostgresAccountLinks(PoolStore):
    """Store of links between persons; raises StorageUnavailable.

    Each method that writes is one transaction, except `join_places`, which runs in the caller's.
    """

    def __init__(self, pool: asyncpg.Pool[Record], *, timezone: str = "UTC") -> None:
        """Create the store; `timezone`, an IANA name, decides when a day of the spending caps begins."""
        super().__init__(pool)
        self._timezone = timezone

    @store_method
    async def issue_code(self, session_id: int, address_id: int) -> str | LinkRefusal:
        """Store a new code for linking the person of an address, and return it, or the refusal.

        The code has CODE_CHARS characters and is valid for CODE_MINUTES; only its hash is stored. Refused are
        an address that has left the session ("moved"), a group ("group"), a public site or bot ("not_here"),
        and more than CODES_PER_HOUR ("too_many_codes").
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(sql.ONE_AT_A_TIME)
            me = await _place(connection, address_id)
            refusal = _find_refusal(me, session_id)
            if me is None or refusal is not None:
                return refusal or "moved"
            await connection.execute(sql.FORGET_OLD_CODES)
            if (
                await connection.fetchval(*sql.COUNT_RECENT_CODES(contact_id=me["contact_id"]))
                >= CODES_PER_HOUR
            ):
                return "too_many_codes"
            code = "".join(secrets.choice(CODE_ALPHABET) for _ in range(CODE_CHARS))
            await connection.execute(
                *sql.INSERT_CODE(
                    code_hash=hash_secret(code),
                    contact_id=me["contact_id"],
                    address_id=address_id,
                    minutes=CODE_MINUTES,
                )
            )
        return code

    @store_method
    async def link_account(
        self, session_id: int, address_id: int, words: str
    ) -> LinkedContacts | LinkRefusal:
        """Join the person who got the code in `words` to the person of this address, in one transaction.

        The conversation `session_id` continues, and the other one's addresses lead to it; the other one is
        archived. Notes, reminders and today's spending follow, and the code is used up. Without a valid code,
        or after too many guesses, returns "no_code". Other refusals: "moved", "group", "not_here",
        "own_code", "with_human" while an operator has a conversation, "busy" while a turn is unanswered. A
        repeated call returns the same link with `again`.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(sql.ONE_AT_A_TIME)
            me = await _place(connection, address_id)
            refusal = _find_refusal(me, session_id)
            if me is None or refusal is not None:
                return refusal or "moved"
            if await connection.fetchval(
                *sql.TOO_MANY_GUESSES(
                    session_id=session_id,
                    contact_id=me["contact_id"],
                    guesses=GUESSES,
                    guesses_of_all=GUESSES_OF_ALL,
                    minutes=GUESS_MINUTES,
                )
            ):
                return "no_code"
            found = await _bearer(connection, words)
            if found is None or _is_void(me, found):
                await connection.execute(
                    *sql.RECORD_GUESS(session_id=session_id, contact_id=me["contact_id"])
                )
                return "no_code"
            if found["contact_id"] == me["contact_id"]:
                return _build_joined(me, found, again=True) if _is_done(me, found) else "own_code"
            joined = await self._join(connection, me, found)
            if not isinstance(joined, str):
                await connection.execute(*sql.USE_CODE(code_hash=hash_secret(parse_code(words) or "")))
            return joined

    async def join_places(self, connection: Connection, *, kept: int, joined: int) -> bool:
        """Join two addresses of one person in the caller's transaction; return False if that must wait.

        It waits while an answer is being written or an operator has a conversation. No code is needed and
        public sites are allowed, since the abandoned address gives no access afterwards. A turn of the kept
        address may wait for its next attempt. Returns True, without effect, if they are one person already or
        one is unknown.
        """
        await connection.execute(sql.ONE_AT_A_TIME)
        me, other = await _place(connection, kept), await _place(connection, joined)
        if me is None or other is None or me["contact_id"] == other["contact_id"]:
            return True
        return not isinstance(await self._join(connection, me, other, patient=True), str)

    async def _join(
        self,
        connection: Connection,
        me: Mapping[str, Any],
        other: Mapping[str, Any],
        *,
        patient: bool = False,
    ) -> LinkedContacts | LinkRefusal:
        kept, archived = me["session_id"], other["session_id"]
        joined = [row[0] for row in await connection.fetch(*_FAMILY(contact_id=other["contact_id"]))]
        locked = await connection.fetch(*sql.LOCK_SESSIONS(session_ids=[kept, archived], contact_ids=joined))
        if any(row["is_held"] for row in locked if row["id"] in (kept, archived)):
            return "with_human"
        waits = [row["id"] for row in locked if patient and row["is_waiting"] and row["id"] == kept]
        if any(row["is_open"] for row in locked if row["id"] in (kept, archived) and row["id"] not in waits):
            return "busy"
        link_id = await connection.fetchval(
            *sql.INSERT_LINK(
                kept_contact=me["contact_id"],
                joined_contact=other["contact_id"],
                kept_session=kept,
                archived_session=archived,
                timezone=self._timezone,
            )
        )
        await connection.execute(
            *sql.MERGE_CONTACTS(
                kept_contact=me["contact_id"],
                joined_contact=other["contact_id"],
            )
        )
        await connection.execute(*sql.ARCHIVE(session_id=archived))
        moved = await connection.fetch(*sql.MOVE_ADDRESSES(archived_session=archived, kept_session=kept))
        await connection.execute(*sql.UNMARK_LEFT(session_id=kept, addresses=[row["id"] for row in moved]))
        await connection.execute(
            *sql.TAKE_OVER_SESSIONS(
                kept_contact=me["contact_id"],
                joined_contact=other["contact_id"],
            )
        )
        merged = await connection.fetchval(
            *sql.SUPERSEDE_NOTES(
                kept_contact=me["contact_id"],
                joined_contacts=joined,
                link_id=link_id,
            )
        )
        await connection.execute(*sql.CARRY_SPENDING(link_id=link_id))
        return _build_joined(me, other, notes_merged=merged)

    @store_method
    async def list_links(self, session_id: int) -> tuple[AccountLink, ...]:
        """Return the links of the session's person that can be undone, oldest first."""
        contact = await self._pool.fetchval(*_CONTACT_OF(session_id=session_id))
        rows = await self._pool.fetch(*sql.LINKS(contact_id=contact))
        return tuple(_build_shown(row) for row in rows)

    @store_method
    async def unlink_account(
        self, session_id: int, address_id: int, link_id: int | None
    ) -> UnlinkedContact | UnlinkRefusal:
        """Undo a link, so that the archived session has its addresses again, in one transaction.

        Notes and reminders return as well. `link_id` None means the only link. Returns the refusal if it is
        not done: "moved" for an address that has left the session, "which" if there are several links,
        "not_linked", "with_human" while an operator has the conversation, "busy" while a turn is unanswered.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(sql.ONE_AT_A_TIME)
            me = await _place(connection, address_id)
            if me is None or me["session_id"] != session_id:
                return "moved"
            links = await connection.fetch(*sql.LINKS(contact_id=me["contact_id"]))
            meant = [link for link in links if link_id in (None, link["id"])]
            if len(meant) != 1:
                return "which" if meant else "not_linked"
            return await self._part(connection, meant[0], address_id)

    async def _part(
        self, connection: Connection, link: Record, address_id: int
    ) -> UnlinkedContact | UnlinkRefusal:
        root, back = link["joined_contact_id"], link["archived_session_id"]
        family: list[int] = await connection.fetchval(*sql.SUBTREE(contact_id=root))
        session_id: int = await connection.fetchval(*sql.LIVE_SESSION(session_id=link["kept_session_id"]))
        locked = await connection.fetch(
            *sql.LOCK_SESSIONS(session_ids=[session_id, back], contact_ids=family)
        )
        if any(row["is_held"] for row in locked if row["id"] == session_id):
            return "with_human"
        if any(row["is_open"] for row in locked if row["id"] == session_id):
            return "busy"
        await connection.execute(*sql.END_LINK(link_id=link["id"]))
        await connection.execute(*sql.SEPARATE_CONTACTS(root=root, family=family))
        rows = await connection.fetch(
            *sql.RESTORE_ADDRESSES(
                family=family,
                session_id=session_id,
                back_session=back,
            )
        )
        addresses = [row["id"] for row in rows]
        await connection.execute(*sql.RESTORE_SESSION(session_id=back, contact_id=root))
        await connection.execute(*sql.UNMARK_LEFT(session_id=back, addresses=addresses))
        await connection.execute(*sql.MARK_LEFT(session_id=session_id, addresses=addresses))
        await connection.execute(*sql.RESTORE_SESSION_OWNERS(contact_id=root, family=family))
        await connection.execute(*sql.RESTORE_NOTES(family=family, session_id=session_id))
        await connection.execute(*sql.RESTORE_REMINDERS(family=family))
        await connection.execute(*sql.MOVE_BEGUN_REMINDERS(contact_id=root))
        return UnlinkedContact(
            session_id=session_id,
            back_session_id=back,
            addresses=tuple(addresses),
            channel=link["channel"] or "",
            is_caller=address_id in addresses,
        )

    @store_method
    async def list_archived(self, session_id: int) -> tuple[ArchivedSession, ...]:
        """Return at most SESSIONS_SHOWN archived conversations of the session's person, newest first.

        Each has its newest MESSAGES_SHOWN messages, oldest first, without tool calls and replaced messages.
        """
        async with self._pool.acquire() as connection, connection.transaction(isolation="repeatable_read"):
            rows = await connection.fetch(*sql.ARCHIVED(session_id=session_id, limit=SESSIONS_SHOWN))
            said = {
                row["id"]: await connection.fetch(
                    *sql.NEWEST_MESSAGES(
                        session_id=row["id"],
                        limit=MESSAGES_SHOWN,
                    )
                )
                for row in rows
            }
        return tuple(
            ArchivedSession(
                public_id=row["public_id"],
                channel=row["channel"],
                archived_at=row["archived_at"],
                messages=tuple(map(_spoken, said[row["id"]])),
            )
            for row in rows
        )


async def _place(connection: Connection, address_id: int) -> dict[str, Any] | None:
    row = await connection.fetchrow(*sql.PLACE(address_id=address_id))
    return None if row is None else dict(row)


async def _bearer(connection: Connection, words: str) -> dict[str, Any] | None:
    """Return the address to which a valid code was issued, with whether it was `used`.

    Returns None for an invalid code.
    """
    code = parse_code(words)
    row = None if code is None else await connection.fetchrow(*sql.LOCK_CODE(code_hash=hash_secret(code)))
    place = None if row is None else await _place(connection, row["address_id"])
    return None if row is None or place is None else {**place, "used": row["used_at"] is not None}


def _find_refusal(place: Mapping[str, Any] | None, session_id: int) -> LinkRefusal | None:
    """Return why an address cannot be linked: moved, a group or a public site; None if it can."""
    if place is None or place["session_id"] != session_id:
        return "moved"
    if place["is_group"]:
        return "group"
    return "not_here" if place["is_public"] else None


def _is_void(me: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether the code of `other` is void for `me`: used by others, or of a group or public site."""
    used_by_others = other["used"] and other["contact_id"] != me["contact_id"]
    return bool(used_by_others or other["is_group"] or other["is_public"])


def _is_done(me: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether both are already one person, by this code or another one."""
    leads_here = other["session_id"] == me["session_id"] and other["address_id"] != me["address_id"]
    return bool(other["used"] or leads_here)


def _build_joined(
    me: Mapping[str, Any], other: Mapping[str, Any], *, notes_merged: int = 0, again: bool = False
) -> LinkedContacts:
    return LinkedContacts(
        session_id=me["session_id"],
        archived_session_id=other["session_id"],
        other_channel=other["channel"],
        agent=me["agent"],
        other_agent=me["agent"] if again else other["agent"],
        notes_merged=notes_merged,
        again=again,
    )


def _build_shown(row: Record) -> AccountLink:
    return AccountLink(
        id=row["id"],
        channel=row["channel"] or "",
        title=row["title"] or "",
        linked_at=row["linked_at"],
    )


def _spoken(row: Record) -> ArchivedLine:
    return ArchivedLine(author=row["author"], text=plain_text(blocks_from_json(row["blocks"])), at=row["at"])


_FAMILY = Named("SELECT contact_family(:contact_id)")
_CONTACT_OF = Named("SELECT contact_id FROM sessions WHERE id = :session_id")
