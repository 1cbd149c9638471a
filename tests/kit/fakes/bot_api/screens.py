"""The screen of a chat as tests read it: messages with their edits, drafts, typing, and the order of
changes.
"""

from __future__ import annotations

from tests.kit.fakes.bot_api.chats import Chat, Stored, shown
from tests.kit.fakes.bot_api.drafts import expire_drafts
from tests.kit.fakes.bot_api.rich import plain
from tests.kit.fakes.bot_api.shapes import Json
from tests.kit.fakes.bot_api.world import World


def screen(world: World, chat: Chat) -> Json:
    """Return all that the people of a chat see now, as JSON; drafts that have lapsed are removed first."""
    now = world.clock.now()
    expire_drafts(chat, now)
    return {
        "version": chat.version,
        "chat": chat.as_json(),
        "lines": [_line(world, stored) for stored in chat.messages.values()],
        "drafts": [
            {
                "draft_id": draft.draft_id,
                "thread": thread or None,
                "text": draft.text,
                "entities": draft.entities,
                "rich_message": draft.rich,
                "can_stop": draft.can_stop and not draft.stopped,
            }
            for thread, draft in chat.drafts.items()
        ],
        "typing": [thread or None for thread, until in chat.typing_until.items() if until > now],
        "notifications": chat.notifications,
        "pinned": list(chat.pinned),
        "topics": {str(thread): name for thread, name in chat.topics.items()},
        "toasts": [view for view in chat.views if view["kind"] == "toast"],
    }


def views(world: World, chat: Chat, *, since: int, message_id: int | None) -> list[Json]:
    """Return the changes of a chat's screen with a number above `since`.

    Only those of one message if `message_id` is given.
    """
    expire_drafts(chat, world.clock.now())
    return [
        view
        for view in chat.views
        if view["number"] > since and (message_id is None or view.get("message_id") == message_id)
    ]


def _line(world: World, stored: Stored) -> Json:
    message = stored.message
    found: Json = {
        "message_id": stored.id,
        "date": message["date"],
        "by": "person" if stored.author in world.people else "bot",
        "author": stored.author,
        "thread": stored.thread,
        "silent": stored.silent,
        "edited": "edit_date" in message,
        "reactions": {str(who): what for who, what in stored.reactions.items() if what},
        "service": not set(message) & {"text", "rich_message", "document", "photo", "voice", "sticker"},
        **shown(message),
    }
    if "rich_message" in message:
        found["text"] = plain(message["rich_message"]["blocks"])
    return found
