"""Access to a bot, and replies to strangers: a pure decision, and a small service around it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from bot.telegram.inbound.updates import (
    ChatRef,
    IncomingMessage,
    MessageAuthor,
)
from shared.adapters.postgres.telegram.access import AccessRow, PostgresTelegramAccess

FindAccess = Callable[[], Awaitable[AccessRow | None]]
AccessMode = Literal["pairing", "allowlist", "open"]
AccessTextKey = Literal[
    "access_code",
    "access_not_allowed",
    "access_too_many_waiting",
    "access_owner",
    "access_group_code",
    "access_group_not_allowed",
    "access_group_welcome",
]
REPLY_INTERVAL_SECONDS = 60.0
"""A stranger is not answered more often."""
GROUP_REPLY_INTERVAL_SECONDS = 3_600.0
"""An unknown group gets one line, and another when its code has lapsed."""
OWNER_CODE_CHARS = 32
_MAX_CACHED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    owner: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StrangerReply:
    """One line for a stranger, by its key in the texts; no model is asked."""

    key: AccessTextKey
    args: Mapping[str, str] = field(default_factory=dict)
    is_new: bool = field(default=False, compare=False)
    """A new request: the owners are asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoReply:
    reason: str


AccessDecision = Allowed | StrangerReply | NoReply


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRules:
    """Configured rules; `listed` has ids of people and, negative, of groups."""

    mode: AccessMode = "pairing"
    listed: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownChat:
    """Chat without access; whether it gets a reply depends on the last one."""

    asks_for_code: bool
    key: AccessTextKey


def evaluate_chat(
    chat: ChatRef, rules: AccessRules, row: AccessRow | None
) -> Allowed | UnknownChat | NoReply:
    """Whether this chat may talk at all."""
    if row is not None and row.state == "refused":
        return NoReply(reason="refused")
    if row is not None and row.state == "allowed":
        return Allowed(owner=row.owner)
    if chat.chat_id in rules.listed or rules.mode == "open":
        return Allowed()
    if rules.mode == "allowlist":
        return UnknownChat(
            asks_for_code=False, key="access_not_allowed" if chat.is_private else "access_group_not_allowed"
        )
    return UnknownChat(asks_for_code=True, key="access_code" if chat.is_private else "access_group_code")


def evaluate_message(
    message: IncomingMessage, *, rules: AccessRules, row: AccessRow | None
) -> Allowed | UnknownChat | NoReply:
    """`row` is the chat's own: a person's in private, the group's in a group."""
    if not message.chat.is_private and not message.is_addressed:
        return NoReply(reason="not addressed")
    if message.command is not None and message.command.is_for_other_bot:
        return NoReply(reason="for another bot")
    return evaluate_chat(message.chat, rules, row)


def can_reply_again(chat: ChatRef, last_reply_at: datetime | None, now: datetime) -> bool:
    wait = REPLY_INTERVAL_SECONDS if chat.is_private else GROUP_REPLY_INTERVAL_SECONDS
    return last_reply_at is None or now - last_reply_at >= timedelta(seconds=wait)


class ChatAccessPolicy:
    """Decides for one bot; every method may raise StorageUnavailable before any reply."""

    def __init__(
        self, store: PostgresTelegramAccess, *, bot_id: int, rules: AccessRules, now: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._bot_id = bot_id
        self._rules = rules
        self._now = now
        self._replied_at: dict[int, datetime] = {}
        """For those who have no row; forgotten from the oldest on."""

    async def admit(self, message: IncomingMessage, *, find: FindAccess | None = None) -> AccessDecision:
        """Decide on a message; `find` loads the row of its chat, by default alone."""
        if await self._claim_ownership(message):
            return StrangerReply(key="access_owner", args={"name": message.sender.name})
        if not message.chat.is_private and not message.is_addressed:
            return NoReply(reason="not addressed")
        row = await (find() if find is not None else self._store.find(self._bot_id, message.chat.chat_id))
        found = evaluate_message(message, rules=self._rules, row=row)
        if isinstance(found, UnknownChat):
            if message.is_edited:
                return NoReply(reason="a stranger's edit")
            return await self._reply_to_stranger(message.chat, message.sender, found, row)
        return found

    async def check(self, chat: ChatRef) -> Allowed | UnknownChat | NoReply:
        """Without a reply to strangers: for a pin, a reaction or a press of a button."""
        row = await self._store.find(self._bot_id, chat.chat_id)
        return evaluate_chat(chat, self._rules, row)

    async def handle_added(self, chat: ChatRef, by: MessageAuthor) -> AccessDecision:
        """Decide on a group that the bot was added to; an owner allows it by adding the bot."""
        row = await self._store.find(self._bot_id, chat.chat_id)
        found = evaluate_chat(chat, self._rules, row)
        if isinstance(found, Allowed):
            return StrangerReply(key="access_group_welcome")
        if isinstance(found, NoReply):
            return found
        if await self._is_owner(by):
            await self._store.decide(
                self._bot_id,
                chat.chat_id,
                allowed=True,
                by=f"owner {by.user_id}",
                name=chat.title,
                told=True,
                actor=f"telegram:{by.user_id}",
            )
            return StrangerReply(key="access_group_welcome")
        return await self._reply_to_stranger(chat, by, found, row)

    async def _is_owner(self, person: MessageAuthor) -> bool:
        if person.user_id in self._rules.listed:
            return True
        row = await self._store.find(self._bot_id, person.user_id)
        return row is not None and row.state == "allowed" and row.owner

    async def _claim_ownership(self, message: IncomingMessage) -> bool:
        """Claim the bot by the one-time link, in a private chat only; each code works once."""
        if not message.chat.is_private or message.is_edited or len(message.deep_link) != OWNER_CODE_CHARS:
            return False
        return await self._store.become_owner(
            self._bot_id, message.chat.chat_id, code=message.deep_link, name=message.sender.name
        )

    async def _reply_to_stranger(
        self, chat: ChatRef, sender: MessageAuthor, stranger: UnknownChat, row: AccessRow | None
    ) -> AccessDecision:
        last_reply_at = row.told_at if row is not None else self._replied_at.get(chat.chat_id)
        if not can_reply_again(chat, last_reply_at, self._now()):
            return NoReply(reason="told a moment ago")
        if not stranger.asks_for_code:
            self._remember_reply(chat.chat_id)
            return StrangerReply(key=stranger.key)
        name = sender.name if chat.is_private else chat.title
        asked = await self._store.request_access(
            self._bot_id, chat.chat_id, name=name[:128], username=sender.username if chat.is_private else ""
        )
        if asked is None or asked.code is None:
            self._remember_reply(chat.chat_id)
            return StrangerReply(key="access_too_many_waiting")
        await self._store.mark_code_sent(self._bot_id, chat.chat_id)
        return StrangerReply(key=stranger.key, args={"code": asked.code}, is_new=asked.told_at is None)

    def _remember_reply(self, chat_id: int) -> None:
        self._replied_at.pop(chat_id, None)
        self._replied_at[chat_id] = self._now()
        while len(self._replied_at) > _MAX_CACHED:
            del self._replied_at[next(iter(self._replied_at))]
