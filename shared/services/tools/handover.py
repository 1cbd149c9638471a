"""Handover to an operator: the model's tool, operators' actions, and automatic ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Protocol
from uuid import UUID

import structlog

from shared.core.context.build_context import plain_text
from shared.core.context.prompts import operator_text
from shared.core.identity.handover import (
    REASON_CHARS,
    AnswerRuns,
    AskedTooOften,
    CannotHandOver,
    HandoverChange,
    HandoverLimits,
    HandoverOutcome,
    ListedHandover,
    NewHandover,
    NobodyComes,
    OverdueHandover,
    Reply,
    shorten_reason,
)
from shared.core.values.errors import LeaseLost
from shared.core.values.files import Attached
from shared.core.values.messages import Block, Text
from shared.core.values.tokens import estimate_blocks
from shared.ports import (
    ALL_PROCESSES,
    TURN_DUE,
    TYPING,
    Announcer,
    TokenCounter,
    ToolContext,
    ToolFailed,
    ToolSpec,
)
from shared.runtime import CrashPoint
from shared.services.turns.session_service import validate_text

log = structlog.get_logger(__name__)

REPLY_CHARS = 8_000
"""Most characters of one message of an operator."""
CID_CHARS = 100
"""Most characters of the key by which a repeated reply is recognised."""
WAIT_FOR_ANSWER_SECONDS = 5.0
"""Seconds that an operator's message waits for the end of a running answer."""
_LOOK_SECONDS = 0.25

ASK_HUMAN = ToolSpec(
    name="ask_human",
    description=(
        "Ask a human on the team to take over, if the person wants one or needs what you cannot do or may "
        "not decide. You stay silent from your next turn until they hand back."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "reason": {
                "type": "string",
                "description": "for the human: what the person needs and what was tried",
                "maxLength": REASON_CHARS,
            },
        },
        "required": ["reason"],
        "additionalProperties": False,
    },
)
"""Description of the tool `ask_human` for the model."""


class HandoverRequestStore(Protocol):
    """Store of requests for an operator.

    Repeating a request has no effect: the event number of `HandoverOutcome` is then 0. Raises LeaseLost,
    AskedTooOften, CannotHandOver, and NobodyComes if the site has hand-overs off.
    """

    async def request_handover(self, new: NewHandover) -> HandoverOutcome: ...


class OverdueHandoverStore(Protocol):
    """Store of handovers whose time limit has passed; both methods raise StorageUnavailable.

    `list_overdue` returns at most 50 of a channel, in these of its accounts or, for None, in all.
    `end_handover` gives the conversation back to the assistant and returns its new state; None, without
    effect, if it is not overdue any more for the same reason. It raises CannotHandOver for an unknown
    session.
    """

    async def list_overdue(
        self, channel: str, limits: HandoverLimits, *, accounts: Sequence[str] | None = None
    ) -> Sequence[OverdueHandover]: ...
    async def end_handover(self, one: OverdueHandover, limits: HandoverLimits) -> HandoverOutcome | None: ...


class HandoverServiceStore(Protocol):
    """Store of handed-over conversations and operators' replies.

    Changes raise TakenByOther for a conversation of another operator, unless `any_ones`. `record_reply`
    stores a message once per `cid`, and raises AnswerRuns while the assistant answers. `find_reply_target`
    returns channel and address id. `find_session` returns None for an unknown session.
    """

    async def take_over(self, session_id: int, *, operator_id: int, name: str) -> HandoverOutcome: ...
    async def release(
        self,
        session_id: int,
        *,
        by: Literal["operator", "person", "resolved"],
        operator_id: int = 0,
        any_ones: bool = False,
    ) -> HandoverOutcome: ...
    async def change(
        self,
        session_id: int,
        change: HandoverChange,
        *,
        version: int,
        operator_id: int,
        any_ones: bool = False,
    ) -> HandoverOutcome: ...
    async def record_reply(
        self,
        session_id: int,
        *,
        operator_id: int,
        cid: str,
        blocks: Sequence[Block],
        tokens: int,
        attached: Sequence[Attached] = (),
    ) -> Reply: ...
    async def list_handovers(
        self, state: Literal["waiting", "human", "resolved"] | None = None
    ) -> Sequence[ListedHandover]: ...
    async def find_session(self, public_id: UUID) -> int | None: ...
    async def find_reply_target(self, session_id: int, *, operator_id: int) -> tuple[str, int]: ...


