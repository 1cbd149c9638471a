"""Puts a person's message into a chat, and delivers it to the bots that may hear it."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass

from tests.kit.fakes.bot_api.accounts import Account, Bot
from tests.kit.fakes.bot_api.chats import Chat, Stored
from tests.kit.fakes.bot_api.shapes import Json, units
from tests.kit.fakes.bot_api.world import NoSuchThing, World

FOUND = re.compile(
    r"(?P<url>https?://[^\s<>]+)|(?P<mention>(?<![\w@])@[A-Za-z]\w{3,31})"
    r"|(?P<bot_command>(?<![\w/<>])/[A-Za-z0-9_]{1,64}(@\w{3,32})?(?![\w/]))"
)
SERVICE = frozenset(
    {"new_chat_members", "left_chat_member", "pinned_message", "forum_topic_created", "group_chat_created"}
    | {"migrate_to_chat_id", "migrate_from_chat_id"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """A person who speaks, with the bot, the chat and the topic spoken to.

    `thread` is None outside topics.
    """

    person: Account
    bot: Bot
    chat: Chat
    thread: int | None = None


def speaker(world: World, wish: Json) -> Speaker:
    """Return the speaker that a wish names by `person`, `bot`, `chat` and `thread`.

    Without a chat, it is the private chat with the bot. Raises NoSuchThing if the person is not a member of
    the chat.
    """
    person, bot = world.person(wish["person"]), world.bot(wish.get("bot"))
    number = wish.get("chat") or person.id
    chat = world.private(bot, person) if number == person.id else world.chat(bot, number)
    if person.id not in chat.members:
        raise NoSuchThing(f"{person.id} is no member of chat {chat.id}")
    if chat.migrated_to is not None:
        raise NoSuchThing(f"chat {chat.id} has become {chat.migrated_to}")
    thread = wish.get("thread")
    if thread is not None and not chat.has_thread(thread):
        raise NoSuchThing(f"no topic {thread} in chat {chat.id}")
    return Speaker(person=person, bot=bot, chat=chat, thread=thread)


def post_to_channel(world: World, who: Speaker, content: Json) -> Json:
    """Store a post in the name of the channel, and deliver it to the bots that are administrators there."""
    stored = who.chat.add(
        {
            "sender_chat": who.chat.as_json(),
            "chat": who.chat.as_json(),
            "date": world.clock.date(),
            **content,
        },
        author=who.person.id,
    )
    who.chat.saw_message("said", stored, at=world.clock.now(), by_bot=False)
    return heard(world, who.chat, stored, kind="channel_post")


def speak(world: World, who: Speaker, content: Json, wish: Json | None = None) -> Json:
    """Store a person's message, and return its id and, for each bot that heard it, the id of its update.

    Raises NoSuchThing if the person has blocked the bot.
    """
    if who.chat.blocked:
        raise NoSuchThing("who has blocked a bot cannot write to it")
    if who.chat.kind == "channel":
        return post_to_channel(world, who, {**_reply(who.chat, wish or {}), **content})
    message: Json = {
        "from": who.person.as_json(),
        "chat": who.chat.as_json(),
        "date": world.clock.date(),
        **_thread(who),
        **_reply(who.chat, wish or {}),
        **content,
    }
    stored = who.chat.add(message, author=who.person.id)
    who.chat.saw_message("said", stored, at=world.clock.now(), by_bot=False)
    return heard(world, who.chat, stored)


def heard(world: World, chat: Chat, stored: Stored, *, kind: str = "message") -> Json:
    """Deliver a stored message to the bots of the chat that may hear it, as updates of this kind."""
    updates = {
        str(bot.id): bot.inbox.put(kind, copy.deepcopy(stored.message), lane=chat.lane())
        for bot in world.bots_in(chat)
        if hears(bot, chat, stored)
    }
    return {"message_id": stored.id, "chat_id": chat.id, "updates": updates}


def hears(bot: Bot, chat: Chat, stored: Stored) -> bool:
    """Return whether a bot gets a message.

    In groups, a bot in privacy mode gets only commands, mentions, replies to itself and changes of the group.
    """
    message = stored.message
    if stored.author == bot.id:
        return False
    if chat.kind == "channel":
        return bot.id in chat.admins
    if chat.kind == "private" or not bot.privacy or bot.id in chat.admins or SERVICE & set(message):
        return True
    if message.get("reply_to_message", {}).get("from", {}).get("id") == bot.id:
        return True
    text = str(message.get("text") or message.get("caption") or "")
    own = f"@{bot.account.username}".lower()
    if own in text.lower():
        return True
    command = re.match(r"/\w+(@\w+)?", text)
    return bool(command and command.group(1) is None)


def text_content(wish: Json, text: str) -> Json:
    """Return the text as the server stores it, with the entities that apps and server recognise in it.

    Raises ValueError if the text is empty or longer than 4,096 UTF-16 units.
    """
    kept = text.strip(" \n\t")
    if not kept:
        raise ValueError("nobody can send an empty message")
    if units(kept) > 4_096:
        raise ValueError("longer than a message can be: paste it")
    entities = wish.get("entities")
    found = found_entities(kept) if entities is None else entities
    return {"text": kept, "entities": found} if found else {"text": kept}


def found_entities(text: str) -> list[Json]:
    """Return the links, mentions and commands in a text as entities, with offsets in UTF-16 units."""
    return [
        {"type": match.lastgroup, "offset": units(text[: match.start()]), "length": units(match.group())}
        for match in FOUND.finditer(text)
        if match.lastgroup
    ]


def split_paste(text: str, limit: int = 4_096) -> list[str]:
    """Split a long text as apps do: at `limit` UTF-16 units, never inside a character."""
    parts: list[str] = []
    rest = text
    while units(rest) > limit:
        cut = min(len(rest), limit)
        while units(rest[:cut]) > limit:
            cut -= 1
        parts.append(rest[:cut])
        rest = rest[cut:]
    return [*parts, rest] if rest else parts


def _thread(who: Speaker) -> Json:
    return {} if who.thread is None else {"message_thread_id": who.thread, "is_topic_message": True}


def _reply(chat: Chat, wish: Json) -> Json:
    number = wish.get("reply_to")
    if number is None:
        return {}
    stored = chat.messages.get(number)
    if stored is None:
        raise NoSuchThing(f"no message {number} in chat {chat.id}")
    answered = {name: value for name, value in stored.message.items() if name != "reply_to_message"}
    found: Json = {"reply_to_message": copy.deepcopy(answered)}
    quote = wish.get("quote")
    if quote:
        whole = str(answered.get("text") or answered.get("caption") or "")
        if quote not in whole:
            raise ValueError(f"{quote!r} is not in message {number}")
        position = units(whole[: whole.index(quote)])
        found["quote"] = {"text": quote, "position": position, "is_manual": True}
    return found
