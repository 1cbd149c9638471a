"""Parses raw updates into plain values; an update without use becomes an IgnoredUpdate with the reason."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from aiogram import Bot, types
from aiogram.types import CallbackQuery, Chat, Message, Update

from bot.telegram.inbound.updates import (
    BotIdentity,
    ChatRef,
    ForwardOrigin,
    IgnoredUpdate,
    IncomingMessage,
    IncomingUpdate,
    Media,
    MediaKind,
    MessageAuthor,
    ParsedCommand,
    QuotedMessage,
)

ALLOWED_UPDATES = (
    "message", "edited_message", "callback_query", "my_chat_member", "message_reaction",
    "stopped_message_generation",
)  # fmt: skip
"""Kinds of updates that every bot requests."""
_CHANNEL_POST = "channel_post"
BUSINESS_UPDATES = (
    "business_connection", "business_message", "edited_business_message", "deleted_business_messages",
)  # fmt: skip
"""Kinds of updates that a bot requests only in secretary mode."""
MAX_ID_VALUE = 2**53
"""Maximum of an id; Telegram uses at most 52 bits, and database columns must hold it."""
NOTE_CHARS = 4_000
"""Maximum characters of the description of a place, contact, poll or checklist.

A checklist can have 30 tasks of 100.
"""
MOST_PIXELS = 100_000
"""Maximum of a side of a picture; a larger value counts as unknown."""
GENERAL_TOPIC = 1
"""Id of the General topic in forums, which is treated as no topic.

In private chats it is an ordinary topic.
"""
_ESSENTIAL = (
    "message_id", "date", "chat", "from", "sender_chat", "text", "caption", "is_topic_message",
    "message_thread_id", "business_connection_id",
)  # fmt: skip
# `animation` comes before `document`, because Telegram sets both for an animation.
_FILES: tuple[MediaKind, ...] = (
    "animation", "document", "voice", "audio", "video", "video_note", "sticker",
)  # fmt: skip
_OTHER = (
    "live_photo", "paid_media", "story", "game", "giveaway", "giveaway_winners", "invoice",
    "rich_message",
)  # fmt: skip
_DEEP_LINK = re.compile(r"[A-Za-z0-9_-]{1,64}")


def list_allowed_updates(bot: BotIdentity) -> list[str]:
    """Return the kinds of updates to request from Telegram, depending on what the bot is allowed to
    answer.
    """
    optional = (
        (_CHANNEL_POST, bot.reads_channels),
        ("inline_query", bot.answers_inline),
        ("guest_message", bot.answers_guests),
        *((name, bot.is_secretary) for name in BUSINESS_UPDATES),
    )
    return [*ALLOWED_UPDATES, *(name for name, on in optional if on)]


def parse_update(raw: Mapping[str, Any], *, bot: BotIdentity, client: Bot | None = None) -> IncomingUpdate:
    """Return a message, another update, or IgnoredUpdate with a reason; never raises.

    An update that cannot be decoded is an IgnoredUpdate. Parsed updates belong to `client`, as aiogram's
    dispatcher expects.
    """
    number = _get_update_id(raw)
    try:
        update = _decode(raw, client)
        found = _parse(update, number, bot)
        if any(abs(one) > MAX_ID_VALUE for one in _list_ids(update)):
            return IgnoredUpdate(update_id=number, reason="a number that is too large")
        return found
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        ArithmeticError,
        RecursionError,
        OSError,
    ) as error:
        return IgnoredUpdate(update_id=number, reason=f"cannot be decoded: {type(error).__name__}")


def _parse(update: Update, number: int, bot: BotIdentity) -> IncomingUpdate:
    """Return a message, another update that a router handles, or IgnoredUpdate.

    Raises ValueError for unknown chats.
    """
    message, edited = update.message or update.channel_post, update.edited_message
    chat = find_chat(update)
    if chat is not None and chat.type == "channel" and not bot.reads_channels:
        return IgnoredUpdate(update_id=number, reason="of a channel")
    if chat is not None:
        build_chat_ref(chat)  # raises for unknown kinds of chats
    if message is not None and not is_change_of_chat(message):
        return _parse_message(message, update, bot, edited=False)
    if edited is not None:
        return _parse_message(edited, update, bot, edited=True)
    reason = _explain_no_use(update, bot)
    return IgnoredUpdate(update_id=number, reason=reason) if reason else update


def parse_guest_message(update: Update, bot: BotIdentity) -> IncomingMessage | IgnoredUpdate:
    """Return the question from a guest chat as a message.

    Its chat id is unrelated to the bot's other chats.
    """
    assert update.guest_message is not None, "the router takes no other updates"
    return _parse_message(update.guest_message, update, bot, edited=False)


def parse_business_message(update: Update, bot: BotIdentity) -> IncomingMessage | IgnoredUpdate:
    """Return a message from a customer's chat; its chat id may equal that of another chat of the bot."""
    edited = update.edited_business_message
    message = update.business_message or edited
    assert message is not None, "the router takes no other updates"
    return _parse_message(message, update, bot, edited=edited is not None)


