"""Business accounts: an owner connects a bot, which reads the owner's chats with customers and may answer
there.
"""

from __future__ import annotations

import copy

from tests.kit.fakes.bot_api.accounts import Account
from tests.kit.fakes.bot_api.calls import Call
from tests.kit.fakes.bot_api.chats import Chat, Stored
from tests.kit.fakes.bot_api.entities import words_of
from tests.kit.fakes.bot_api.people import keep_file
from tests.kit.fakes.bot_api.refusals import Refusal, stricter
from tests.kit.fakes.bot_api.shapes import Json
from tests.kit.fakes.bot_api.speech import text_content
from tests.kit.fakes.bot_api.world import BusinessConnection, NoSuchThing, World

REPLY_SECONDS = 24 * 3_600.0
"""Seconds after a customer's last message in which a bot may answer for the owner."""
_NOT_HERE = frozenset({"reply_markup", "message_thread_id", "reply_parameters"})


def connect_business(world: World, wish: Json) -> Json:
    """Connect the bot to the business account of `person`; without `can_reply` it may only read."""
    owner, bot = world.person(wish["person"]), world.bot(wish.get("bot"))
    if not bot.business:
        raise NoSuchThing("@BotFather has not switched business mode on for this bot")
    for other in world.connections.values():
        if other.owner == owner.id and other.is_enabled:
            raise NoSuchThing("an account has one bot at a time")
    # The bot may write to the owner, even if the owner never wrote to it.
    private = world.private(bot, owner)
    private.next_message_id = max(2, private.next_message_id)
    made = BusinessConnection(
        id=f"connection-{world.number()}", bot=bot.id, owner=owner.id, can_reply=wish.get("can_reply", True),
        at=world.clock.date(),
    )  # fmt: skip
    world.connections[made.id] = made
    return _tell_connection(world, made)


def change_business(world: World, wish: Json) -> Json:
    """Change the rights of the bot (`can_reply`), or remove it (`enabled`)."""
    found = _connection_of(world, wish["person"])
    found.can_reply = wish.get("can_reply", found.can_reply)
    found.is_enabled = wish.get("enabled", True)
    return _tell_connection(world, found)


def write_business(world: World, wish: Json) -> Json:
    """Write as `person` to a `customer` or an `owner`, of which exactly one is given.

    `age` is the number of seconds for which Telegram kept the message, `file` a file as in `send_file`.
    """
    person = world.person(wish["person"])
    owner, customer = (
        (world.person(wish["owner"]), person) if "owner" in wish else (person, world.person(wish["customer"]))
    )
    chat = _chat(world, owner, customer)
    at = world.clock.date() - wish.get("age", 0)
    content = {**keep_file(world, wish["file"])[1]} if "file" in wish else text_content(wish, wish["text"])
    stored = chat.add(
        {"from": person.as_json(), "chat": chat.as_json(), "date": at, **content}, author=person.id
    )
    if person.id == customer.id:
        world.customers_wrote[owner.id, customer.id] = world.clock.now() - wish.get("age", 0)
    return {"message_id": stored.id, "updates": _tell(world, owner, "business_message", stored)}


def edit_business(world: World, wish: Json) -> Json:
    """Edit a message of a customer."""
    owner, customer = world.person(wish["owner"]), world.person(wish["person"])
    stored = _chat(world, owner, customer).messages[wish["message_id"]]
    stored.message.pop("entities", None)
    stored.message.update(**text_content(wish, wish["text"]), edit_date=world.clock.date())
    return {"message_id": stored.id, "updates": _tell(world, owner, "edited_business_message", stored)}


def delete_business(world: World, wish: Json) -> Json:
    """Delete messages of a customer for both sides."""
    owner, customer = world.person(wish["owner"]), world.person(wish["person"])
    chat = _chat(world, owner, customer)
    for number in wish["message_ids"]:
        del chat.messages[number]
    connection = _enabled(world, owner)
    if connection is None:
        return {}
    content = {
        "business_connection_id": connection.id, "chat": chat.as_json(), "message_ids": wish["message_ids"],
    }  # fmt: skip
    bot = world.bot(connection.bot)
    bot.inbox.put("deleted_business_messages", content, lane=f"business:{chat.id}")
    return {}


