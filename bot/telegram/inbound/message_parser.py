"""Reads a message: who speaks, what is quoted and forwarded, which file it has, and if the bot is meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bot.telegram.inbound.updates import (
    BotIdentity,
    ChatRef,
    ForwardOrigin,
    IgnoredUpdate,
    IncomingMessage,
    Media,
    MediaKind,
    MessageAuthor,
    ParsedCommand,
    QuotedMessage,
)

if TYPE_CHECKING:
    from aiogram import types


NOTE_CHARS = 1_000
MOST_PIXELS = 100_000
_FILES: tuple[MediaKind, ...] = (
    "animation",  # before `document`, which Telegram sets beside it
    "document",
    "voice",
    "audio",
    "video",
    "video_note",
    "sticker",
)
_OTHER = (
    "live_photo",
    "paid_media",
    "story",
    "checklist",
    "game",
    "giveaway",
    "giveaway_winners",
    "invoice",
    "rich_message",
)


def parse_media(message: types.Message | types.ExternalReplyInfo) -> Media | None:
    if message.photo:
        largest = max(message.photo, key=lambda size: (size.width * size.height, size.file_size or 0))
        return Media(
            kind="photo",
            file_id=largest.file_id,
            unique_id=largest.file_unique_id,
            size=largest.file_size,
            mime="image/jpeg",
            width=_side(largest.width),
            height=_side(largest.height),
        )
    for kind in _FILES:
        found = getattr(message, kind, None)
        if found is not None:
            return _file(kind, found)
    return _describe_contentless(message) or _other(message)


def _file(kind: MediaKind, found: object) -> Media:
    """Each kind of file has these fields or lacks them; none has others that we need."""
    return Media(
        kind=kind,
        file_id=getattr(found, "file_id", ""),
        unique_id=getattr(found, "file_unique_id", ""),
        size=getattr(found, "file_size", None),
        name=getattr(found, "file_name", None) or "",
        mime=getattr(found, "mime_type", None) or "",
        width=_side(getattr(found, "width", None)),
        height=_side(getattr(found, "height", None)),
        seconds=getattr(found, "duration", None),
        note=getattr(found, "emoji", None) or "",
    )


def _describe_contentless(message: types.Message | types.ExternalReplyInfo) -> Media | None:
    if (venue := message.venue) is not None:
        at = f"{venue.location.latitude:.5f}, {venue.location.longitude:.5f}"
        return _note("location", f"{venue.title}, {venue.address} ({at})")
    if (location := message.location) is not None:
        return _note("location", f"{location.latitude:.5f}, {location.longitude:.5f}")
    if (contact := message.contact) is not None:
        names = (contact.first_name, contact.last_name, contact.phone_number)
        return _note("contact", " ".join(word for word in names if word))
    if (poll := message.poll) is not None:
        return _note("poll", f"{poll.question} – {' | '.join(option.text for option in poll.options)}")
    if (dice := message.dice) is not None:
        return _note("dice", f"{dice.emoji} {dice.value}")
    return None


def _other(message: types.Message | types.ExternalReplyInfo) -> Media | None:
    name = next((name for name in _OTHER if getattr(message, name, None) is not None), None)
    return None if name is None else _note("other", name.replace("_", " "))


def _note(kind: MediaKind, words: str) -> Media:
    return Media(kind=kind, note=" ".join(words.split())[:NOTE_CHARS])


def _side(pixels: int | None) -> int:
    """0 for what is no size of a picture."""
    return pixels if pixels is not None and 0 < pixels <= MOST_PIXELS else 0


GENERAL_TOPIC = 1
"""Of forums; in a private chat it is a topic like any other."""
_DEEP_LINK = re.compile(r"[A-Za-z0-9_-]{1,64}")


def parse_message(
    message: types.Message, number: int, bot: BotIdentity, *, edited: bool
) -> IncomingMessage | IgnoredUpdate:
    why = _reason_to_ignore(message, edited=edited)
    sender = parse_author(message)
    if why or sender is None:
        return IgnoredUpdate(update_id=number, reason=why or "from nobody")
    media = parse_media(message)
    text = message.text if message.text is not None else message.caption or ""
    if media is None and not text.strip():
        kind = getattr(message.content_type, "value", message.content_type)
        return IgnoredUpdate(update_id=number, reason=f"nothing said: {kind}")
    command = _command(message, bot)
    answered = _replied_message(message)
    return IncomingMessage(
        update_id=number,
        chat=parse_chat_ref(message),
        sender=sender,
        message_id=message.message_id,
        sent_at=message.date,
        text=text,
        media=media,
        media_group_id=message.media_group_id or "",
        forward_origin=_forwarded(message, bot),
        quoted=_quoted(message, sender, bot),
        reply_to_message_id=None if answered is None else answered.message_id,
        replies_to_bot=answered is not None and _author_id(answered) == bot.bot_id,
        mentions_bot=_mentions(message, bot),
        command=command,
        deep_link=_deep_link(command),
        is_edited=edited,
    )


def parse_chat_ref(message: types.Message) -> ChatRef:
    """General has no number of its own, and a thread of replies outside of topics is not a place."""
    thread = message.message_thread_id if message.is_topic_message else None
    topic = message.reply_to_message.forum_topic_created if message.reply_to_message else None
    return build_chat_ref(message.chat, thread_id=thread or 0, topic=topic.name if topic else "")


def build_chat_ref(chat: types.Chat, *, thread_id: int = 0, topic: str = "") -> ChatRef:
    if chat.type not in ("private", "group", "supergroup", "channel"):
        raise ValueError("a chat of a kind that is not answered")
    return ChatRef(
        chat_id=chat.id,
        thread_id=0 if thread_id == GENERAL_TOPIC and chat.type != "private" else thread_id,
        kind=chat.type,  # type: ignore[arg-type]
        is_forum=bool(chat.is_forum),
        title=chat.title or " ".join(name for name in (chat.first_name, chat.last_name) if name),
        topic=topic,
    )


def parse_author(message: types.Message) -> MessageAuthor | None:
    """The person; who speaks as the group or a channel has its name, and a post is its channel's."""
    user, chat = message.from_user, message.sender_chat
    if user is None and message.chat.type == "channel":
        title = message.author_signature or message.chat.title or ""
        return MessageAuthor(user_id=message.chat.id, name=title)
    if user is None:
        return None
    return MessageAuthor(
        user_id=user.id,
        name=(chat.title or user.full_name) if chat is not None else user.full_name,
        username=user.username or "",
        language_code=user.language_code or "",
    )


