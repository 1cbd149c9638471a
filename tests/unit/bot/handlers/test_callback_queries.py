"""Whose press of which button is heard: what a button says is never enough."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from bot.telegram.handlers.callback_queries import CallbackQueryHandler
from bot.telegram.inbound.updates import CallbackQuery, ChatRef, MessageAuthor
from bot.telegram.outbound.buttons import ButtonAction, ButtonPress, format_callback_data
from bot.telegram.texts import get_texts
from shared.adapters.postgres.telegram.chats import ChatRow

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

    async def can_press(self, _pressed: CallbackQuery) -> bool:
        return True

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

    async def archive(self, *_: Any) -> None:
        self.done.append("put away")

    async def restore(self, *_: Any) -> None:
        self.done.append("brought back")

    async def send_or_edit(self, *_: Any, **__: Any) -> None:
        return None


def place(chat_id: int) -> ChatRow:
    return ChatRow(
        address_id=5, bot_id=1, chat_id=chat_id, thread_id=0, party_id=2, session_id=3,
        session_public_id=UUID(int=4), title="", settings={}, unreachable=False,
    )  # fmt: skip


async def press(
    action: ButtonAction,
    everything: Everything,
    *,
    chat_id: int = 42,
    from_chat: int | None = None,
    public: bool = False,
) -> None:
    async def found(_address_id: int) -> ChatRow:
        return place(chat_id)

    stores = SimpleNamespace(telegram_chats=SimpleNamespace(find_chat=found))
    identity, config = SimpleNamespace(bot_id=1), SimpleNamespace(audience="personal")
    context = SimpleNamespace(stores=stores, identity=identity, config=config, public=public)
    reach = cast("Any", everything)
    callback_handler = CallbackQueryHandler(
        cast("Any", context), access_policy=reach, notifier=reach, commands=reach, sessions=reach,
        quick_actions=reach, admins=reach, memory_list=reach, search_results=reach, erasure=reach,
        delivery=reach, access_requests=reach, offered=frozenset(),
    )  # fmt: skip
    where = ChatRef(chat_id=chat_id if from_chat is None else from_chat)
    data = format_callback_data(ButtonPress(action=action, address_id=5, subject=7))
    await callback_handler.handle(
        CallbackQuery(
            update_id=1, callback_id="c", data=data, sender=MessageAuthor(user_id=9, name="Ada"), chat=where,
            message_id=1, accessible=True,
        )
    )  # fmt: skip


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
