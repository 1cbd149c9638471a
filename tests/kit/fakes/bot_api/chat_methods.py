"""Methods with which bots read and change chats: pins, members, leaving, topics."""

from __future__ import annotations

from tests.kit.fakes.bot_api.calls import Call
from tests.kit.fakes.bot_api.chats import Chat, Stored
from tests.kit.fakes.bot_api.members import member_json
from tests.kit.fakes.bot_api.refusals import Refusal, misuse
from tests.kit.fakes.bot_api.shapes import Json
from tests.kit.fakes.bot_api.world import World

ICON_COLORS = frozenset({7_322_096, 16_766_590, 13_338_331, 9_367_192, 16_749_490, 16_478_047})


def pin_chat_message(world: World, call: Call) -> bool:
    chat = world.writable(call.bot, call.params["chat_id"])
    _may_manage(call, chat, "not enough rights to manage pinned messages in the chat")
    stored = world.message(chat, call.params["message_id"], missing="message to pin not found")
    if stored.id in chat.pinned:
        return True
    pin(world, chat, stored, author=call.bot.id, silent=bool(call.params.get("disable_notification")))
    return True


def unpin_chat_message(world: World, call: Call) -> bool:
    chat = world.writable(call.bot, call.params["chat_id"])
    _may_manage(call, chat, "not enough rights to manage pinned messages in the chat")
    number = call.params.get("message_id", chat.pinned[-1] if chat.pinned else None)
    if number not in chat.pinned:
        raise Refusal("message to unpin not found")
    chat.pinned.remove(number)
    chat.saw("unpinned", at=world.clock.now(), message_id=number, by="bot")
    return True


def pin(world: World, chat: Chat, stored: Stored, *, author: int, silent: bool = False) -> Stored:
    """Pin a message; return the service message about it."""
    chat.pinned.append(stored.id)
    by_bot = author not in world.people
    message: Json = {
        "from": world.author_json(author),
        "chat": chat.as_json(),
        "date": world.clock.date(),
        "pinned_message": {n: v for n, v in stored.message.items() if n != "reply_to_message"},
    }
    if stored.thread is not None:
        message.update(message_thread_id=stored.thread, is_topic_message=True)
    told = chat.add(message, author=author, silent=silent)
    chat.notifications += by_bot and not silent
    chat.saw("pinned", at=world.clock.now(), message_id=stored.id, by="bot" if by_bot else "person")
    return told


def get_chat(world: World, call: Call) -> Json:
    chat = world.readable(call.bot, call.params["chat_id"])
    found: Json = {**chat.as_json(), "accent_color_id": 0, "max_reaction_count": 11}
    kinds = (
        "unlimited_gifts",
        "limited_gifts",
        "unique_gifts",
        "premium_subscription",
        "gifts_from_channels",
    )
    found["accepted_gift_types"] = dict.fromkeys(kinds, False)
    if chat.pinned and chat.pinned[-1] in chat.messages:
        found["pinned_message"] = chat.messages[chat.pinned[-1]].message
    return found


def get_chat_member(world: World, call: Call) -> Json:
    chat = world.readable(call.bot, call.params["chat_id"])
    number = call.params["user_id"]
    if number not in world.people and number not in {bot.id for bot in world.bots.values()}:
        raise Refusal("PARTICIPANT_ID_INVALID")
    return member_json(world, chat, number)


def leave_chat(world: World, call: Call) -> bool:
    chat = world.readable(call.bot, call.params["chat_id"])
    if chat.kind == "private":
        raise misuse("chat member status can't be changed in private chats")
    chat.members.discard(call.bot.id)
    chat.admins.discard(call.bot.id)
    chat.saw("left", at=world.clock.now(), account=call.bot.id)
    return True


def create_forum_topic(world: World, call: Call) -> Json:
    chat = world.writable(call.bot, call.params["chat_id"])
    if not (chat.is_forum or (chat.kind == "private" and call.bot.topics)):
        raise misuse("the chat is not a forum")
    _may_manage(call, chat, "not enough rights to create a topic")
    color = call.params.get("icon_color", min(ICON_COLORS))
    if color not in ICON_COLORS:
        raise misuse("TOPIC_ICON_COLOR_INVALID")
    told = open_topic(world, chat, _topic_name(call.params), author=call.bot.id)
    return {"message_thread_id": told.id, "name": chat.topics[told.id], "icon_color": color}


def edit_forum_topic(world: World, call: Call) -> bool:
    chat = world.writable(call.bot, call.params["chat_id"])
    _may_manage(call, chat, "not enough rights to edit the topic")
    thread = call.params["message_thread_id"]
    if not chat.has_thread(thread):
        raise Refusal("TOPIC_ID_INVALID")
    name = _topic_name(call.params)
    if chat.topics[thread] == name:
        raise Refusal("TOPIC_NOT_MODIFIED")
    chat.topics[thread] = name
    chat.saw("topic_renamed", at=world.clock.now(), thread=thread, text=name, by="bot")
    return True


def open_topic(world: World, chat: Chat, name: str, *, author: int) -> Stored:
    """Open a topic, whose id is the number of the service message that opens it; return that message."""
    thread = chat.next_message_id
    told = chat.add(
        {
            "from": world.author_json(author),
            "chat": chat.as_json(),
            "date": world.clock.date(),
            "message_thread_id": thread,
            "is_topic_message": True,
            "forum_topic_created": {"name": name, "icon_color": min(ICON_COLORS)},
        },
        author=author,
    )
    chat.topics[thread] = name
    chat.saw("topic", at=world.clock.now(), thread=thread, text=name)
    return told


def _topic_name(params: Json) -> str:
    name = str(params.get("name", ""))
    if not 1 <= len(name) <= 128:
        raise misuse("TOPIC_TITLE_EMPTY" if not name else "TOPIC_TITLE_TOO_LONG")
    return name


def _may_manage(call: Call, chat: Chat, words: str) -> None:
    if chat.kind != "private" and call.bot.id not in chat.admins:
        raise Refusal(words)
