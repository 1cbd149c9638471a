"""Decides which chats may use a bot, and what chats without access get as reply."""

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
from shared.adapters.postgres.telegram.access import PostgresTelegramAccess
from shared.ports import AccessRow

FindAccess = Callable[[], Awaitable[AccessRow | None]]
"""Function that loads the access row of a chat; None without one."""
AccessMode = Literal["pairing", "allowlist", "open"]
"""Rule for chats without a decision: ask for access by code, refuse, or admit."""
AccessTextKey = Literal[
    "access_code",
    "access_not_allowed",
    "access_too_many_waiting",
    "access_owner",
    "access_group_code",
    "access_group_not_allowed",
    "access_group_welcome",
]
"""Key of a text that a chat without access gets, or that welcomes a new owner or group."""
REPLY_INTERVAL_SECONDS = 60.0
"""Minimum seconds between two replies in a private chat without access."""
GROUP_REPLY_INTERVAL_SECONDS = 3_600.0
"""Minimum seconds between two replies in a group without access; equals the lifetime of an access code."""
OWNER_CODE_CHARS = 32
"""Length of the one-time code that makes a person an owner."""
_MAX_CACHED = 1_000
"""Maximum chats whose last reply is remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """Decision: the chat has access."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrangerReply:
    """Decision: send a fixed text, named by its key, instead of an answer; no model is called."""

    key: AccessTextKey
    args: Mapping[str, str] = field(default_factory=dict)
    is_new: bool = field(default=False, compare=False)
    """True for a new access request, about which the bot asks its owners."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoReply:
    """Decision: send nothing; `reason` is for the log."""

    reason: str


AccessDecision = Allowed | StrangerReply | NoReply
"""Decision about a message or a group: answer it, send a fixed text, or send nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRules:
    """Access rules of a bot from its configuration; `listed` has ids of people and negative ids of groups."""

    mode: AccessMode = "pairing"
    listed: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownChat:
    """Chat without access; `key` names the text to send, at most once per reply interval.

    `asks_for_code` says whether the text contains a code for an access request.
    """

    asks_for_code: bool
    key: AccessTextKey


def evaluate_chat(
    chat: ChatRef, rules: AccessRules, row: AccessRow | None
) -> Allowed | UnknownChat | NoReply:
    """Return whether a chat has access: Allowed, NoReply if it was refused, else UnknownChat.

    `row` is the stored decision about the chat, None without one.
    """
    if row is not None and row.state == "refused":
        return NoReply(reason="refused")
    if row is not None and row.state == "allowed":
        return Allowed()
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
    """Return whether a message may be answered; NoReply if it is not addressed to this bot.

    `row` is the stored decision about the chat, None without one.
    """
    if not message.chat.is_private and not message.is_addressed:
        return NoReply(reason="not addressed")
    if message.command is not None and message.command.is_for_other_bot:
        return NoReply(reason="for another bot")
    return evaluate_chat(message.chat, rules, row)


def can_reply_again(chat: ChatRef, last_reply_at: datetime | None, now: datetime) -> bool:
    """Return whether the chat's reply interval has passed; True if `last_reply_at` is None."""
    wait = REPLY_INTERVAL_SECONDS if chat.is_private else GROUP_REPLY_INTERVAL_SECONDS
    return last_reply_at is None or now - last_reply_at >= timedelta(seconds=wait)


class ChatAccessPolicy:
    """Decides on access for one bot.

    Every method may raise StorageUnavailable, before any reply is sent.
    """

    def __init__(
        self, store: PostgresTelegramAccess, *, bot_id: int, rules: AccessRules, now: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._bot_id = bot_id
        self._rules = rules
        self._now = now
        self._replied_at: dict[int, datetime] = {}
        """Time of the last reply to chats without an access row, by chat id; at most `_MAX_CACHED` chats."""

    async def admit(self, message: IncomingMessage, *, find: FindAccess | None = None) -> AccessDecision:
        """Decide whether a message may be answered; records an access request and the reply if it may not.

        `find` loads the access row of the chat; None queries the store.
        """
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
        """Return whether a chat has access, without a reply; for pins, reactions and button presses."""
        row = await self._store.find(self._bot_id, chat.chat_id)
        return evaluate_chat(chat, self._rules, row)

    async def handle_added(self, chat: ChatRef, by: MessageAuthor) -> AccessDecision:
        """Decide on a group or channel to which a person added the bot.

        Return a welcome if it has access, which it gets when an owner adds the bot. Otherwise return a reply
        with an access request, or NoReply if it was refused or got a reply in the last hour.
        """
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
        """Return whether a person is an owner of the bot or listed in its configuration."""
        if person.user_id in self._rules.listed:
            return True
        row = await self._store.find(self._bot_id, person.user_id)
        return row is not None and row.state == "allowed" and row.owner

    async def _claim_ownership(self, message: IncomingMessage) -> bool:
        """Make the sender an owner if a private message contains a valid one-time code.

        Return whether it did.
        """
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
