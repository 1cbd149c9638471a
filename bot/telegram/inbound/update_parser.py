"""Parses a raw update into one of our own values; never raises, and names what it ignores."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from aiogram import types
from aiogram.types import Message, Update

from bot.telegram.inbound.updates import (
    BotIdentity,
    CallbackQuery,
    ChatMigration,
    ChatRef,
    DraftStopped,
    ForwardOrigin,
    IgnoredUpdate,
    IncomingMessage,
    IncomingUpdate,
    InlineQuery,
    Media,
    MediaKind,
    MembershipChange,
    MembershipKind,
    MessageAuthor,
    ParsedCommand,
    PinChange,
    QuotedMessage,
    ReactionChange,
)

ALLOWED_UPDATES = (
    "message", "edited_message", "callback_query", "my_chat_member", "message_reaction",
    "stopped_message_generation",
)  # fmt: skip
_CHANNEL_POST = "channel_post"
MAX_ID_VALUE = 2**53
"""Largest id: Telegram promises 52 bits, and columns must hold it."""
NOTE_CHARS = 4_000
"""Characters of a place, contact, poll or checklist; the longest checklist has 30 tasks of 100."""
MOST_PIXELS = 100_000
GENERAL_TOPIC = 1
"""General topic of forums; in private chats it is a topic like others."""
_ESSENTIAL = (
    "message_id", "date", "chat", "from", "sender_chat", "text", "caption", "is_topic_message",
    "message_thread_id",
)  # fmt: skip
_MEMBERS = frozenset({"member", "administrator", "creator"})
_ADMINS = frozenset({"administrator", "creator"})
# An animation stands before `document`, which Telegram sets beside it.
_FILES: tuple[MediaKind, ...] = (
    "animation", "document", "voice", "audio", "video", "video_note", "sticker",
)  # fmt: skip
_OTHER = (
    "live_photo", "paid_media", "story", "game", "giveaway", "giveaway_winners", "invoice",
    "rich_message",
)  # fmt: skip
_DEEP_LINK = re.compile(r"[A-Za-z0-9_-]{1,64}")


def list_allowed_updates(bot: BotIdentity) -> list[str]:
    """The kinds of updates that are requested from Telegram."""
    optional = (_CHANNEL_POST, bot.reads_channels), ("inline_query", bot.answers_inline)
    return [*ALLOWED_UPDATES, *(name for name, on in optional if on)]


def parse_update(raw: Mapping[str, Any], *, bot: BotIdentity) -> IncomingUpdate:
    """Never raises: an update that cannot be decoded is an IgnoredUpdate with the reason."""
    number = _get_update_id(raw)
    try:
        found = _parse(raw, number, bot)
        chat = None if isinstance(found, IgnoredUpdate | ChatMigration | InlineQuery) else found.chat
        if chat is not None and chat.kind == "channel" and not bot.reads_channels:
            return IgnoredUpdate(update_id=number, reason="of a channel")
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


def _parse(raw: Mapping[str, Any], number: int, bot: BotIdentity) -> IncomingUpdate:
    update = _decode(raw)
    if (message := update.message or update.channel_post) is not None:
        return _check_ids(_parse_new_message(message, number, bot))
    if (edited := update.edited_message) is not None:
        return _check_ids(_parse_message(edited, number, bot, edited=True))
    if update.callback_query is not None:
        return _check_ids(_parse_callback_query(update.callback_query, number))
    if update.my_chat_member is not None:
        return _check_ids(_parse_membership(update.my_chat_member, number))
    if update.message_reaction is not None:
        return _check_ids(_parse_reaction(update.message_reaction, number))
    if (stopped := update.stopped_message_generation) is not None:
        chat = _build_chat_ref(stopped.chat, thread_id=stopped.message_thread_id or 0)
        return _check_ids(DraftStopped(update_id=number, chat=chat, draft_id=stopped.draft_id))
    if bot.answers_inline and (query := update.inline_query) is not None:
        sender = _build_author(query.from_user)
        return _check_ids(InlineQuery(update_id=number, query_id=query.id, sender=sender, text=query.query))
    kinds = [str(name) for name in raw if name != "update_id"]
    return IgnoredUpdate(
        update_id=number, reason=f"of no use here: {', '.join(kinds)[:80] or 'nothing in it'}"
    )


def _decode(raw: Mapping[str, Any]) -> types.Update:
    """Parse an update by aiogram; with unknown fields, parse the essential ones."""
    try:
        return Update.model_validate(dict(raw))
    except ValueError:
        kind = next(
            (
                name
                for name in ("message", "edited_message", _CHANNEL_POST)
                if isinstance(raw.get(name), Mapping)
            ),
            "",
        )
        if not kind or not (raw[kind].get("text") or raw[kind].get("caption")):
            raise
        bare = {name: raw[kind][name] for name in _ESSENTIAL if name in raw[kind]}
        return Update.model_validate({"update_id": raw.get("update_id"), kind: bare})


def _parse_new_message(message: types.Message, number: int, bot: BotIdentity) -> IncomingUpdate:
    if message.migrate_to_chat_id is not None:
        return ChatMigration(update_id=number, old_chat=message.chat.id, new_chat=message.migrate_to_chat_id)
    if message.migrate_from_chat_id is not None:
        return ChatMigration(
            update_id=number, old_chat=message.migrate_from_chat_id, new_chat=message.chat.id
        )
    if message.pinned_message is not None:
        sender = _parse_author(message)
        if sender is None:
            return IgnoredUpdate(update_id=number, reason="pinned by nobody we know")
        return PinChange(
            update_id=number,
            chat=_parse_chat_ref(message),
            sender=sender,
            message_id=message.pinned_message.message_id,
        )
    return _parse_message(message, number, bot, edited=False)


def _parse_callback_query(query: types.CallbackQuery, number: int) -> IncomingUpdate:
    if query.data is None:
        return IgnoredUpdate(update_id=number, reason="a button without data")
    message = query.message
    accessible = isinstance(message, Message)
    chat, replied = None, None
    if isinstance(message, Message):
        chat, replied = _parse_chat_ref(message), message.reply_to_message
    elif message is not None:
        chat = _build_chat_ref(message.chat)
    return CallbackQuery(
        update_id=number,
        callback_id=query.id,
        data=query.data,
        sender=_build_author(query.from_user),
        chat=chat,
        message_id=None if message is None else message.message_id,
        accessible=accessible,
        replied_text="" if replied is None else replied.text or "",
    )


def _parse_membership(changed: types.ChatMemberUpdated, number: int) -> IncomingUpdate:
    before, after = _get_status(changed.old_chat_member), _get_status(changed.new_chat_member)
    change = _classify_change(before, after, private=changed.chat.type == "private")
    if change is None:
        return IgnoredUpdate(update_id=number, reason=f"standing: {before} to {after}"[:80])
    return MembershipChange(
        update_id=number,
        chat=_build_chat_ref(changed.chat),
        by=_build_author(changed.from_user),
        change=change,
        is_admin=after in _ADMINS,
    )


def _get_status(member: types.ChatMemberUnion) -> str:
    """The status; one who is restricted but in the group is a member."""
    status = str(getattr(member, "status", ""))
    return "member" if status == "restricted" and getattr(member, "is_member", False) else status


def _classify_change(before: str, after: str, *, private: bool) -> MembershipKind | None:
    was_in, is_in = before in _MEMBERS, after in _MEMBERS
    if was_in != is_in:
        if private:
            return "unblocked" if is_in else "blocked"
        return "added" if is_in else "removed"
    if is_in and (before in _ADMINS) != (after in _ADMINS):
        return "promoted" if after in _ADMINS else "demoted"
    return None


def _parse_reaction(reaction: types.MessageReactionUpdated, number: int) -> IncomingUpdate:
    before, after = _list_emoji(reaction.old_reaction), _list_emoji(reaction.new_reaction)
    return ReactionChange(
        update_id=number,
        chat=_build_chat_ref(reaction.chat),
        message_id=reaction.message_id,
        user_id=None if reaction.user is None else reaction.user.id,
        added=tuple(one for one in after if one not in before),
        removed=tuple(one for one in before if one not in after),
    )


def _list_emoji(reactions: list[types.ReactionTypeUnion]) -> tuple[str, ...]:
    found = (getattr(one, "emoji", None) for one in reactions)
    return tuple(one for one in found if isinstance(one, str))


def _build_author(user: types.User) -> MessageAuthor:
    return MessageAuthor(
        user_id=user.id,
        name=user.full_name,
        username=user.username or "",
        language_code=user.language_code or "",
    )


def _check_ids(incoming: IncomingUpdate) -> IncomingUpdate:
    """Ignores an update with ids that Telegram does not assign."""
    numbers: tuple[int | None, ...]
    match incoming:
        case ChatMigration(old_chat=old, new_chat=new):
            numbers = (old, new)
        case IgnoredUpdate():
            numbers = ()
        case InlineQuery(sender=sender):
            numbers = (sender.user_id,)
        case DraftStopped(chat=chat, draft_id=draft):
            numbers = (chat.chat_id, chat.thread_id, draft)
        case ReactionChange(chat=chat, message_id=message, user_id=user):
            numbers = (chat.chat_id, message, user)
        case MembershipChange(chat=chat, by=by):
            numbers = (chat.chat_id, by.user_id)
        case CallbackQuery(chat=chat, message_id=message, sender=sender):
            numbers = (
                chat.chat_id if chat else 0,
                chat.thread_id if chat else 0,
                message,
                sender.user_id,
            )
        case PinChange(chat=chat, message_id=message, sender=sender):
            numbers = (chat.chat_id, chat.thread_id, message, sender.user_id)
        case _:
            chat = incoming.chat
            numbers = (chat.chat_id, chat.thread_id, incoming.message_id, incoming.sender.user_id)
            numbers += (incoming.reply_to_message_id,)
    if any(abs(number) > MAX_ID_VALUE for number in numbers if number is not None):
        return IgnoredUpdate(update_id=incoming.update_id, reason="a number that is too large")
    return incoming


def _get_update_id(raw: Mapping[str, Any]) -> int:
    number = raw.get("update_id")
    return number if type(number) is int else 0


# -- messages: author, quote, forward, mention and command ---------------------------------------------------


def _parse_message(
    message: types.Message, number: int, bot: BotIdentity, *, edited: bool
) -> IncomingMessage | IgnoredUpdate:
    why = _reason_to_ignore(message, bot, edited=edited)
    sender = _parse_author(message)
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
        chat=_parse_chat_ref(message),
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
    )


def _parse_chat_ref(message: types.Message) -> ChatRef:
    """Return the chat; the General topic has no id, and a thread of replies is no topic."""
    thread = message.message_thread_id if message.is_topic_message else None
    topic = message.reply_to_message.forum_topic_created if message.reply_to_message else None
    return _build_chat_ref(message.chat, thread_id=thread or 0, topic=topic.name if topic else "")


def _build_chat_ref(chat: types.Chat, *, thread_id: int = 0, topic: str = "") -> ChatRef:
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


def _parse_author(message: types.Message) -> MessageAuthor | None:
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


def _reason_to_ignore(message: types.Message, bot: BotIdentity, *, edited: bool) -> str:
    """The reason to ignore the message, or an empty string."""
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
    """The message that is replied to. In a topic every message seems to reply to the one that created it."""
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
    author = _parse_author(replied)
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
    """The name behind a forward: a user, one who hides, a group or a channel."""
    user = getattr(origin, "sender_user", None)
    if user is not None:
        return str(user.full_name)
    chat = getattr(origin, "sender_chat", None) or getattr(origin, "chat", None)
    if chat is not None:
        return str(chat.title or "")
    return str(getattr(origin, "sender_user_name", ""))


def _iterate_entities(message: types.Message) -> Iterator[tuple[types.MessageEntity, str]]:
    """With the text they cover; offsets count UTF-16 units."""
    text = message.text if message.text is not None else message.caption or ""
    entities = message.entities if message.text is not None else message.caption_entities
    coded = text.encode("utf-16-le", "surrogatepass")
    for entity in entities or ():
        start, end = max(0, entity.offset), max(0, entity.offset + entity.length)
        yield entity, coded[2 * start : 2 * end].decode("utf-16-le", "replace")


def _is_mentioned(message: types.Message, bot: BotIdentity) -> bool:
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
    """Return the command at the beginning of a message; forwarded ones are none."""
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
    if command is None or command.name != "start" or not _DEEP_LINK.fullmatch(command.args):
        return ""
    return command.args


# -- files ---------------------------------------------------------------------------------------------------


def _parse_media(message: types.Message | types.ExternalReplyInfo) -> Media | None:
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
    """Each kind of file has these fields or lacks them; none has others that we need."""
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
    """Its title, then each task with its mark."""
    tasks = (
        f"{'[x]' if task.completion_date or task.completed_by_user else '[ ]'} {task.text}"
        for task in checklist.tasks
    )
    return f"{checklist.title} – {' | '.join(tasks)}"


def _describe_other(message: types.Message | types.ExternalReplyInfo) -> Media | None:
    name = next((name for name in _OTHER if getattr(message, name, None) is not None), None)
    return None if name is None else _build_note("other", name.replace("_", " "))


def _build_note(kind: MediaKind, content: str) -> Media:
    return Media(kind=kind, note=" ".join(content.split())[:NOTE_CHARS])


def _clamp_side(pixels: int | None) -> int:
    """0 for what is no size of a picture."""
    return pixels if pixels is not None and 0 < pixels <= MOST_PIXELS else 0