def find_lane(update: Update) -> Hashable | None:
    """Return a key shared by updates that must be handled in order; None if the order does not matter."""
    if update.my_chat_member is not None:
        return update.my_chat_member.chat.id
    message = update.business_message or update.edited_business_message or update.deleted_business_messages
    if message is not None:
        return message.business_connection_id, message.chat.id
    return None if update.business_connection is None else update.business_connection.id


def is_change_of_chat(message: Message) -> bool:
    """Return whether a message reports a migration or a pin, and is not one that a person wrote."""
    return bool(message.migrate_to_chat_id or message.migrate_from_chat_id or message.pinned_message)


def find_chat(update: Update) -> Chat | None:
    """Return the chat of an update; None if it has no chat, such as an inline query, or is of no use."""
    if update.callback_query is not None:
        held = update.callback_query.message
        return held.chat if held is not None else None
    event = (
        update.message or update.channel_post or update.edited_message or update.my_chat_member
        or update.message_reaction or update.stopped_message_generation
    )  # fmt: skip
    return event.chat if event is not None else None


def _explain_no_use(update: Update, bot: BotIdentity) -> str:
    """Return why no router handles the update, for the log; empty if one does."""
    if (message := update.message or update.channel_post) is not None:
        pinned_by_nobody = message.pinned_message is not None and parse_author(message) is None
        return "pinned by nobody we know" if pinned_by_nobody else ""
    if update.callback_query is not None:
        return "a button without data" if update.callback_query.data is None else ""
    if update.inline_query is not None and bot.answers_inline:
        return ""
    if (asked := update.guest_message) is not None and bot.answers_guests:
        return "" if asked.guest_query_id else "a guest's message without an id"
    if bot.is_secretary and update.model_fields_set.intersection(BUSINESS_UPDATES):
        return ""
    if update.my_chat_member or update.message_reaction or update.stopped_message_generation:
        return ""
    kinds = ", ".join(sorted(update.model_fields_set - {"update_id"}) + sorted(update.model_extra or ()))
    return f"of no use here: {kinds[:80] or 'nothing in it'}"


def _list_ids(update: Update) -> Iterator[int]:
    """Yield the ids of an update that are stored, to check them against MAX_ID_VALUE."""
    foreign = (
        update.guest_message or update.business_message or update.edited_business_message
        or update.deleted_business_messages
    )  # fmt: skip
    chat = foreign.chat if foreign is not None else find_chat(update)
    has_ids = chat is not None or update.inline_query is not None or update.business_connection is not None
    event = update.event if has_ids else None
    held = event.message if isinstance(event, CallbackQuery) else event
    for one, names in (
        (chat, ("id",)),
        (held, ("message_id", "message_thread_id", "draft_id", "migrate_to_chat_id", "migrate_from_chat_id")),
        (getattr(held, "pinned_message", None), ("message_id",)),
        (getattr(held, "reply_to_message", None), ("message_id",)),
        (getattr(event, "from_user", None) or getattr(event, "user", None), ("id",)),
    ):
        yield from (found for name in names if isinstance(found := getattr(one, name, None), int))


