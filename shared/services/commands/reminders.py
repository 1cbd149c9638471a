"""What a person asked to be reminded of: `/reminders`, and `/reminders cancel 2`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from shared.core.commands.commands import BadArguments
from shared.core.commands.texts import ReminderShown
from shared.core.tools.reminders import Reminder, shown_moment
from shared.services.commands.command_call import CommandHandler, CommandInvocation, CommandReply
from shared.services.tools.reminders import resolve_zone

_CANCEL = re.compile(r"cancel\s+([1-9][0-9]{0,3})", re.IGNORECASE)


class ReminderCommandStore(Protocol):
    async def list_for_session(self, session_id: int) -> Sequence[Reminder]: ...
    async def cancel(self, session_id: int, reminder_id: int) -> bool: ...


class ReminderCommands:
    def __init__(self, store: ReminderCommandStore, *, timezone: str) -> None:
        """`timezone` is for people whose own nobody knows."""
        self._store = store
        self._timezone = timezone

    @property
    def handlers(self) -> dict[str, CommandHandler]:
        return {"reminders": self._reminders}

    async def _reminders(self, call: CommandInvocation) -> CommandReply:
        if not call.args:
            return await self._list(call)
        meant = _CANCEL.fullmatch(call.args)
        if meant is None:
            raise BadArguments("/reminders is sent alone, or as: /reminders cancel 2")
        return await self._cancel(call, int(meant[1]))

    async def _list(self, call: CommandInvocation) -> CommandReply:
        found = await self._store.list_for_session(call.session_id)
        waiting = [self._shown(one) for one in found if one.state == "pending"]
        failed = [self._shown(one) for one in found if one.state == "failed"]
        if not waiting and not failed:
            return True, call.texts.no_reminders
        return True, call.texts.reminders(waiting, failed)

    async def _cancel(self, call: CommandInvocation, number: int) -> CommandReply:
        found = await self._store.list_for_session(call.session_id)
        waiting = [one for one in found if one.state == "pending"]
        meant = waiting[number - 1] if number <= len(waiting) else None
        if meant is None or not await self._store.cancel(call.session_id, meant.id):
            return False, call.texts.no_such_reminder
        return True, call.texts.reminder_cancelled(words=meant.text)

    def _shown(self, reminder: Reminder) -> ReminderShown:
        zone = resolve_zone(reminder.timezone, self._timezone)
        return ReminderShown(text=reminder.text, due=shown_moment(reminder.due_at, zone), zone=zone.key)
