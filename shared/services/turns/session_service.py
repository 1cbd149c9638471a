"""Entry point of every channel: store a message, acknowledge it, and have it answered exactly once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import structlog

from shared.core.compaction.outlook import SummaryOutlook
from shared.core.ops.process_faults import MAX_PROCESS_FAULTS, digest_key
from shared.core.session.artifacts import shorten_blocks
from shared.core.session.session_state import SessionState
from shared.core.session.turns import (
    Accepted,
    AnswerStored,
    Caps,
    Claim,
    ContextMeasured,
    DueJob,
    Edited,
    EditReceipt,
    Emit,
    Inbound,
    Outcome,
    ReplyEvent,
    RunEnded,
    RunStarted,
    Spending,
    SpendingWarning,
    Stored,
)
from shared.core.tools.reminders import reminder_text
from shared.core.values.errors import (
    BUDGET_WARNING,
    BUDGET_WARNING_ADVICE,
    CannotEdit,
    CapHeld,
    ContentRefused,
    EmptyMessage,
    EvertalkError,
    LeaseLost,
    MessageTooLong,
    ModelBusy,
    ModelError,
    ModelGaveUp,
    ModelRefusedAccount,
    ProcessStopped,
    StorageUnavailable,
    UnknownMessage,
    UnreadableMessage,
)
from shared.core.values.messages import Block, Text, is_whole, with_typed_text
from shared.core.values.tokens import estimate_blocks
from shared.core.values.ttl_cache import clear_recent
from shared.ports import ALL_PROCESSES, TURN_DUE, Announcer, Doorbell, StorageLimiter, TokenCounter
from shared.runtime import CrashPoint
from shared.services.turns.agent_loop import AgentLoop, ClaimPrices, RequestLimits
from shared.services.turns.spend_tracker import CallCosts
from shared.services.turns.turn_attempt import TurnResult
from shared.work_marks import mark_work

log = structlog.get_logger(__name__)

MESSAGE_CHARS = 100_000
"""Most characters of one message, unless the channel is set up with another limit."""
MAX_FAULTS = 3
"""Failed attempts, not caused by a passing problem, after which a turn ends as failed and the person is
notified.
"""
MAX_CONTENT_ATTEMPTS = 2
"""Attempts at a turn whose content the provider refused; a second answer may pass."""
LEASE_SECONDS = 4.0
"""Seconds without a heartbeat after which another process may take over this process's turns."""
BEAT_SECONDS = 1.0
"""Seconds after which a turn that was claimed with its message, but not answered, is released; the check of
leases looks for such turns as often.
"""
UNKNOWN_LEASE_SECONDS = 2.0
"""Seconds after which a lease of this process without work here is released; a commit's reply takes a
moment.
"""
MAX_LAG_SECONDS = 1.0
"""Seconds of event-loop lag above which a busy process leaves new turns to other processes."""
LONGEST_WAIT_SECONDS = 30.0
"""Most seconds between two attempts at a turn whose model is unavailable or refuses the account."""
MOST_WAIT_SECONDS = 600.0
"""Seconds of waiting in all after which a turn fails whose provider responds but cannot serve the request."""
LONGEST_BUSY_SECONDS = 60.0
"""Most seconds between two attempts while a provider is busy; it often recovers before the time it named."""
REST_SECONDS = 15.0
"""Most seconds that a turn is held for the remaining parts of a split message."""
BREAK_OFF_SECONDS = 5.0
"""Most seconds to wait for an interrupted attempt to end."""
WAKE_SECONDS = 5.0
"""Seconds between two wake-ups of turns that wait for a provider."""
BUDGET_RETRY_SECONDS = 5.0
"""Seconds before a retry of a turn whose money is reserved by other calls; each attempt also waits for it."""
PRICES_SECONDS = 60.0
"""Seconds for which loaded prices may be used to accept and claim a message in one commit."""


Reword = Callable[[tuple[Block, ...]], tuple[Block, ...]]
"""Function that makes the new blocks of an edited message from its present ones."""


REWORDED_IN_PLACE = frozenset({"edit_not_last", "edit_out_of_view", "edit_busy", "edit_with_human"})
"""Error codes for which an edited question is not answered again; only its wording is replaced."""


