"""The methods by which a bot changes a chat: sendMessage, edits, deletions, reactions and button answers."""

from __future__ import annotations

from tests.kit.fakes.bot_api.accounts import Bot
from tests.kit.fakes.bot_api.calls import Call
from tests.kit.fakes.bot_api.chats import Chat, Stored, same_content
from tests.kit.fakes.bot_api.entities import words_of
from tests.kit.fakes.bot_api.guests import edit_guest_answer
from tests.kit.fakes.bot_api.keyboards import checked_markup
from tests.kit.fakes.bot_api.refusals import NOT_MODIFIED, QUERY_TOO_OLD, Refusal, misuse, stricter
from tests.kit.fakes.bot_api.rich import checked_rich
from tests.kit.fakes.bot_api.shapes import Json, units
from tests.kit.fakes.bot_api.world import World

TWO_DAYS = 48 * 3_600
QUERY_SECONDS = 150.0
MAX_QUOTE = 1_024
CONTENT = ("text", "entities", "rich_message", "reply_markup", "link_preview_options")
ACTIONS = frozenset(
    [
        "typing",
        "upload_photo",
        "record_video",
        "upload_video",
        "record_voice",
        "upload_voice",
        "upload_document",
        "choose_sticker",
        "find_location",
        "record_video_note",
        "upload_video_note",
    ]
)
TYPING_SECONDS = 5.0


def send_message(world: World, call: Call) -> Json:
    words = words_of(call.params)
    return post(world, call, {**words.named(), **_preview(call.params)})


def send_rich_message(world: World, call: Call) -> Json:
    return post(world, call, {"rich_message": checked_rich(call.params["rich_message"], draft=False)})


def post(world: World, call: Call, content: Json) -> Json:
    """Store a bot's message in its chat and tell the chat's members.

    The drafts of the same thread end.
    """
    params, bot = call.params, call.bot
    chat = world.writable(bot, params["chat_id"])
    thread = world.thread(bot, chat, params.get("message_thread_id"))
    markup = checked_markup(params)
    message: Json = {"from": bot.account.as_json(), "chat": chat.as_json(), "date": world.clock.date()}
    if chat.kind == "channel":  # the sender of a channel's message is the channel, whoever wrote the message
        message = {"sender_chat": chat.as_json(), **message}
        del message["from"]
    if thread is not None:
        message.update(message_thread_id=thread, is_topic_message=True)
    message.update(_replied(chat, params.get("reply_parameters")))
    message.update(content)
    if markup and "inline_keyboard" in markup:
        message["reply_markup"] = markup
    world.limiter.admit(bot.id, chat.id)
    return show_sent(world, chat, chat.add(message, author=bot.id, silent=_silent(params)))


def show_sent(world: World, chat: Chat, stored: Stored) -> Json:
    now = world.clock.now()
    thread = stored.thread or 0
    if chat.drafts.pop(thread, None):
        chat.saw("draft_gone", at=now, thread=stored.thread, reason="message")
    chat.typing_until.pop(thread, None)
    chat.notifications += not stored.silent
    chat.saw_message("sent", stored, at=now, by_bot=True)
    return stored.message


def edit_message_text(world: World, call: Call) -> object:
    params = call.params
    if "rich_message" in params:
        if "text" in params:
            raise misuse("text and rich_message can't be used together")
        content: Json = {"rich_message": checked_rich(params["rich_message"], draft=False)}
    else:
        content = {**words_of(params).named(), **_preview(params)}
    if "inline_message_id" in params:
        return edit_guest_answer(world, call, content)
    chat, stored = _own(world, call, "message to edit not found", "message can't be edited")
    if not {"text", "rich_message"} & set(stored.message):
        raise Refusal("there is no text in the message to edit")
    return _edited(world, call.bot, chat, stored, {**content, **_markup(params)})


def edit_message_reply_markup(world: World, call: Call) -> object:
    chat, stored = _own(world, call, "message to edit not found", "message can't be edited")
    kept = {name: stored.message[name] for name in CONTENT if name in stored.message}
    kept.pop("reply_markup", None)
    return _edited(world, call.bot, chat, stored, {**kept, **_markup(call.params)})


def stop_message_live_location(world: World, call: Call) -> object:
    """Refuse every call, since no bot sends locations here.

    The words differ between the bot's own messages and other people's.
    """
    _own(world, call, "message to edit not found", "message can't be edited")
    raise Refusal("there is no live location in the message to edit")


def delete_message(world: World, call: Call) -> bool:
    chat = world.writable(call.bot, call.params["chat_id"])
    _delete(world, call.bot, chat, call.params["message_id"])
    return True


def delete_messages(world: World, call: Call) -> bool:
    """Ids of messages that do not exist are skipped."""
    chat = world.writable(call.bot, call.params["chat_id"])
    if not 1 <= len(call.params["message_ids"]) <= 100:
        raise misuse("from 1 to 100 message identifiers can be given")
    for number in call.params["message_ids"]:
        if number in chat.messages:
            _delete(world, call.bot, chat, number)
    return True


