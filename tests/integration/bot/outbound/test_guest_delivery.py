"""Answers to guests: what is sent in the place of a turn, and when the stored questions are looked at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest

from bot.telegram.client.calls import CallDone, CallNotSent, CallOutcome
from bot.telegram.handlers.guest_queries import GuestQueryHandler
from bot.telegram.inbound.updates import ChatRef, IncomingMessage, MessageAuthor
from bot.telegram.markup.entity_text import MessagePart
from bot.telegram.outbound import guest_delivery
from bot.telegram.outbound.guest_delivery import GuestDelivery
from shared.adapters.postgres.telegram.deliveries import PostgresDeliveries
from shared.adapters.postgres.telegram.guest_queries import GuestChat, NewGuestQuery, PostgresGuestQueries
from shared.core.values.errors import BadInput, EmptyMessage, MessageTooLong, UnreadableMessage
from shared.runtime import BackgroundTasks

BOT, CALLER, CHAT = 700001, 42, -100
MOMENT = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass
class GuestSender:
    """Sender that notes the texts, and refuses the first calls if it is told to."""

    refusals: int = 0
    texts: list[str] = field(default_factory=list)

    async def answer_guest(self, chat_id: int, query_id: str, part: MessagePart) -> CallOutcome:
        if self.refusals:
            self.refusals -= 1
            return CallNotSent(reason="no connection")
        self.texts.append(part.text)
        return CallDone()


class CountedQueries(PostgresGuestQueries):
    """Store that counts how often it is looked through."""

    looks = 0

    async def open_chat(self, bot_id: int, **_: Any) -> GuestChat:
        return GuestChat(bot_id=bot_id, address_id=1, session_id=1)

    async def list_due(self, *arguments: Any, **named: Any) -> Any:
        self.looks += 1
        return await super().list_due(*arguments, **named)


@pytest.fixture
async def delivering(
    pool: asyncpg.Pool[asyncpg.Record], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Running]:
    monkeypatch.setattr(guest_delivery, "RETRY_SECONDS", 0.01)
    store, sender, tasks = CountedQueries(pool), GuestSender(), BackgroundTasks()
    senders: Any = {BOT: sender}
    delivery = GuestDelivery(
        store, PostgresDeliveries(pool), senders=senders, list_held_bots=lambda: [BOT], tasks=tasks,
        crash_point=lambda _: None,
    )  # fmt: skip
    looking = asyncio.create_task(delivery.run())
    try:
        yield Running(store=store, sender=sender, delivery=delivery)
    finally:
        looking.cancel()
        await asyncio.wait([looking])
        await tasks.cancel()


@dataclass
class Running:
    store: CountedQueries
    sender: GuestSender
    delivery: GuestDelivery

    async def refuses(self, update_id: int, refusal: BadInput, *, language: str = "en") -> None:
        """Ask a question that no turn can answer."""

        async def accept(_: object) -> None:
            raise refusal

        context: Any = SimpleNamespace(stores=SimpleNamespace(guest_queries=self.store), identity=None)
        sessions: Any = SimpleNamespace(accept=accept)
        policy: Any = None
        handler = GuestQueryHandler(
            context, access_policy=policy, sessions=sessions, answer=lambda _: None,
            on_stored=self.delivery.wake, seconds_since=lambda _: 0.0, guests="anyone", most_per_hour=2,
        )  # fmt: skip
        message = IncomingMessage(
            update_id=update_id, chat=ChatRef(chat_id=CHAT), sender=MessageAuthor(user_id=CALLER, name="Ada"),
            message_id=1, sent_at=MOMENT, text="?",
        )  # fmt: skip
        assert await handler._ask(query(update_id, language=language), message) == ""
        self.delivery.wake()

    async def until(self, texts: int) -> list[str]:
        async with asyncio.timeout(20):
            while len(self.sender.texts) < texts:
                await asyncio.sleep(0.01)
        return self.sender.texts


def query(update_id: int, *, language: str = "en", age: float = 0.0) -> NewGuestQuery:
    return NewGuestQuery(
        bot_id=BOT, update_id=update_id, query_id=f"q{update_id}", caller_id=CALLER, chat_id=CHAT,
        language=language, age_seconds=age,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("refusal", "language", "line"),
    [
        (MessageTooLong(chars=70_000, limit=60_000), "en", "The message is too long. Please split it."),
        (EmptyMessage(), "de", "Die Nachricht ist leer. Schreiben Sie bitte zuerst etwas."),
        (UnreadableMessage("broken"), "en", "That could not be read. Please send it again as plain text."),
        (BadInput("whatever"), "en", "That could not be read. Please send it again as plain text."),
    ],
)
async def test_refused_question_of_guest_is_answered_by_one_line(
    delivering: Running, refusal: BadInput, language: str, line: str
) -> None:
    await delivering.refuses(1, refusal, language=language)
    assert await delivering.until(1) == [line]


async def test_refused_questions_count_for_the_hour_of_their_guest(delivering: Running) -> None:
    await delivering.refuses(1, EmptyMessage())
    await delivering.refuses(2, EmptyMessage())
    await delivering.until(2)
    assert not await delivering.store.record(query(3), most_per_hour=2)


async def test_guest_queries_are_not_looked_for_at_rest(delivering: Running) -> None:
    await delivering.refuses(1, EmptyMessage())
    await delivering.until(1)
    unchanged = False
    for _ in range(3):  # the first of these waits may see the look after the call
        looks = delivering.store.looks
        await asyncio.sleep(1.5)
        unchanged = unchanged or delivering.store.looks == looks
    assert unchanged
    assert delivering.store.looks < 8


async def test_holding_line_comes_by_its_own_time_without_a_wake_up(delivering: Running) -> None:
    assert await delivering.store.record(query(1, age=guest_delivery.HOLDING_SECONDS - 1.0), most_per_hour=9)
    delivering.delivery.wake()  # the question was stored
    assert await delivering.until(1) == ["One moment, I am writing the answer …"]
    assert delivering.store.looks < 6


async def test_call_that_was_not_sent_is_repeated_after_a_pause(delivering: Running) -> None:
    delivering.sender.refusals = 2
    await delivering.refuses(1, EmptyMessage())
    assert len(await delivering.until(1)) == 1