def _decode(raw: Mapping[str, Any], client: Bot | None) -> Update:
    """Parse an update with aiogram; if unknown fields make that fail, parse only the essential fields.

    Raises ValueError if it has no text and cannot be parsed.
    """
    try:
        return Update.model_validate(dict(raw), context={"bot": client})
    except ValueError:
        kind = next(
            (
                name
                for name in ("message", "edited_message", _CHANNEL_POST, *BUSINESS_UPDATES[1:3])
                if isinstance(raw.get(name), Mapping)
            ),
            "",
        )
        if not kind or not (raw[kind].get("text") or raw[kind].get("caption")):
            raise
        bare = {name: raw[kind][name] for name in _ESSENTIAL if name in raw[kind]}
        found = {"update_id": raw.get("update_id"), kind: bare}
        return Update.model_validate(found, context={"bot": client})


def build_author(user: types.User) -> MessageAuthor:
    """Return a Telegram user as the author of a message."""
    return MessageAuthor(
        user_id=user.id,
        name=user.full_name,
        username=user.username or "",
        language_code=user.language_code or "",
    )


def _get_update_id(raw: Mapping[str, Any]) -> int:
    """Return the id of a raw update; 0 if it has none."""
    number = raw.get("update_id")
    return number if type(number) is int else 0


# -- messages: author, quote, forward, mention and command ---------------------------------------------------


def _parse_message(
    message: types.Message, update: Update, bot: BotIdentity, *, edited: bool
) -> IncomingMessage | IgnoredUpdate:
    number = update.update_id
    why = _explain_ignored(message, bot, edited=edited)
    sender = parse_author(message)
    if why or sender is None:
        return IgnoredUpdate(update_id=number, reason=why or "from nobody")
    media = _parse_media(message)
    text = message.text if message.text is not None else message.caption or ""
    if media is None and not text.strip():
        kind = getattr(message.content_type, "value", message.content_type)
        return IgnoredUpdate(update_id=number, reason=f"nothing said: {kind}")
    command = _parse_command(message, bot)
    replied = _get_replied_message(message)
    return IncomingMessage(
        update_id=number,
        chat=parse_chat_ref(message),
        sender=sender,
        message_id=message.message_id,
        sent_at=message.date,
        text=text,
        media=media,
        media_group_id=message.media_group_id or "",
        forward_origin=_parse_forward(message, bot),
        quoted=_parse_quote(message, sender, bot),
        reply_to_message_id=None if replied is None else replied.message_id,
        replies_to_bot=replied is not None and _get_author_id(replied) == bot.bot_id,
        mentions_bot=_is_mentioned(message, bot),
        command=command,
        deep_link=_parse_deep_link(command),
        is_edited=edited,
        update=update,
    )


def parse_chat_ref(message: types.Message) -> ChatRef:
    """Return the chat and topic of a message; `thread_id` is 0 for the General topic and outside of topics.

    Raises ValueError for an unknown kind of chat.
    """
    thread = message.message_thread_id if message.is_topic_message else None
    topic = message.reply_to_message.forum_topic_created if message.reply_to_message else None
    return build_chat_ref(message.chat, thread_id=thread or 0, topic=topic.name if topic else "")


def build_chat_ref(chat: types.Chat, *, thread_id: int = 0, topic: str = "") -> ChatRef:
    """Return a chat or its topic `thread_id`. Raises ValueError for an unknown kind of chat."""
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
    """Return the author of a message; None if Telegram names none.

    A person who writes as a group or channel gets its name. The author of a channel's post is the channel.
    """
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


def _explain_ignored(message: types.Message, bot: BotIdentity, *, edited: bool) -> str:
    """Return why a message is ignored, for the log; empty if it is not."""
    if message.via_bot is not None and message.via_bot.id == bot.bot_id:
        return "an answer of this bot, sent inline"
    if message.is_automatic_forward:
        return "a channel's post"
    if message.from_user is not None and message.from_user.is_bot and message.sender_chat is None:
        return "from a bot"
    if edited and message.location is not None:
        return "a live location moved"
    return ""


