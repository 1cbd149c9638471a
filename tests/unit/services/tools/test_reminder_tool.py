"""What the tool answers to a wish, and what a look does with what is due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.core.tools.reminders import DueReminder, NewReminder, QuietHours, Refusal
from shared.core.values.local_time import resolve_zone
from shared.core.values.messages import Block, Text
from shared.ports import ToolContext, ToolFailed
from shared.runtime import ignore_crash_point
from shared.services.tools.reminders import ReminderScheduler, ReminderTool
from tests.kit.scripted_model import Words

NOW = datetime(2026, 11, 21, 22, 30, tzinfo=UTC)
CONTEXT = ToolContext(
    session_id=1, contact_id=2, scope="ada", turn=3, key="1:3:t1", address_id=4, timezone="America/Lima"
)


class StandingClock:
    def now(self) -> datetime:
        return NOW


@dataclass(slots=True)
class Store:
    refuses: Refusal | None = None
    due_now: list[DueReminder] = field(default_factory=list)
    kept: list[NewReminder] = field(default_factory=list)
    done: list[Any] = field(default_factory=list)
    again_at: datetime | None = None

    async def add(self, new: NewReminder) -> Refusal | None:
        self.kept.append(new)
        return self.refuses

    async def list_due(self, channel: str, *, accounts: Sequence[str] | None = None) -> Sequence[DueReminder]:
        return self.due_now

    async def postpone_until(self, reminder_id: int, at: datetime) -> None:
        self.done.append((reminder_id, at))

    async def fail(self, reminder_id: int, reason: str) -> None:
        self.done.append((reminder_id, reason))

    async def skip_until(self, reminder_id: int, at: datetime) -> None:
        self.done.append((reminder_id, "skipped", at))

    async def start_turn(
        self, reminder_id: int, *, blocks: Sequence[Block], tokens: int, again_at: datetime | None = None
    ) -> int | None:
        assert tokens > 0
        self.again_at = again_at
        (block,) = blocks
        assert isinstance(block, Text)
        self.done.append((reminder_id, block.text))
        return 1

    async def load_text(self, session_id: int, turn: int) -> str | None:
        return None


async def wish(store: Store, context: ToolContext = CONTEXT, **arguments: Any) -> str:
    tool = ReminderTool(store, StandingClock(), timezone="Europe/Berlin")
    given = {"when": "2026-11-22T09:00", "text": "call Anna", **arguments}
    return await tool.run(given, context=context)


async def test_reminder_is_kept_by_the_persons_clock_and_confirmed() -> None:
    store = Store()
    assert (await wish(store)).startswith(
        "Set for 2026-11-22 09:00 (America/Lima). Tell the person that time"
    )
    assert store.kept == [
        NewReminder(
            key="1:3:t1", contact_id=2, session_id=1, address_id=4, text="call Anna",
            due_at=datetime(2026, 11, 22, 14, 0, tzinfo=UTC),
            turn=3,
        )
    ]  # fmt: skip


async def test_unknown_zone_falls_back_to_the_deployments_clock() -> None:
    for zone in (None, "", "Mars/Olympus", "../../etc/passwd"):
        told = await wish(Store(), replace(CONTEXT, timezone=zone))
        assert "2026-11-22 09:00 (Europe/Berlin)" in told
    assert resolve_zone("nowhere", "nowhere either").key == "UTC"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"text": " \n "}, "`text` is empty"),
        ({"text": None}, "`text` is empty"),
        ({"text": "x" * 501}, "501 characters"),
        ({"when": 12}, "cannot be read"),
        ({"when": None}, "cannot be read"),
        ({"when": "2026-11-21T17:30:30"}, "too soon"),
    ],
)
async def test_a_wish_that_cannot_be_kept_is_explained(arguments: Any, reason: str) -> None:
    store = Store()
    with pytest.raises(ToolFailed, match=reason):
        await wish(store, **arguments)
    assert store.kept == []


async def test_what_repeats_keeps_its_rule_and_begins_on_one_of_its_days() -> None:
    store = Store()
    told = await wish(store, when="2026-11-22T09:00", repeat="every Monday and Thursday")
    assert told.startswith(
        "Set for 2026-11-23 09:00 (America/Lima), and again as asked: every Monday and Thu"
    )
    assert (store.kept[0].repeat, store.kept[0].due_at) == (
        "week/1/mon,thu/09:00", datetime(2026, 11, 23, 14, 0, tzinfo=UTC),
    )  # fmt: skip
    await wish(store, when=None, repeat="daily at 7:30")
    assert store.kept[1].repeat == "day/1//07:30"
    with pytest.raises(ToolFailed, match="at most once a day"):
        await wish(store, repeat="every 10 minutes")
    with pytest.raises(ToolFailed, match="10 reminders repeat"):
        await wish(Store(refuses="too_many_repeat"), repeat="daily")


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [("public", "public chat"), ("too_many", "20 reminders wait"), ("crowded", "6 reminders are due")],
)
async def test_too_much_is_refused_with_a_way_out(refusal: Refusal, reason: str) -> None:
    with pytest.raises(ToolFailed, match=reason):
        await wish(Store(refuses=refusal))


async def test_reminder_without_a_person_is_refused() -> None:
    with pytest.raises(ToolFailed, match="with a person"):
        await wish(Store(), replace(CONTEXT, address_id=None))


def due(**more: Any) -> DueReminder:
    values: dict[str, Any] = {
        "id": 7, "text": "call Anna", "asked_at": NOW - timedelta(days=1), "due_at": NOW, "now": NOW,
        "timezone": "Europe/Berlin", "reachable": True,
    }  # fmt: skip
    return DueReminder(**{**values, **more})


async def looked(reminder: DueReminder, quiet: QuietHours | None = None) -> list[Any]:
    store = Store(due_now=[reminder])
    reminders = ReminderScheduler(store, Words(), quiet=quiet, timezone="UTC", crash_point=ignore_crash_point)
    await reminders.start_due("web")
    return store.done


async def test_what_is_due_begins_with_words_that_are_not_the_persons() -> None:
    ((number, words),) = await looked(due())
    assert number == 7
    assert words.startswith(
        "[Reminder, a message from the program, not from the person. On 2026-11-20 23:30 "
    )
    assert "at 2026-11-21 23:30 (Europe/Berlin) of this: call Anna." in words


async def test_at_night_it_waits_where_the_person_is() -> None:
    night = QuietHours(start=22, end=8)
    assert await looked(due(), night) == [(7, datetime(2026, 11, 22, 7, 0, tzinfo=UTC))]
    ((_, words),) = await looked(due(timezone="America/Lima"), night)
    assert "call Anna" in words


async def test_a_closed_chat_costs_no_answer() -> None:
    assert await looked(due(reachable=False)) == [(7, "unreachable")]


async def test_reminder_missed_for_days_is_delivered_once_and_continues() -> None:
    late = due(repeat="day/1//23:30", now=NOW + timedelta(days=3, hours=2))
    store = Store(due_now=[late])
    reminders = ReminderScheduler(store, Words(), quiet=None, timezone="UTC", crash_point=ignore_crash_point)
    await reminders.start_due("web")
    assert len(store.done) == 1
    assert store.again_at == NOW + timedelta(days=4)
    assert await looked(replace(late, reachable=False)) == [(7, "skipped", NOW + timedelta(days=4))]
