"""Operators' actions on one or several conversations, and macros that combine such actions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias
from uuid import UUID

from shared.core.identity.handover import (
    NAMELESS,
    Assignment,
    HandoverOutcome,
    Labels,
    Snooze,
    clean_labels,
)
from shared.core.identity.macros import RUNNER, HandoverOff, Macro, fill_variables
from shared.core.values.errors import EvertalkError, StorageUnavailable
from shared.services.tools.handover import HandoverService

MOST_CHOSEN = 100
"""Most conversations of one call; each is changed in a separate transaction. The callers check it."""
_AT_ONCE = 4
"""Conversations that a macro changes at the same time, so that their running answers are waited
for together.
"""

Action: TypeAlias = Literal["take", "return", "resolve", "assign", "snooze", "label"]
_NOT_FOUND = ("not_found", "There is no such conversation.")
_STORAGE_AWAY = "The database does not answer just now. Try again."


@dataclass(frozen=True, slots=True, kw_only=True)
class ActingOperator:
    """Operator who acts, with the rights that matter."""

    operator_id: int
    login: str
    shown_name: str
    """Name shown to people; empty for the neutral name."""
    is_admin: bool
    may_take: bool
    """True if handover is switched on, so that operators may take conversations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverMove:
    """Action on a conversation, with its values; values of other actions are ignored."""

    action: Action
    operator: str = ""
    """Login name of the assignee; empty assigns no one."""
    until: datetime | None = None
    """End of the snooze; None ends a present one."""
    labels: tuple[str, ...] = ()
    """Labels of the action `label`; the caller decides whether they replace or join the present ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """Result of an action on one of several conversations; `unchanged` means that it was so already."""

    session: UUID
    outcome: Literal["done", "unchanged", "already_resolved", "refused"]
    error: str = ""
    """Code of the refusal; empty if there is none."""
    reason: str = ""
    """Reason of the refusal for the operator; empty if there is none."""


class HandoverActionStore(Protocol):
    """Store of macros, and of open handovers.

    `find_macro` returns None for an unknown name. `find_open` returns version and labels, None while the
    assistant has the conversation. `has_reply` says whether a reply with this `cid` is stored.
    `find_variables` returns `name` and `site`.
    """

    async def find_macro(self, name: str) -> Macro | None: ...
    async def find_open(self, session_id: int) -> tuple[int, tuple[str, ...]] | None: ...
    async def has_reply(self, session_id: int, cid: str) -> bool: ...
    async def find_variables(self, session_id: int) -> Mapping[str, str]: ...


class AuditRecorder(Protocol):
    """Recorder of operators' actions in the audit log."""

    async def record(
        self, *, actor: str, action: str, about: str = "", detail: Mapping[str, Any] | None = None
    ) -> None: ...


