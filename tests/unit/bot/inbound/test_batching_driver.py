"""The driver: order within a place, no waiting between places, and nothing handed on twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from bot.telegram.inbound.message_batching import BatchTimeouts, MessageBatch, MessageBatcher
from bot.telegram.inbound.updates import ChatRef, IncomingMessage, ParsedCommand
from bot.telegram.runtime.bot_runner import VALID_SECONDS, LeaseGuard
from shared.core.values.errors import LeaseLost, StorageUnavailable
from tests.kit.storage_health import Doubtful, broken_line
from tests.kit.telegram.updates import BOB, GROUP, after, forward, photo, spoken

QUICK = BatchTimeouts(paste=0.15, album=0.15, forward=0.05, stale=0.1)


class Heard:
    """What was handed on; a place can be held up, and Postgres can be away."""

    def __init__(self) -> None:
        self.turns: list[MessageBatch] = []
        self.failed: list[MessageBatch] = []
        self.held_up: dict[int, asyncio.Event] = {}
        self.errors: list[Exception] = []

    async def __call__(self, gathered: MessageBatch) -> None:
        gate = self.held_up.get(gathered.first.chat.chat_id)
        bypass = gathered.first.command is not None and gathered.first.command.name == "stop"
        if gate is not None and not bypass:
            await gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        self.turns.append(gathered)

    async def fail(self, gathered: MessageBatch, error: Exception) -> None:
        self.failed.append(gathered)

    @property
    def ids(self) -> list[tuple[int, ...]]:
        return [one.message_ids for one in self.turns]


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
async def lanes(heard: Heard) -> AsyncIterator[MessageBatcher]:
    made = MessageBatcher(heard, now=lambda: datetime.now(UTC), timeouts=QUICK, on_failed=heard.fail)
    yield made
    await made.close()


def now(message: IncomingMessage) -> IncomingMessage:
    import dataclasses

    return dataclasses.replace(message, sent_at=datetime.now(UTC))


async def comes(heard: Heard, ids: tuple[int, ...]) -> None:
    async with asyncio.timeout(60):
        while ids not in heard.ids:
            await asyncio.sleep(0.01)


async def settled(lanes: MessageBatcher) -> None:
    async with asyncio.timeout(60):
        while lanes.pending_updates:
            await asyncio.sleep(0.01)


async def test_a_paste_an_album_and_a_forward_come_out_as_turns(lanes: MessageBatcher, heard: Heard) -> None:
    lanes.put([now(spoken(1, "x" * 4096)), now(spoken(2, "y" * 4096))])
    lanes.put([now(spoken(3, "z"))])
    lanes.put([now(photo(4, "g")), now(photo(5, "g"))])
    await settled(lanes)
    lanes.put([now(spoken(6, "see")), now(forward(7, "a"))])
    await settled(lanes)
    assert heard.ids == [(1, 2, 3), (4, 5), (6, 7)]
    assert heard.turns[0].text == "x" * 4096 + "y" * 4096 + "z"


async def test_one_place_waits_for_itself_and_not_for_others(lanes: MessageBatcher, heard: Heard) -> None:
    gate = heard.held_up[42] = asyncio.Event()
    lanes.put([now(spoken(1, "a")), now(spoken(2, "b"))])
    lanes.put([now(spoken(3, "elsewhere", chat=ChatRef(chat_id=43), sender=BOB))])
    lanes.put([now(spoken(4, "another topic", chat=ChatRef(chat_id=42, thread_id=7)))])
    await comes(heard, (3,))
    await asyncio.sleep(0.05)
    assert heard.ids == [(3,)]
    gate.set()
    await settled(lanes)
    assert [ids for ids in heard.ids if ids in ((1,), (2,))] == [(1,), (2,)]


async def test_stop_overtakes_everything_and_other_commands_keep_their_place(
    lanes: MessageBatcher, heard: Heard
) -> None:
    gate = heard.held_up[42] = asyncio.Event()
    lanes.put([now(spoken(1, "a")), now(spoken(2, "/new")), now(spoken(3, "/stop"))])
    await comes(heard, (3,))
    await asyncio.sleep(0.05)
    assert heard.ids == [(3,)]
    gate.set()
    await settled(lanes)
    assert heard.ids == [(3,), (1,), (2,)]


async def test_stop_begins_behind_what_came_before_it_and_before_what_came_after(
    lanes: MessageBatcher, heard: Heard
) -> None:
    lanes.put(
        [now(spoken(1, "a")), now(spoken(2, "x" * 4096)), now(spoken(3, "/stop")), now(spoken(4, "end"))]
    )
    await settled(lanes)
    assert heard.ids == [(1,), (3,), (2, 4)]


async def test_an_edited_stop_stops_nothing(lanes: MessageBatcher, heard: Heard) -> None:
    lanes.put([now(spoken(3, "/stop", is_edited=True))])
    await settled(lanes)
    assert heard.turns[0].first.is_edited
    assert heard.turns[0].first.command == ParsedCommand(name="stop")


async def test_the_same_update_put_again_meanwhile_is_taken_once(lanes: MessageBatcher, heard: Heard) -> None:
    gate = heard.held_up[42] = asyncio.Event()
    message = now(spoken(1, "a"))
    for _ in range(5):
        lanes.put([message])
        await asyncio.sleep(0)
    assert lanes.pending_updates == {message.update_id}
    gate.set()
    await settled(lanes)
    assert heard.ids == [(1,)]
    assert not lanes.pending_updates


async def test_postgres_outage_is_retried_and_a_bug_is_reported(lanes: MessageBatcher, heard: Heard) -> None:
    heard.errors = [StorageUnavailable("away"), StorageUnavailable("away")]
    lanes.put([now(spoken(1, "a")), now(spoken(2, "b"))])
    await settled(lanes)
    assert heard.ids == [(1,), (2,)]
    heard.errors = [RuntimeError("a bug")]
    lanes.put([now(spoken(3, "c")), now(spoken(4, "d"))])
    await settled(lanes)
    assert heard.ids[2:] == [(4,)]
    assert [one.message_ids for one in heard.failed] == [(3,)]


async def test_two_people_of_a_group_do_not_mix_unless_it_is_old(lanes: MessageBatcher, heard: Heard) -> None:
    lanes.put([now(spoken(1, "x" * 4096, chat=GROUP)), now(spoken(2, "hi", chat=GROUP, sender=BOB))])
    await settled(lanes)
    assert sorted(heard.ids) == [(1,), (2,)]
    old = after(-100_000_000)
    lanes.put(
        [
            spoken(3, "long ago", chat=GROUP, sent_at=old),
            spoken(4, "me too", chat=GROUP, sender=BOB, sent_at=old),
            now(spoken(5, "and now", chat=GROUP)),
        ]
    )
    await settled(lanes)
    assert heard.ids[2:] == [(3, 4, 5)]
    assert heard.turns[-1].text == "Ada Lovelace: long ago\n\nBob: me too\n\nAda Lovelace: and now"


async def test_closing_releases_waiting_updates(heard: Heard) -> None:
    lanes = MessageBatcher(heard, now=lambda: datetime.now(UTC), timeouts=BatchTimeouts())
    lanes.put([now(spoken(1, "x" * 4096))])
    await asyncio.sleep(0)
    await lanes.close()
    assert not heard.turns
    assert not lanes.pending_updates


async def test_update_taken_by_another_holder_is_released_with_its_followers(
    lanes: MessageBatcher, heard: Heard
) -> None:
    gate = heard.held_up[42] = asyncio.Event()
    behind = [now(spoken(2, "b")), now(spoken(3, "x" * 4096))]
    lanes.put([now(spoken(1, "a")), *behind])
    lanes.put([now(spoken(4, "elsewhere", chat=GROUP))])
    while heard.ids != [(4,)]:
        await asyncio.sleep(0.01)
    heard.errors.append(LeaseLost("taken"))
    gate.set()
    await settled(lanes)
    assert (heard.ids, heard.failed, lanes.pending_updates) == ([(4,)], [], frozenset())
    lanes.put(behind)
    await settled(lanes)
    assert heard.ids == [(4,), (2,), (3,)]


async def test_update_is_handed_on_only_when_surely_owned(heard: Heard) -> None:
    clock = [0.0]
    hold = LeaseGuard(now=lambda: clock[0])
    lanes = MessageBatcher(
        heard, now=lambda: datetime.now(UTC), timeouts=QUICK, wait_for_lease=hold.wait_until_valid
    )
    lanes.put([now(spoken(1, "a")), now(spoken(2, "b"))])
    await asyncio.sleep(0.05)
    assert heard.ids == []
    hold.mark_held(asked_at=clock[0])
    await settled(lanes)
    clock[0] += VALID_SECONDS + 0.1
    lanes.put([now(spoken(3, "c"))])
    await asyncio.sleep(0.05)
    assert heard.ids == [(1,), (2,)]
    await lanes.close()
    assert lanes.pending_updates == frozenset()
    hold.mark_held(asked_at=clock[0])
    lanes.put([now(spoken(4, "d"))])
    await settled(lanes)
    await lanes.close()
    assert heard.ids == [(1,), (2,), (4,)]


@pytest.mark.parametrize("times", [1, 3])
async def test_unexpected_error_is_no_failure_until_storage_was_checked(heard: Heard, times: int) -> None:
    storage = Doubtful()
    lanes = MessageBatcher(
        heard, now=lambda: datetime.now(UTC), timeouts=QUICK, on_failed=heard.fail,
        storage_limiter=storage.asking,
    )  # fmt: skip
    heard.errors = [broken_line() for _ in range(times)]
    lanes.put([now(spoken(1, "a"))])
    await asyncio.wait_for(storage.was_asked.wait(), 60)
    lanes.put([now(spoken(2, "b"))])
    await settled(lanes)
    assert (heard.ids, heard.failed, storage.asked) == ([(1,), (2,)], [], times)
    storage.well = True
    heard.errors = [broken_line()]
    lanes.put([now(spoken(3, "c")), now(spoken(4, "d"))])
    await settled(lanes)
    assert (heard.ids[-1], [one.message_ids for one in heard.failed]) == ((4,), [(3,)])
    await lanes.close()


async def test_nothing_newer_passes_a_message_whose_failure_cannot_be_noted(heard: Heard) -> None:
    noted = asyncio.Event()
    away = asyncio.Event()

    async def fail(gathered: MessageBatch, error: Exception) -> None:
        if not noted.is_set():
            away.set()
            raise StorageUnavailable("away")
        await heard.fail(gathered, error)

    lanes = MessageBatcher(heard, now=lambda: datetime.now(UTC), timeouts=QUICK, on_failed=fail)
    heard.errors = [ValueError("ours")]
    lanes.put([now(spoken(1, "a")), now(spoken(2, "b"))])
    await asyncio.wait_for(away.wait(), 60)
    await asyncio.sleep(0.05)
    assert heard.ids == []
    assert lanes.pending_updates == {1001, 1002}
    noted.set()
    await settled(lanes)
    assert (heard.ids, [one.message_ids for one in heard.failed]) == ([(2,)], [(1,)])
    await lanes.close()