class AskHumanTool:
    """Tool that requests an operator for the conversation, once per call.

    If a request is already open, nothing is stored, and the result is that of a new one. Raises ToolFailed
    in groups, without a person, if the turn is answered elsewhere, after PER_HOUR requests within an hour,
    and if no operator can be asked for here.
    """

    spec: ToolSpec = ASK_HUMAN
    idempotent = True
    timeout_seconds = 10.0

    def __init__(
        self,
        store: HandoverRequestStore,
        announcer: Announcer,
        *,
        away: Callable[[], str | None],
        crash_point: CrashPoint,
    ) -> None:
        """Set up the tool.

        `away` returns the text outside of working hours, empty for the default; None within working hours.
        """
        self._store = store
        self._announcer = announcer
        self._away = away
        self._crash_point = crash_point

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str:
        if context.address_id is None:
            raise ToolFailed("A human can be asked for only in a conversation with a person.")
        if context.group:
            raise ToolFailed("In a group only its administrators ask for a human, with /human. Tell them so.")
        new = NewHandover(
            session_id=context.session_id,
            address_id=context.address_id,
            asked_by="assistant",
            reason=shorten_reason(str(arguments.get("reason") or "")),
            key=context.key,
            turn=context.turn,
            epoch=context.epoch,
        )
        try:
            moved = await self._store.request_handover(new)
        except LeaseLost as error:
            raise ToolFailed("Not asked: this turn is answered elsewhere now.") from error
        except AskedTooOften as error:
            raise ToolFailed(
                "Humans were asked for several times within the hour. Do what you can."
            ) from error
        except NobodyComes as error:
            raise ToolFailed("No human can be asked for here. Do what you can.") from error
        except CannotHandOver as error:
            raise ToolFailed("Not possible here: this conversation goes on elsewhere.") from error
        self._crash_point("after_ask_human")
        await announce_handover(self._announcer, moved)
        if (away := self._away()) is not None:
            said = f" The team says of it: {away}" if away else ""
            return (
                "A human was asked for, outside of the team's working hours. Tell the person so, and that "
                f"what they write meanwhile is kept. If nobody comes, you go on. Promise no time.{said}"
            )
        return (
            "A human was asked for. Tell the person in a sentence or two that somebody will write here, that "
            "it may take some minutes, and that what they write meanwhile is kept. Promise no time."
        )


class HandoverExpiry:
    """Ending of overdue handovers, called as often as unanswered turns are searched for."""

    def __init__(self, store: OverdueHandoverStore, announcer: Announcer, limits: HandoverLimits) -> None:
        self._store = store
        self._announcer = announcer
        self._limits = limits

    async def end_overdue(self, channel: str, *, accounts: Sequence[str] | None = None) -> None:
        """Return overdue conversations of a channel to the assistant, and notify the person by an event.

        `accounts` limits it to these accounts of the channel; None includes all. Raises StorageUnavailable.
        """
        for one in await self._store.list_overdue(channel, self._limits, accounts=accounts):
            moved = await self._store.end_handover(one, self._limits)
            if moved is not None:
                log.info("handover_expired", session_id=one.session_id, why=one.end)
                await announce_handover(self._announcer, moved)