class TurnStore(Protocol):
    """Store of messages, turns and their leases, and of the money reserved for turns.

    `claim` leases the session's next due turn, and returns None if another living process has the session or
    no turn is due. `accept_and_claim` returns None, and stores nothing, if the session is not idle.
    `record_answer` and `postpone` end a claim, and raise LeaseLost if another process has it; `postpone`
    returns number and payload of the event that shows its notice, None without one. `hold` and
    `can_be_joined` return False if the turn is too far, `request_stop` if the next turn was never claimed.
    `load_held_turns` returns, by session leased to the process, whether a stop was requested. All raise
    StorageUnavailable.
    """

    async def rehearse(self) -> None: ...
    async def accept(self, inbound: Inbound, *, channel: str, tokens: int) -> Accepted: ...
    async def claim(
        self,
        session_id: int,
        *,
        channel: str,
        worker_id: int,
        caps: Caps,
        micro_per_input_token: float,
        micro_output: float,
    ) -> Claim | None: ...
    async def accept_and_claim(
        self,
        inbound: Inbound,
        *,
        channel: str,
        tokens: int,
        worker_id: int,
        caps: Caps,
        micro_per_input_token: float,
        micro_output: float,
    ) -> tuple[Accepted, Claim] | None: ...
    async def record_answer(self, claim: Claim, outcome: Outcome) -> AnswerStored: ...
    async def postpone(
        self,
        claim: Claim,
        *,
        seconds: float,
        fault: bool,
        notice: Mapping[str, Any] | None,
        spent: Sequence[Spending] = (),
        settled_micro: int = 0,
        waits_for: str | None = None,
    ) -> tuple[int, Mapping[str, Any]] | None: ...
    async def can_be_joined(self, session_id: int, *, turn: int) -> bool: ...
    async def hold(self, session_id: int, *, turn: int, seconds: float) -> bool: ...
    async def wake_waiting_turns(self, providers: Sequence[str]) -> None: ...
    async def record_spending_warning(
        self, claim: Claim, *, caps: Caps, notice: Mapping[str, Any]
    ) -> SpendingWarning | None: ...
    async def release_reservation(self, reservation_id: int, *, spent_micro: int = 0) -> None: ...
    async def list_unanswered(
        self, channel: str, *, accounts: Sequence[str] | None = None, limit: int = 100
    ) -> list[int]: ...
    async def release_turns(self, session_ids: Collection[int], *, worker_id: int) -> None: ...
    async def renew_allowance(self, *, worker_id: int, caps: Caps, call_micro: int = 0) -> None: ...
    async def request_stop(self, session_id: int) -> bool: ...
    async def load_held_turns(self, worker_id: int) -> dict[int, bool]: ...
    def clear_view_cache(self) -> None: ...


class EditStore(Protocol):
    """Store of edits of messages, which each repeat with the same key without further effect.

    `edit` replaces the wording of any message. `edit_question` replaces the last question by a new turn, and
    raises CannotEdit, UnknownMessage, SessionMoved and UnknownSession; its event is None if nothing changed.
    `wake` makes a postponed turn due now, and returns False if there is none.
    """

    async def edit(
        self,
        session_id: int,
        seq: int,
        *,
        reword: Reword,
        count: Callable[[tuple[Block, ...]], int],
        dedupe_key: str,
        receipt: EditReceipt | None = None,
        is_shown: bool = False,
    ) -> Edited: ...
    async def edit_question(
        self, inbound: Inbound, *, seq: int, channel: str, count: Callable[[tuple[Block, ...]], int]
    ) -> tuple[Accepted, Stored | None]: ...
    async def wake(self, session_id: int) -> bool: ...


class HeartbeatStatus(Protocol):
    """State of this process's heartbeat, which a separate thread sends."""

    @property
    def last_beat(self) -> float:
        """Start of the newest heartbeat that reached the database, in seconds of the monotonic clock."""
        ...

    @property
    def is_lost(self) -> bool:
        """True if the database has declared this process dead or does not know it."""
        ...

    @property
    def lag_seconds(self) -> float:
        """Recent delay of the event loop, or of waiting for a database connection, in seconds."""
        ...

    @property
    def timeline(self) -> str:
        """Timeline of the database server, which changes when a standby is promoted; empty if unknown."""
        ...


class DueReminderStarter(Protocol):
    """Service that starts due reminders of a channel, in some of its accounts or, for None, in all.

    `load_text` returns the text of the reminder that a turn delivers, None for other turns. Both raise
    StorageUnavailable.
    """

    async def start_due(self, channel: str, *, accounts: Sequence[str] | None = None) -> None: ...
    async def load_text(self, session_id: int, turn: int) -> str | None: ...


class SampleStarter(Protocol):
    """Service that stores the next message of each demo talk of a channel whose last message is answered."""

    async def play_due(self, channel: str) -> None: ...


class OverdueHandoverEnder(Protocol):
    """Service that returns overdue handovers of a channel to the assistant, in some of its accounts or, for
    None, in all.
    """

    async def end_overdue(self, channel: str, *, accounts: Sequence[str] | None = None) -> None: ...


