"""Acts of a person in a chat: send, paste, forward, edit, press, react, pin, block."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable
from typing import Any

from tests.kit.fakes.bot_api import guests, inline
from tests.kit.fakes.bot_api.chat_methods import pin
from tests.kit.fakes.bot_api.chats import Stored
from tests.kit.fakes.bot_api.drafts import expire_drafts
from tests.kit.fakes.bot_api.keyboards import button_named
from tests.kit.fakes.bot_api.members import tell_own_standing
from tests.kit.fakes.bot_api.shapes import Json
from tests.kit.fakes.bot_api.speech import (
    Speaker,
    found_entities,
    heard,
    speak,
    speaker,
    split_paste,
    text_content,
)
from tests.kit.fakes.bot_api.world import NoSuchThing, Query, World

MAX_QUERIES = 10_000
_MEDIA = frozenset({"document", "photo", "voice", "video_note", "audio"})
Act = Callable[[World, Json], Any]


def say(world: World, wish: Json) -> Json:
    return speak(world, speaker(world, wish), text_content(wish, wish["text"]), wish)


def say_many(world: World, wish: Json) -> list[Json]:
    """Send messages of many people at once, for load; each wish is one of `say`."""
    return [say(world, one) for one in wish["all"]]


def paste(world: World, wish: Json) -> list[Json]:
    who = speaker(world, wish)
    return [
        speak(world, who, text_content({}, part), wish if not number else None)
        for number, part in enumerate(split_paste(wish["text"]))
        if part.strip()
    ]


def forward(world: World, wish: Json) -> list[Json]:
    """Forward messages; the comment is sent first, as apps do."""
    who = speaker(world, wish)
    done = [speak(world, who, text_content({}, wish["comment"]), wish)] if wish.get("comment") else []
    origin = {
        "type": "hidden_user",
        "sender_user_name": wish.get("from_name", "Somebody"),
        "date": world.clock.date() - 60,
    }
    told = [{**text_content({}, text), "forward_origin": origin} for text in wish["texts"]]
    return done + [speak(world, who, content) for content in told]


async def album(world: World, wish: Json) -> list[Json]:
    """Send photos of one album with the caption on the first, `gap` seconds apart: one number, or one for
    each.
    """
    who, group = speaker(world, wish), str(world.number())
    done: list[Json] = []
    for number in range(wish["count"]):
        gap = wish.get("gap", 0)
        if number:
            await world.clock.sleep(gap[number - 1] if isinstance(gap, list) else gap)
        found = world.files.keep(
            _content(wish), name=f"photo{number}.jpg", media_type="image/jpeg", folder="photos"
        )
        caption = _captioned(wish.get("caption")) if not number else {}
        done.append(speak(world, who, {"media_group_id": group, "photo": found.as_photo(), **caption}))
    return done


def send_file(world: World, wish: Json) -> Json:
    found, content = keep_file(world, wish)
    spoken = speak(world, speaker(world, wish), {**content, **_captioned(wish.get("caption"))}, wish)
    return {**spoken, "file_id": found.file_id}


def keep_file(world: World, wish: Json) -> tuple[Any, Json]:
    """Store a file; return it, and the message content that shows it."""
    found = world.files.keep(
        _content(wish),
        name=wish["name"],
        media_type=wish.get("media_type", "application/octet-stream"),
        folder=wish.get("folder", "documents"),
        size=wish.get("size"),
    )
    duration = wish.get("duration", 3)
    shapes: Json = {
        "photos": {"photo": found.as_photo()},
        "voice": {"voice": found.as_voice(duration)},
        "video_notes": {"video_note": found.as_video_note(duration)},
        "music": {"audio": {**found.as_document(), "duration": duration}},
    }
    return found, shapes.get(found.folder, {"document": found.as_document()})


def send_content(world: World, wish: Json) -> Json:
    """Send any other content in the format of the Bot API, such as a sticker, location or contact."""
    return speak(world, speaker(world, wish), wish["content"], wish)


def edit(world: World, wish: Json) -> Json:
    who = speaker(world, wish)
    stored = _own(who, wish["message_id"])
    for name in ("text", "entities", "caption"):
        stored.message.pop(name, None)
    if "file" in wish:
        for name in _MEDIA & set(stored.message):
            del stored.message[name]
        stored.message.update(keep_file(world, wish["file"])[1])
    media = _MEDIA & set(stored.message)
    stored.message.update(_captioned(wish["text"]) if media else text_content(wish, wish["text"]))
    stored.message["edit_date"] = world.clock.date()
    who.chat.saw_message("edited", stored, at=world.clock.now(), by_bot=False)
    return heard(world, who.chat, stored, kind="edited_message")


def delete(world: World, wish: Json) -> Json:
    """Delete a message; bots get no update."""
    who = speaker(world, wish)
    if wish["message_id"] not in who.chat.messages:
        raise NoSuchThing(f"no message {wish['message_id']}")
    del who.chat.messages[wish["message_id"]]
    who.chat.saw("deleted", at=world.clock.now(), message_id=wish["message_id"], by="person")
    return {}


def tap(world: World, wish: Json) -> Json:
    """Press the button with this label on the given message, else on the newest message that has it."""
    who = speaker(world, wish)
    number = wish.get("message_id")
    candidates = [who.chat.messages.get(number)] if number else reversed(who.chat.messages.values())
    for stored in candidates:
        button = button_named(stored.message.get("reply_markup"), wish["label"]) if stored else None
        if stored is not None and button is not None:
            if "callback_data" not in button:
                return {"url": button.get("url")}
            return _pressed(world, who, stored, button["callback_data"])
    raise NoSuchThing(f"no button {wish['label']!r} in chat {who.chat.id}")


def forge_tap(world: World, wish: Json) -> Json:
    """Press with any data, for any message, as a tampered app could."""
    who = speaker(world, wish)
    stored = who.chat.messages.get(wish["message_id"])
    if stored is None:
        raise NoSuchThing(f"no message {wish['message_id']}")
    return _pressed(world, who, stored, wish["data"])


def react(world: World, wish: Json) -> Json:
    who = speaker(world, wish)
    stored = who.chat.messages.get(wish["message_id"])
    if stored is None:
        raise NoSuchThing(f"no message {wish['message_id']}")
    before = stored.reactions.get(who.person.id, [])
    after = [{"type": "emoji", "emoji": wish["emoji"]}] if wish.get("emoji") else []
    stored.reactions[who.person.id] = after
    who.chat.saw("reaction", at=world.clock.now(), message_id=stored.id, by="person", reaction=after)
    content: Json = {
        "chat": who.chat.as_json(),
        "message_id": stored.id,
        "user": who.person.as_json(),
        "date": world.clock.date(),
        "old_reaction": before,
        "new_reaction": after,
    }
    told = {
        str(bot.id): bot.inbox.put("message_reaction", copy.deepcopy(content), lane=who.chat.lane())
        for bot in world.bots_in(who.chat)
        if who.chat.kind == "private" or bot.id in who.chat.admins
    }
    return {"message_id": stored.id, "chat_id": who.chat.id, "updates": told}


def stop_draft(world: World, wish: Json) -> Json:
    who = speaker(world, wish)
    expire_drafts(who.chat, world.clock.now())
    draft = who.chat.drafts.get(who.thread or 0)
    if draft is None or not draft.can_stop or draft.stopped:
        raise NoSuchThing("there is no draft that could be stopped")
    draft.stopped = True
    if not draft.keep_on_stop:
        del who.chat.drafts[who.thread or 0]
        who.chat.saw("draft_gone", at=world.clock.now(), thread=who.thread, reason="stopped")
    content: Json = {"chat": who.chat.as_json(), "draft_id": draft.draft_id}
    if who.thread is not None:
        content["message_thread_id"] = who.thread
    update = who.bot.inbox.put("stopped_message_generation", content, lane=who.chat.lane())
    return {"draft_id": draft.draft_id, "updates": {str(who.bot.id): update}}


def pin_message(world: World, wish: Json) -> Json:
    who = speaker(world, wish)
    stored = who.chat.messages.get(wish["message_id"])
    if stored is None:
        raise NoSuchThing(f"no message {wish['message_id']}")
    return heard(world, who.chat, pin(world, who.chat, stored, author=who.person.id))


def unpin_message(world: World, wish: Json) -> Json:
    """Unpin a message; bots get no update."""
    who = speaker(world, wish)
    who.chat.pinned.remove(wish["message_id"])
    who.chat.saw("unpinned", at=world.clock.now(), message_id=wish["message_id"], by="person")
    return {}


def block(world: World, wish: Json) -> Json:
    return _set_blocked(world, wish, blocked=True)


def unblock(world: World, wish: Json) -> Json:
    return _set_blocked(world, wish, blocked=False)


def deactivate(world: World, wish: Json) -> Json:
    world.person(wish["person"]).deactivated = True
    return {}


def _set_blocked(world: World, wish: Json, *, blocked: bool) -> Json:
    person, bot = world.person(wish["person"]), world.bot(wish.get("bot"))
    chat = world.private(bot, person)
    if chat.blocked == blocked:
        return {"updates": {}}
    chat.blocked = blocked
    before = "member" if blocked else "kicked"
    return {"updates": {str(bot.id): tell_own_standing(world, bot, chat, before=before, by=person.id)}}


def _pressed(world: World, who: Speaker, stored: Stored, data: str) -> Json:
    bot = next((one for one in world.bots.values() if one.id == stored.author), who.bot)
    number = str(4_000_000_000 + world.number())
    world.queries[number] = Query(
        id=number, bot=bot.id, person=who.person.id, chat=who.chat, born=world.clock.now()
    )
    while len(world.queries) > MAX_QUERIES:
        del world.queries[next(iter(world.queries))]
    content: Json = {
        "id": number,
        "from": who.person.as_json(),
        "message": copy.deepcopy(stored.message),
        "chat_instance": who.chat.chat_instance,
        "data": data,
    }
    update = bot.inbox.put("callback_query", content, lane=f"person:{who.person.id}")
    return {"query": number, "message_id": stored.id, "updates": {str(bot.id): update}}


def _own(who: Speaker, number: int) -> Stored:
    stored = who.chat.messages.get(number)
    if stored is None or stored.author != who.person.id:
        raise NoSuchThing(f"{number} is not a message of this person")
    return stored


def _captioned(caption: str | None) -> Json:
    if not caption:
        return {}
    found = found_entities(caption)
    return {"caption": caption, "caption_entities": found} if found else {"caption": caption}


def _content(wish: Json) -> bytes:
    return base64.b64decode(wish.get("content", ""))


ACTS: dict[str, Act] = {
    act.__name__: act
    for act in (
        say, say_many, paste, forward, album, send_file, send_content, edit, delete, tap, forge_tap, react,
        stop_draft, pin_message, unpin_message, block, unblock, deactivate, inline.ask_inline,
        guests.ask_guest,
    )
}  # fmt: skip
