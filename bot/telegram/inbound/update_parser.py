"""Reads a raw update as one of our own values; what it cannot use it ignores by name, and it never fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bot.telegram.inbound.message_parser import build_chat_ref, parse_author, parse_chat_ref, parse_message
from bot.telegram.inbound.updates import (
    BotIdentity,
    CallbackQuery,
    ChatMigration,
    DraftStopped,
    IgnoredUpdate,
    IncomingUpdate,
    InlineQuery,
    MembershipChange,
    MembershipKind,
    MessageAuthor,
    PinChange,
    ReactionChange,
)

if TYPE_CHECKING:
    from aiogram import types

ALLOWED_UPDATES = (
    "message",
    "edited_message",
    "callback_query",
    "my_chat_member",
    "message_reaction",
    "stopped_message_generation",
)
_CHANNEL_POST = "channel_post"
MAX_ID_VALUE = 2**53
"""Telegram promises 52 bits; what is larger was not made by Telegram, and no column of ours must break."""
_ESSENTIAL = (
    "message_id",
    "date",
    "chat",
    "from",
    "sender_chat",
    "text",
    "caption",
    "is_topic_message",
    "message_thread_id",
)
_INSIDE = frozenset({"member", "administrator", "creator"})
_ADMINS = frozenset({"administrator", "creator"})


def allowed_updates(bot: BotIdentity) -> list[str]:
    """What Telegram is asked for; everything else it keeps to itself."""
    switched = (_CHANNEL_POST, bot.reads_channels), ("inline_query", bot.answers_inline)
    return [*ALLOWED_UPDATES, *(name for name, on in switched if on)]


def parse_update(raw: Mapping[str, Any], *, bot: BotIdentity) -> IncomingUpdate:
    """Never raises: an update that cannot be decoded is `Ignored` with the reason."""
    number = _update_id(raw)
    try:
        found = _read(raw, number, bot)
        where = None if isinstance(found, IgnoredUpdate | ChatMigration | InlineQuery) else found.chat
        if where is not None and where.kind == "channel" and not bot.reads_channels:
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


def _read(raw: Mapping[str, Any], number: int, bot: BotIdentity) -> IncomingUpdate:
    update = _decoded(raw)
    if (message := update.message or update.channel_post) is not None:
        return _checked(_message(message, number, bot))
    if (edited := update.edited_message) is not None:
        return _checked(parse_message(edited, number, bot, edited=True))
    if update.callback_query is not None:
        return _checked(_pressed(update.callback_query, number))
    if update.my_chat_member is not None:
        return _checked(_membership(update.my_chat_member, number))
    if update.message_reaction is not None:
        return _checked(_reacted(update.message_reaction, number))
    if (stopped := update.stopped_message_generation) is not None:
        where = build_chat_ref(stopped.chat, thread_id=stopped.message_thread_id or 0)
        return _checked(DraftStopped(update_id=number, chat=where, draft_id=stopped.draft_id))
    if bot.answers_inline and (query := update.inline_query) is not None:
        sender = _person(query.from_user)
        return _checked(InlineQuery(update_id=number, query_id=query.id, sender=sender, text=query.query))
    kinds = [str(name) for name in raw if name != "update_id"]
    return IgnoredUpdate(
        update_id=number, reason=f"of no use here: {', '.join(kinds)[:80] or 'nothing in it'}"
    )


def _decoded(raw: Mapping[str, Any]) -> types.Update:
    """As aiogram understands it; a person's words are not lost for a decoration that it does not know."""
    from aiogram.types import Update

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


def _message(message: types.Message, number: int, bot: BotIdentity) -> IncomingUpdate:
    if message.migrate_to_chat_id is not None:
        return ChatMigration(update_id=number, old_chat=message.chat.id, new_chat=message.migrate_to_chat_id)
    if message.migrate_from_chat_id is not None:
        return ChatMigration(
            update_id=number, old_chat=message.migrate_from_chat_id, new_chat=message.chat.id
        )
    if message.pinned_message is not None:
        sender = parse_author(message)
        if sender is None:
            return IgnoredUpdate(update_id=number, reason="pinned by nobody we know")
        return PinChange(
            update_id=number,
            chat=parse_chat_ref(message),
            sender=sender,
            message_id=message.pinned_message.message_id,
        )
    return parse_message(message, number, bot, edited=False)


