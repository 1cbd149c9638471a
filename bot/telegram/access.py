"""Who may talk with a bot, and what strangers are told: a pure decision, and a small service around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, Protocol

from bot.telegram.arrivals import Membership, Pressed, Sender, Spoken, Where
from shared.adapters.postgres.telegram.access import AccessRow

Mode = Literal["pairing", "allowlist", "open"]
TextKey = Literal[
    "access_code",
    "access_not_allowed",
    "access_too_many_waiting",
    "access_owner",
    "access_group_code",
    "access_group_not_allowed",
    "access_group_welcome",
]
AGAIN_SECONDS = 60.0
"""A stranger is not answered more often."""
GROUP_AGAIN_SECONDS = 3_600.0
"""An unknown group gets one line, and another when its code has lapsed."""
OWNER_CODE_CHARS = 32
_REMEMBERED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    owner: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One line for a stranger, by its key in the texts; no model is asked."""

    key: TextKey
    args: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    reason: str


Decision = Allowed | Told | Silent


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRules:
    """As it is configured; `listed` holds ids of people and, negative, of groups."""

    mode: Mode = "pairing"
    listed: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stranger:
    """Nobody has allowed this chat; what is to be said depends on when something was said last."""

    asks_for_code: bool
    key: TextKey


def standing(where: Where, rules: AccessRules, row: AccessRow | None) -> Allowed | Stranger | Silent:
    """Whether this chat may talk at all."""
    if row is not None and row.state == "refused":
        return Silent(reason="refused")
    if row is not None and row.state == "allowed":
        return Allowed(owner=row.owner)
    if where.chat_id in rules.listed or rules.mode == "open":
        return Allowed()
    if rules.mode == "allowlist":
        return Stranger(
            asks_for_code=False, key="access_not_allowed" if where.private else "access_group_not_allowed"
        )
    return Stranger(asks_for_code=True, key="access_code" if where.private else "access_group_code")


def decide(spoken: Spoken, *, rules: AccessRules, row: AccessRow | None) -> Allowed | Stranger | Silent:
    """`row` is the chat's own: a person's in private, the group's in a group."""
    if not spoken.where.private and not spoken.addressed:
        return Silent(reason="not addressed")
    if spoken.command is not None and spoken.command.at_other_bot:
        return Silent(reason="for another bot")
    return standing(spoken.where, rules, row)


def may_be_told(where: Where, told_at: datetime | None, now: datetime) -> bool:
    wait = AGAIN_SECONDS if where.private else GROUP_AGAIN_SECONDS
    return told_at is None or now - told_at >= timedelta(seconds=wait)


class AccessStore(Protocol):
    async def find(self, bot_id: int, chat_id: int) -> AccessRow | None: ...

    async def ask(self, bot_id: int, chat_id: int, *, name: str, username: str) -> AccessRow | None: ...

    async def told(self, bot_id: int, chat_id: int) -> None: ...

    async def decide(
        self, bot_id: int, chat_id: int, *, allowed: bool, by: str, name: str = "", owner: bool = False
    ) -> AccessRow: ...

    async def become_owner(self, bot_id: int, chat_id: int, *, code: str, name: str) -> bool: ...


class Doorkeeper:
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

    async def admit(self, spoken: Spoken) -> Decision:
        if await self._becomes_owner(spoken):
            return Told(key="access_owner", args={"name": spoken.sender.name})
        if not spoken.where.private and not spoken.addressed:
            return Silent(reason="not addressed")
        row = await self._store.find(self._bot_id, spoken.where.chat_id)
        found = decide(spoken, rules=self._rules, row=row)
        if isinstance(found, Stranger):
            if spoken.edited:
                return Silent(reason="a stranger's edit")
            return await self._answer(spoken.where, spoken.sender, found, row)
        return found

    async def may_press(self, pressed: Pressed) -> bool:
        """Whether anything in this chat may be pressed; whose button it is, is another question."""
        if pressed.where is None:
            return False
        return isinstance(await self.standing(pressed.where), Allowed)

    async def standing(self, where: Where) -> Allowed | Stranger | Silent:
        """Without any answer: for what needs none, such as a pin or a reaction."""
        row = await self._store.find(self._bot_id, where.chat_id)
        return standing(where, self._rules, row)

    async def added(self, membership: Membership) -> Decision:
        """Somebody has added the bot to a group: an owner thereby allows it."""
        where = membership.where
        row = await self._store.find(self._bot_id, where.chat_id)
        found = standing(where, self._rules, row)
        if isinstance(found, Allowed):
            return Told(key="access_group_welcome")
        if isinstance(found, Silent):
            return found
        if await self._trusts(membership.by):
            await self._store.decide(
                self._bot_id,
                where.chat_id,
                allowed=True,
                by=f"owner {membership.by.user_id}",
                name=where.title,
            )
            return Told(key="access_group_welcome")
        return await self._answer(where, membership.by, found, row)

    async def _trusts(self, person: Sender) -> bool:
        if person.user_id in self._rules.listed:
            return True
        row = await self._store.find(self._bot_id, person.user_id)
        return row is not None and row.state == "allowed" and row.owner

    async def _becomes_owner(self, spoken: Spoken) -> bool:
        """By the one-time link; in a private chat only, and each code works once."""
        if not spoken.where.private or spoken.edited or len(spoken.deep_link) != OWNER_CODE_CHARS:
            return False
        return await self._store.become_owner(
            self._bot_id, spoken.where.chat_id, code=spoken.deep_link, name=spoken.sender.name
        )

    async def _answer(
        self, where: Where, sender: Sender, stranger: Stranger, row: AccessRow | None
    ) -> Decision:
        known = row.told_at if row is not None else self._told.get(where.chat_id)
        if not may_be_told(where, known, self._now()):
            return Silent(reason="told a moment ago")
        if not stranger.asks_for_code:
            self._remember(where.chat_id)
            return Told(key=stranger.key)
        name = sender.name if where.private else where.title
        asked = await self._store.ask(
            self._bot_id, where.chat_id, name=name[:128], username=sender.username if where.private else ""
        )
        if asked is None or asked.code is None:
            self._remember(where.chat_id)
            return Told(key="access_too_many_waiting")
        await self._store.told(self._bot_id, where.chat_id)
        return Told(key=stranger.key, args={"code": asked.code})

    def _remember(self, chat_id: int) -> None:
        self._told.pop(chat_id, None)
        self._told[chat_id] = self._now()
        while len(self._told) > _REMEMBERED:
            del self._told[next(iter(self._told))]
