"""Plays the conversation's part for deliveries: real rows, the events of an answer, words of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Literal, cast

import asyncpg
from aiogram import Bot
from aiogram.types import InlineKeyboardMarkup

from bot.telegram.client.calls import Rate, RateLimits, ScaledClock
from bot.telegram.client.sender import Sender
from bot.telegram.client.session import create_bot
from bot.telegram.outbound.buttons import ButtonAction, build_button, build_keyboard
from bot.telegram.outbound.delivery import AnswerDelivery
from bot.telegram.outbound.delivery_context import DeliveryContext, DeliveryTexts
from bot.telegram.outbound.draft_streaming import EditPacing
from bot.telegram.outbound.native_drafts import AnswerForm
from bot.telegram.outbound.streaming_reply import ReplyPacing, StreamingReply
from shared.adapters.postgres.db.workers import PostgresWorkers
from shared.adapters.postgres.operations.invariants import check_invariants
from shared.adapters.postgres.telegram.chats import ChatRow, PostgresTelegramChats
from shared.adapters.postgres.telegram.deliveries import PartRow, PostgresDeliveries
from shared.adapters.postgres.telegram.receipts import TelegramReceipt
from shared.adapters.postgres.telegram.uncertain_notices import PostgresUncertainNotices
from shared.adapters.postgres.turns.attachments import PostgresAttachments
from shared.adapters.postgres.turns.turns import PostgresTurns
from shared.core.session.turns import (
    Caps,
    Claim,
    Delta,
    Inbound,
    Outcome,
    RunEnded,
    RunStarted,
    Stored,
)
from shared.core.values.messages import Text
from shared.runtime import BackgroundTasks
from tests.kit.fakes.bot_api import TOKEN, Person, RunningBotApi

BOT_ID = int(TOKEN.partition(":")[0])
FAST = EditPacing(edit_seconds=0.02, slowest_seconds=0.2)
FREE = RateLimits(
    overall=Rate(limit=1_000, seconds=0.1),
    private=(Rate(limit=1_000, seconds=0.1),),
    group=(Rate(limit=1_000, seconds=0.1),),
)
UNCERTAIN = "It may be missing."
REFUSED = "It was refused."
NO_CAPS = Caps(total=None, person=None, visitor=None, session=None)
State = Literal["answered", "stopped", "refused", "failed"]
_updates = count(1)


class Tasks(BackgroundTasks):
    """What is started is awaited at the end, and what failed there fails the test."""

    def __init__(self) -> None:
        super().__init__()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        return task

    async def rest(self) -> None:
        await asyncio.gather(*(task for task in self._tasks if not task.done()))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        found = await asyncio.gather(*self._tasks, return_exceptions=True)
        failed = [each for each in found if isinstance(each, Exception)]
        assert not failed, failed


class Words(DeliveryTexts):
    def format_stopped(self, place: ChatRow) -> str:
        return "[stopped]"

    def format_working(self, place: ChatRow, tool: str, subject: str = "") -> str | None:
        return None if tool == "save_memory" else f"({tool}{subject and f' {subject}'} …)"

    def format_notice(self, place: ChatRow, code: str, text: str) -> str:
        return f"Sorry: {text}"

    def format_uncertain(self, place: ChatRow) -> str:
        return UNCERTAIN

    def format_arrived(self, place: ChatRow) -> str:
        return "It has arrived."

    def format_refused(self, place: ChatRow, file: str = "") -> str:
        return f"{file} was refused." if file else REFUSED

    def format_document_caption(self, place: ChatRow, stop: str = "") -> str:
        return "The whole answer"


@dataclass(slots=True)
class Answer:
    """One turn on its way."""

    bot: BotProcess
    emit: StreamingReply
    claim: Claim
    said: str = ""
    screen: Mapping[str, Any] = field(default_factory=dict)
    """What its event says beyond its words."""

    @property
    def turn(self) -> int:
        return self.claim.turn

    async def say(self, *pieces: str, attempt: int | None = None) -> None:
        attempt = self.claim.attempt if attempt is None else attempt
        for piece in pieces:
            offset = len(self.said.encode("utf-16-le")) // 2
            self.said += piece
            await self.emit(Delta(turn=self.turn, attempt=attempt, offset=offset, text=piece))

    async def stream(self, text: str, *, step: int = 40, pause: float = 0.005) -> None:
        for start in range(0, len(text), step):
            await self.say(text[start : start + step])
            await asyncio.sleep(pause)

    async def commit(
        self, text: str | None = None, *, state: State = "answered", screen: Mapping[str, Any] | None = None
    ) -> Stored:
        """The answer is stored and nobody was told: where a process may die."""
        words = self.said if text is None else text
        told = state in ("refused", "failed")
        stored = await self.bot.turns.record_answer(
            self.claim,
            Outcome(
                state=state,
                blocks=None if told else (Text(text=words),),
                tokens=3,
                screen=screen or self.screen or ({"text": words, "error": "model_away"} if told else {}),
                error_code="model_away" if told else None,
            ),
        )
        return Stored(event_seq=stored.event_seq, kind="msg", payload=stored.payload)

    async def end(self, text: str | None = None, *, state: State = "answered") -> None:
        await self.emit(await self.commit(text, state=state))
        await self.emit(RunEnded(turn=self.turn, state=state))
        await self.emit.close()


class BotProcess:
    def __init__(self, base_url: str, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self.pool = pool
        self.turns = PostgresTurns(pool)
        self.deliveries = PostgresDeliveries(pool)
        self.places = PostgresTelegramChats(pool)
        self.workers = PostgresWorkers(pool)
        self._base_url = base_url
        self._clients: list[Bot] = []
        self.tasks = Tasks()
        self.buttons = False
        self.settles = False
        """Uncertain answers are searched for before their person is asked."""
        self.wanted: set[AnswerForm] = set()
        self._worker_id: int | None = None
        self.set_up()

    def set_up(
        self,
        *,
        clock: ScaledClock | None = None,
        limits: RateLimits = FREE,
        rhythm: EditPacing = FAST,
        **more: Any,
    ) -> None:
        """`clock` may run faster, so that a 429 is over soon."""
        clock = clock or ScaledClock()
        client = create_bot(TOKEN, api_url=self._base_url)
        self._clients.append(client)
        self.sender = Sender(client, clock=clock, limits=limits, backoff=0.01)
        self.post = DeliveryContext(
            senders={BOT_ID: self.sender},
            deliveries=self.deliveries,
            notices=PostgresUncertainNotices(self.pool),
            chats=self.places,
            texts=Words(lambda _: None),
            keyboard=self._keyboard,
            files=self._file,
            offered=("drafts", "rich"),
            settles=self.settles,
            clock=clock,
        )
        usual: dict[str, Any] = {"private": rhythm, "group": rhythm, "native": rhythm}
        pacing = ReplyPacing(**{**usual, **more})
        self.delivery = AnswerDelivery(self.post, tasks=self.tasks, pacing=pacing)

    async def place(self, chat: int = 42, *, thread: int = 0) -> ChatRow:
        place = await self.places.open(
            BOT_ID,
            chat_id=chat,
            thread_id=thread,
            kind="person" if chat > 0 else "group",
            title="Ann",
        )
        chosen = {form: form in self.wanted for form in ("drafts", "rich")}
        return replace(place, settings=await self.places.change_settings(place.address_id, chosen))

    async def begin(self, place: ChatRow, *, question: int | None = None) -> Answer:
        """A message is accepted and its turn claimed: the answer begins."""
        number = next(_updates)
        receipt = TelegramReceipt(
            bot_id=BOT_ID, update_ids=(), chat_id=place.chat_id, message_ids=(question,) if question else ()
        )
        await self.turns.accept(
            Inbound(
                session_id=place.session_id, address_id=place.address_id, text="Hello?",
                dedupe_key=f"tg:{BOT_ID}:{number}", receipt=receipt,
            ),
            channel="telegram",
            tokens=2,
        )  # fmt: skip
        return await self.claim(place)

    def beat(self) -> None:
        """The next claim comes from a process that lives."""
        self._worker_id = None

    async def claim(self, place: ChatRow) -> Answer:
        if self._worker_id is None:
            self._worker_id = await self.workers.register("bot")
        claim = await self.turns.claim(
            place.session_id, channel="telegram", worker_id=self._worker_id, caps=NO_CAPS,
            micro_per_input_token=1.0, micro_output=1.0,
        )  # fmt: skip
        assert claim is not None
        emit = self.delivery.open_reply(place)
        await emit(RunStarted(turn=claim.turn, attempt=claim.attempt, epoch=claim.epoch))
        return Answer(self, emit, claim)

    async def die(self) -> None:
        """Its lease is free at once; what it was about to do is not done."""
        await self.close()
        if self._worker_id is not None:
            await self.workers.stop(self._worker_id)

    async def hear_of(self, chat: int) -> None:
        """A person writes in a chat that was lost, or unblocks the bot."""
        await self.places.set_reachable(BOT_ID, chat, reachable=True)
        self.sender.mark_reachable(chat)

    async def close(self) -> None:
        await self.tasks.close()
        for client in self._clients:
            await client.session.close()

    async def rows(self, answer: Answer) -> Sequence[PartRow]:
        return await self.deliveries.list_parts(answer.claim.session_id, answer.turn)

    async def states(self, answer: Answer) -> list[str]:
        return [row.state for row in await self.rows(answer)]

    async def recover(self) -> int:
        return await self.delivery.resume_unfinished([BOT_ID])

    async def tell(self) -> None:
        """People are told what may not have arrived, and what did is told no more."""
        await self.delivery.uncertain.send_due([BOT_ID])
        await self.tasks.rest()

    async def broken_invariants(self) -> list[Any]:
        async with self.pool.acquire() as connection:
            return list(await check_invariants(cast("asyncpg.Connection[asyncpg.Record]", connection)))

    def _keyboard(self, place: ChatRow, turn: int, state: str) -> InlineKeyboardMarkup | None:
        if not self.buttons:
            return None
        action = ButtonAction.STOP if state == "running" else ButtonAction.REGENERATE
        return build_keyboard([[build_button(place.address_id, turn, action.name.title(), action)]])

    async def _file(self, session_id: int, public_id: str) -> bytes | None:
        return await PostgresAttachments(self.pool).load_body(session_id, public_id)


async def die_while_sending(bot: BotProcess, fake: RunningBotApi, person: Person, words: str) -> Answer:
    """The answer is in its chat, and its process ends before it knows."""
    question = (await person.say("Well?")).message_id
    answer = await bot.begin(await bot.place(), question=question)
    await fake.fail("sendMessage", stall_after=5.0)
    ending = asyncio.create_task(answer.end(words))
    await person.sees(words)
    ending.cancel()
    await asyncio.gather(ending, return_exceptions=True)
    await bot.die()
    return answer
