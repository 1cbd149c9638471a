"""Reminders: the tool that sets one, and the scheduler that starts its turn when it is due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol
from zoneinfo import ZoneInfo

import structlog

from shared.core.context.prompts import reminder_entry
from shared.core.tools.reminders import (
    LEAST_AHEAD,
    PENDING_AT_MOST,
    PER_HOUR,
    REPEATING_AT_MOST,
    TEXT_CHARS,
    BadMoment,
    DueReminder,
    NewReminder,
    QuietHours,
    Refusal,
    due_of,
    format_moment,
    quiet_until,
)
from shared.core.tools.repeating import Repeat, find_next_time, repeat_of
from shared.core.values.errors import LeaseLost
from shared.core.values.local_time import resolve_zone
from shared.core.values.messages import Block, Text
from shared.core.values.tokens import estimate_blocks
from shared.ports import Clock, TokenCounter, ToolContext, ToolFailed, ToolSpec
from shared.runtime import CrashPoint

log = structlog.get_logger(__name__)

REMIND_ME = ToolSpec(
    name="remind_me",
    description="Remind the person later, once or repeatedly, if they ask for it.",
    input_schema={
        "type": "object",
        "properties": {
            "when": {
                "type": "string",
                "description": "YYYY-MM-DDThh:mm by their clock, or `in 2 hours`",
            },
            "repeat": {
                "type": "string",
                "description": "`weekdays`, `every 2 weeks`, `every Monday at 9`",
                "maxLength": 100,
            },
            "text": {
                "type": "string",
                "description": "in their language",
                "maxLength": TEXT_CHARS,
            },
        },
        "required": ["text"],
        "additionalProperties": False,
    },
)
"""Description of the tool `remind_me` for the model."""
_REFUSALS: Mapping[Refusal, str] = {
    "public": "Reminders cannot be set here: this is a public chat. Say so.",
    "too_many": (
        f"{PENDING_AT_MOST} reminders wait already, which is the most. "
        "The person can cancel some with /reminders cancel and a number."
    ),
    "too_many_repeat": (
        f"{REPEATING_AT_MOST} reminders repeat already, which is the most. "
        "The person can cancel some with /reminders cancel and a number."
    ),
    "crowded": (
        f"{PER_HOUR} reminders are due around that hour already, which is the most. Ask for another time."
    ),
}


class ReminderToolStore(Protocol):
    """Store that adds reminders, once per key; returns the reason of a refusal, None if it is stored."""

    async def add(self, new: NewReminder) -> Refusal | None: ...


class DueReminderStore(Protocol):
    """Store of due reminders.

    `start_turn` opens the reminder's turn and stores its next time in one commit; it returns the session's
    id, None if another process was first. `postpone_until` keeps the time that people see; `skip_until` moves
    a repeating reminder to its next time. `load_text` returns None for a turn that delivers no reminder.
    """

    async def list_due(
        self, channel: str, *, accounts: Sequence[str] | None = None
    ) -> Sequence[DueReminder]: ...
    async def postpone_until(self, reminder_id: int, at: datetime) -> None: ...
    async def fail(self, reminder_id: int, reason: Literal["unreachable"]) -> None: ...
    async def skip_until(self, reminder_id: int, at: datetime) -> None: ...
    async def start_turn(
        self, reminder_id: int, *, blocks: Sequence[Block], tokens: int, again_at: datetime | None = None
    ) -> int | None: ...
    async def load_text(self, session_id: int, turn: int) -> str | None: ...


class ReminderTool:
    """Tool `remind_me`, which stores a reminder; a repeated call stores it once."""

    spec: ToolSpec = REMIND_ME
    idempotent = True
    timeout_seconds = 10.0

    def __init__(
        self, store: ReminderToolStore, clock: Clock, *, timezone: str = "UTC", least: timedelta = LEAST_AHEAD
    ) -> None:
        """Set up the tool; `timezone` applies to people whose time zone is unknown, `least` is the shortest
        delay.
        """
        self._store = store
        self._clock = clock
        self._timezone = timezone
        self._least = least

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str:
        text = " ".join(str(arguments.get("text") or "").split())
        if not text:
            raise ToolFailed("`text` is empty: say what to remind of.")
        if len(text) > TEXT_CHARS:
            raise ToolFailed(f"`text` has {len(text)} characters; {TEXT_CHARS} is the most.")
        if context.address_id is None:
            raise ToolFailed("Reminders can be set only in a conversation with a person.")
        zone = resolve_zone(context.timezone, self._timezone)
        try:
            due_at, repeat = self._moment(arguments, zone)
        except BadMoment as error:
            raise ToolFailed(error.advice) from error
        new = NewReminder(
            key=context.key,
            contact_id=context.contact_id,
            session_id=context.session_id,
            address_id=context.address_id,
            text=text,
            due_at=due_at,
            repeat=str(repeat or ""),
            turn=context.turn,
            epoch=context.epoch,
        )
        try:
            refusal = await self._store.add(new)
        except LeaseLost as error:
            raise ToolFailed("Not set: this turn is answered elsewhere now.") from error
        if refusal is not None:
            raise ToolFailed(_REFUSALS[refusal])
        then = f", and again as asked: {' '.join(str(arguments['repeat']).split())}" if repeat else ""
        at = f"{format_moment(due_at, zone)} ({zone.key}){then}"
        return f"Set for {at}. Tell the person that time; /reminders cancels it."

    def _moment(self, arguments: Mapping[str, Any], zone: ZoneInfo) -> tuple[datetime, Repeat | None]:
        """Return the first time in UTC, and the rule for repetitions (None without one). Raises BadMoment."""
        when, words = str(arguments.get("when") or ""), str(arguments.get("repeat") or "")
        now = self._clock.now()
        first = None if words and not when else due_of(when, now=now, zone=zone, least=self._least)
        if not words.strip():
            assert first is not None
            return first, None
        rule = repeat_of(words, first=first and first.astimezone(zone))
        begin = first - timedelta(minutes=1) if first else now + self._least
        return find_next_time(rule, after=begin, anchor=first or now, zone=zone), rule


class ReminderScheduler:
    """Scheduler of reminders; channels call it as often as they search for unanswered turns."""

    def __init__(
        self,
        store: DueReminderStore,
        counter: TokenCounter,
        *,
        quiet: QuietHours | None,
        timezone: str,
        crash_point: CrashPoint,
    ) -> None:
        self._store = store
        self._counter = counter
        self._quiet = quiet
        self._timezone = timezone
        self._crash_point = crash_point

    async def start_due(self, channel: str, *, accounts: Sequence[str] | None = None) -> None:
        """Open a turn for each due reminder of a channel; the model's answer to it delivers the reminder.

        Those in quiet hours are delayed. One whose person cannot be reached fails, or moves to its next time.
        `accounts` limits it to these accounts of the channel; None includes all. Raises StorageUnavailable.
        """
        for reminder in await self._store.list_due(channel, accounts=accounts):
            await self._begin(reminder)

    async def load_text(self, session_id: int, turn: int) -> str | None:
        """Return the text of the reminder that a turn must deliver; None if it is not a reminder's turn."""
        return await self._store.load_text(session_id, turn)

    async def _begin(self, reminder: DueReminder) -> None:
        zone = resolve_zone(reminder.timezone, self._timezone)
        quiet = quiet_until(reminder.now, self._quiet, zone)
        if quiet is not None:
            await self._store.postpone_until(reminder.id, quiet)
        elif reminder.reachable:
            await self._start_turn(reminder, zone)
        elif (again_at := find_next(reminder, zone)) is not None:
            await self._store.skip_until(reminder.id, again_at)
        else:
            await self._store.fail(reminder.id, "unreachable")

    async def _start_turn(self, reminder: DueReminder, zone: ZoneInfo) -> None:
        asked, due = format_moment(reminder.asked_at, zone), format_moment(reminder.due_at, zone)
        blocks = (Text(text=reminder_entry(reminder.text, asked=asked, due=f"{due} ({zone.key})")),)
        self._crash_point("before_reminder")
        session_id = await self._store.start_turn(
            reminder.id,
            blocks=blocks,
            tokens=estimate_blocks(blocks, self._counter.count_tokens),
            again_at=find_next(reminder, zone),
        )
        self._crash_point("after_reminder")
        if session_id is not None:
            log.info("reminder_started", session_id=session_id, reminder_id=reminder.id)


def find_next(reminder: DueReminder, zone: ZoneInfo) -> datetime | None:
    """Return the next time of a repeating reminder after now; None if it does not repeat.

    Missed times are skipped, so that the person is reminded once.
    """
    rule = Repeat.parse(reminder.repeat)
    if rule is None:
        return None
    return find_next_time(rule, after=max(reminder.now, reminder.due_at), anchor=reminder.due_at, zone=zone)
