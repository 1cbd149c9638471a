"""Who may talk with a bot, and what strangers are told: a pure decision, and a small service around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, Protocol

from bot.telegram.inbound.updates import (
    CallbackQuery,
    ChatRef,
    IncomingMessage,
    MembershipChange,
    MessageAuthor,
)
from shared.adapters.postgres.telegram.access import AccessRow

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
    """Nobody has heard of this request before: its owner is to be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoReply:
    reason: str


AccessDecision = Allowed | StrangerReply | NoReply


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRules:
    """As it is configured; `listed` holds ids of people and, negative, of groups."""

    mode: AccessMode = "pairing"
    listed: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownChat:
    """Nobody has allowed this chat; what is to be said depends on when something was said last."""

    asks_for_code: bool
    key: AccessTextKey


def evaluate_chat(
    where: ChatRef, rules: AccessRules, row: AccessRow | None
) -> Allowed | UnknownChat | NoReply:
    """Whether this chat may talk at all."""
    if row is not None and row.state == "refused":
        return NoReply(reason="refused")
    if row is not None and row.state == "allowed":
        return Allowed(owner=row.owner)
    if where.chat_id in rules.listed or rules.mode == "open":
        return Allowed()
    if rules.mode == "allowlist":
        return UnknownChat(
            asks_for_code=False, key="access_not_allowed" if where.is_private else "access_group_not_allowed"
        )
    return UnknownChat(asks_for_code=True, key="access_code" if where.is_private else "access_group_code")


def evaluate_message(
    spoken: IncomingMessage, *, rules: AccessRules, row: AccessRow | None
) -> Allowed | UnknownChat | NoReply:
    """`row` is the chat's own: a person's in private, the group's in a group."""
    if not spoken.chat.is_private and not spoken.is_addressed:
        return NoReply(reason="not addressed")
    if spoken.command is not None and spoken.command.is_for_other_bot:
        return NoReply(reason="for another bot")
    return evaluate_chat(spoken.chat, rules, row)


def can_reply_again(where: ChatRef, told_at: datetime | None, now: datetime) -> bool:
    wait = REPLY_INTERVAL_SECONDS if where.is_private else GROUP_REPLY_INTERVAL_SECONDS
    return told_at is None or now - told_at >= timedelta(seconds=wait)


class AccessStore(Protocol):
    async def find(self, bot_id: int, chat_id: int) -> AccessRow | None: ...

    async def ask(self, bot_id: int, chat_id: int, *, name: str, username: str) -> AccessRow | None: ...

    async def told(self, bot_id: int, chat_id: int) -> None: ...

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
    ) -> AccessRow: ...

    async def become_owner(self, bot_id: int, chat_id: int, *, code: str, name: str) -> bool: ...


class ChatAccessPolicy:
    """Decides for one bot; every method raises StorageUnavailable, and nobody was told anything then."""

    def __init__(
        self, store: AccessStore, *, bot_id: int, rules: AccessRules, now: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._bot_id = bot_id
        self._rules = rules
        self._now = now
        self._told: dict[int, datetime] = {}
        """For those who have no row; forgotten from the oldest on."""

    async def admit(self, spoken: IncomingMessage) -> AccessDecision:
        if await self._becomes_owner(spoken):
            return StrangerReply(key="access_owner", args={"name": spoken.sender.name})
        if not spoken.chat.is_private and not spoken.is_addressed:
            return NoReply(reason="not addressed")
        row = await self._store.find(self._bot_id, spoken.chat.chat_id)
        found = evaluate_message(spoken, rules=self._rules, row=row)
        if isinstance(found, UnknownChat):
            if spoken.is_edited:
                return NoReply(reason="a stranger's edit")
            return await self._answer(spoken.chat, spoken.sender, found, row)
        return found

    async def can_press(self, pressed: CallbackQuery) -> bool:
        """Whether anything in this chat may be pressed; whose button it is, is another question."""
        if pressed.chat is None:
            return False
        return isinstance(await self.check(pressed.chat), Allowed)

    async def check(self, where: ChatRef) -> Allowed | UnknownChat | NoReply:
        """Without any answer: for what needs none, such as a pin or a reaction."""
        row = await self._store.find(self._bot_id, where.chat_id)
        return evaluate_chat(where, self._rules, row)

    async def handle_added(self, membership: MembershipChange) -> AccessDecision:
        """Somebody has added the bot to a group: an owner thereby allows it."""
        where = membership.chat
        row = await self._store.find(self._bot_id, where.chat_id)
        found = evaluate_chat(where, self._rules, row)
        if isinstance(found, Allowed):
            return StrangerReply(key="access_group_welcome")
        if isinstance(found, NoReply):
            return found
        if await self._trusts(membership.by):
            await self._store.decide(
                self._bot_id,
                where.chat_id,
                allowed=True,
                by=f"owner {membership.by.user_id}",
                name=where.title,
                told=True,
                actor=f"telegram:{membership.by.user_id}",
            )
            return StrangerReply(key="access_group_welcome")
        return await self._answer(where, membership.by, found, row)

    async def _trusts(self, person: MessageAuthor) -> bool:
        if person.user_id in self._rules.listed:
            return True
        row = await self._store.find(self._bot_id, person.user_id)
        return row is not None and row.state == "allowed" and row.owner

    async def _becomes_owner(self, spoken: IncomingMessage) -> bool:
        """By the one-time link; in a private chat only, and each code works once."""
        if not spoken.chat.is_private or spoken.is_edited or len(spoken.deep_link) != OWNER_CODE_CHARS:
            return False
        return await self._store.become_owner(
            self._bot_id, spoken.chat.chat_id, code=spoken.deep_link, name=spoken.sender.name
        )

    async def _answer(
        self, where: ChatRef, sender: MessageAuthor, stranger: UnknownChat, row: AccessRow | None
    ) -> AccessDecision:
        known = row.told_at if row is not None else self._told.get(where.chat_id)
        if not can_reply_again(where, known, self._now()):
            return NoReply(reason="told a moment ago")
        if not stranger.asks_for_code:
            self._remember(where.chat_id)
            return StrangerReply(key=stranger.key)
        name = sender.name if where.is_private else where.title
        asked = await self._store.ask(
            self._bot_id, where.chat_id, name=name[:128], username=sender.username if where.is_private else ""
        )
        if asked is None or asked.code is None:
            self._remember(where.chat_id)
            return StrangerReply(key="access_too_many_waiting")
        await self._store.told(self._bot_id, where.chat_id)
        return StrangerReply(key=stranger.key, args={"code": asked.code}, is_new=asked.told_at is None)

    def _remember(self, chat_id: int) -> None:
        self._told.pop(chat_id, None)
        self._told[chat_id] = self._now()
        while len(self._told) > _MAX_CACHED:
            del self._told[next(iter(self._told))]
