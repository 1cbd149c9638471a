"""Each change of a chat reaches its handler by aiogram's filters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiogram.types import Update

from bot.telegram.client.session import create_bot
from bot.telegram.handlers.chat_changes import ChatChanges
from bot.telegram.handlers.dispatcher import BotDispatcher
from bot.telegram.inbound.chat_access import Allowed, NoReply
from tests.kit.fakes.bot_api import TOKEN
from tests.kit.telegram.updates import BOT_USER, GROUP_CHAT, Json, raw_message

PRIVATE_CHAT: Json = {"id": 42, "type": "private", "first_name": "Ada"}


class Recorder:
    """Stands for the stores and the sender, and writes down what was done."""

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.policy = self

    async def set_reachable(self, _bot_id: int, chat_id: int, *, reachable: bool) -> None:
        self.done.append(("reachable", reachable))

    def mark_reachable(self, chat_id: int) -> None:
        self.done.append(("called", chat_id))

    async def handle_added(self, *_: Any) -> NoReply:
        self.done.append(("added",))
        return NoReply(reason="test")

    async def reply_to_stranger(self, *_: Any) -> None:
        return None

    async def migrate(self, _bot_id: int, *, old_chat: int, new_chat: int) -> None:
        self.done.append(("moved", old_chat, new_chat))

    async def check(self, _chat: Any) -> Allowed:
        return Allowed()

    async def open_chat(self, *_: Any) -> str:
        return "chat"

    async def pin(self, chat: str, message_id: int) -> None:
        self.done.append(("pin", message_id))

    async def find_message(self, *_: Any) -> Any:
        return SimpleNamespace(part=1, session_id=3, turn=7)

    async def record_opinion(self, session_id: int, turn: int, opinion: str | None, *, source: str) -> None:
        self.done.append(("opinion", opinion, source))

    async def list_threads(self, _bot_id: int, _chat_id: int) -> list[Any]:
        return [SimpleNamespace(thread_id=thread, session_id=thread + 1) for thread in (0, 5)]

    async def stop(self, session_id: int) -> None:
        self.done.append(("stop", session_id))


async def feed(update: Json) -> list[tuple[Any, ...]]:
    recorder = Recorder()
    reach = cast("Any", recorder)
    context = SimpleNamespace(
        identity=SimpleNamespace(bot_id=1), sender=reach, stores=SimpleNamespace(telegram_chats=reach)
    )
    changes = ChatChanges(cast("Any", context), admission=reach, command_handlers=reach, sessions=reach)

    async def admit(handler: Any, event: Any, data: Any) -> Any:
        return await handler(event, data)

    client = create_bot(TOKEN)
    dispatcher = BotDispatcher(client, routers=[changes.build_router()], batch_admission=cast("Any", admit))
    await dispatcher.feed_other(Update.model_validate({"update_id": 1, **update}, context={"bot": client}))
    return recorder.done


@pytest.mark.parametrize(
    ("chat", "before", "after", "done"),
    [
        (PRIVATE_CHAT, "member", "kicked", [("reachable", False)]),
        (PRIVATE_CHAT, "kicked", "member", [("reachable", True), ("called", 42)]),
        (GROUP_CHAT, "left", "member", [("reachable", True), ("called", -100500), ("added",)]),
        (GROUP_CHAT, "member", "kicked", [("reachable", False)]),
        (GROUP_CHAT, "member", "left", [("reachable", False)]),
        (GROUP_CHAT, "member", "creator", [("reachable", True), ("called", -100500)]),
        (GROUP_CHAT, "creator", "member", [("reachable", True), ("called", -100500)]),
        (GROUP_CHAT, "left", "kicked", []),
    ],
)
async def test_standing_of_the_bot_reaches_its_handler(
    chat: Json, before: str, after: str, done: list[tuple[Any, ...]]
) -> None:
    def member(status: str) -> Json:
        known: Json = {"kicked": {"until_date": 0}, "creator": {"is_anonymous": False}}
        return {"status": status, "user": BOT_USER, **known.get(status, {})}

    change = {
        "chat": chat, "from": raw_message()["from"], "date": 1,
        "old_chat_member": member(before), "new_chat_member": member(after),
    }  # fmt: skip
    assert await feed({"my_chat_member": change}) == done


async def test_migration_is_the_same_from_both_sides() -> None:
    old: Json = {"id": -5, "type": "group", "title": "Family"}
    one = await feed({"message": raw_message(text=None, chat=old, migrate_to_chat_id=-100500)})
    two = await feed({"message": raw_message(text=None, chat=GROUP_CHAT, migrate_from_chat_id=-5)})
    assert one == two == [("moved", -5, -100500)]


async def test_pin_names_its_message() -> None:
    assert await feed({"message": raw_message(text=None, pinned_message=raw_message(message_id=3))}) == [
        ("pin", 3)
    ]


@pytest.mark.parametrize(
    ("before", "after", "opinion"),
    [("👍", "👎", ["bad"]), ("", "❤", ["good"]), ("👍", "", [None]), ("", "🤔", [])],
)
async def test_reaction_is_an_opinion_of_its_person(
    before: str, after: str, opinion: list[str | None]
) -> None:
    def emoji(one: str) -> list[Json]:
        return [{"type": "emoji", "emoji": one}] if one else []

    reaction = {
        "chat": PRIVATE_CHAT, "message_id": 9, "user": raw_message()["from"], "date": 1,
        "old_reaction": emoji(before), "new_reaction": emoji(after),
    }  # fmt: skip
    found = await feed({"message_reaction": reaction})
    assert found == [("opinion", one, "telegram:42") for one in opinion]


async def test_stopped_draft_stops_the_answer_of_its_topic() -> None:
    stopped = {"chat": PRIVATE_CHAT, "draft_id": 77, "message_thread_id": 5}
    assert await feed({"stopped_message_generation": stopped}) == [("stop", 6)]