class SessionService:
    """Service of one process and channel that accepts messages and answers their turns, each
    under a lease.
    """

    def __init__(
        self,
        *,
        channel: str,
        worker_id: int,
        turns: TurnStore,
        edits: EditStore,
        heartbeat: HeartbeatStatus,
        agent_loop: AgentLoop,
        counter: TokenCounter,
        doorbell: Doorbell,
        caps: Caps,
        crash_point: CrashPoint,
        announcer: Announcer | None = None,
        message_chars: int = MESSAGE_CHARS,
        reminders: DueReminderStarter | None = None,
        handovers: OverdueHandoverEnder | None = None,
        samples: SampleStarter | None = None,
        answered: Callable[[], Sequence[str]] = tuple,
        storage_limiter: StorageLimiter = nullcontext,
        given_up: Collection[str] = (),
    ) -> None:
        """Set up the service for one channel and process.

        `answered` returns the hosts of providers that answered since its last call. `given_up` has keys of
        messages that crashed too many processes; `accept` refuses them with UnreadableMessage.
        """
        self._given_up = given_up
        self._answered = answered
        self._wake_at = 0.0
        self._storage_limiter = storage_limiter
        self._message_chars = message_chars
        self._reminders = reminders
        self._handovers = handovers
        self._samples = samples
        self._announcer = announcer
        self._channel = channel
        self._worker_id = worker_id
        self._turns = turns
        self._edits = edits
        self._heartbeat = heartbeat
        self._agent_loop = agent_loop
        self._counter = counter
        self._doorbell = doorbell
        self._caps = caps
        self._crash_point = crash_point
        self._stops: dict[int, asyncio.Future[None]] = {}
        self._answering: dict[int, int] = {}
        """Number of the turn being answered, by session id."""
        self._interrupted: dict[int, asyncio.Event] = {}
        """Event per session whose attempt is interrupted because its question changes; set when the attempt
        ends.

        `stop` sets it, too.
        """
        self._claiming: set[int] = set()
        self._unsure: set[int] = set()
        """Sessions whose claim got no reply; this process may hold the lease without running a turn."""
        self._begun: dict[int, tuple[Claim, float]] = {}
        """Turns claimed together with their message that wait for `answer`, by session id, with the time of
        the claim.
        """
        self._prices: tuple[ClaimPrices, float] | None = None
        self._strange: dict[int, float] = {}
        """Sessions leased to this process without work here, with the time when each was noticed."""
        self._timeline = ""

    def follow(self, other: SessionService) -> None:
        """Use the agent loop, caps, reminders, handovers and samples of `other` from the next turn on.

        Running answers keep the former ones. It is called after settings were changed.
        """
        self._agent_loop = other._agent_loop
        self._caps = other._caps
        self._reminders = other._reminders
        self._handovers = other._handovers
        self._samples = other._samples
        self._answered = other._answered
        self._prices = None

    async def accept(self, inbound: Inbound) -> Accepted:
        """Store a message, to be answered by `answer`, and return its numbers.

        A message whose `dedupe_key` is stored already is not added again. Raises BadInput if it cannot be
        used, SessionMoved if the person continues in another session, LeaseLost if another process stores a
        message with a receipt, and StorageUnavailable.
        """
        with self._mark_message(inbound):
            tokens = self._measure_message(inbound)
            self._crash_point("before_accept")
            accepted = await self._turns.accept(inbound, channel=self._channel, tokens=tokens)
        self._crash_point("after_accept")
        return accepted

    async def accept_and_claim(self, inbound: Inbound) -> Accepted:
        """Store a message like `accept`, claim its turn in the same commit if the session is idle, and return
        its numbers.

        The caller must call `answer` next; otherwise `check_leases` releases the claim a second later. Raises
        BadInput, SessionMoved, LeaseLost and StorageUnavailable, as `accept` does.
        """
        with self._mark_message(inbound):
            tokens = self._measure_message(inbound)
            self._crash_point("before_accept")
            accepted = await self._accept_and_claim(inbound, tokens)
            if accepted is None:
                accepted = await self._turns.accept(inbound, channel=self._channel, tokens=tokens)
        self._crash_point("after_accept")
        return accepted

    async def reword(
        self,
        session_id: int,
        seq: int,
        *,
        reword: Reword,
        dedupe_key: str,
        receipt: EditReceipt | None = None,
        is_shown: bool = False,
    ) -> Edited:
        """Replace the wording of any stored message, without a new answer; announce it and return what
        changed.

        `reword` makes the new blocks from the present ones. An answer in progress restarts unless `is_shown`.
        `receipt` stores the channel's own rows in the same transaction. Without such a message, the `result`
        is `unknown`. Raises StorageUnavailable.
        """
        edited = await self._edits.edit(
            session_id, seq, reword=reword, count=self._count_message, dedupe_key=dedupe_key, receipt=receipt,
            is_shown=is_shown,
        )  # fmt: skip
        self._crash_point("after_reword")
        if self._announcer is not None and edited.shown is not None:
            await self._announcer.announce(session_id, {"event_seq": edited.event_seq})
        return edited

    async def edit(
        self, inbound: Inbound, *, seq: int, is_shown: bool = False
    ) -> tuple[Accepted, Stored | None]:
        """Edit a question: the last one is answered again; of an earlier one only the wording is replaced.

        Returns the numbers of the message and the event for clients, None if nothing changed. `is_shown` says
        that the person saw part of a running answer; without it, that answer restarts. Raises BadInput,
        SessionMoved and StorageUnavailable.
        """
        with self._mark_message(inbound):
            validate_text(inbound.text, most=self._message_chars)
            try:
                edited = await self._edits.edit_question(
                    inbound,
                    seq=seq,
                    channel=self._channel,
                    count=self._count_message,
                )
            except CannotEdit as refusal:
                if refusal.code not in REWORDED_IN_PLACE:
                    raise
                if not is_shown:
                    await self.break_off(inbound.session_id, turn=refusal.turn)
                return await self._reword_in_place(inbound, seq, is_shown=is_shown)
        self._crash_point("after_edit")
        return edited

    async def _reword_in_place(
        self, inbound: Inbound, seq: int, *, is_shown: bool
    ) -> tuple[Accepted, Stored | None]:
        """Replace the text of a message without answering it again. Raises UnknownMessage."""
        edited = await self.reword(
            inbound.session_id,
            seq,
            reword=lambda blocks: with_typed_text(blocks, inbound.text),
            dedupe_key=inbound.dedupe_key,
            is_shown=is_shown,
        )
        if edited.result == "unknown":
            raise UnknownMessage(f"m{seq}")
        if edited.result in ("replaced", "restarted"):
            await self._edits.wake(inbound.session_id)
        accepted = Accepted(
            session_id=inbound.session_id,
            seq=edited.seq,
            turn=edited.turn,
            event_seq=edited.event_seq,
            repeated=edited.is_repeated,
            at_ms=edited.at_ms,
        )
        return accepted, edited.shown

    def _mark_message(self, inbound: Inbound) -> AbstractContextManager[None]:
        """Return a context that names the message to the watchdog while it is processed.

        Raises UnreadableMessage if the message has crashed too many processes.
        """
        ids = (inbound.session_id, digest_key(inbound.dedupe_key))
        if " ".join(("message", *map(str, ids))) in self._given_up:
            raise UnreadableMessage("it stopped the program before")
        return mark_work("message", *ids)

    def _measure_message(self, inbound: Inbound) -> int:
        """Return the estimated tokens of the message. Raises BadInput if its text is invalid."""
        validate_text(inbound.text, most=self._message_chars, alone=not inbound.more)
        return self._count_message(inbound.blocks)

    def _count_message(self, blocks: tuple[Block, ...]) -> int:
        """Return the estimated tokens of a message as requests show it; long messages are shortened."""
        return estimate_blocks(shorten_blocks(blocks, 1), self._counter.count_tokens)

    async def _accept_and_claim(self, inbound: Inbound, tokens: int) -> Accepted | None:
        """Store a message and claim its turn in one commit; return None without storing if that is not
        possible.

        It is not if prices are older than 60 seconds, this process is overloaded, or the session has another
        turn or a hold.
        """
        session_id, known = inbound.session_id, self._prices
        if known is None or time.monotonic() - known[1] > PRICES_SECONDS:
            return None
        if session_id in self._stops or session_id in self._claiming or session_id in self._begun:
            return None
        if self._is_overloaded():
            return None
        self._claiming.add(session_id)
        try:
            begun = await self._turns.accept_and_claim(
                inbound,
                channel=self._channel,
                tokens=tokens,
                worker_id=self._worker_id,
                caps=self._caps,
                micro_per_input_token=known[0].micro_per_input_token,
                micro_output=known[0].micro_output,
            )
        except BaseException:
            # The commit may have succeeded, see `_claim`.
            self._unsure.add(session_id)
            raise
        finally:
            self._claiming.discard(session_id)
        if begun is None:
            return None
        accepted, claim = begun
        self._begun[session_id] = claim, time.monotonic()
        return accepted

    async def answer(self, session_id: int, emit: Emit) -> None:
        """Answer the session's due turns one after the other; return when none is left.

        Returns at once if another living process has the session. `emit` receives deltas and stored events.
        Turns of another channel, and turns that this process is too busy for, are announced to other
        processes. The process that stores a message must call this for it. A failed attempt is postponed, not
        raised; raises StorageUnavailable if no turn can be claimed.
        """
        another_waits = False
        while True:
            if session_id not in self._begun and self._is_overloaded():
                another_waits = True
                break
            if (claim := await self._claim(session_id)) is None:
                break
            self._crash_point("after_claim")
            another_waits = await self._run(claim, self._while_alive(emit))
            if not another_waits:
                return
        if another_waits and self._announcer is not None:
            await self._announcer.announce(ALL_PROCESSES, TURN_DUE)

    def _is_overloaded(self) -> bool:
        """Return whether the event loop lags while turns run; an idle process always takes turns."""
        return bool(self._stops) and self._heartbeat.lag_seconds > MAX_LAG_SECONDS

    async def hold_for_rest(self, session_id: int, *, turn: int) -> bool:
        """Hold a turn for the remaining parts of its message; interrupt its answer if this process is giving
        it.

        Returns False if it is too late. The caller then stores the parts, or wakes the turn; otherwise the
        turn continues after `REST_SECONDS`. Raises StorageUnavailable.
        """
        if not await self._turns.can_be_joined(session_id, turn=turn):
            return False
        await self.break_off(session_id, turn=turn)
        return await self._turns.hold(session_id, turn=turn, seconds=REST_SECONDS)

    async def break_off(self, session_id: int, *, turn: int) -> None:
        """Interrupt a turn that this process answers, because its question is about to change; wait up to 5
        seconds.

        The cost so far is stored, the text is dropped. The caller changes the question and wakes the turn;
        otherwise the turn continues after `REST_SECONDS`. Does nothing if this process does not answer the
        turn.
        """
        begun = self._begun.get(session_id)
        if begun is not None and begun[0].turn == turn:
            del self._begun[session_id]
            await self._release_claim(begun[0])
            return
        if self._answering.get(session_id) != turn:
            return
        ended = self._interrupted.setdefault(session_id, asyncio.Event())
        self._stop_here(session_id)
        with suppress(TimeoutError):
            async with asyncio.timeout(BREAK_OFF_SECONDS):
                await ended.wait()

    async def stop(self, session_id: int) -> bool:
        """Stop the session's answer in whichever process runs it; return False if there is none to stop.

        Does not wait for the end. The text so far is stored as the answer. Raises StorageUnavailable.
        """
        if session_id in self._stops:
            if (ended := self._interrupted.pop(session_id, None)) is not None:
                ended.set()
            self._stop_here(session_id)
            return True
        if not await self._turns.request_stop(session_id):
            return False
        if self._announcer is not None:
            await self._announcer.announce(ALL_PROCESSES, TURN_DUE)
        return True

    async def list_unanswered(self, channel: str, *, accounts: Sequence[str] | None = None) -> list[int]:
        """Return at most 100 sessions of a channel, by id, whose due turn no living process has.

        Empty if this process is overloaded.

        First makes turns due: ends overdue handovers, starts due reminders and demo messages, and wakes turns
        whose provider answers again. A fault in one of these steps is logged and stops no other. `accounts`
        restricts handovers, reminders and the result to some accounts of the channel, such as bots; None
        means all. Raises StorageUnavailable.
        """
        if self._is_overloaded():
            return []
        await self._make_turns_due(channel, accounts)
        return await self._turns.list_unanswered(channel, accounts=accounts)

    async def _make_turns_due(self, channel: str, accounts: Sequence[str] | None) -> None:
        for step in self._list_due_steps(channel, accounts):
            try:
                await step()
            except StorageUnavailable:
                raise
            except Exception:
                log.exception("turns_not_made_due", channel=channel)

    def _list_due_steps(
        self, channel: str, accounts: Sequence[str] | None
    ) -> Iterator[Callable[[], Awaitable[None]]]:
        if self._handovers is not None:
            yield partial(self._handovers.end_overdue, channel, accounts=accounts)
        if self._reminders is not None:
            yield partial(self._reminders.start_due, channel, accounts=accounts)
        if self._samples is not None:
            yield partial(self._samples.play_due, channel)
        yield self._wake

    async def _wake(self) -> None:
        """Wake turns that wait for a provider which answers again, at most every `WAKE_SECONDS`."""
        now = time.monotonic()
        if now < self._wake_at or not (well := self._answered()):
            return
        self._wake_at = now + WAKE_SECONDS
        await self._turns.wake_waiting_turns(well)

    async def check_leases(self) -> None:
        """Compare this process's leases with the database, and stop turns that a person asked to stop.

        Leases without work here are released, and the reserved money of this process is renewed. The caller
        repeats the call every second; it does not renew leases, see `HeartbeatStatus`. Raises LeaseLost if
        the database has declared this process dead, and StorageUnavailable.
        """
        if self._heartbeat.is_lost:
            raise LeaseLost(f"worker {self._worker_id} was declared stopped")
        clear_recent(time.monotonic())
        before = self.list_active_sessions()
        held = await self._turns.load_held_turns(self._worker_id)
        for session_id in (one for one, stops in held.items() if stops):
            self._stop_here(session_id)
        self._collect_unknown_leases(held.keys() - before - self.list_active_sessions())
        await self.release_unanswered(after_seconds=BEAT_SECONDS)
        await self._release_unsure()
        await self._turns.renew_allowance(
            worker_id=self._worker_id,
            caps=self._caps,
            call_micro=0 if self._prices is None else self._prices[0].first_call_micro,
        )

    def list_active_sessions(self) -> frozenset[int]:
        """Return the sessions whose turn this process is claiming, holding or running."""
        return frozenset(self._claiming | self._stops.keys() | self._begun.keys())

    def _collect_unknown_leases(self, strange: Collection[int]) -> None:
        """Mark leases without an active turn for release once they have existed for 2 seconds.

        `strange` are their session ids. After a promotion of the database they are marked at once, since a
        standby may restore them, and the view cache is cleared.
        """
        now, patience = time.monotonic(), UNKNOWN_LEASE_SECONDS
        if self._heartbeat.timeline != self._timeline:
            if self._timeline:
                patience = 0.0
                self._turns.clear_view_cache()
            self._timeline = self._heartbeat.timeline
        self._strange = {one: self._strange.get(one, now) for one in strange}
        if lasting := {one for one, since in self._strange.items() if now - since >= patience}:
            log.warning("unknown_leases_found", sessions=sorted(lasting))
            self._unsure |= lasting

    async def _release_unsure(self) -> None:
        """Release the leases that are marked for release and have no active turn, by one statement."""
        idle = self._unsure - self._claiming - self._stops.keys() - self._begun.keys()
        if not idle:
            return
        # Removed during the call, so that a session that becomes unsure meanwhile is kept for the next
        # heartbeat.
        self._unsure -= idle
        try:
            await self._turns.release_turns(idle, worker_id=self._worker_id)
        except BaseException:
            self._unsure |= idle
            raise

    async def release_unanswered(self, *, after_seconds: float = 0.0) -> None:
        """Release turns that were claimed with their message `after_seconds` or more ago and are not being
        answered.

        Such a turn is due at once for any process; 0 releases all of them. Raises nothing.
        """
        now = time.monotonic()
        for session_id, (claim, since) in list(self._begun.items()):
            if now - since >= after_seconds and self._begun.pop(session_id, None) is not None:
                await self._release_claim(claim)

    async def _release_claim(self, claim: Claim) -> None:
        try:
            await self._turns.postpone(claim, seconds=0.0, fault=False, notice=None)
        except LeaseLost:
            pass
        except StorageUnavailable:
            self._unsure.add(claim.session_id)
        await self._release_reservation(claim)

    async def measure_context(self, session_id: int) -> ContextMeasured | None:
        """Return the gauge of the session's next request; None before the first answered turn.

        Raises UnknownSession, ContradictoryPolicy and StorageUnavailable.
        """
        return await self._agent_loop.measure_context(session_id)

    async def foresee_summary(self, session_id: int) -> SummaryOutlook:
        """Return when the session's next automatic summary is due, or why none will be made."""
        return await self._agent_loop.foresee_summary(session_id)

    async def load_request_limits(self, state: SessionState) -> RequestLimits:
        """Return the token limits of the session's next request.

        Raises NoRoom if the model's window leaves no room for a conversation.
        """
        return await self._agent_loop.load_request_limits(state)

    def _stop_here(self, session_id: int) -> None:
        asked = self._stops.get(session_id)
        if asked is not None and not asked.done():
            asked.set_result(None)

    async def _claim(self, session_id: int) -> Claim | None:
        begun = self._begun.pop(session_id, None)
        if begun is not None:
            return begun[0]
        prices = await self.load_prices()
        self._claiming.add(session_id)
        try:
            return await self._turns.claim(
                session_id,
                channel=self._channel,
                worker_id=self._worker_id,
                caps=self._caps,
                micro_per_input_token=prices.micro_per_input_token,
                micro_output=prices.micro_output,
            )
        except BaseException:
            # The claim may have succeeded with its reply lost; then no other process takes it while this one
            # lives.
            self._unsure.add(session_id)
            raise
        finally:
            self._claiming.discard(session_id)

    def list_answering(self) -> frozenset[tuple[int, int]]:
        """Return session id and turn number of each answer in progress."""
        return frozenset(self._answering.items())

    async def load_prices(self) -> ClaimPrices:
        """Load and return the prices of a first model call; `check_leases` reserves money by them."""
        prices = await self._agent_loop.load_prices()
        self._prices = prices, time.monotonic()
        return prices

    async def rehearse(self) -> None:
        """Prepare what the first answer needs: prices, common texts and database statements.

        Nothing is stored. Raises StorageUnavailable.
        """
        await self.load_prices()
        await self._agent_loop.rehearse(self._channel)
        await self._turns.rehearse()

    async def _run(self, claim: Claim, emit: Emit) -> bool:
        """Run one attempt at a turn; return True if the turn ended and another one waits."""
        if claim.process_faults >= MAX_PROCESS_FAULTS:
            return await self._end_stopped(claim, emit)
        with mark_work("turn", claim.session_id, claim.turn, claim.epoch):
            return await self._attempt(claim, emit)

    async def _end_stopped(self, claim: Claim, emit: Emit) -> bool:
        """End a turn as failed because it has crashed processes; return True if another turn waits."""
        log.error("turn_stopped_processes", session_id=claim.session_id, turn=claim.turn)
        costs = CallCosts(claim=claim)
        await emit(_build_start(claim))
        try:
            await self._agent_loop.record_lost_calls(claim, claim.entries or ())
        except (LeaseLost, StorageUnavailable):
            await self._postpone(costs, emit, seconds=1.0, fault=False, error=None)
            return False
        return await self._give_up(costs, ProcessStopped(), emit)

    async def _attempt(self, claim: Claim, emit: Emit) -> bool:
        stop = self._stops[claim.session_id] = asyncio.get_running_loop().create_future()
        if claim.stop_requested:
            stop.set_result(None)
        self._answering[claim.session_id] = claim.turn
        costs = CallCosts(claim=claim)
        try:
            await emit(_build_start(claim))
            async with self._storage_limiter():
                answered = await self._agent_loop.answer(claim, emit=emit, stop=stop, costs=costs)
                if claim.session_id in self._interrupted and answered.outcome.state == "stopped":
                    seconds = 0.0 if costs.has_stored_round else REST_SECONDS
                    await self._postpone(costs, emit, seconds=seconds, fault=False, error=None)
                    return False
                return await self._commit(costs.claim, answered, emit)
        except LeaseLost:
            log.info("turn_lease_lost", session_id=claim.session_id, turn=claim.turn)
            await self._release_reservation(costs.claim, spent_micro=costs.micro)
            return False
        except StorageUnavailable as error:
            log.warning(
                "turn_storage_unavailable", session_id=claim.session_id, turn=claim.turn, reason=str(error)
            )
            await self._postpone(costs, emit, seconds=1.0, fault=False, error=None)
            return False
        except asyncio.CancelledError:
            await self._postpone(costs, emit, seconds=0.0, fault=False, error=None, tries_once=True)
            raise
        except CapHeld as error:
            log.info(
                "turn_waiting_for_budget", session_id=claim.session_id, turn=claim.turn, reason=str(error)
            )
            return await self._defer(costs, error, emit, seconds=BUDGET_RETRY_SECONDS)
        except ModelError as error:
            return await self._handle_model_error(costs, error, emit)
        except Exception as error:
            log.exception("turn_failed", session_id=claim.session_id, turn=claim.turn, attempt=claim.attempt)
            return await self._retry_or_give_up(costs, error, emit)
        finally:
            self._stops.pop(claim.session_id, None)
            self._answering.pop(claim.session_id, None)
            if (ended := self._interrupted.pop(claim.session_id, None)) is not None:
                ended.set()

    async def _commit(self, claim: Claim, answered: TurnResult, emit: Emit) -> bool:
        """Store the answer, emit its events, and announce the due job; return True if another turn waits."""
        if answered.outcome.blocks is None and (text := await self._load_reminder_text(claim)) is not None:
            answered = self._with_reminder_text(answered, text)
        stored = await self._turns.record_answer(claim, answered.outcome)
        self._crash_point("after_answer")
        self._agent_loop.mark_stored(answered.outcome)
        log_token_usage(claim, answered.outcome)
        ends = answered.outcome.state
        await emit(Stored(event_seq=stored.event_seq, kind="msg", payload=stored.payload, ends=ends))
        await emit(RunEnded(turn=claim.turn, state=ends))
        if (measured := await self._measure(claim, answered, stored)) is not None:
            await emit(measured)
        self._crash_point("after_delivered")
        if claim.near_caps and answered.outcome.state == "answered":
            await self._warn_of_spending(claim, emit)
        if answered.unseen is not None:
            # The due job reads the descriptions of pictures, so it starts after them.
            self._agent_loop.describe_later(answered.unseen, then=lambda: self._ring(stored.job))
        else:
            await self._ring(stored.job)
        return stored.another_waits

    async def _warn_of_spending(self, claim: Claim, emit: Emit) -> None:
        """Warn about a nearly used-up cap: the person about a personal one, the operator (by log) about the
        shared one.
        """
        notice = {"text": BUDGET_WARNING_ADVICE, "error": BUDGET_WARNING, "waiting": True}
        try:
            warned = await self._turns.record_spending_warning(claim, caps=self._caps, notice=notice)
        except StorageUnavailable:
            return  # the next turn warns instead
        if warned is None:
            return
        log.warning("spending_near_cap", scopes=list(warned.scopes), session_id=claim.session_id)
        if warned.event_seq is not None:
            await emit(Stored(event_seq=warned.event_seq, kind="msg", payload=warned.payload))

    async def _ring(self, job: DueJob | None) -> None:
        if job is not None:
            await self._doorbell.ring(job)

    async def _measure(
        self, claim: Claim, answered: TurnResult, stored: AnswerStored
    ) -> ContextMeasured | None:
        """Return the gauge after the answer; None if it cannot be measured, since the answer is stored
        already.
        """
        if answered.measured is None or not stored.view_moved:
            return answered.measured
        try:
            return await self._agent_loop.measure_context(claim.session_id)
        except EvertalkError as error:
            log.info("gauge_not_measured", session_id=claim.session_id, turn=claim.turn, reason=str(error))
            return None

    async def _handle_model_error(self, costs: CallCosts, error: ModelError, emit: Emit) -> bool:
        claim = costs.claim
        log.warning(
            "turn_waiting_for_model" if error.transient else "turn_rejected_by_model",
            session_id=claim.session_id, turn=claim.turn, code=error.code, reason=str(error),
        )  # fmt: skip
        if not error.transient:
            return await self._retry_or_give_up(costs, error, emit)
        if _has_waited_long(claim, error):
            return await self._give_up(costs, ModelGaveUp(str(error)), emit)
        return await self._defer(costs, error, emit, seconds=_wait_seconds(error, claim.attempt))

    async def _defer(self, costs: CallCosts, error: EvertalkError, emit: Emit, *, seconds: float) -> bool:
        try:
            if await self._load_reminder_text(costs.claim) is not None:
                # A reminder is delivered now and does not wait for a model that may be away for hours.
                failed = _build_notice_result(costs, code=error.code, text=error.advice)
                return await self._commit(costs.claim, failed, emit)
        except (LeaseLost, StorageUnavailable):
            await self._postpone(costs, emit, seconds=1.0, fault=False, error=None)
            return False
        await self._postpone(costs, emit, seconds=seconds, fault=False, error=error)
        return False

    async def _retry_or_give_up(self, costs: CallCosts, error: Exception, emit: Emit) -> bool:
        """Retry a failed turn; after too many failures, end it with a notice.

        Return True if another turn waits.
        """
        most = MAX_CONTENT_ATTEMPTS if isinstance(error, ContentRefused) else MAX_FAULTS
        if isinstance(error, ModelError) and error.ends_turn:
            most = 1
        if costs.claim.faults + 1 < most:
            await self._postpone(costs, emit, seconds=0.5, fault=True, error=None)
            return False
        return await self._give_up(costs, error, emit)

    async def _give_up(self, costs: CallCosts, error: Exception, emit: Emit) -> bool:
        """End the turn with a notice for the person; return True if another turn waits."""
        advice = error.advice if isinstance(error, EvertalkError) else EvertalkError.advice
        code = error.code if isinstance(error, EvertalkError) else "internal_error"
        ended = _build_notice_result(costs, code=code, text=advice)
        try:
            return await self._commit(costs.claim, ended, emit)
        except (LeaseLost, StorageUnavailable):
            await self._postpone(costs, emit, seconds=1.0, fault=False, error=None)
            return False

    async def _load_reminder_text(self, claim: Claim) -> str | None:
        """Return the text of the reminder that this turn delivers; None if it delivers none."""
        if self._reminders is None:
            return None
        return await self._reminders.load_text(claim.session_id, claim.turn)

    def _with_reminder_text(self, answered: TurnResult, text: str) -> TurnResult:
        """Return the result with the reminder's text as its answer, keeping the turn's error code."""
        blocks = (Text(text=reminder_text(text)),)
        outcome = replace(
            answered.outcome,
            state="answered",
            blocks=blocks,
            tokens=estimate_blocks(blocks, self._counter.count_tokens),
            screen={"stop": "stop"},
            error_code=answered.outcome.error_code or answered.outcome.state,
        )
        return replace(answered, outcome=outcome)

    async def _postpone(
        self,
        costs: CallCosts,
        emit: Emit,
        *,
        seconds: float,
        fault: bool,
        error: EvertalkError | None,
        tries_once: bool = False,
    ) -> None:
        """Release the turn for a retry in `seconds`, and store the cost of calls that is not stored yet;
        repeat until the database answers.

        Meanwhile no other process can take the turn. `tries_once` is for a process that is ending: its turn
        is released when its lease ends.
        """
        claim = costs.claim
        tell = error is not None and not claim.told_waiting
        notice = {"text": error.advice, "error": error.code, "waiting": True} if tell and error else None
        waits_for = error.provider or None if isinstance(error, ModelError) else None
        told = None
        while True:
            try:
                told = await self._turns.postpone(
                    claim, seconds=seconds, fault=fault, notice=notice,
                    spent=tuple(costs.unpaid),
                    settled_micro=costs.micro,
                    waits_for=waits_for,
                )  # fmt: skip
                break
            except LeaseLost:
                await self._release_reservation(claim, spent_micro=costs.micro)
                return
            except StorageUnavailable:
                if tries_once:
                    return
                await asyncio.sleep(1.0)
        self._crash_point("after_put_back")
        await self._release_reservation(claim)
        if told is not None:
            await emit(Stored(event_seq=told[0], kind="msg", payload=told[1]))
        await emit(RunEnded(turn=claim.turn, state="waiting"))

    async def _release_reservation(self, claim: Claim, *, spent_micro: int = 0) -> None:
        """End the claim's reservation if it has not ended yet, at `spent_micro` micro-dollars or the cost of
        its calls in the ledger, the larger one.
        """
        if claim.reservation_id is None:
            return
        try:
            await self._turns.release_reservation(claim.reservation_id, spent_micro=spent_micro)
        except StorageUnavailable:
            log.warning("reservation_release_deferred", reservation_id=claim.reservation_id)

    def _while_alive(self, emit: Emit) -> Emit:
        """Return an `emit` that drops unstored events while this process misses its heartbeat.

        After `LEASE_SECONDS` without a heartbeat another process may have taken over.
        """

        async def emit_safely(event: ReplyEvent) -> None:
            if time.monotonic() - self._heartbeat.last_beat < LEASE_SECONDS or isinstance(event, Stored):
                await emit(event)

        return emit_safely