def _get_replied_message(message: types.Message) -> types.Message | None:
    """Return the message that is replied to; None without one.

    In a topic, ordinary messages reply to the message that created the topic; that does not count.
    """
    replied = message.reply_to_message
    return None if replied is None or replied.forum_topic_created is not None else replied


def _get_author_id(message: types.Message) -> int | None:
    return None if message.from_user is None else message.from_user.id


def _parse_quote(message: types.Message, sender: MessageAuthor, bot: BotIdentity) -> QuotedMessage | None:
    content = message.quote.text if message.quote is not None else ""
    if message.external_reply is not None:
        media = _parse_media(message.external_reply)
        return QuotedMessage(
            author=_get_origin_name(message.external_reply.origin),
            text=content,
            chosen=bool(content),
            elsewhere=True,
            media=media.kind if media else None,
            attachment=media,
        )
    replied = _get_replied_message(message)
    if replied is None:
        return None
    author = parse_author(replied)
    media = _parse_media(replied)
    return QuotedMessage(
        author=author.name if author else "",
        text=content or replied.text or replied.caption or "",
        chosen=bool(content),
        by_bot=_get_author_id(replied) == bot.bot_id,
        own=author is not None and author.user_id == sender.user_id and replied.sender_chat is None,
        media=media.kind if media else None,
        attachment=media,
        whole=(replied.text or replied.caption or "") if content else "",
    )


def _parse_forward(message: types.Message, bot: BotIdentity) -> ForwardOrigin | None:
    origin = message.forward_origin
    if origin is None:
        return None
    user = getattr(origin, "sender_user", None)
    return ForwardOrigin(
        name=_get_origin_name(origin), from_this_bot=user is not None and user.id == bot.bot_id
    )


def _get_origin_name(origin: types.MessageOriginUnion) -> str:
    """Return the name of a forward's source: a user, a hidden user, a group or a channel.

    Empty if unknown.
    """
    user = getattr(origin, "sender_user", None)
    if user is not None:
        return str(user.full_name)
    chat = getattr(origin, "sender_chat", None) or getattr(origin, "chat", None)
    if chat is not None:
        return str(chat.title or "")
    return str(getattr(origin, "sender_user_name", ""))


def _iterate_entities(message: types.Message) -> Iterator[tuple[types.MessageEntity, str]]:
    """Yield each entity of a message's text or caption with the text that it covers.

    Offsets of entities count UTF-16 units.
    """
    text = message.text if message.text is not None else message.caption or ""
    entities = message.entities if message.text is not None else message.caption_entities
    coded = text.encode("utf-16-le", "surrogatepass")
    for entity in entities or ():
        start, end = max(0, entity.offset), max(0, entity.offset + entity.length)
        yield entity, coded[2 * start : 2 * end].decode("utf-16-le", "replace")


def _is_mentioned(message: types.Message, bot: BotIdentity) -> bool:
    """Return whether the text mentions the bot by name, by link, or in a command."""
    own = f"@{bot.username}".lower()
    for entity, content in _iterate_entities(message):
        match entity.type:
            case "mention" if content.lower() == own:
                return True
            case "text_mention" if entity.user is not None and entity.user.id == bot.bot_id:
                return True
            case "bot_command" if content.lower().endswith(own):
                return True
    return False


def _parse_command(message: types.Message, bot: BotIdentity) -> ParsedCommand | None:
    """Return the command at the beginning of a message; None without one or in a forwarded message.

    A path such as `/etc/passwd` is not a command.
    """
    text = message.text
    if text is None or message.forward_origin is not None:
        return None
    for entity, content in _iterate_entities(message):
        if entity.type == "bot_command" and entity.offset == 0:
            if text[len(content) : len(content) + 1].strip():
                return None  # a path such as /etc/passwd
            name, _, at = content.removeprefix("/").partition("@")
            this = at.lower() == bot.username.lower()
            return ParsedCommand(
                name=name.lower(),
                args=text[len(content) :].strip(),
                is_for_other_bot=bool(at) and not this,
                is_for_this_bot=bool(at) and this,
            )
    return None


