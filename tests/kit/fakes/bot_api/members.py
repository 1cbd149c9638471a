"""Members of chats as bots see them, and updates about the bot's own membership."""

from __future__ import annotations

from tests.kit.fakes.bot_api.accounts import Bot
from tests.kit.fakes.bot_api.chats import Chat
from tests.kit.fakes.bot_api.shapes import Json
from tests.kit.fakes.bot_api.world import World

RIGHTS = (
    "can_be_edited", "is_anonymous", "can_manage_chat", "can_delete_messages", "can_manage_video_chats",
    "can_restrict_members", "can_promote_members", "can_change_info", "can_invite_users", "can_post_stories",
    "can_edit_stories", "can_delete_stories", "can_pin_messages", "can_manage_topics",
    "can_send_welcome_messages",  # since 10.2
)  # fmt: skip


def status_of(chat: Chat, number: int) -> str:
    if number in chat.kicked or (chat.kind == "private" and chat.blocked):
        return "kicked"
    if number == chat.owner:
        return "creator"
    if number in chat.admins:
        return "administrator"
    return "member" if number in chat.members else "left"


def member_json(world: World, chat: Chat, number: int) -> Json:
    return _standing(world, status_of(chat, number), number)


def tell_own_standing(world: World, bot: Bot, chat: Chat, *, before: str, by: int) -> int | None:
    """Send the update my_chat_member: the bot was added, removed, promoted, blocked or unblocked."""
    content: Json = {
        "chat": chat.as_json(),
        "from": world.author_json(by),
        "date": world.clock.date(),
        "old_chat_member": _standing(world, before, bot.id),
        "new_chat_member": _standing(world, status_of(chat, bot.id), bot.id),
    }
    number: int | None = bot.inbox.put("my_chat_member", content, lane=chat.lane())
    return number


def _standing(world: World, status: str, number: int) -> Json:
    found: Json = {"status": status, "user": world.author_json(number)}
    if status == "administrator":
        found.update(dict.fromkeys(RIGHTS, True), is_anonymous=False)
    elif status == "creator":
        found["is_anonymous"] = False
    elif status == "kicked":
        found["until_date"] = 0
    return found
