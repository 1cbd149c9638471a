"""Guest queries: people mention a bot in a chat where it is no member, and it may answer there once."""

from __future__ import annotations

import copy

from tests.kit.fakes.bot_api.accounts import Account, Bot
from tests.kit.fakes.bot_api.calls import Call
from tests.kit.fakes.bot_api.chats import Chat
from tests.kit.fakes.bot_api.inline import article_words
from tests.kit.fakes.bot_api.refusals import NOT_MODIFIED, QUERY_TOO_OLD, Refusal, misuse
from tests.kit.fakes.bot_api.shapes import Json
from tests.kit.fakes.bot_api.speech import text_content
from tests.kit.fakes.bot_api.world import GuestQuery, NoSuchThing, World

GUEST_SECONDS = 10.0
"""Seconds that a query waits for its answer; Telegram documents no number, but queries do expire."""


def ask_guest(world: World, wish: Json) -> Json:
    """Mention the bot in a group, or in the person's private chat with the person `beside`."""
    person, bot = world.person(wish["person"]), world.bot(wish.get("bot"))
    if not bot.guests:
        raise NoSuchThing("@BotFather has not switched guest mode on for this bot")
    number = str(7_000_000_000 + world.number())
    chat, place = _place(world, wish, person, bot)
    message: Json = {
        "from": person.as_json(), "chat": place, "date": world.clock.date() - wish.get("age", 0),
        "guest_query_id": number, **text_content(wish, wish["text"]),
    }  # fmt: skip
    if (answered := world.guest_answer(wish.get("reply_to"))) is not None:
        message["reply_to_message"] = {
            "message_id": 1, "from": bot.account.as_json(), "chat": place, "date": world.clock.date(),
            "text": answered.shown["text"],
        }  # fmt: skip
    if chat is None:
        message["message_id"] = world.number()
    else:
        message = chat.add(message, author=person.id).message
    world.guests[number] = GuestQuery(
        id=number, bot=bot.id, person=person.id, chat=place["id"], born=world.clock.now() - wish.get("age", 0)
    )
    update = bot.inbox.put("guest_message", copy.deepcopy(message), lane=f"guest:{number}")
    return {"query": number, "updates": {str(bot.id): update}}


def look_at_guest(world: World, wish: Json) -> Json:
    """Return all texts that the chat saw as the answer to a query, oldest first."""
    found = world.guests[wish["query"]]
    return {"views": found.views, "seconds": found.seconds}


def answer_guest_query(world: World, call: Call) -> Json:
    """Answer a query, once and within its time; the answer counts like any message of the bot."""
    query = world.guests.get(call.params["guest_query_id"])
    now = world.clock.now()
    if query is None or query.bot != call.bot.id or query.views or now > query.born + GUEST_SECONDS:
        raise Refusal(QUERY_TOO_OLD)
    article = call.params["result"]
    if not 1 <= len(article["id"].encode()) <= 64:
        raise misuse("RESULT_ID_INVALID")
    words = article_words(article).named()
    world.limiter.admit(call.bot.id, query.chat)
    query.views.append(words)
    query.seconds.append(now - query.born)
    return {"inline_message_id": f"guest-{query.id}"}


def edit_guest_answer(world: World, call: Call, content: Json) -> bool:
    """Edit an answer by its inline message id, the only way for a bot to change it."""
    query = world.guest_answer(call.params["inline_message_id"])
    if query is None or query.bot != call.bot.id:
        raise Refusal("MESSAGE_ID_INVALID")
    content = {name: content[name] for name in ("text", "entities") if name in content}
    if query.shown == content:
        raise Refusal(NOT_MODIFIED)
    world.limiter.admit(call.bot.id, query.chat)
    query.views.append(content)
    query.seconds.append(world.clock.now() - query.born)
    return True


def _place(world: World, wish: Json, person: Account, bot: Bot) -> tuple[Chat | None, Json]:
    if "beside" in wish:
        other = world.person(wish["beside"])
        return None, {"id": other.id, "type": "private", "first_name": other.first_name}
    chat = world.chat(bot, wish["chat"])
    if person.id not in chat.members or bot.id in chat.members:
        raise NoSuchThing(f"in {chat.id} the person must be a member, and the bot none")
    return chat, chat.as_json()