def send_chat_action(world: World, call: Call) -> bool:
    params = call.params
    if params["action"] not in ACTIONS:
        raise misuse("wrong parameter action in request")
    chat = world.writable(call.bot, params["chat_id"])
    thread = world.thread(call.bot, chat, params.get("message_thread_id"))
    now = world.clock.now()
    chat.typing_until[thread or 0] = now + TYPING_SECONDS
    chat.saw("typing", at=now, thread=thread, action=params["action"])
    return True


def set_message_reaction(world: World, call: Call) -> bool:
    params = call.params
    chat = world.writable(call.bot, params["chat_id"])
    stored = world.message(chat, params["message_id"], missing="message to react not found")
    wanted = params.get("reaction", [])
    if len(wanted) > 1:
        raise misuse("REACTIONS_TOO_MANY")
    for one in wanted:
        if one["type"] != "emoji" or one["emoji"] not in world.schema.reactions:
            raise misuse("REACTION_INVALID")
    stored.reactions[call.bot.id] = wanted
    chat.saw("reaction", at=world.clock.now(), message_id=stored.id, by="bot", reaction=wanted)
    return True


def answer_callback_query(world: World, call: Call) -> bool:
    params = call.params
    if units(params.get("text", "")) > 200:
        raise misuse("MESSAGE_TOO_LONG")
    query = world.queries.get(params["callback_query_id"])
    now = world.clock.now()
    known = query is not None and query.bot == call.bot.id
    if query is None or not known or query.answered or now > query.born + QUERY_SECONDS:
        raise Refusal(QUERY_TOO_OLD)
    query.answered = True
    query.chat.saw(
        "toast",
        at=now,
        person=query.person,
        text=params.get("text"),
        alert=params.get("show_alert"),
        query=query.id,
    )
    return True


def _replied(chat: Chat, wish: Json | None) -> Json:
    if wish is None:
        return {}
    stored = chat.messages.get(wish["message_id"])
    if "chat_id" in wish and wish["chat_id"] != chat.id:
        raise stricter("replies into another chat are not ours")
    if stored is None:
        if wish.get("allow_sending_without_reply"):
            return {}
        raise Refusal("message to be replied not found")
    found: Json = {"reply_to_message": {n: v for n, v in stored.message.items() if n != "reply_to_message"}}
    quote = wish.get("quote")
    if quote:
        whole = stored.message.get("text") or stored.message.get("caption") or ""
        if units(quote) > MAX_QUOTE or quote not in whole:
            raise misuse("QUOTE_TEXT_INVALID")
        found["quote"] = {"text": quote, "position": units(whole[: whole.index(quote)]), "is_manual": True}
    return found


def _own(world: World, call: Call, missing: str, foreign: str) -> tuple[Chat, Stored]:
    params = call.params
    if "inline_message_id" in params or "chat_id" not in params:
        raise misuse("chat_id is empty")
    if "message_id" not in params:
        raise misuse("message identifier is not specified")
    chat = world.writable(call.bot, params["chat_id"])
    stored = world.message(chat, params["message_id"], missing=missing)
    if stored.author != call.bot.id:
        raise Refusal(foreign)
    return chat, stored


def _edited(world: World, bot: Bot, chat: Chat, stored: Stored, content: Json) -> Json:
    if same_content(stored.message, {**_media(stored.message), **content}):
        raise Refusal(NOT_MODIFIED)
    world.limiter.admit(bot.id, chat.id)
    for name in CONTENT:
        stored.message.pop(name, None)
    stored.message.update(content, edit_date=world.clock.date())
    chat.saw_message("edited", stored, at=world.clock.now(), by_bot=True)
    return stored.message


def _media(message: Json) -> Json:
    return {name: message[name] for name in ("document", "photo", "caption") if name in message}


def _delete(world: World, bot: Bot, chat: Chat, number: int) -> None:
    stored = world.message(chat, number, missing="message to delete not found")
    allowed = chat.kind == "private" or stored.author == bot.id or bot.id in chat.admins
    if not allowed or world.clock.now() - stored.message["date"] > TWO_DAYS:
        raise Refusal("message can't be deleted for everyone")
    del chat.messages[number]
    if number in chat.pinned:
        chat.pinned.remove(number)
    chat.saw("deleted", at=world.clock.now(), message_id=number, thread=stored.thread, by="bot")


def _markup(params: Json) -> Json:
    markup = checked_markup(params)
    return {"reply_markup": markup} if markup else {}


def _preview(params: Json) -> Json:
    wish = params.get("link_preview_options")
    return {"link_preview_options": wish} if wish else {}


def _silent(params: Json) -> bool:
    return bool(params.get("disable_notification"))