def look_at_business(world: World, wish: Json) -> Json:
    """Return all messages between an owner and a customer, oldest first, with the bot that sent them, if one
    did.
    """
    chat = _chat(world, world.person(wish["owner"]), world.person(wish["customer"]))
    return {
        "messages": [
            {
                "id": stored.id, "text": stored.message.get("text"), "from": stored.message["from"]["id"],
                "entities": stored.message.get("entities", []),
                "by_bot": "sender_business_bot" in stored.message,
            }
            for stored in chat.messages.values()
        ]
    }  # fmt: skip


def get_business_connection(world: World, call: Call) -> Json:
    found = world.connections.get(call.params["business_connection_id"])
    if found is None or found.bot != call.bot.id:
        raise Refusal("BUSINESS_CONNECTION_INVALID")
    return _as_json(world, found)


def send_for_owner(world: World, call: Call) -> Json:
    """Send a text in the name of the owner.

    The bot needs the right, and the last message of the customer must be less than a day old.
    """
    params, bot = call.params, call.bot
    if unknown := sorted(_NOT_HERE & params.keys()):
        raise stricter(f"this fake knows no {unknown[0]} in a business chat")
    found = world.connections.get(params["business_connection_id"])
    if found is None or found.bot != bot.id or not found.is_enabled:
        raise Refusal("BUSINESS_CONNECTION_INVALID")
    if not found.can_reply:
        raise Refusal("BUSINESS_CONNECTION_NOT_ALLOWED")
    owner, customer = world.person(found.owner), world.people.get(params["chat_id"])
    wrote_at = world.customers_wrote.get((owner.id, params["chat_id"]))
    if customer is None or wrote_at is None or world.clock.now() > wrote_at + REPLY_SECONDS:
        raise Refusal("BUSINESS_PEER_INVALID")
    chat = _chat(world, owner, customer)
    content = words_of(params).named()
    world.limiter.admit(bot.id, customer.id)
    stored = chat.add(
        {
            "from": owner.as_json(), "sender_business_bot": bot.account.as_json(), "chat": chat.as_json(),
            "date": world.clock.date(), **content,
        },
        author=owner.id,
    )  # fmt: skip
    _tell(world, owner, "business_message", stored)
    return {**stored.message, "business_connection_id": found.id}


def _chat(world: World, owner: Account, customer: Account) -> Chat:
    """Return the chat of these two with its id in the owner's account; created if needed."""
    key = (owner.id, customer.id)
    if key not in world.business_chats:
        world.business_chats[key] = Chat(
            id=customer.id, kind="private", person=customer.as_json(), members={owner.id, customer.id}
        )
    return world.business_chats[key]


def _connection_of(world: World, owner: int) -> BusinessConnection:
    found = [one for one in world.connections.values() if one.owner == owner]
    if not found:
        raise NoSuchThing(f"{owner} has connected no bot")
    return found[-1]


def _enabled(world: World, owner: Account) -> BusinessConnection | None:
    return next((one for one in world.connections.values() if one.owner == owner.id and one.is_enabled), None)


def _tell(world: World, owner: Account, kind: str, stored: Stored) -> Json:
    connection = _enabled(world, owner)
    if connection is None:
        return {}
    message = {**copy.deepcopy(stored.message), "business_connection_id": connection.id}
    bot = world.bot(connection.bot)
    lane = f"business:{stored.message['chat']['id']}"
    return {str(bot.id): bot.inbox.put(kind, message, lane=lane)}


def _tell_connection(world: World, made: BusinessConnection) -> Json:
    bot = world.bot(made.bot)
    update = bot.inbox.put("business_connection", _as_json(world, made), lane=f"business:{made.owner}")
    return {"connection": made.id, "updates": {str(bot.id): update}}


def _as_json(world: World, made: BusinessConnection) -> Json:
    rights = {"can_reply": True, "can_read_messages": True} if made.can_reply else {}
    return {
        "id": made.id, "user": world.person(made.owner).as_json(), "user_chat_id": made.owner,
        "date": made.at, "is_enabled": made.is_enabled, "rights": rights,
    }  # fmt: skip
