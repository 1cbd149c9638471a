"""Updates of business accounts: read only where drafts are on, in the order of their chat."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from aiogram.types import Update

from bot.telegram.inbound.secretary_rules import SecretaryRules
from bot.telegram.inbound.update_parser import (
    BUSINESS_UPDATES,
    MAX_ID_VALUE,
    find_lane,
    list_allowed_updates,
    parse_business_message,
    parse_update,
)
from bot.telegram.inbound.updates import IgnoredUpdate, IncomingMessage
from tests.kit.telegram.updates import BOT, Json, raw_message

SECRETARY = replace(BOT, is_secretary=True)


def business(kind: str = "business_message", *, number: int = 11, **changes: Any) -> Json:
    message = {**raw_message(), "business_connection_id": "c1", **changes}
    return {"update_id": number, kind: message}


def deleted(chat_id: int = 42) -> Json:
    content = {
        "business_connection_id": "c1", "chat": {"id": chat_id, "type": "private", "first_name": "Cara"},
        "message_ids": [1, 2],
    }  # fmt: skip
    return {"update_id": 12, "deleted_business_messages": content}


def connection(number: int = 7) -> Json:
    user = {"id": number, "is_bot": False, "first_name": "Olga"}
    content = {"id": "c1", "user": user, "user_chat_id": 7, "date": 1, "is_enabled": True}
    return {"update_id": 13, "business_connection": content}


def test_business_updates_are_asked_for_by_a_secretary_only() -> None:
    assert not set(BUSINESS_UPDATES) & set(list_allowed_updates(BOT))
    assert set(BUSINESS_UPDATES) <= set(list_allowed_updates(SECRETARY))


@pytest.mark.parametrize("update", [business(), business("edited_business_message"), deleted(), connection()])
def test_business_update_is_ignored_where_drafts_are_off(update: Json) -> None:
    assert isinstance(parse_update(update, bot=BOT), IgnoredUpdate)
    assert isinstance(parse_update(update, bot=SECRETARY), Update)


def test_command_of_a_customer_is_read_as_a_text() -> None:
    found = parse_update(business(text="/new order"), bot=SECRETARY)
    assert isinstance(found, Update)
    message = parse_business_message(found, SECRETARY)
    assert isinstance(message, IncomingMessage)
    assert (message.text, message.is_edited) == ("/new order", False)


@pytest.mark.parametrize("update", [
    business(chat={"id": MAX_ID_VALUE + 1, "type": "private", "first_name": "x"}),
    deleted(MAX_ID_VALUE + 1), connection(MAX_ID_VALUE + 1),
])  # fmt: skip
def test_business_update_with_an_impossible_number_is_ignored(update: Json) -> None:
    found = parse_update(update, bot=SECRETARY)
    assert isinstance(found, IgnoredUpdate)
    assert found.reason == "a number that is too large"


def test_business_updates_of_one_chat_share_a_lane() -> None:
    chat = {"id": 42, "type": "private", "first_name": "Cara"}
    updates = [business(chat=chat), business("edited_business_message", chat=chat), deleted()]
    lanes = {find_lane(Update.model_validate(one)) for one in updates}
    assert lanes == {("c1", 42)}
    assert find_lane(Update.model_validate(deleted(43))) == ("c1", 43)
    assert find_lane(Update.model_validate(connection())) == "c1"


@pytest.mark.parametrize(("rules", "serves", "automatic"), [
    (SecretaryRules(), [], []),
    (SecretaryRules(mode="drafts"), [1, 2, 3], []),
    (SecretaryRules(mode="auto"), [1, 2, 3], [1, 2, 3]),
    (SecretaryRules(mode="drafts", chats="listed", listed=frozenset({1, 2})), [1, 2], []),
    (SecretaryRules(mode="auto", chats="unlisted", listed=frozenset({1, 2})), [3], [3]),
    (SecretaryRules(mode="drafts", automatic=frozenset({2})), [1, 2, 3], [2]),
    (SecretaryRules(mode="drafts", chats="listed", listed=frozenset({1}), automatic=frozenset({2})), [1], []),
    (SecretaryRules(automatic=frozenset({2})), [], []),
])  # fmt: skip
def test_secretary_rules_choose_customers(
    rules: SecretaryRules, serves: list[int], automatic: list[int]
) -> None:
    assert [one for one in (1, 2, 3) if rules.serves(one)] == serves
    assert [one for one in (1, 2, 3) if rules.is_automatic(one)] == automatic
