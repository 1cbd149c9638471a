"""Every failure of a call is known for what it is, and only what surely never arrived is sent again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import structlog
from aiogram import Bot
from aiogram.methods import GetMe, SetMyCommands
from aiogram.types import BotCommand
from structlog.testing import capture_logs

from bot.telegram.client.calls import (
    CallDone,
    CallNotSent,
    CallRejected,
    CallUnknown,
    ChatMoved,
    ChatUnreachable,
    MessageSent,
    Priority,
    Rate,
    RateLimits,
    ScaledClock,
)
from bot.telegram.client.sender import ChatTarget, Sender, strip_entities
from bot.telegram.client.session import create_bot
from bot.telegram.markup.entity_text import MessagePart, TextEntity
from tests.integration.bot.outbound.delivery_driver import FREE
from tests.kit.fakes.bot_api import TOKEN, Person, RunningBotApi

HI = MessagePart(text="hi")
BOLD = MessagePart(text="hi there", entities=(TextEntity(type="bold", offset=0, length=2),))
ANN = ChatTarget(chat_id=42)


@pytest.fixture
def sender(outbound_bot: Bot) -> Sender:
    return Sender(outbound_bot, limits=FREE, backoff=0.01)


@pytest.fixture
async def impatient(strict_api: RunningBotApi) -> AsyncIterator[Sender]:
    sender = Sender(create_bot(TOKEN, api_url=strict_api.base_url, timeout=1.0), limits=FREE, backoff=0.01)
    yield sender
    await sender.close()


@pytest.fixture
def hasty(outbound_bot: Bot) -> Sender:
    """Its seconds are twenty times shorter, so that waiting for a 429 is soon over."""
    return Sender(outbound_bot, clock=ScaledClock(speed=20.0), limits=FREE, backoff=0.01)


async def test_a_sent_message_has_its_number(strict_api: RunningBotApi, sender: Sender, ann: Person) -> None:
    outcome = await sender.send_text(ANN, BOLD)
    (line,) = (await ann.screen()).answers
    assert outcome == MessageSent(message_id=line.message_id)
    assert line.entities == [{"type": "bold", "offset": 0, "length": 2}]
    (call,) = await strict_api.calls("sendMessage")
    assert call["params"]["link_preview_options"] == {"is_disabled": True}
    assert "parse_mode" not in call["params"]


@pytest.mark.parametrize(
    ("fault", "calls", "outcome"),
    [
        ({"reset": "before"}, 1, CallUnknown),
        ({"reset": "after"}, 1, CallUnknown),
        ({"status": 500}, 1, CallUnknown),
        ({"status": 502, "html": True}, 1, CallUnknown),
        ({"truncate": True}, 1, CallUnknown),
        ({"status": 401}, 3, CallNotSent),
        ({"status": 404}, 1, CallRejected),
        ({"status": 400, "description": "Bad Request: nonsense"}, 1, CallRejected),
        ({"status": 403}, 1, ChatUnreachable),
        ({"status": 400, "description": "Bad Request: chat not found"}, 1, ChatUnreachable),
        ({"status": 400, "migrate_to": -100123}, 1, ChatMoved),
        ({"status": 413, "description": "Request Entity Too Large"}, 1, CallRejected),
        ({"status": 429, "retry_after": 300}, 1, CallNotSent),
    ],
)
async def test_a_send_is_repeated_only_if_it_surely_never_arrived(
    strict_api: RunningBotApi, sender: Sender, ann: Person, fault: dict[str, Any], calls: int, outcome: type
) -> None:
    await strict_api.fail("sendMessage", times=-1, **fault)
    found = await sender.send_text(ANN, HI)
    assert isinstance(found, outcome), found
    assert len(await strict_api.calls("sendMessage")) == calls


async def test_unanswered_send_is_not_repeated(
    strict_api: RunningBotApi, impatient: Sender, ann: Person
) -> None:
    await strict_api.fail("sendMessage", times=-1, stall=1.5)
    found = await impatient.send_text(ANN, HI)
    assert isinstance(found, CallUnknown), found
    assert len(await strict_api.calls("sendMessage")) == 1


async def test_without_a_connection_nothing_is_sent_and_all_of_it_later(
    strict_api: RunningBotApi, sender: Sender, ann: Person
) -> None:
    await strict_api.refuse_connections()
    outcome = await sender.send_text(ANN, HI)
    assert isinstance(outcome, CallNotSent)
    assert outcome.retry_after is None
    await strict_api.accept_connections()
    assert isinstance(await sender.send_text(ANN, HI), MessageSent)
    assert (await ann.screen()).texts == ["hi"]


async def test_an_edit_is_repeated_through_resets_and_server_errors(
    strict_api: RunningBotApi, sender: Sender, ann: Person
) -> None:
    sent = await sender.send_text(ANN, HI)
    assert isinstance(sent, MessageSent)
    await strict_api.fail("editMessageText", reset="after")
    await strict_api.fail("editMessageText", status=502, html=True)
    found = await sender.edit_text(42, sent.message_id, BOLD, tries=3)
    assert isinstance(found, MessageSent | CallDone), (
        "the second time it is not modified, which is what was wanted"
    )
    assert (await ann.screen()).texts == ["hi there"]
    assert len(await strict_api.calls("editMessageText")) == 3


async def test_deleting_what_is_gone_is_done(strict_api: RunningBotApi, sender: Sender, ann: Person) -> None:
    sent = await sender.send_text(ANN, HI)
    assert isinstance(sent, MessageSent)
    assert isinstance(await sender.delete(42, [sent.message_id]), CallDone)
    assert isinstance(await sender.delete(42, [sent.message_id]), CallDone)


async def test_a_429_makes_everything_of_that_chat_wait(
    strict_api: RunningBotApi, hasty: Sender, ann: Person
) -> None:
    bob = await strict_api.person(43, first_name="Bob")
    await bob.say("hello")
    await strict_api.fail("sendMessage", match={"chat": 42}, status=429, retry_after=50)
    first = asyncio.create_task(hasty.send_text(ANN, MessagePart(text="first"), priority=Priority.FINAL))
    while not await strict_api.calls("sendMessage"):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    typing = await hasty.send_typing(ANN)
    assert isinstance(typing, CallNotSent)
    assert typing.retry_after is not None
    assert hasty.get_hold_seconds(42) > 0
    second = asyncio.create_task(hasty.send_text(ANN, MessagePart(text="second")))
    other = await hasty.send_text(ChatTarget(chat_id=43), HI)
    assert isinstance(other, MessageSent)
    assert len(await strict_api.calls("sendMessage", chat=42)) == 1
    await asyncio.gather(first, second)
    assert (await ann.screen()).texts == ["first", "second"]
    assert not await strict_api.calls("sendChatAction")


async def test_a_429_without_a_chat_holds_calls_without_a_chat(
    strict_api: RunningBotApi, sender: Sender, ann: Person
) -> None:
    await strict_api.fail("setMyCommands", status=429, retry_after=300)
    method = SetMyCommands(commands=[BotCommand(command="help", description="Help")])
    assert isinstance(await sender.call(method, chat_id=None, repeatable=True), CallNotSent)
    assert isinstance(await sender.call(GetMe(), chat_id=None, patience=1.0), CallNotSent)
    assert isinstance(await sender.send_text(ANN, HI), MessageSent)
    assert not await strict_api.calls("getMe")


async def test_an_edit_that_waits_is_replaced_by_the_newer_text(
    strict_api: RunningBotApi, outbound_bot: Bot, ann: Person
) -> None:
    slow = RateLimits(private=(Rate(limit=2, seconds=0.4),))
    sender = Sender(outbound_bot, limits=slow)
    sent = await sender.send_text(ANN, MessagePart(text="0"), priority=Priority.FINAL)
    assert isinstance(sent, MessageSent)
    edits = [
        asyncio.create_task(sender.edit_text(42, sent.message_id, MessagePart(text=str(number))))
        for number in range(1, 6)
    ]
    outcomes = await asyncio.gather(*edits)
    assert (await ann.screen()).texts == ["5"]
    assert len(await strict_api.calls("editMessageText")) < 5
    assert all(isinstance(outcome, MessageSent | CallDone) for outcome in outcomes)


async def test_an_older_edit_never_overtakes_a_newer_one(
    strict_api: RunningBotApi, sender: Sender, ann: Person
) -> None:
    sent = await sender.send_text(ANN, HI)
    assert isinstance(sent, MessageSent)
    await strict_api.fail("editMessageText", latency=0.3)
    older = asyncio.create_task(sender.edit_text(42, sent.message_id, MessagePart(text="older")))
    while not await strict_api.calls("editMessageText"):
        await asyncio.sleep(0.01)
    await sender.edit_text(42, sent.message_id, MessagePart(text="newer"), priority=Priority.FINAL)
    await older
    assert (await ann.screen()).texts == ["newer"]


async def test_refused_formatting_is_left_out(strict_api: RunningBotApi, sender: Sender, ann: Person) -> None:
    await strict_api.fail("sendMessage", status=400)
    sent = await sender.send_text(ANN, BOLD)
    assert isinstance(sent, MessageSent)
    await strict_api.fail("editMessageText", status=400, description="Bad Request: ENTITIES_TOO_LONG")
    await sender.edit_text(42, sent.message_id, MessagePart(text="ho there", entities=BOLD.entities))
    (line,) = (await ann.screen()).answers
    assert (line.text, line.entities) == ("ho there", [])


def test_addresses_are_spelled_out_where_formatting_is_left_out() -> None:
    link = TextEntity(type="text_link", offset=5, length=4, url="https://example.org/a")
    part = MessagePart(text="😀 a word here", entities=(link,))
    assert strip_entities(part).text == "😀 a word (https://example.org/a) here"
    full = MessagePart(
        text="x" * 4_090, entities=(TextEntity(type="text_link", offset=0, length=4, url="https://a.b"),)
    )
    assert strip_entities(full).text == full.text


async def test_a_topic_that_is_gone_is_left_out(
    strict_api: RunningBotApi, sender: Sender, ann: Person
) -> None:
    group = await strict_api.group("Forum", ann, forum=True)
    topic = await group.create_topic("Plans")
    where = ChatTarget(chat_id=group.id, thread_id=topic)
    assert isinstance(await sender.send_text(where, MessagePart(text="inside")), MessageSent)
    assert isinstance(await sender.send_typing(where), CallDone)
    await group.delete_topic(topic)
    assert isinstance(await sender.send_text(where, MessagePart(text="outside")), MessageSent)
    assert isinstance(await sender.send_typing(where), CallDone)
    sent = await strict_api.calls("sendMessage")
    assert [call["params"].get("message_thread_id") for call in sent] == [topic, topic, None]


async def test_a_file_goes_out_and_survives_a_lost_topic(
    strict_api: RunningBotApi, sender: Sender, ann: Person
) -> None:
    group = await strict_api.group("Forum", ann, forum=True)
    where = ChatTarget(chat_id=group.id, thread_id=77)
    outcome = await sender.send_document(where, name="answer.md", content=b"# All", caption="Whole")
    assert isinstance(outcome, MessageSent)
    (line,) = (await group.screen()).answers
    assert (line.document, line.text, line.thread) == ("answer.md", "Whole", None)


async def test_reactions_and_keyboards_and_buttons_go_through(
    strict_api: RunningBotApi, sender: Sender, ann: Person
) -> None:
    said = await ann.say("look")
    assert isinstance(await sender.react(42, said.message_id, "👀"), CallDone)
    assert isinstance(await sender.react(42, said.message_id, None), CallDone)
    late = await sender.answer_callback("no-such-query", text="too late")
    assert isinstance(late, CallRejected)


@pytest.fixture
def log_entries() -> Iterator[list[Any]]:
    structlog.reset_defaults()
    with capture_logs() as entries:
        yield entries


@pytest.mark.control("S03")
async def test_the_token_is_in_no_reason_and_no_log_line(
    strict_api: RunningBotApi, ann: Person, log_entries: list[Any]
) -> None:
    client = create_bot(TOKEN, api_url=strict_api.base_url, timeout=0.3)
    sender = Sender(client, limits=FREE, backoff=0.01)
    outcomes = []
    for fault in ({"status": 502, "html": True}, {"truncate": True}, {"reset": "before"}, {"stall": 1.0}):
        await strict_api.fail("sendMessage", **fault)
        outcomes.append(await sender.send_text(ANN, HI))
    await strict_api.refuse_connections()
    outcomes.append(await sender.send_text(ANN, HI))
    await sender.close()
    said = f"{outcomes} {log_entries}"
    assert "telegram_call_failed" in said
    assert TOKEN.partition(":")[2] not in said


async def test_waiting_send_is_cancelled_when_the_sender_closes(
    strict_api: RunningBotApi, ann: Person
) -> None:
    client = create_bot(TOKEN, api_url=strict_api.base_url, timeout=1.0)
    sender = Sender(client, limits=FREE)
    await strict_api.fail("sendMessage", status=429, retry_after=60)
    waiting = asyncio.create_task(sender.send_text(ANN, HI))
    while not sender.get_hold_seconds(42):
        await asyncio.sleep(0.01)
    await sender.close()
    assert isinstance(await waiting, CallNotSent)
