"""Changes of groups: they are created, people and bots join and leave, topics open, groups become
supergroups.
"""

from __future__ import annotations

from typing import Any

from tests.kit.fakes.bot_api import business
from tests.kit.fakes.bot_api.accounts import Account, Bot
from tests.kit.fakes.bot_api.chat_methods import open_topic
from tests.kit.fakes.bot_api.chats import Chat
from tests.kit.fakes.bot_api.members import status_of, tell_own_standing
from tests.kit.fakes.bot_api.people import ACTS, Act
from tests.kit.fakes.bot_api.shapes import Json
from tests.kit.fakes.bot_api.speech import heard
from tests.kit.fakes.bot_api.world import NoSuchThing, World


def add_person(world: World, wish: Json) -> Json:
    """Add a person, or change their names."""
    names = ("first_name", "last_name", "username", "language_code")
    told = {name: wish[name] for name in names if name in wish}
    known = world.people.get(wish["person"])
    if known is None:
        made = Account(id=wish["person"], **{"first_name": f"Person {wish['person']}", **told})
        world.people[made.id] = made
    else:
        for name, value in told.items():
            setattr(known, name, value)
    return {}


def add_bot(world: World, wish: Json) -> Json:
    bot = world.add_bot(
        wish["token"],
        username=wish["username"],
        name=str(wish.get("name", wish["username"])),
        topics=wish.get("topics", False),
        privacy=wish.get("privacy", True),
    )
    return {"bot": bot.id}


def change_bot(world: World, wish: Json) -> Json:
    bot = world.bot(wish.get("bot"))
    for name in ("topics", "privacy", "guests", "business", "revoked"):
        if name in wish:
            setattr(bot, name, bool(wish[name]))
    return {}


def create_group(world: World, wish: Json) -> Json:
    owner = world.person(wish["person"])
    chat = world.add_group(wish["title"], wish.get("kind", "supergroup"), forum=wish.get("forum", False))
    chat.owner = owner.id
    chat.members = {owner.id, *wish.get("members", ())}
    for number in chat.members:
        world.person(number)
    for number in wish.get("bots", ()):
        _bot_comes(world, chat, world.bot(number), by=owner, admin=wish.get("admin", False))
    return {"chat_id": chat.id}


def add_to_group(world: World, wish: Json) -> Json:
    """Let `person` add `account`, a person or a bot, to a group; the same account means that it joins."""
    chat, by = _chat(world, wish), world.person(wish["person"])
    number = wish.get("account", by.id)
    if number in world.people:
        chat.members.add(number)
        return _service(world, chat, by, {"new_chat_members": [world.author_json(number)]})
    _bot_comes(world, chat, world.bot(number), by=by, admin=wish.get("admin", False))
    return {}


def remove_from_group(world: World, wish: Json) -> Json:
    """Remove an account from a group: kicked by another person, or leaving by itself."""
    chat, by = _chat(world, wish), world.person(wish["person"])
    number = wish.get("account", by.id)
    before = status_of(chat, number)
    told: Json = {}
    if number in world.people:
        told = _service(world, chat, by, {"left_chat_member": world.author_json(number)})
    chat.members.discard(number)
    chat.admins.discard(number)
    if number != by.id:
        chat.kicked.add(number)
    if number not in world.people:
        tell_own_standing(world, world.bot(number), chat, before=before, by=by.id)
    return told


def set_admin(world: World, wish: Json) -> Json:
    chat, by = _chat(world, wish), world.person(wish["person"])
    number = wish.get("account", by.id)
    before = status_of(chat, number)
    (chat.admins.add if wish.get("admin", True) else chat.admins.discard)(number)
    if number not in world.people:
        tell_own_standing(world, world.bot(number), chat, before=before, by=by.id)
    return {}


def create_topic(world: World, wish: Json) -> Json:
    person, bot = world.person(wish["person"]), world.bot(wish.get("bot"))
    number = wish.get("chat") or person.id
    chat = world.private(bot, person) if number == person.id else world.chat(bot, number)
    if not (chat.is_forum or (chat.kind == "private" and bot.topics)):
        raise NoSuchThing(f"chat {chat.id} has no topics")
    told = open_topic(world, chat, wish["name"], author=person.id)
    return {**heard(world, chat, told), "thread": told.id}


def delete_topic(world: World, wish: Json) -> Json:
    bot = world.bot(wish.get("bot"))
    chat = world.chat(bot, wish["chat"])
    del chat.topics[wish["thread"]]
    for number in [one.id for one in chat.messages.values() if one.thread == wish["thread"]]:
        del chat.messages[number]
    chat.saw("topic_gone", at=world.clock.now(), thread=wish["thread"])
    return {}


def migrate_group(world: World, wish: Json) -> Json:
    """Turn a group into a supergroup with another id; both chats get a service message."""
    old, by = _chat(world, wish), world.person(wish["person"])
    new = world.add_group(old.title or "", "supergroup")
    new.members, new.admins, new.owner = set(old.members), set(old.admins), old.owner
    _service(world, old, by, {"migrate_to_chat_id": new.id})
    old.migrated_to = new.id
    _service(world, new, by, {"migrate_from_chat_id": old.id})
    return {"chat_id": new.id}


def _chat(world: World, wish: Json) -> Chat:
    return world.chat(world.bot(wish.get("bot")), wish["chat"])


def _bot_comes(world: World, chat: Chat, bot: Bot, *, by: Account, admin: bool) -> None:
    before = status_of(chat, bot.id)
    chat.members.add(bot.id)
    chat.kicked.discard(bot.id)
    if admin:
        chat.admins.add(bot.id)
    tell_own_standing(world, bot, chat, before=before, by=by.id)
    _service(world, chat, by, {"new_chat_members": [bot.account.as_json()]})


def _service(world: World, chat: Chat, by: Account, content: Json) -> Json:
    message: Json = {
        "from": by.as_json(),
        "chat": chat.as_json(),
        "date": world.clock.date(),
        **content,
    }
    stored = chat.add(message, author=by.id)
    chat.saw("service", at=world.clock.now(), message_id=stored.id, by="person", what=next(iter(content)))
    return heard(world, chat, stored)


ALL_ACTS: dict[str, Act] = {
    **ACTS,
    **{
        act.__name__: act
        for act in (
            add_person, add_bot, change_bot, create_group, add_to_group, remove_from_group, set_admin,
            create_topic, delete_topic, migrate_group, business.connect_business,
            business.change_business, business.write_business, business.edit_business,
            business.delete_business,
        )
    },
}  # fmt: skip


def act(world: World, name: str, wish: Json) -> Any:
    if name not in ALL_ACTS:
        raise NoSuchThing(f"no such act: {name}")
    return ALL_ACTS[name](world, wish)