def log_token_usage(claim: Claim, outcome: Outcome) -> None:
    """Log the event `turn_tokens` of an ended turn with token counts and names, never with text."""
    audit, spent = outcome.audit, outcome.spent
    told: dict[str, object] = {} if audit is None else {
        "model": audit.model_alias,
        "window": audit.model_context_limit,
        "input_budget": audit.input_budget,
        "hard_limit": audit.hard_limit,
        "estimated_before": audit.estimated_before,
        "estimated_after_summary": audit.estimated_after_summary,
        "estimated_after_prune": audit.estimated_after_prune,
        "reported": audit.reported,
        "context_tokens": audit.context_tokens,
        "summary_triggered": audit.summary_triggered,
        "prune_triggered": audit.prune_triggered,
        "overflow_rejected": audit.overflow_rejected,
    }  # fmt: skip
    log.info(
        "turn_tokens",
        session_id=claim.session_id,
        turn=claim.turn,
        state=outcome.state,
        stop=outcome.screen.get("stop"),
        input_tokens=sum(call.input_tokens for call in spent),
        output_tokens=sum(call.output_tokens for call in spent),
        cache_read_tokens=sum(call.cache_read_tokens for call in spent),
        cache_write_tokens=sum(call.cache_write_tokens for call in spent),
        **told,
    )