class HandoverService:
    """Operators' actions on handed-over conversations; the caller has checked their rights."""

    def __init__(
        self,
        store: HandoverServiceStore,
        announcer: Announcer,
        counter: TokenCounter,
        *,
        crash_point: CrashPoint,
    ) -> None:
        self._store = store
        self._announcer = announcer
        self._counter = counter
        self._crash_point = crash_point

    async def list_handovers(
        self, state: Literal["waiting", "human", "resolved"] | None = None
    ) -> Sequence[ListedHandover]:
        """Return the handovers in a state, for the operators' list; None returns all open ones.

        Open ones come longest waiting first, at most 500; resolved ones newest first, at most 100.
        """
        return await self._store.list_handovers(state)

    async def find_session(self, public_id: UUID) -> int | None:
        """Return the internal id of a session; None if there is no such session."""
        return await self._store.find_session(public_id)

    async def take_over(self, session_id: int, *, operator_id: int, name: str) -> HandoverOutcome:
        """Give the conversation to an operator, requested or not, and announce it; the assistant falls
        silent.

        Raises TakenByOther and CannotHandOver.
        """
        return await self._announce(
            await self._store.take_over(session_id, operator_id=operator_id, name=name)
        )

    async def release(
        self, session_id: int, *, operator_id: int, any_ones: bool = False, resolved: bool = False
    ) -> HandoverOutcome:
        """Return the conversation to the assistant, as resolved or not, and announce it.

        `any_ones` allows it for a conversation of another operator. Raises TakenByOther and CannotHandOver.
        """
        by: Literal["operator", "resolved"] = "resolved" if resolved else "operator"
        return await self._announce(
            await self._store.release(session_id, by=by, operator_id=operator_id, any_ones=any_ones)
        )

    async def change(
        self,
        session_id: int,
        change: HandoverChange,
        *,
        version: int,
        operator_id: int,
        any_ones: bool = False,
    ) -> HandoverOutcome:
        """Assign, snooze or label a conversation, and announce it; `version` is the one the operator has
        read.

        `any_ones` allows it for a conversation of another operator. Raises NotTaken, ChangedMeanwhile,
        TakenByOther, UnknownAssignee, BadSnooze and CannotHandOver.
        """
        return await self._announce(
            await self._store.change(
                session_id, change, version=version, operator_id=operator_id, any_ones=any_ones
            )
        )

    async def reply(
        self,
        session_id: int,
        *,
        operator_id: int,
        cid: str,
        text: str,
        more: tuple[Block, ...] = (),
        attached: tuple[Attached, ...] = (),
    ) -> Reply:
        """Store an operator's message to the person, and announce it; a second call with the same `cid`
        stores nothing.

        It waits up to `WAIT_FOR_ANSWER_SECONDS` for the end of a running answer. `more` is what the model
        reads of the files in `attached`. Raises BadInput for an empty or too long text, NotTaken,
        TakenByOther and AnswerRuns.
        """
        if text or not more:
            validate_text(text, most=REPLY_CHARS)
        blocks = (*((Text(text=text),) if text else ()), *more)
        told = (Text(text=operator_text(plain_text(blocks))),)
        tokens = estimate_blocks(told, self._counter.count_tokens)
        store = partial(
            self._store.record_reply,
            session_id,
            operator_id=operator_id,
            cid=cid,
            blocks=blocks,
            tokens=tokens,
            attached=attached,
        )
        reply = await self._store_after_running_answer(store)
        self._crash_point("after_operator_reply")
        await self._announcer.announce(session_id, {"event_seq": reply.event_seq})
        return reply

    async def check_taken(self, session_id: int, *, operator_id: int) -> None:
        """Raise NotTaken or TakenByOther unless this operator has the conversation."""
        await self._store.find_reply_target(session_id, operator_id=operator_id)

    async def say_typing(self, session_id: int, *, operator_id: int) -> None:
        """Show for some seconds on the person's clients that the operator is typing; nothing is stored.

        Raises NotTaken and TakenByOther unless this operator has the conversation.
        """
        channel, address_id = await self._store.find_reply_target(session_id, operator_id=operator_id)
        await self._announcer.announce(session_id, TYPING)
        if channel != "web":
            await self._announcer.announce(ALL_PROCESSES, {**TYPING, "address": address_id})

    async def _store_after_running_answer(self, store: Callable[[], Awaitable[Reply]]) -> Reply:
        loop = asyncio.get_running_loop()
        until = loop.time() + WAIT_FOR_ANSWER_SECONDS
        while True:
            try:
                return await store()
            except AnswerRuns:
                if loop.time() > until:
                    raise
            await self._announcer.announce(ALL_PROCESSES, TURN_DUE)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _announce(self, moved: HandoverOutcome) -> HandoverOutcome:
        self._crash_point("after_handover")
        await announce_handover(self._announcer, moved)
        return moved


async def announce_handover(announcer: Announcer, moved: HandoverOutcome) -> None:
    """Announce a change of a handover to the session's clients, and a waiting turn to the processes that may
    answer.

    Without a stored event, clients are not notified.
    """
    if moved.event_seq:
        await announcer.announce(moved.session_id, {"event_seq": moved.event_seq})
    if moved.bot_has_turn:
        await announcer.announce(ALL_PROCESSES, TURN_DUE)
