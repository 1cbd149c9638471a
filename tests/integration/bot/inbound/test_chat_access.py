"""Who may talk: strangers get one line and no model call, groups must be meant and allowed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from bot.telegram.inbound.chat_access import (
    AccessDecision,
    AccessRules,
    Allowed,
    ChatAccessPolicy,
    NoReply,
    StrangerReply,
    can_reply_again,
    evaluate_message,
)
from bot.telegram.inbound.updates import (
    ChatRef,
    IncomingMessage,
)
from shared.adapters.postgres.telegram.access import PENDING_AT_MOST, PostgresTelegramAccess
from tests.integration.bot.inbound.conftest import Pool
from tests.kit.telegram.updates import ADA, BOB, BOT, GROUP, NOON, PRIVATE, after, spoken

MENTION = spoken(1, "hey bot", chat=GROUP, mentions_bot=True)


class Watch:
    """Postgres says when somebody was told; the test moves the time on from there."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> datetime:
        return datetime.now(NOON.tzinfo) + timedelta(seconds=self.ahead)


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def access_store(bot_pool: Pool) -> PostgresTelegramAccess:
    return PostgresTelegramAccess(bot_pool)


@pytest.fixture
def access_policy(access_store: PostgresTelegramAccess, watch: Watch) -> Callable[..., ChatAccessPolicy]:
    def made(mode: Any = "pairing", *listed: int) -> ChatAccessPolicy:
        rules = AccessRules(mode=mode, listed=frozenset(listed))
        return ChatAccessPolicy(access_store, bot_id=BOT.bot_id, rules=rules, now=watch.now)

    return made


def key(decision: AccessDecision) -> str:
    return decision.key if isinstance(decision, StrangerReply) else type(decision).__name__


@pytest.mark.control("S47")
@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (spoken(1, "hi"), "Allowed"),
        (spoken(1, "hi", chat=GROUP), "NoReply"),
        (MENTION, "Allowed"),
        (spoken(1, "hi", chat=GROUP, replies_to_bot=True), "Allowed"),
        (spoken(1, "/help", chat=GROUP), "Allowed"),
    ],
)
def test_in_groups_only_what_is_meant_for_the_bot_is_answered(
    message: IncomingMessage, expected: str
) -> None:
    assert type(evaluate_message(message, rules=AccessRules(mode="open"), row=None)).__name__ == expected


def test_a_command_for_another_bot_is_left_to_it() -> None:
    message = spoken(1, "/help", chat=GROUP)
    assert message.command is not None
    other = replace(message, command=replace(message.command, is_for_other_bot=True), mentions_bot=True)
    assert isinstance(evaluate_message(other, rules=AccessRules(mode="open"), row=None), NoReply)


def test_stranger_is_answered_each_minute_and_group_each_hour() -> None:
    assert can_reply_again(PRIVATE, None, NOON)
    assert not can_reply_again(PRIVATE, NOON, after(59.9))
    assert can_reply_again(PRIVATE, NOON, after(60))
    assert not can_reply_again(GROUP, NOON, after(3599))
    assert can_reply_again(GROUP, NOON, after(3600))


async def test_a_stranger_gets_one_code_and_then_silence_for_a_minute(
    access_policy: Callable[..., ChatAccessPolicy], watch: Watch, access_store: PostgresTelegramAccess
) -> None:
    keeper = access_policy()
    first = await keeper.admit(spoken(1, "hi"))
    assert isinstance(first, StrangerReply)
    assert first.key == "access_code"
    for number in range(5):
        assert key(await keeper.admit(spoken(number, "hello?"))) == "NoReply"
    watch.ahead = 61
    again = await keeper.admit(spoken(9, "hello?"))
    assert again == first
    row = await access_store.decide_by_code(first.args["code"], allowed=True, by="operator")
    assert row is not None
    assert (row.chat_id, row.name, row.username) == (42, "Ada Lovelace", "ada")
    assert isinstance(await keeper.admit(spoken(10, "now?")), Allowed)


async def test_who_was_refused_hears_nothing(
    access_policy: Callable[..., ChatAccessPolicy], access_store: PostgresTelegramAccess
) -> None:
    await access_store.decide(BOT.bot_id, 42, allowed=False, by="operator")
    for keeper in (access_policy(), access_policy("open"), access_policy("allowlist", 42)):
        assert key(await keeper.admit(spoken(1, "hi"))) == "NoReply"