def validate_text(text: str, *, most: int = MESSAGE_CHARS, alone: bool = True) -> None:
    """Check the text of a message; return nothing.

    Raises EmptyMessage, MessageTooLong above `most` characters, and UnreadableMessage for NUL or broken
    characters. With `alone` False an empty text is allowed, for a message with files.
    """
    if not text.strip() and (alone or text):
        raise EmptyMessage
    if len(text) > most:
        raise MessageTooLong(chars=len(text), limit=most)
    if "\x00" in text or not is_whole(text):
        raise UnreadableMessage("control bytes or broken characters")


def _build_start(claim: Claim) -> RunStarted:
    return RunStarted(turn=claim.turn, attempt=claim.attempt, epoch=claim.epoch, address_id=claim.address_id)


def _build_notice_result(costs: CallCosts, *, code: str, text: str) -> TurnResult:
    """Return the result of a failed turn, with a notice for the person and the cost of its calls."""
    outcome = Outcome(
        state="failed", blocks=None, tokens=0, screen={"text": text, "error": code}, error_code=code,
        spent=tuple(costs.unpaid), settled_micro=costs.micro,
    )  # fmt: skip
    return TurnResult(outcome=outcome, measured=None)


def _has_waited_long(claim: Claim, error: ModelError) -> bool:
    """Return whether a provider has responded for ten minutes without serving the request.

    Turns wait without that limit for a provider that does not respond, or that refuses the account.
    """
    waits = error.answered and not isinstance(error, ModelRefusedAccount)
    return waits and claim.waited_seconds >= MOST_WAIT_SECONDS


def _wait_seconds(error: ModelError, attempt: int) -> float:
    if isinstance(error, ModelBusy):
        return min(LONGEST_BUSY_SECONDS, max(1.0, error.retry_after_seconds))
    if isinstance(error, ModelRefusedAccount):
        return LONGEST_WAIT_SECONDS
    return float(min(LONGEST_WAIT_SECONDS, 2 ** min(attempt, 5)))
