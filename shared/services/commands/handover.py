"""Command `/human`: requests an operator for the conversation, or cancels the request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from shared.core.commands.texts import excerpt
from shared.core.identity.handover import (
    AskedTooOften,
    CannotHandOver,
    HandoverOutcome,
    NewHandover,
    NobodyComes,
    shorten_reason,
)
from shared.ports import Announcer
from shared.services.commands.command_call import CommandHandler, CommandInvocation, CommandReply
from shared.services.tools.handover import announce_handover

_CANCEL_WORDS = frozenset({"cancel", "off", "abbrechen", "aus"})


class HandoverCommandStore(Protocol):
    """Store of requests for an operator; the event number of `HandoverOutcome` is 0 if nothing changed.

    `request_handover` raises AskedTooOften, CannotHandOver, and NobodyComes if the site has hand-overs off.
    `release` returns the conversation to the assistant.
    """

    async def request_handover(self, new: NewHandover) -> HandoverOutcome: ...
    async def release(self, session_id: int, *, by: Literal["operator", "person"]) -> HandoverOutcome: ...


class HandoverCommands:
    """Handler of `/human`."""

    def __init__(
        self,
        store: HandoverCommandStore,
        announcer: Announcer,
        *,
        away: Callable[[], str | None],
        enabled: bool,
    ) -> None:
        """Set up the command; unless `enabled`, it replies that no operator is available.

        `away` returns the text outside of working hours, empty for the default; None within working hours.
        """
        self._store = store
        self._announcer = announcer
        self._away = away
        self._enabled = enabled

    @property
    def handlers(self) -> dict[str, CommandHandler]:
        """Handler of `/human` by command name."""
        return {"human": self._human}

    async def _human(self, call: CommandInvocation) -> CommandReply:
        if call.args.strip().casefold() in _CANCEL_WORDS:
            return await self._take_back(call)
        if not self._enabled:
            return False, call.texts.say("no_humans")
        new = NewHandover(
            session_id=call.session_id,
            address_id=call.address_id,
            asked_by="operator" if call.address_id is None else "person",
            reason=shorten_reason(call.args),
        )
        try:
            moved = await self._store.request_handover(new)
        except AskedTooOften:
            return False, call.texts.say("human_too_often")
        except NobodyComes:
            return False, call.texts.say("no_humans")
        except CannotHandOver:
            return False, call.texts.say("link_refused_moved")
        await announce_handover(self._announcer, moved)
        if moved.state == "human":
            return True, call.texts.say("human_is_here", name=excerpt(moved.name))
        if not moved.event_seq:
            return True, call.texts.say("human_asked_before")
        away = self._away()
        more = "" if away is None else f"\n\n{away or call.texts.say('human_away')}"
        return True, call.texts.say("human_asked") + more

    async def _take_back(self, call: CommandInvocation) -> CommandReply:
        moved = await self._store.release(call.session_id, by="person")
        await announce_handover(self._announcer, moved)
        return True, call.texts.say("human_taken_back" if moved.event_seq else "human_not_asked")