def _parse_deep_link(command: ParsedCommand | None) -> str:
    """Return the argument of `/start` if it can come from a link, else an empty text."""
    if command is None or command.name != "start" or not _DEEP_LINK.fullmatch(command.args):
        return ""
    return command.args


# -- files ---------------------------------------------------------------------------------------------------


def _parse_media(message: types.Message | types.ExternalReplyInfo) -> Media | None:
    """Return the file or other content of a message; None if it has only text."""
    if message.photo:
        largest = max(message.photo, key=lambda size: (size.width * size.height, size.file_size or 0))
        return Media(
            kind="photo",
            file_id=largest.file_id,
            unique_id=largest.file_unique_id,
            size=largest.file_size,
            mime="image/jpeg",
            width=_clamp_side(largest.width),
            height=_clamp_side(largest.height),
        )
    for kind in _FILES:
        found = getattr(message, kind, None)
        if found is not None:
            return _build_file(kind, found)
    return _describe_contentless(message) or _describe_other(message)


def _build_file(kind: MediaKind, found: object) -> Media:
    """Return the media of a file; fields that files of this kind do not have stay empty."""
    return Media(
        kind=kind,
        file_id=getattr(found, "file_id", ""),
        unique_id=getattr(found, "file_unique_id", ""),
        size=getattr(found, "file_size", None),
        name=getattr(found, "file_name", None) or "",
        mime=getattr(found, "mime_type", None) or "",
        width=_clamp_side(getattr(found, "width", None)),
        height=_clamp_side(getattr(found, "height", None)),
        seconds=getattr(found, "duration", None),
        note=getattr(found, "emoji", None) or "",
    )


def _describe_contentless(message: types.Message | types.ExternalReplyInfo) -> Media | None:
    """Return a place, contact, poll, checklist or dice as media with a description.

    None for other content.
    """
    if (venue := message.venue) is not None:
        at = f"{venue.location.latitude:.5f}, {venue.location.longitude:.5f}"
        return _build_note("location", f"{venue.title}, {venue.address} ({at})")
    if (location := message.location) is not None:
        return _build_note("location", f"{location.latitude:.5f}, {location.longitude:.5f}")
    if (contact := message.contact) is not None:
        names = (contact.first_name, contact.last_name, contact.phone_number)
        return _build_note("contact", " ".join(word for word in names if word))
    if (poll := message.poll) is not None:
        return _build_note("poll", f"{poll.question} – {' | '.join(option.text for option in poll.options)}")
    if (checklist := message.checklist) is not None:
        return _build_note("checklist", _describe_checklist(checklist))
    if (dice := message.dice) is not None:
        return _build_note("dice", f"{dice.emoji} {dice.value}")
    return None


def _describe_checklist(checklist: types.Checklist) -> str:
    """Return a checklist on one line: its title, and each task with `[x]` or `[ ]`."""
    tasks = (
        f"{'[x]' if task.completion_date or task.completed_by_user else '[ ]'} {task.text}"
        for task in checklist.tasks
    )
    return f"{checklist.title} – {' | '.join(tasks)}"


def _describe_other(message: types.Message | types.ExternalReplyInfo) -> Media | None:
    """Return content that the bot cannot read, such as a story, as media with its kind.

    None if there is none.
    """
    name = next((name for name in _OTHER if getattr(message, name, None) is not None), None)
    return None if name is None else _build_note("other", name.replace("_", " "))


def _build_note(kind: MediaKind, content: str) -> Media:
    return Media(kind=kind, note=" ".join(content.split())[:NOTE_CHARS])


def _clamp_side(pixels: int | None) -> int:
    """Return the side of a picture in pixels; 0 if it is missing, not positive or too large."""
    return pixels if pixels is not None and 0 < pixels <= MOST_PIXELS else 0