def _reason_to_ignore(message: types.Message, *, edited: bool) -> str:
    """Why nobody expects anything of us, or nothing."""
    if message.is_automatic_forward:
        return "a channel's post"
    if message.from_user is not None and message.from_user.is_bot and message.sender_chat is None:
        return "from a bot"
    if edited and message.location is not None:
        return "a live location moved"
    return ""


def _replied_message(message: types.Message) -> types.Message | None:
    """What is replied to. In a topic everything seems to answer the message that made the topic."""
    answered = message.reply_to_message
    return None if answered is None or answered.forum_topic_created is not None else answered


def _author_id(message: types.Message) -> int | None:
    return None if message.from_user is None else message.from_user.id


def _quoted(message: types.Message, sender: MessageAuthor, bot: BotIdentity) -> QuotedMessage | None:
    words = message.quote.text if message.quote is not None else ""
    if message.external_reply is not None:
        media = parse_media(message.external_reply)
        return QuotedMessage(
            author=_origin(message.external_reply.origin),
            text=words,
            chosen=bool(words),
            elsewhere=True,
            media=media.kind if media else None,
        )
    answered = _replied_message(message)
    if answered is None:
        return None
    author = parse_author(answered)
    media = parse_media(answered)
    return QuotedMessage(
        author=author.name if author else "",
        text=words or answered.text or answered.caption or "",
        chosen=bool(words),
        by_bot=_author_id(answered) == bot.bot_id,
        own=author is not None and author.user_id == sender.user_id and answered.sender_chat is None,
        media=media.kind if media else None,
    )


def _forwarded(message: types.Message, bot: BotIdentity) -> ForwardOrigin | None:
    origin = message.forward_origin
    if origin is None:
        return None
    user = getattr(origin, "sender_user", None)
    return ForwardOrigin(name=_origin(origin), from_this_bot=user is not None and user.id == bot.bot_id)


def _origin(origin: types.MessageOriginUnion) -> str:
    """The name behind a forward: a user, one who hides, a group or a channel."""
    user = getattr(origin, "sender_user", None)
    if user is not None:
        return str(user.full_name)
    chat = getattr(origin, "sender_chat", None) or getattr(origin, "chat", None)
    if chat is not None:
        return str(chat.title or "")
    return str(getattr(origin, "sender_user_name", ""))


def _entities(message: types.Message) -> Iterator[tuple[types.MessageEntity, str]]:
    """With the words they cover; offsets count UTF-16 units."""
    text = message.text if message.text is not None else message.caption or ""
    entities = message.entities if message.text is not None else message.caption_entities
    coded = text.encode("utf-16-le", "surrogatepass")
    for entity in entities or ():
        start, end = max(0, entity.offset), max(0, entity.offset + entity.length)
        yield entity, coded[2 * start : 2 * end].decode("utf-16-le", "replace")


def _mentions(message: types.Message, bot: BotIdentity) -> bool:
    own = f"@{bot.username}".lower()
    for entity, words in _entities(message):
        match entity.type:
            case "mention" if words.lower() == own:
                return True
            case "text_mention" if entity.user is not None and entity.user.id == bot.bot_id:
                return True
            case "bot_command" if words.lower().endswith(own):
                return True
    return False


def _command(message: types.Message, bot: BotIdentity) -> ParsedCommand | None:
    """A command stands at the beginning; a forwarded one was meant for somebody else."""
    text = message.text
    if text is None or message.forward_origin is not None:
        return None
    for entity, words in _entities(message):
        if entity.type == "bot_command" and entity.offset == 0:
            name, _, at = words.removeprefix("/").partition("@")
            this = at.lower() == bot.username.lower()
            return ParsedCommand(
                name=name.lower(),
                args=text[len(words) :].strip(),
                is_for_other_bot=bool(at) and not this,
                is_for_this_bot=bool(at) and this,
            )
    return None


def _deep_link(command: ParsedCommand | None) -> str:
    if command is None or command.name != "start" or not _DEEP_LINK.fullmatch(command.args):
        return ""
    return command.args
