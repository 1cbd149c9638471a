"""Command `/reminders`: lists reminders, and cancels, pauses or resumes one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Literal, Protocol

from shared.core.commands.commands import BadArguments
from shared.core.commands.texts import bullets, excerpt, number_lines
from shared.core.tools.reminders import Reminder, format_moment
from shared.core.tools.repeating import Repeat, find_next_time
from shared.core.values.local_time import resolve_zone
from shared.locales import Catalogue
from shared.ports import Clock
from shared.services.commands.command_call import (
    Choice,
    CommandHandler,
    CommandInvocation,
    CommandReply,
    Offering,
)

_VERB = re.compile(r"(?:(cancel)|(pause)|(resume))\s+([1-9][0-9]{0,3}|#[0-9]{1,18})", re.IGNORECASE)
"""Argument with a verb and a number; buttons use a reminder's id, since numbers change with the list."""

ReminderVerb = Literal["cancel", "pause", "resume"]
"""Change of a reminder that a person can request."""


class ReminderCommandStore(Protocol):
    """Store of a session's reminders.

    `list_for_session` returns pending ones, soonest first, then failed ones. The changes return False if the
    reminder is not the person's, is not pending or, to pause it, does not repeat.
    """

    async def list_for_session(self, session_id: int) -> Sequence[Reminder]: ...
    async def cancel(self, session_id: int, reminder_id: int) -> bool: ...
    async def pause(self, session_id: int, reminder_id: int) -> bool: ...
    async def resume(self, session_id: int, reminder_id: int, at: datetime) -> bool: ...


class ReminderCommands:
    """Handler of `/reminders`."""

    def __init__(self, store: ReminderCommandStore, clock: Clock, *, timezone: str) -> None:
        """Set up the command; `timezone` applies to people whose time zone is unknown."""
        self._store = store
        self._clock = clock
        self._timezone = timezone

    @property
    def handlers(self) -> dict[str, CommandHandler]:
        """Handler of `/reminders` by command name."""
        return {"reminders": self._reminders}

    async def _change(
        self, call: CommandInvocation, verb: ReminderVerb, meant: Reminder | None
    ) -> CommandReply:
        session_id, texts = call.session_id, call.texts
        if meant is None:
            return False, texts.say("no_such_reminder")
        rule = Repeat.parse(meant.repeat)
        if verb != "cancel" and rule is None:
            return False, texts.say("reminder_comes_once")
        if verb == "cancel":
            done = await self._store.cancel(session_id, meant.id)
            words = texts.say("reminder_cancelled", words=excerpt(meant.text))
        elif verb == "pause":
            done = await self._store.pause(session_id, meant.id)
            words = texts.say("reminder_paused", words=excerpt(meant.text))
        else:
            assert rule is not None
            zone = resolve_zone(meant.timezone, self._timezone)
            at = find_next_time(rule, after=self._clock.now(), anchor=meant.due_at, zone=zone)
            done = await self._store.resume(session_id, meant.id, at)
            row = self._row(replace(meant, due_at=at, paused=False), texts)
            words = texts.say("reminder_resumed", reminder=row)
        return (True, words) if done else (False, texts.say("no_such_reminder"))

    async def _render(self, call: CommandInvocation, *, after: str = "") -> Offering:
        """Return the list of reminders with a button for each possible change, below the text `after`."""
        texts, found = call.texts, await self._store.list_for_session(call.session_id)
        waiting = [one for one in found if one.state == "pending"]
        failed = [self._row(one, texts) for one in found if one.state == "failed"]
        blocks = []
        if waiting:
            blocks += [texts.say("reminders_head"), number_lines([self._row(one, texts) for one in waiting])]
        if failed:
            blocks += [texts.say("reminders_failed"), bullets(failed)]
        words = "\n\n".join(blocks) or texts.say("no_reminders")
        choices = [
            Choice(label=texts.say(f"reminder_button_{verb}", number=number), args=f"{verb} #{one.id}")
            for number, one in enumerate(waiting, 1)
            for verb in _list_verbs(one)
        ]
        return Offering(f"{after}\n\n{words}" if after else words, choices)

    async def _reminders(self, call: CommandInvocation) -> CommandReply:
        if not call.args:
            return True, await self._render(call)
        meant = _VERB.fullmatch(call.args)
        if meant is None:
            raise BadArguments.from_key("bad_reminders")
        verb: ReminderVerb = "cancel" if meant[1] else "pause" if meant[2] else "resume"
        waiting = [
            one for one in await self._store.list_for_session(call.session_id) if one.state == "pending"
        ]
        named = {f"#{one.id}": one for one in waiting} | {f"{n}": one for n, one in enumerate(waiting, 1)}
        found = named.get(meant[4])
        success, words = await self._change(call, verb, found)
        # The numbers may have changed.
        return success, await self._render(call, after=words) if success else words

    def _row(self, reminder: Reminder, texts: Catalogue) -> str:
        zone = resolve_zone(reminder.timezone, self._timezone)
        due, rule = format_moment(reminder.due_at, zone), Repeat.parse(reminder.repeat)
        key = (
            "reminder_row_paused" if reminder.paused else "reminder_row_repeating" if rule else "reminder_row"
        )
        again = describe_repeat(rule, texts) if rule else ""
        return texts.say(key, due=due, zone=excerpt(zone.key), again=again, words=excerpt(reminder.text))


def describe_repeat(rule: Repeat, texts: Catalogue) -> str:
    """Return how often a reminder is repeated in the language of `texts`, without the time of day."""
    days = ", ".join(texts.say(f"weekday_{day}") for day in rule.weekdays)
    single = {"day": "repeat_daily", "week": "repeat_weekly", "month": "repeat_monthly"}
    if rule.unit == "month" and rule.every % 12 == 0:
        years = rule.every // 12
        return texts.say("repeat_yearly") if years == 1 else texts.say("repeat_years", count=years)
    if rule.every == 1:
        return texts.say(single[rule.unit], days=days)
    return texts.say(f"repeat_{rule.unit}s", count=rule.every, days=days)


def _list_verbs(one: Reminder) -> tuple[ReminderVerb, ...]:
    if not one.repeat:
        return ("cancel",)
    return ("resume" if one.paused else "pause", "cancel")
