"""Chats of the fake: members, topics, messages, drafts, and a record of what their screens showed."""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from tests.kit.fakes.bot_api.shapes import Json, compact, without_nones

Kind = Literal["private", "group", "supergroup", "channel"]
GENERAL_TOPIC = 1
MAX_MESSAGES = 5_000
MAX_VIEWS = 4_000
"""Maximum records per chat; the oldest are dropped first."""


@dataclass(slots=True, kw_only=True)
class Stored:
    """Message of a chat; `message` is its form in the Bot API."""

    message: Json
    author: int
    silent: bool = False
    reactions: dict[int, list[Json]] = field(default_factory=dict)

    @property
    def id(self) -> int:
        return int(self.message["message_id"])

    @property
    def thread(self) -> int | None:
        thread: int | None = self.message.get("message_thread_id")
        return thread


@dataclass(slots=True, kw_only=True)
class Draft:
    draft_id: int
    text: str
    entities: list[Json]
    rich: Json | None
    can_stop: bool
    keep_on_stop: bool
    expires_at: float
    stopped: bool = False


@dataclass(slots=True, kw_only=True)
class Chat:
    id: int
    kind: Kind
    title: str | None = None
    person: Json | None = None
    """Person of a private chat as Telegram shows them; None for a group."""
    is_forum: bool = False
    members: set[int] = field(default_factory=set)
    admins: set[int] = field(default_factory=set)
    owner: int | None = None
    kicked: set[int] = field(default_factory=set)
    topics: dict[int, str] = field(default_factory=dict)
    blocked: bool = False
    migrated_to: int | None = None
    messages: dict[int, Stored] = field(default_factory=dict)
    pinned: list[int] = field(default_factory=list)
    drafts: dict[int, Draft] = field(default_factory=dict)
    typing_until: dict[int, float] = field(default_factory=dict)
    notifications: int = 0
    views: deque[Json] = field(default_factory=lambda: deque(maxlen=MAX_VIEWS))
    next_message_id: int = 1
    chat_instance: str = ""
    version: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def as_json(self) -> Json:
        if self.person is not None:
            person = self.person
            return without_nones(
                id=self.id,
                type="private",
                first_name=person["first_name"],
                last_name=person.get("last_name"),
                username=person.get("username"),
            )
        found: Json = {"id": self.id, "type": self.kind, "title": self.title}
        return {**found, "is_forum": True} if self.is_forum else found

    def add(self, message: Json, *, author: int, silent: bool = False) -> Stored:
        """Store a message under the next number; the caller provides all other fields."""
        number = self.next_message_id
        self.next_message_id += 1
        stored = Stored(message={"message_id": number, **message}, author=author, silent=silent)
        self.messages[number] = stored
        while len(self.messages) > MAX_MESSAGES:
            del self.messages[next(iter(self.messages))]
        return stored

    def saw(self, kind: str, *, at: float, **what: object) -> None:
        """Record a change on the screens of this chat."""
        self.version += 1
        self.views.append({"number": self.version, "at": at, "kind": kind, **without_nones(**what)})
        waiting, self.changed = self.changed, asyncio.Event()
        waiting.set()

    def saw_message(self, kind: str, stored: Stored, *, at: float, by_bot: bool) -> None:
        message = stored.message
        self.saw(
            kind,
            at=at,
            message_id=stored.id,
            thread=stored.thread,
            by="bot" if by_bot else "person",
            author=stored.author,
            silent=stored.silent or None,
            **shown(message),
        )

    def has_thread(self, thread: int) -> bool:
        return thread in self.topics

    def lane(self) -> str:
        return f"chat:{self.id}"


def shown(message: Json) -> Json:
    """Return the fields of a message that people see."""
    names = ("text", "entities", "caption", "rich_message", "reply_markup", "document", "photo", "voice")
    found = {name: copy.deepcopy(message[name]) for name in names if name in message}
    for name in ("reply_to_message", "quote", "media_group_id"):
        if name in message:
            found[name] = copy.deepcopy(message[name])
    return found


def same_content(before: Json, after: Json) -> bool:
    names = ("text", "entities", "rich_message", "reply_markup")
    return all(compact(before.get(name)) == compact(after.get(name)) for name in names)
