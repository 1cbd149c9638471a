"""Access to Telegram bots for operators: the rules by which shell and REST decide who may write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from shared.core.identity.people import CODE_HOURS
from shared.core.values.errors import EvertalkError, NotFound
from shared.ports import AccessRow
from shared.services.admin.agent_service import BotNotFound


class AccessStore(Protocol):
    """Store of the chats that may write to Telegram bots.

    `find` returns None for a chat that never asked; `decide_by_code` None without a pending request of at
    most an hour. `issue_owner_code` returns the code of a `t.me` link.
    """

    async def find(self, bot_id: int, chat_id: int) -> AccessRow | None: ...
    async def decide(self, bot_id: int, chat_id: int, *, allowed: bool, by: str, actor: str) -> AccessRow: ...
    async def decide_by_code(self, code: str, *, allowed: bool, by: str, actor: str) -> AccessRow | None: ...
    async def issue_owner_code(self, bot_id: int, *, by: str) -> str: ...
    async def list_owners(self, bot_id: int) -> list[int]: ...


class EnrolledBot(Protocol):
    """Telegram bot as the database knows it: Telegram's id of the bot, and its user name without `@`, "" if
    unknown.
    """

    @property
    def bot_id(self) -> int: ...
    @property
    def username(self) -> str: ...


class EnrolledBots(Protocol):
    """Store of all bots that were ever enrolled."""

    async def list_bots(self) -> Sequence[EnrolledBot]: ...


class NoAccessRequest(EvertalkError):
    """No request with this code waits."""

    sentence = "No request with this code waits."
    code = "no_request"
    advice = f"No request with this code waits: it was decided, or is older than {CODE_HOURS} hour."


class ChatNotFound(NotFound):
    """The chat has never written to the bot."""

    sentence = "The chat has never written to the bot."
    advice = "No person with that number has written to this bot."


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokedChat:
    """Chat that may no longer write to a bot."""

    access: AccessRow
    """Access before it was revoked."""
    username: str
    """User name of the bot."""
    left_without_owner: bool
    """True if the chat was the bot's last owner."""


class PairingService:
    """Decisions on access to bots, each in the audit log. Raises StorageUnavailable."""

    def __init__(self, access: AccessStore, bots: EnrolledBots) -> None:
        self._access = access
        self._bots = bots

    async def decide_request(self, code: str, *, allowed: bool, by: str, actor: str) -> AccessRow:
        """Approve or refuse the pending request with this code; return the chat's new access.

        Lists show `by` as the one who decided; the audit log has `actor`. Raises NoAccessRequest if no
        request with the code waits or it is older than an hour.
        """
        row = await self._access.decide_by_code(code, allowed=allowed, by=by, actor=actor)
        if row is None:
            raise NoAccessRequest
        return row

    async def decide_chat(self, bot: int, chat: int, *, allowed: bool, by: str, actor: str) -> AccessRow:
        """Allow or block a chat that has written to a bot; return its new access.

        Lists show `by` as the one who decided; the audit log has `actor`. Raises ChatNotFound if it never
        wrote to the bot.
        """
        if await self._access.find(bot, chat) is None:
            raise ChatNotFound(str(chat))
        return await self._access.decide(bot, chat, allowed=allowed, by=by, actor=actor)

    async def revoke_chat(self, chat: int, *, by: str, actor: str) -> list[RevokedChat]:
        """Block a chat at all bots that it may write to; return the former access at each of them.

        Raises ChatNotFound if it may write to none.
        """
        revoked = []
        for bot in await self._bots.list_bots():
            row = await self._access.find(bot.bot_id, chat)
            if row is None or row.state == "refused":
                continue
            await self._access.decide(bot.bot_id, chat, allowed=False, by=by, actor=actor)
            alone = row.owner and not await self._access.list_owners(bot.bot_id)
            revoked.append(RevokedChat(access=row, username=bot.username, left_without_owner=alone))
        if not revoked:
            raise ChatNotFound(str(chat))
        return revoked

    async def issue_owner_link(self, bot: int, *, by: str) -> str:
        """Return a new `t.me` link that makes the first person who opens it an owner of the bot. Raises
        BotNotFound.
        """
        names = {one.bot_id: one.username for one in await self._bots.list_bots()}
        if not (name := names.get(bot)):
            raise BotNotFound(str(bot))
        return f"https://t.me/{name}?start={await self._access.issue_owner_code(bot, by=by)}"
