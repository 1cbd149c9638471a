"""Whose press of which button is heard: what a button says is never enough."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from aiogram.types import Update

from bot.telegram.client.session import create_bot
from bot.telegram.handlers.button_handlers import ButtonAccess, ButtonHandlers
from bot.telegram.handlers.dispatcher import BotDispatcher
from bot.telegram.inbound.chat_access import Allowed
from bot.telegram.inbound.updates import ChatRef
from bot.telegram.outbound.buttons import ButtonAction, ButtonPress
from bot.telegram.texts import get_texts
from shared.adapters.postgres.telegram.chats import ChatRow
from tests.kit.fakes.bot_api import TOKEN
from tests.kit.telegram.updates import raw_message

MEMORY = (ButtonAction.ARCHIVE_NOTE, ButtonAction.RESTORE_NOTE, ButtonAction.PAGE)
ADMINS_ONLY = (
    ButtonAction.ARCHIVE_NOTE,
    ButtonAction.RESTORE_NOTE,
    ButtonAction.ERASE_ALL,
    ButtonAction.CANCEL_ERASURE,
)


class Everything:
    """Stands for all that a press can reach, and writes down what was done."""

    def __init__(self, *, admin: bool = False, role: str = "") -> None:
        self.done: list[str] = []
        self.nods: list[str] = []
        self.role = role or ("admin" if admin else "member")

    async def answer_callback(self, _callback_id: str, words: str = "") -> None:
        self.nods.append(words)

    async def check(self, _chat: ChatRef) -> Allowed:
        return Allowed()

    async def find_role(self, _chat_id: int, _user_id: int, *, patience: float) -> str:
        return self.role

    async def run(self, **call: Any) -> Any:
        self.done.append(f"{call['name']} {call['args']}")
        return SimpleNamespace(success=True, result="Forgotten")

    async def take_confirmation(self, _session_id: int) -> bool:
        self.done.append("kept")
        return True

    async def show_page(self, *_: Any) -> None:
        self.done.append("page")

    async def open_result(self, *_: Any) -> None:
        self.done.append("result")

    async def archive(self, *_: Any) -> None:
        self.done.append("put away")

    async def restore(self, *_: Any) -> None:
        self.done.append("brought back")

    async def send_or_edit(self, *_: Any, **__: Any) -> None:
        return None


def place(chat_id: int) -> ChatRow:
    return ChatRow(
        address_id=5, bot_id=1, chat_id=chat_id, thread_id=0, contact_id=2, session_id=3,
        session_public_id=UUID(int=4), title="", settings={}, unreachable=False,
    )  # fmt: skip


async def press(
    action: ButtonAction,
    everything: Everything,
    *,
    chat_id: int = 42,
    from_chat: int | None = None,
    public: bool = False,
    data: str = "",
) -> None:
    async def found(_address_id: int) -> ChatRow:
        return place(chat_id)

    stores = SimpleNamespace(telegram_chats=SimpleNamespace(find_chat=found))
    identity, config = SimpleNamespace(bot_id=1), SimpleNamespace(audience="personal")
    context = SimpleNamespace(stores=stores, identity=identity, config=config, public=public)
    reach = cast("Any", everything)
    access = ButtonAccess(
        cast("Any", context), access_policy=reach, admins=reach, notifier=reach, uncertain=reach
    )
    buttons = ButtonHandlers(
        cast("Any", context), access=access, notifier=reach, commands=reach, sessions=reach,
        quick_actions=reach, memory_list=reach, search_results=reach, erasure=reach, delivery=reach,
        offered=frozenset(),
    )  # fmt: skip
    client = create_bot(TOKEN)
    dispatcher = BotDispatcher(client, routers=[buttons.build_router()], batch_admission=cast("Any", None))
    where = chat_id if from_chat is None else from_chat
    shown = raw_message(message_id=1, chat={"id": where, "type": "private" if where > 0 else "group"})
    query = {"id": "c", "from": {"id": 9, "is_bot": False, "first_name": "Ada"}, "chat_instance": "i"}
    said = data or ButtonPress(action=action, address_id=5, subject=7).pack()
    raw = {"update_id": 1, "callback_query": {**query, "data": said, "message": shown}}
    await dispatcher.feed_other(Update.model_validate(raw, context={"bot": client}))


@pytest.mark.parametrize("data", ["stop", "v2:stop:5:7", "v1:nonsense:5:7", "v1:letin:5:7"])
async def test_button_that_says_something_else_is_answered_and_does_nothing(data: str) -> None:
    everything = Everything(admin=True)
    await press(ButtonAction.STOP, everything, data=data)
    assert (everything.done, everything.nods) == ([], [get_texts("en").say("unknown_button")])


@pytest.mark.parametrize("action", MEMORY)
async def test_where_strangers_are_served_no_button_reaches_a_memory(action: ButtonAction) -> None:
    everything = Everything(admin=True)
    await press(action, everything, public=True)
    assert everything.done == []
    assert everything.nods == [get_texts("en").say("others_button")]


@pytest.mark.control("S47")
@pytest.mark.parametrize("action", ADMINS_ONLY)
async def test_in_a_group_only_administrators_forget(action: ButtonAction) -> None:
    member, admin = Everything(), Everything(admin=True)
    await press(action, member, chat_id=-42)
    assert member.done == []
    await press(action, admin, chat_id=-42)
    assert len(admin.done) == 1


@pytest.mark.parametrize("action", ADMINS_ONLY)
async def test_press_asks_to_try_again_while_the_role_is_unknown(action: ButtonAction) -> None:
    everything = Everything(role="unknown")
    await press(action, everything, chat_id=-42)
    assert (everything.done, everything.nods) == ([], [get_texts("en").say("not_now")])


@pytest.mark.control("S47")
@pytest.mark.parametrize("action", [*MEMORY, *ADMINS_ONLY])
async def test_a_press_from_another_chat_does_nothing(action: ButtonAction) -> None:
    everything = Everything(admin=True)
    await press(action, everything, from_chat=43)
    assert everything.done == []


async def test_everything_is_forgotten_with_the_words_that_confirm() -> None:
    everything = Everything()
    await press(ButtonAction.ERASE_ALL, everything)
    assert everything.done == ["forget everything yes"]


def test_every_action_of_a_button_has_one_handler() -> None:
    reach = cast("Any", Everything())
    access = ButtonAccess(reach, access_policy=reach, admins=reach, notifier=reach, uncertain=reach)
    buttons = ButtonHandlers(
        reach, access=access, notifier=reach, commands=reach, sessions=reach, quick_actions=reach,
        memory_list=reach, search_results=reach, erasure=reach, delivery=reach, offered=frozenset(),
    )  # fmt: skip
    known = buttons.build_router().sub_routers[0]
    filters = [handler.filters[0] for handler in known.callback_query.handlers if handler.filters]
    rules = [cast("Any", each.callback).rule for each in filters]
    elsewhere = {
        ButtonAction.ALLOW_ACCESS, ButtonAction.DENY_ACCESS, ButtonAction.SEND_DRAFT,
        ButtonAction.CHANGE_DRAFT, ButtonAction.KEEP_DRAFT, ButtonAction.DROP_DRAFT,
    }  # fmt: skip
    for action in set(ButtonAction) - elsewhere:
        press = ButtonPress(action=action, address_id=1)
        assert [bool(rule.resolve(press)) for rule in rules].count(True) == 1, action