class HandoverActions:
    """Operators' actions on conversations, and macros of several actions; the caller has checked the role."""

    def __init__(self, handovers: HandoverService, store: HandoverActionStore, audit: AuditRecorder) -> None:
        self._handovers = handovers
        self._store = store
        self._audit = audit

    async def move(
        self, session_id: int, move: HandoverMove, *, version: int, by: ActingOperator
    ) -> HandoverOutcome:
        """Take, return, resolve, assign, snooze or label a conversation, and announce it; return its new
        state.

        Labels replace the present ones. `version` is the one the operator has read. Raises HandoverOff if
        operators may not take conversations, and what `HandoverService` raises.
        """
        service = self._handovers
        mine: Any = {"operator_id": by.operator_id, "any_ones": by.is_admin}
        match move.action:
            case "take":
                if not by.may_take:
                    raise HandoverOff
                return await service.take_over(session_id, operator_id=by.operator_id, name=by.login)
            case "return" | "resolve":
                return await service.release(session_id, **mine, resolved=move.action == "resolve")
            case "assign":
                assignment = Assignment(operator=move.operator)
                return await service.change(session_id, assignment, version=version, **mine)
            case "snooze":
                return await service.change(session_id, Snooze(until=move.until), version=version, **mine)
            case "label":
                labels = Labels(labels=clean_labels(move.labels))
                return await service.change(session_id, labels, version=version, **mine)

    async def move_several(
        self, versions: Mapping[UUID, int], move: HandoverMove, *, by: ActingOperator
    ) -> tuple[ActionResult, ...]:
        """Apply an action to several conversations and return each result; labels are added to the present
        ones.

        The values of `versions` are the versions that the operator has read. A refusal does not affect the
        others. Raises StorageUnavailable.
        """
        return tuple(
            [await self._move_one(session, version, move, by) for session, version in versions.items()]
        )

    async def _move_one(
        self, session: UUID, version: int, move: HandoverMove, by: ActingOperator
    ) -> ActionResult:
        try:
            if (session_id := await self._handovers.find_session(session)) is None:
                return _refuse(session, *_NOT_FOUND)
            if move.action == "label":
                there = await self._store.find_open(session_id)
                move = HandoverMove(action="label", labels=(*(there[1] if there else ()), *move.labels))
            moved = await self.move(session_id, move, version=version, by=by)
        except StorageUnavailable:
            raise
        except EvertalkError as error:
            return _refuse(session, error.code, error.advice)
        is_changed = moved.event_seq > 0 or move.action in ("label", "snooze")
        return ActionResult(session=session, outcome="done" if is_changed else "unchanged")

    async def run_macro(
        self, session: UUID, name: str, *, cid: str, text: str, by: ActingOperator
    ) -> HandoverOutcome | None:
        """Run a macro on a conversation, record that in the audit log, and return the conversation's new
        state.

        Returns None if there is no such conversation or macro. A reply takes the conversation first. `text`
        replaces the macro's reply unless empty. The same `cid` sends one reply, so a run that failed can be
        repeated. Raises UnfilledVariable, HandoverOff and what `HandoverService` raises.
        """
        session_id, macro = await self._handovers.find_session(session), await self._store.find_macro(name)
        if session_id is None or macro is None:
            return None
        there = await self._store.find_open(session_id)
        is_sent = bool(macro.reply) and await self._store.has_reply(session_id, cid)
        if is_sent and there is None:
            return HandoverOutcome(session_id=session_id, state="bot")
        reply = await self._fill(session_id, text or macro.reply, by) if macro.reply and not is_sent else ""
        moved = await self._run(session_id, macro, reply=reply, is_sent=is_sent, cid=cid, by=by)
        await self._audit.record(
            actor=by.login, action="macro.run", about=str(session), detail={"macro": name}
        )
        return moved

    async def run_macro_on_several(
        self, sessions: Sequence[UUID], name: str, *, cid: str, by: ActingOperator
    ) -> tuple[ActionResult, ...] | None:
        """Run a macro on each conversation once, and return each result; None if there is no such macro.

        Conversations that are not open any more are left unchanged. A refusal does not affect the others; the
        call can be repeated with the same `cid`. Raises StorageUnavailable if the macro cannot be read.
        """
        if await self._store.find_macro(name) is None:
            return None
        free = asyncio.Semaphore(_AT_ONCE)

        async def run(session: UUID) -> ActionResult:
            async with free:
                return await self._run_on_one(session, name, cid=cid, by=by)

        return tuple(await asyncio.gather(*(run(session) for session in dict.fromkeys(sessions))))

    async def _run_on_one(self, session: UUID, name: str, *, cid: str, by: ActingOperator) -> ActionResult:
        try:
            if (session_id := await self._handovers.find_session(session)) is None:
                return _refuse(session, *_NOT_FOUND)
            if await self._store.find_open(session_id) is None:
                is_repeated = await self._store.has_reply(session_id, cid)
                return ActionResult(session=session, outcome="done" if is_repeated else "already_resolved")
            moved = await self.run_macro(session, name, cid=cid, text="", by=by)
        except StorageUnavailable as error:
            return _refuse(session, error.code, _STORAGE_AWAY)
        except EvertalkError as error:
            return _refuse(session, error.code, error.advice)
        if moved is None:
            return _refuse(session, "not_found", "There is no such conversation or macro.")
        return ActionResult(session=session, outcome="done")

    async def _run(
        self, session_id: int, macro: Macro, *, reply: str, is_sent: bool, cid: str, by: ActingOperator
    ) -> HandoverOutcome:
        """Label, reply, assign and resolve; steps done by an earlier run with this `cid` are skipped."""
        moved = HandoverOutcome(session_id=session_id, state="bot")
        there = await self._store.find_open(session_id)
        begins = there is None and (macro.labels or macro.assignee)
        if not is_sent and (macro.reply or macro.assignee == RUNNER or begins):
            moved = await self.move(session_id, HandoverMove(action="take"), version=0, by=by)
            there = await self._store.find_open(session_id)
        if macro.labels and there is not None:
            move = HandoverMove(action="label", labels=(*there[1], *macro.labels))
            moved = await self.move(session_id, move, version=there[0], by=by)
        if reply:
            await self._handovers.reply(session_id, operator_id=by.operator_id, cid=cid, text=reply)
        if macro.assignee not in ("", RUNNER) and (there := await self._store.find_open(session_id)):
            move = HandoverMove(action="assign", operator=macro.assignee)
            moved = await self.move(session_id, move, version=there[0], by=by)
        if macro.resolve:
            moved = await self.move(session_id, HandoverMove(action="resolve"), version=0, by=by)
        return moved

    async def _fill(self, session_id: int, text: str, by: ActingOperator) -> str:
        values = await self._store.find_variables(session_id)
        return fill_variables(text, {**values, "operator": by.shown_name or NAMELESS})


def _refuse(session: UUID, code: str, reason: str) -> ActionResult:
    return ActionResult(session=session, outcome="refused", error=code, reason=reason)