def _pressed(query: types.CallbackQuery, number: int) -> IncomingUpdate:
    from aiogram.types import Message

    if query.data is None:
        return IgnoredUpdate(update_id=number, reason="a button without data")
    message = query.message
    accessible = isinstance(message, Message)
    where, replied = None, None
    if isinstance(message, Message):
        where, replied = parse_chat_ref(message), message.reply_to_message
    elif message is not None:
        where = build_chat_ref(message.chat)
    return CallbackQuery(
        update_id=number,
        callback_id=query.id,
        data=query.data,
        sender=_person(query.from_user),
        chat=where,
        message_id=None if message is None else message.message_id,
        accessible=accessible,
        replied_text="" if replied is None else replied.text or "",
    )


def _membership(changed: types.ChatMemberUpdated, number: int) -> IncomingUpdate:
    before, after = _standing(changed.old_chat_member), _standing(changed.new_chat_member)
    change = _change(before, after, private=changed.chat.type == "private")
    if change is None:
        return IgnoredUpdate(update_id=number, reason=f"standing: {before} to {after}"[:80])
    return MembershipChange(
        update_id=number,
        chat=build_chat_ref(changed.chat),
        by=_person(changed.from_user),
        change=change,
        is_admin=after in _ADMINS,
    )


def _standing(member: types.ChatMemberUnion) -> str:
    """The status; one who is restricted but in the group is a member."""
    status = str(getattr(member, "status", ""))
    return "member" if status == "restricted" and getattr(member, "is_member", False) else status


def _change(before: str, after: str, *, private: bool) -> MembershipKind | None:
    was_in, is_in = before in _INSIDE, after in _INSIDE
    if was_in != is_in:
        if private:
            return "unblocked" if is_in else "blocked"
        return "added" if is_in else "removed"
    if is_in and (before in _ADMINS) != (after in _ADMINS):
        return "promoted" if after in _ADMINS else "demoted"
    return None


def _reacted(reaction: types.MessageReactionUpdated, number: int) -> IncomingUpdate:
    before, after = _emoji(reaction.old_reaction), _emoji(reaction.new_reaction)
    return ReactionChange(
        update_id=number,
        chat=build_chat_ref(reaction.chat),
        message_id=reaction.message_id,
        user_id=None if reaction.user is None else reaction.user.id,
        added=tuple(one for one in after if one not in before),
        removed=tuple(one for one in before if one not in after),
    )


def _emoji(reactions: list[types.ReactionTypeUnion]) -> tuple[str, ...]:
    found = (getattr(one, "emoji", None) for one in reactions)
    return tuple(one for one in found if isinstance(one, str))


def _person(user: types.User) -> MessageAuthor:
    return MessageAuthor(
        user_id=user.id,
        name=user.full_name,
        username=user.username or "",
        language_code=user.language_code or "",
    )


def _checked(incoming: IncomingUpdate) -> IncomingUpdate:
    """No number that only a forger could have made goes further."""
    numbers: tuple[int | None, ...]
    match incoming:
        case ChatMigration(old_chat=old, new_chat=new):
            numbers = (old, new)
        case IgnoredUpdate():
            numbers = ()
        case InlineQuery(sender=sender):
            numbers = (sender.user_id,)
        case DraftStopped(chat=where, draft_id=draft):
            numbers = (where.chat_id, where.thread_id, draft)
        case ReactionChange(chat=where, message_id=message, user_id=user):
            numbers = (where.chat_id, message, user)
        case MembershipChange(chat=where, by=by):
            numbers = (where.chat_id, by.user_id)
        case CallbackQuery(chat=place, message_id=message, sender=sender):
            numbers = (
                place.chat_id if place else 0,
                place.thread_id if place else 0,
                message,
                sender.user_id,
            )
        case PinChange(chat=where, message_id=message, sender=sender):
            numbers = (where.chat_id, where.thread_id, message, sender.user_id)
        case _:
            place = incoming.chat
            numbers = (place.chat_id, place.thread_id, incoming.message_id, incoming.sender.user_id)
            numbers += (incoming.reply_to_message_id,)
    if any(abs(number) > MAX_ID_VALUE for number in numbers if number is not None):
        return IgnoredUpdate(update_id=incoming.update_id, reason="a number that is too large")
    return incoming


def _update_id(raw: Mapping[str, Any]) -> int:
    number = raw.get("update_id")
    return number if type(number) is int else 0
