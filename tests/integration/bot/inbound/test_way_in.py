"""The whole way in, by polls and by posts: what people do in the fake becomes turns, once and in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from aiogram import Bot
from aiogram.types import InlineKeyboardMarkup, Update
from aiohttp import web

from bot.telegram.inbound.inbox import InboxReader, Poller, PollTimeouts
from bot.telegram.inbound.media_files import FileReader
from bot.telegram.inbound.message_batching import MessageBatch, MessageBatcher
from bot.telegram.inbound.updates import IncomingMessage
from bot.telegram.inbound.webhook import PATH, WebhookConfig, make_webhook_handler, register_webhook
from shared.adapters.postgres.telegram.chats import PostgresTelegramChats
from shared.adapters.postgres.telegram.inbox import PostgresTelegramInbox, StoredUpdate
from shared.core.values.errors import LeaseLost
from shared.core.values.files import Picture
from tests.integration.bot.inbound.conftest import Pool
from tests.kit.fakes.bot_api import Person, RunningBotApi
from tests.kit.storage_health import Doubtful, broken_line
from tests.kit.telegram.updates import BOT

SECRET = "s" * 40


class WayIn:
    """Everything between Telegram and the conversation; turns are kept in a list."""

    def __init__(self, inbox: PostgresTelegramInbox) -> None:
        self._inbox = inbox
        self.turns: list[MessageBatch] = []
        self.others: list[Update] = []
        self.lanes = MessageBatcher(self.accept, now=lambda: datetime.now(UTC))
        self.reader = InboxReader(inbox, self.lanes, bot=BOT, on_other=self.other)
        self.tasks: list[asyncio.Task[None]] = [asyncio.create_task(self.reader.run())]

    async def accept(self, gathered: MessageBatch) -> None:
        self.turns.append(gathered)
        await self._inbox.mark_handled(BOT.bot_id, gathered.update_ids)

    async def other(self, incoming: Update) -> None:
        self.others.append(incoming)

    @property
    def texts(self) -> list[str]:
        return [turn.text for turn in self.turns]

    async def comes(self, found: Callable[[], bool], *, within: float = 40.0) -> None:
        async with asyncio.timeout(within):
            while not found():
                await asyncio.sleep(0.02)

    async def count(self, number: int) -> None:
        await self.comes(lambda: len(self.turns) >= number)
        await asyncio.sleep(0.1)
        assert len(self.turns) == number, self.texts

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks, timeout=5)
        await self.lanes.close()


@pytest.fixture(params=["polling", "webhook"])
async def way_in(
    request: pytest.FixtureRequest,
    bot_api: RunningBotApi,
    inbound_bot: Bot,
    inbox: PostgresTelegramInbox,
    places: PostgresTelegramChats,
) -> AsyncIterator[WayIn]:
    made = WayIn(inbox)
    runner: web.AppRunner | None = None
    if request.param == "polling":
        times = PollTimeouts(poll=2, first_wait=0.05, max_wait=0.2)
        poller = Poller(
            inbound_bot, inbox=inbox, problems=places, on_stored=made.reader.wake,
            hand_over=made.reader.hand_over, times=times,
        )  # fmt: skip
        made.tasks.append(asyncio.create_task(poller.run()))
        await made.comes(lambda: poller.completed_at is not None or not poller_waits(poller))
    else:
        app = web.Application()
        handler = make_webhook_handler(
            inbox, find_secret={BOT.bot_id: SECRET}.get, on_stored=lambda _: made.reader.wake()
        )
        app.router.add_post(PATH, handler)
        runner = web.AppRunner(app, auto_decompress=False)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/telegram/{BOT.bot_id}"
        await register_webhook(inbound_bot, WebhookConfig(url=url, secret=SECRET))
    yield made
    await made.stop()
    if runner is not None:
        await runner.cleanup()
    assert not await bot_api.violations()


def poller_waits(poller: Poller) -> bool:
    return poller.completed_at is None


async def test_a_paste_of_thirteen_thousand_characters_is_one_turn(way_in: WayIn, newcomer: Person) -> None:
    text = "".join(f"{number}/" for number in range(3_000))[:13_000]
    await newcomer.paste(text)
    await way_in.count(1)
    assert way_in.texts == [text]
    assert len(way_in.turns[0].update_ids) == 4


async def test_a_command_amid_a_paste_comes_at_once_and_alone(way_in: WayIn, newcomer: Person) -> None:
    await newcomer.say("x" * 4096)
    await newcomer.command("stop")
    await newcomer.say("y" * 10)
    await way_in.count(2)
    assert way_in.texts == ["/stop", "x" * 4096 + "y" * 10]


async def test_albums_and_forwards_are_one_turn_each(
    way_in: WayIn, newcomer: Person, inbound_bot: Bot
) -> None:
    await newcomer.album(3, gap=0.2, caption="which?", content=b"\xff\xd8\xff jpeg")
    await way_in.count(1)
    (turn,) = way_in.turns
    media = [one.media for one in turn.messages if one.media is not None]
    assert (turn.text, len(media)) == ("which?", 3)
    assert isinstance(await FileReader(inbound_bot).read(media[0]), Picture)
    await newcomer.forward("first", "second", from_name="Carl")
    await way_in.count(2)
    assert way_in.texts[1] == "[Forwarded from Carl]\n> first\n> second"


async def test_a_forward_finds_its_comment(way_in: WayIn, newcomer: Person) -> None:
    sent = await newcomer.forward("first", comment="true?", from_name="Carl")
    await way_in.comes(lambda: sum(len(turn.messages) for turn in way_in.turns) == 2)
    if len(way_in.turns) == 2:
        assert way_in.turns[1].late_for == sent[0].message_id
    else:
        assert way_in.texts == ["true?\n\n[Forwarded from Carl]\n> first"]


async def test_twenty_chats_at_once_keep_their_order_and_copies_are_one(
    way_in: WayIn, bot_api: RunningBotApi
) -> None:
    await bot_api.duplicate_updates(30, repeats=2, copies=3)
    people = [await bot_api.person(100 + number) for number in range(20)]
    for round_ in range(3):
        await asyncio.gather(*(person.say(f"{person.id}:{round_}") for person in people))
    await way_in.comes(lambda: len(way_in.turns) >= 60)
    await asyncio.sleep(0.5)
    for person in people:
        mine = [text for text in way_in.texts if text.startswith(f"{person.id}:")]
        assert mine == [f"{person.id}:{round_}" for round_ in range(3)]


async def test_topics_are_places_of_their_own(
    way_in: WayIn, bot_api: RunningBotApi, newcomer: Person
) -> None:
    await bot_api.change_bot(topics=True)
    one, two = await newcomer.create_topic("Cats"), await newcomer.create_topic("Dogs")
    forum = await bot_api.group("Club", newcomer, forum=True, admin=True)
    topic = await forum.create_topic("News")
    await newcomer.say("c", thread=one)
    await newcomer.say("d", thread=two)
    await newcomer.say("n", chat=forum.id, thread=topic)
    await newcomer.say("g", chat=forum.id)
    await way_in.count(4)
    found = {turn.first.text: (turn.first.chat.chat_id, turn.first.chat.thread_id) for turn in way_in.turns}
    assert found == {
        "c": (newcomer.id, one),
        "d": (newcomer.id, two),
        "n": (forum.id, topic),
        "g": (forum.id, 0),
    }


async def test_groups_say_who_is_meant(way_in: WayIn, bot_api: RunningBotApi, newcomer: Person) -> None:
    bob = await bot_api.person(43, first_name="Bob")
    group = await bot_api.group("Club", newcomer, members=(bob,), admin=True)
    await newcomer.say("only us", chat=group.id)
    await bob.say(f"@{BOT.username} and you", chat=group.id)
    await newcomer.command("help", chat=group.id)
    await newcomer.command("help@some_other_bot", chat=group.id)
    await way_in.count(4)
    assert {turn.text: turn.first.is_addressed for turn in way_in.turns} == {
        "Ann: only us": False,
        f"Bob: @{BOT.username} and you": True,
        "Ann: /help": True,
        "Ann: /help@some_other_bot": False,
    }


async def test_reply_with_a_quote_contains_the_quote(way_in: WayIn, newcomer: Person) -> None:
    first = await newcomer.say("the cat sat")
    await newcomer.say("who?", reply_to=first.message_id, quote="cat")
    await way_in.count(2)
    assert way_in.texts[1] == "[Quoting their own message]\n> cat\n\nwho?"


async def test_non_text_message_is_named_by_kind_and_done(
    way_in: WayIn, bot_api: RunningBotApi, newcomer: Person, inbound_bot: Bot, inbox: PostgresTelegramInbox
) -> None:
    said = await newcomer.say("hello")
    await way_in.comes(lambda: bool(way_in.turns))
    keyboard = {"inline_keyboard": [[{"text": "Stop", "callback_data": "stop:1"}]]}
    asked = await inbound_bot.send_message(
        newcomer.id, "?", reply_markup=InlineKeyboardMarkup.model_validate(keyboard)
    )
    await newcomer.tap("Stop", message_id=asked.message_id)
    await newcomer.react(asked.message_id, "👍")
    await newcomer.pin(said.message_id)
    await newcomer.edit(said.message_id, "hello!")
    group = await bot_api.group("Club", newcomer, kind="group")
    moved = await group.migrate()
    await newcomer.block()
    await newcomer.unblock()
    await bot_api.push_update({"something_new": {"x": 1}})

    def changes() -> list[str]:
        """In the private chat; the group has an order of its own."""
        return [
            change.new_chat_member.status
            for other in way_in.others
            if (change := other.my_chat_member) is not None and change.chat.id == newcomer.id
        ]

    def moves() -> set[tuple[int, int | None]]:
        messages = [other.message for other in way_in.others if other.message is not None]
        return {(message.chat.id, message.migrate_to_chat_id) for message in messages}

    await way_in.comes(
        lambda: (
            "member" in changes()
            and len(way_in.others) >= 7
            and len(way_in.turns) >= 2
            and (group.id, moved.id) in moves()
        )
    )
    assert {"callback_query", "message_reaction", "my_chat_member", "message"} <= {
        other.event_type for other in way_in.others
    }
    messages = [other.message for other in way_in.others if other.message is not None]
    assert any(message.pinned_message for message in messages)
    assert changes()[-2:] == ["kicked", "member"]
    edits = [turn.first.text for turn in way_in.turns if turn.first.is_edited]
    assert edits == ["hello!"]
    async with asyncio.timeout(30):
        while await inbox.list_waiting(BOT.bot_id):
            await asyncio.sleep(0.05)


async def test_what_was_not_accepted_before_a_crash_comes_again(
    bot_api: RunningBotApi, inbox: PostgresTelegramInbox
) -> None:
    from tests.kit.telegram.updates import raw_message

    now = int(datetime.now(UTC).timestamp())
    updates = [
        {"update_id": number, "message": raw_message(message_id=number, date=now, text="x" * 4096)}
        for number in (1, 2)
    ]
    await inbox.store(BOT.bot_id, updates)
    first = WayIn(inbox)
    await first.comes(lambda: first.lanes.pending_updates == {1, 2})
    await first.stop()
    assert not first.turns
    second = WayIn(inbox)
    await second.count(1)
    await second.stop()
    assert second.turns[0].update_ids == (1, 2)
    assert isinstance(second.turns[0].first, IncomingMessage)


async def test_a_button_is_no_failure_before_storage_was_seen_to_be_well(
    inbox: PostgresTelegramInbox, bot_pool: Pool
) -> None:
    """Its update is marked when it was carried out, or when the fault was ours."""
    storage, pressed = Doubtful(), list[Update]()

    async def press(incoming: Update) -> None:
        pressed.append(incoming)
        if len(pressed) in (1, 3):
            raise broken_line()

    reader = InboxReader(
        inbox, MessageBatcher(_nobody, now=lambda: datetime.now(UTC)), bot=BOT, on_other=press,
        storage_limiter=storage.asking,
    )  # fmt: skip
    for number, well in ((1, False), (2, True)):
        storage.well = well
        await inbox.store(BOT.bot_id, [_reaction(number)])
        await reader.read()
        async with asyncio.timeout(60):
            while await inbox.list_waiting(BOT.bot_id):
                await asyncio.sleep(0.02)
    assert len(pressed) == 3, "the first one again, the second one once"
    rows = await bot_pool.fetch("SELECT update_id, error FROM telegram_updates ORDER BY update_id")
    assert [tuple(row) for row in rows] == [(1, ""), (2, "InternalClientError")]


class CountingInbox(PostgresTelegramInbox):
    reads = 0

    async def list_waiting(self, bot_id: int, **options: Any) -> list[StoredUpdate]:
        self.reads += 1
        return await super().list_waiting(bot_id, **options)


async def test_update_that_was_handed_over_is_not_read_back(pool: Pool) -> None:
    inbox, pressed = CountingInbox(pool), list[int]()
    batcher = MessageBatcher(_nobody, now=lambda: datetime.now(UTC))

    async def press(incoming: Update) -> None:
        pressed.append(incoming.update_id)

    reader = InboxReader(inbox, batcher, bot=BOT, on_other=press)
    for number in (1, 2, 3):
        await inbox.store(BOT.bot_id, [_reaction(number)])
        reader.hand_over([_stored(_reaction(number))])
        assert not await reader.read()
        async with asyncio.timeout(60):
            while pressed[-1:] != [number] or await pool.fetchval(_WAITING):
                await asyncio.sleep(0.02)

    assert (pressed, inbox.reads) == ([1, 2, 3], 1), "the first look finds what others have stored"


async def test_update_that_was_handed_over_waits_for_dropped_ones(inbox: PostgresTelegramInbox) -> None:
    """Another process had handled a message of the chat: what waits behind it is read again, in order."""
    heard, lost = list[str](), [True]

    async def hear(gathered: MessageBatch) -> None:
        if lost and lost.pop():
            await inbox.store(BOT.bot_id, [_said(3)])
            reader.hand_over([_stored(_said(3))])
            raise LeaseLost("elsewhere")
        heard.append(gathered.text)
        await inbox.mark_handled(BOT.bot_id, gathered.update_ids)

    reader = InboxReader(inbox, MessageBatcher(hear, now=lambda: datetime.now(UTC)), bot=BOT, on_other=_never)
    await reader.read()
    await inbox.store(BOT.bot_id, [_said(1), _said(2)])
    reader.hand_over([_stored(_said(1)), _stored(_said(2))])
    await reader.read()
    async with asyncio.timeout(60):
        while len(heard) < 3:
            await asyncio.sleep(0.02)
            await reader.read()

    assert heard == ["1", "2", "3"]


_WAITING = "SELECT count(*) FROM telegram_updates WHERE handled_at IS NULL"


def _stored(update: dict[str, Any]) -> StoredUpdate:
    return StoredUpdate(update_id=update["update_id"], body=update)


def _said(number: int) -> dict[str, Any]:
    ada = {"id": 42, "is_bot": False, "first_name": "Ada"}
    chat = {"id": 42, "type": "private", "first_name": "Ada"}
    now = int(datetime.now(UTC).timestamp())
    message = {"message_id": number, "date": now, "from": ada, "chat": chat, "text": str(number)}
    return {"update_id": number, "message": message}


async def _never(update: Update) -> None:
    raise AssertionError(update)


async def _nobody(gathered: MessageBatch) -> None:
    raise AssertionError(gathered)


def _reaction(number: int) -> dict[str, object]:
    return {
        "update_id": number,
        "message_reaction": {
            "chat": {"id": 42, "type": "private", "first_name": "Ada"},
            "message_id": 7,
            "date": int(datetime.now(UTC).timestamp()),
            "user": {"id": 42, "is_bot": False, "first_name": "Ada"},
            "old_reaction": [],
            "new_reaction": [{"type": "emoji", "emoji": "👍"}],
        },
    }
