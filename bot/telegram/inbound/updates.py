"""Everything that can come in from Telegram, as one closed set of plain values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

ChatKind = Literal["private", "group", "supergroup", "channel"]
MediaKind = Literal[
    "photo",
    "document",
    "voice",
    "audio",
    "video",
    "video_note",
    "animation",
    "sticker",
    "location",
    "contact",
    "poll",
    "dice",
    "other",
]
MembershipKind = Literal["blocked", "unblocked", "added", "removed", "promoted", "demoted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BotIdentity:
    bot_id: int
    username: str
    hears_all: bool = False
    """Privacy mode is off: it reads everything in its groups."""
    reads_channels: bool = False
    """Its operator lets it answer posts of channels."""
    answers_inline: bool = False
    """Its operator lets people ask it from other chats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRef:
    """A chat or a topic of one."""

    chat_id: int
    thread_id: int = 0
    """0 for a chat without topics, and for the General topic."""
    kind: ChatKind = "private"
    is_forum: bool = False
    title: str = ""
    """Of a private chat the person's name."""
    topic: str = ""
    """The topic's name where the message tells it."""

    @property
    def is_private(self) -> bool:
        return self.kind == "private"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAuthor:
    """Who wrote; an anonymous administrator has the name of the group."""

    user_id: int
    name: str
    username: str = ""
    language_code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """What a message holds besides words; `note` says in words what has no file."""

    kind: MediaKind
    file_id: str = ""
    unique_id: str = ""
    size: int | None = None
    """Bytes, as Telegram says; not always known."""
    name: str = ""
    mime: str = ""
    width: int = 0
    height: int = 0
    seconds: int | None = None
    """Of what can be heard, as Telegram says."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardOrigin:
    """From whom a message was forwarded."""

    name: str
    from_this_bot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotedMessage:
    """What a message answers: the other message, or the words of it that were chosen."""

    author: str
    text: str
    chosen: bool = False
    """The person marked these very words."""
    by_bot: bool = False
    """This bot wrote it."""
    own: bool = False
    """The person answers their own message."""
    elsewhere: bool = False
    """It stands in another chat or topic."""
    media: MediaKind | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCommand:
    """`/name@bot args` as it was typed; whether we know such a command is decided elsewhere."""

    name: str
    args: str = ""
    is_for_other_bot: bool = False
    is_for_this_bot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingMessage:
    """A person's message, new or edited."""

    update_id: int
    chat: ChatRef
    sender: MessageAuthor
    message_id: int
    sent_at: datetime
    text: str = ""
    """The caption where there is a picture or file."""
    media: Media | None = None
    media_group_id: str = ""
    forward_origin: ForwardOrigin | None = None
    quoted: QuotedMessage | None = None
    reply_to_message_id: int | None = None
    """In the same chat."""
    replies_to_bot: bool = False
    mentions_bot: bool = False
    command: ParsedCommand | None = None
    deep_link: str = ""
    """What `/start` brought along, at most 64 of A-Z a-z 0-9 _ -."""
    is_edited: bool = False

    @property
    def is_addressed(self) -> bool:
        """In a group: meant for this bot."""
        if self.command is not None:
            return not self.command.is_for_other_bot
        return self.mentions_bot or self.replies_to_bot


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackQuery:
    """A button under a message of ours. Whose button it is must be checked by who handles it."""

    update_id: int
    callback_id: str
    data: str
    sender: MessageAuthor
    chat: ChatRef | None
    message_id: int | None
    accessible: bool
    """False when the message is too old to be shown or edited."""
    replied_text: str = ""
    """Of the message that the one with the button replies to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReactionChange:
    """Emoji on a message changed; the topic is not told."""

    update_id: int
    chat: ChatRef
    message_id: int
    user_id: int | None
    """None for an anonymous one."""
    added: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipChange:
    """What somebody did with the bot itself."""

    update_id: int
    chat: ChatRef
    by: MessageAuthor
    change: MembershipKind
    is_admin: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMigration:
    """A group has become a supergroup; told twice, once in each."""

    update_id: int
    old_chat: int
    new_chat: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PinChange:
    update_id: int
    chat: ChatRef
    sender: MessageAuthor
    message_id: int
    """The message that is pinned now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftStopped:
    """Somebody pressed Stop on a native draft; Telegram does not say who."""

    update_id: int
    chat: ChatRef
    draft_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineQuery:
    """What somebody types behind the bot's name in any chat; Telegram does not say in which."""

    update_id: int
    query_id: str
    sender: MessageAuthor
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredUpdate:
    """Needs nothing of us; the reason is for operators and holds no words of people."""

    update_id: int
    reason: str


IncomingUpdate = (
    IncomingMessage
    | CallbackQuery
    | ReactionChange
    | MembershipChange
    | ChatMigration
    | PinChange
    | DraftStopped
    | InlineQuery
    | IgnoredUpdate
)