async def test_the_owners_link_works_once_and_in_private_only(
    access_policy: Callable[..., ChatAccessPolicy], access_store: PostgresTelegramAccess
) -> None:
    code = await access_store.issue_owner_code(BOT.bot_id, by="test")
    keeper = access_policy()
    start = spoken(1, f"/start {code}", deep_link=code)
    assert key(await keeper.admit(replace(start, chat=GROUP))) == "access_group_code"
    assert key(await keeper.admit(replace(start, is_edited=True))) == "NoReply"
    assert key(await keeper.admit(start)) == "access_owner"
    admitted = await keeper.admit(spoken(2, "hi"))
    assert admitted == Allowed()
    assert await access_store.list_owners(BOT.bot_id) == [42]
    bob = spoken(3, f"/start {code}", deep_link=code, sender=BOB, chat=ChatRef(chat_id=43))
    assert key(await keeper.admit(bob)) == "access_code"
    assert key(await keeper.admit(replace(bob, deep_link="x" * 32))) == "NoReply"


async def test_the_list_lets_in_whom_it_names(
    access_policy: Callable[..., ChatAccessPolicy], watch: Watch
) -> None:
    keeper = access_policy("allowlist", 42, GROUP.chat_id)
    bob = spoken(2, "hi", sender=BOB, chat=ChatRef(chat_id=43))
    assert isinstance(await keeper.admit(spoken(1, "hi")), Allowed)
    assert isinstance(await keeper.admit(MENTION), Allowed)
    assert await keeper.admit(bob) == StrangerReply(key="access_not_allowed")
    assert key(await keeper.admit(bob)) == "NoReply"
    watch.ahead = 61
    assert key(await keeper.admit(bob)) == "access_not_allowed"
    other = replace(MENTION, chat=replace(GROUP, chat_id=-7))
    assert key(await keeper.admit(other)) == "access_group_not_allowed"
    assert key(await keeper.admit(other)) == "NoReply"


async def test_open_means_everybody(access_policy: Callable[..., ChatAccessPolicy]) -> None:
    keeper = access_policy("open")
    assert isinstance(await keeper.admit(spoken(1, "hi")), Allowed)
    assert isinstance(await keeper.admit(MENTION), Allowed)
    assert key(await keeper.handle_added(GROUP, ADA)) == "access_group_welcome"


async def test_an_unknown_group_gets_one_line_and_only_when_it_asks(
    access_policy: Callable[..., ChatAccessPolicy], access_store: PostgresTelegramAccess
) -> None:
    keeper = access_policy()
    assert key(await keeper.admit(spoken(1, "hi all", chat=GROUP))) == "NoReply"
    told = await keeper.admit(MENTION)
    assert isinstance(told, StrangerReply)
    assert told.key == "access_group_code"
    assert key(await keeper.admit(replace(MENTION, sender=BOB))) == "NoReply"
    row = await access_store.decide_by_code(told.args["code"], allowed=True, by="operator")
    assert row is not None
    assert (row.chat_id, row.name) == (GROUP.chat_id, "Family")
    assert isinstance(await keeper.admit(replace(MENTION, sender=BOB)), Allowed)


async def test_an_owner_allows_a_group_by_adding_the_bot(
    access_policy: Callable[..., ChatAccessPolicy], access_store: PostgresTelegramAccess
) -> None:
    keeper = access_policy()
    await access_store.decide(BOT.bot_id, 43, allowed=True, by="operator")
    assert key(await keeper.handle_added(GROUP, BOB)) == "access_group_code"
    await access_store.decide(BOT.bot_id, 42, allowed=True, by="operator", owner=True)
    assert key(await keeper.handle_added(GROUP, ADA)) == "access_group_welcome"
    assert isinstance(await keeper.admit(replace(MENTION, sender=BOB)), Allowed)
    assert key(await keeper.handle_added(GROUP, BOB)) == "access_group_welcome"


async def test_stranger_learns_once_that_too_many_wait(
    access_policy: Callable[..., ChatAccessPolicy], access_store: PostgresTelegramAccess
) -> None:
    for number in range(PENDING_AT_MOST):
        await access_store.request_access(BOT.bot_id, 1000 + number, name="x", username="")
    keeper = access_policy()
    assert await keeper.admit(spoken(1, "hi")) == StrangerReply(key="access_too_many_waiting")
    assert key(await keeper.admit(spoken(2, "hi"))) == "NoReply"


async def test_a_button_works_where_its_chat_may_talk(access_policy: Callable[..., ChatAccessPolicy]) -> None:
    keeper = access_policy("allowlist", 42)
    assert isinstance(await keeper.check(PRIVATE), Allowed)
    assert not isinstance(await keeper.check(ChatRef(chat_id=43)), Allowed)
