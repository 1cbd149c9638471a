"""Accepts messages from every transport: checks the rate, loads their files, stores and announces them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from shared.adapters.postgres.turns.edits import PostgresEdits
from shared.adapters.postgres.turns.events import PostgresEvents
from shared.core.session.turns import Accepted, Inbound, Stored, iso
from shared.core.values.errors import StorageUnavailable, UnknownMessage
from shared.ports import StorageLimiter
from web.auth.visitors import Known
from web.ports import FileUploads, TurnService, WebEraser
from web.protocol import wire
from web.server.client_limiter import ClientLimiter
from web.server.hub import Hub, Replies
from web.server.rate_limits import ClientLimits

ACCEPT_SECONDS = 15.0
"""Maximum seconds for storing one message."""
CHARS_OF_ONE = 8_000
"""Characters of one message for the rate limit; a message of this length or more counts as several."""


def dedupe_key(cid: str) -> str:
    """Return the key by which a repeated message is recognised, for the client's id of the message."""
    return f"web:{cid}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageIntake:
    """Stores messages of visitors and programs, shows them in all clients, and starts their answers."""

    sessions: TurnService
    uploads: FileUploads
    events: PostgresEvents
    edits: PostgresEdits
    eraser: WebEraser
    hub: Hub
    replies: Replies
    limiter: ClientLimiter
    storage_limiter: StorageLimiter

    async def check_rate(
        self, limits: ClientLimits, known: Known, *, cid: str, address: str | None, chars: int
    ) -> None:
        """Check the rate limits for a message of `chars` characters.

        A message that was accepted before always passes. `address` is the key by which the client's network
        is counted, None for a program that writes for many people. Raises RateLimited, and
        StorageUnavailable if the database does not say whether a message over the limit was accepted.
        """
        session_id = known.row.session_id
        weight = 1 + min(chars, wire.MAX_CHARS) // CHARS_OF_ONE
        wait = self.limiter.sessions.take(str(session_id), limits.messages, weight)
        if address is not None:
            wait = wait or self.limiter.addresses.take(address, limits.messages, weight)
        if wait and not await self._has_message(session_id, cid):
            raise wire.RateLimited(retry_after_seconds=wait)

    async def build_inbound(self, known: Known, *, text: str, cid: str, files: Sequence[str]) -> Inbound:
        """Return the message of a visitor or program with its files, not yet stored.

        Raises UnreadableMessage, UnknownFile and StorageUnavailable.
        """
        session_id, key = known.row.session_id, dedupe_key(cid)
        typed = wire.clean(text) if text.strip() or not files else ""
        try:
            async with asyncio.timeout(ACCEPT_SECONDS):
                whole, blocks, attached = await self.uploads.load_for_message(
                    session_id, files, dedupe_key=key, text=typed
                )
        except TimeoutError:
            raise StorageUnavailable("finding the files took too long") from None
        return Inbound(
            session_id=session_id,
            address_id=known.row.address_id,
            text=whole,
            dedupe_key=key,
            cid=cid,
            more=blocks,
            attached=attached,
        )

    async def store(self, inbound: Inbound) -> Accepted:
        """Store a message and, if possible, claim its turn; the caller then calls `announce`.

        Raises CidUsed if another message has this cid, SessionMoved, other BadInput, and StorageUnavailable.
        """
        try:
            async with self.storage_limiter(), asyncio.timeout(ACCEPT_SECONDS):
                accepted = await self.sessions.accept_and_claim(inbound)
                if accepted.repeated and await self._is_other(inbound, accepted):
                    raise wire.CidUsed(inbound.cid or "")
        except TimeoutError:
            raise StorageUnavailable("accept took too long") from None
        return accepted

    def announce(self, inbound: Inbound, accepted: Accepted) -> None:
        """Show a message in every client and start its answer; a repeated message is not shown again."""
        if not accepted.repeated:
            self.hub.publish(
                inbound.session_id, accepted.event_seq, "msg", message_payload(inbound, accepted)
            )
        self.replies.answer(inbound.session_id)

    async def accept(self, inbound: Inbound) -> Accepted:
        """Store and announce a message. Raises what `store` raises."""
        accepted = await self.store(inbound)
        self.announce(inbound, accepted)
        return accepted

    async def store_edit(
        self, known: Known, *, seq: int, text: str, cid: str
    ) -> tuple[Accepted, Stored | None]:
        """Replace the text of a person's message; pass the result to `announce_edit`.

        Return the stored message and the event for clients, None if nothing changed. Raises CannotEdit,
        CidUsed, UnknownMessage and other BadInput, SessionMoved and StorageUnavailable.
        """
        inbound = Inbound(
            session_id=known.row.session_id, address_id=known.row.address_id, text=text,
            dedupe_key=dedupe_key(cid), cid=cid,
        )  # fmt: skip
        try:
            async with self.storage_limiter(), asyncio.timeout(ACCEPT_SECONDS):
                draft = self.hub.draft(inbound.session_id)
                is_shown = draft is not None and draft.units > 0
                accepted, shown = await self.sessions.edit(inbound, seq=seq, is_shown=is_shown)
                if accepted.repeated and await self._is_other(inbound, accepted):
                    raise wire.CidUsed(cid)
        except TimeoutError:
            raise StorageUnavailable("edit took too long") from None
        return accepted, shown

    def announce_edit(self, accepted: Accepted, shown: Stored | None) -> None:
        """Show an edited message in every client, unless `shown` is None, and start its answer."""
        if shown is not None:
            self.hub.publish(accepted.session_id, shown.event_seq, shown.kind, shown.payload)
        self.replies.answer(accepted.session_id)

    async def delete(self, known: Known, *, seq: int) -> int:
        """Erase a person's message with everything derived from it.

        Return the number of the event for clients. Return 0 if the message was erased before. A running
        answer to it starts again, or ends if no message is left. Raises OnHold, UnknownMessage and
        StorageUnavailable.
        """
        session_id = known.row.session_id
        try:
            async with self.storage_limiter(), asyncio.timeout(ACCEPT_SECONDS):
                turn = await self.edits.find_turn(session_id, seq)
                if turn is None:
                    raise UnknownMessage(f"m{seq}")
                if turn == 0:  # the message was erased before
                    return 0
                await self.sessions.break_off(session_id, turn=turn)
                try:
                    report = await self.eraser.erase_messages(session_id, [seq], "person")
                finally:
                    await self.edits.wake(session_id)
        except TimeoutError:
            raise StorageUnavailable("deleting took too long") from None
        event_seq = (report.marks or {}).get(session_id, 0)
        self.hub.advance_to(session_id, event_seq)
        self.replies.answer(session_id)
        return event_seq

    async def _has_message(self, session_id: int, cid: str) -> bool:
        """Return whether a message with this cid was accepted. Raises StorageUnavailable."""
        try:
            async with asyncio.timeout(ACCEPT_SECONDS):
                return await self.events.has_message(session_id, dedupe_key(cid))
        except TimeoutError:
            raise StorageUnavailable("finding the message took too long") from None

    async def _is_other(self, inbound: Inbound, accepted: Accepted) -> bool:
        """Return whether the stored message with this cid has another text; files are not compared.

        A stored message without text, such as an erased one or files alone, counts as the same.
        """
        rows = await self.events.list_after(inbound.session_id, accepted.event_seq - 1, limit=1)
        stored = rows[0].payload.get("text") if rows and rows[0].event_seq == accepted.event_seq else None
        return bool(stored) and stored != inbound.text


def message_payload(inbound: Inbound, accepted: Accepted) -> dict[str, Any]:
    """Return the JSON fields of a message that was just accepted, as clients get it."""
    payload: dict[str, Any] = {
        "mid": accepted.mid,
        "cid": inbound.cid,
        "role": "person",
        "text": inbound.text,
        "at": iso(datetime.fromtimestamp(accepted.at_ms / 1000, UTC)),
        "turn": accepted.turn,
    }
    if inbound.attached:
        payload["attachments"] = [one.to_payload() for one in inbound.attached]
    return payload
