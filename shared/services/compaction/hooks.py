"""Messages to an operator's server before and after each summary.

Only background summaries wait a few seconds for the answer. Undelivered messages are sent again by the
worker, with the same key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

import structlog

from shared.core.compaction.hooks import HOOK_SECONDS, SKIPPABLE, HookMessage, describe_plan, wants_skip
from shared.core.compaction.plan import CompactionPlan
from shared.core.ops.alerts import Outcome, Sent
from shared.core.session.budget import ContextBudget, pressure
from shared.core.session.session_state import JobClaim, SessionState
from shared.core.values.errors import StorageUnavailable
from shared.runtime import CrashPoint

log = structlog.get_logger(__name__)

LOOK_SECONDS = 2.0
"""Seconds between two searches for messages to send."""
SEND_SECONDS = 15.0
"""Seconds for one attempt to send in the background."""
AT_ONCE = 8
"""Most messages that are sent in one round, at the same time; a slow receiver delays only these."""


class HookStore(Protocol):
    """Store of hook messages and their delivery.

    `begin` stores the message before a summary, or returns the one that is stored already. `record_outcome`
    makes a message that did not arrive due again; `skip` says that the receiver asked to skip the summary.
    `add_ends` stores a message after each announced job that has ended, and returns their number. `claim`
    returns due messages that no other process has.
    """

    async def begin(
        self, job: JobClaim, *, cycle: int, detail: Mapping[str, Any], wait_seconds: float
    ) -> HookMessage: ...
    async def record_outcome(self, message: HookMessage, outcome: Outcome, *, skip: bool) -> None: ...
    async def add_ends(self) -> int: ...
    async def claim(self, *, most: int, with_summary: bool) -> list[HookMessage]: ...


class HookPoster(Protocol):
    """Sender of messages to the operator's server; returns the outcome and the body of the answer, raises
    nothing.
    """

    async def send(self, message: HookMessage, *, seconds: float) -> tuple[Outcome, bytes]: ...


class CompactionHooks:
    """Hook messages of one worker; without a poster no hook is configured, and nothing is stored."""

    def __init__(
        self,
        store: HookStore,
        poster: HookPoster | None,
        *,
        with_summary: bool,
        crash_point: CrashPoint,
    ) -> None:
        self._store = store
        self._poster = poster
        self._with_summary = with_summary
        self._crash_point = crash_point

    def follow(self, other: CompactionHooks) -> None:
        """Use the hook's address of `other`, and its choice whether summaries are sent, from the next message
        on.
        """
        self._poster = other._poster
        self._with_summary = other._with_summary

    async def ask(
        self,
        job: JobClaim,
        state: SessionState,
        plan: CompactionPlan,
        *,
        budget: ContextBudget,
        tokens: int,
        message_waits: bool,
    ) -> bool:
        """Send the message before a summary to the operator's hook; return whether the answer delays the
        summary.

        The message is stored first. With `message_waits`, or if the context overflows, nothing is waited for:
        a worker sends the message later, and the result is False. Also False without a hook. Raises
        StorageUnavailable.
        """
        if self._poster is None:
            return False
        waits = message_waits or pressure(budget, tokens) == "overflow"
        detail = describe_plan(
            plan, trigger=job.trigger, agent=state.agent, tokens=tokens, budget=budget,
            may_skip=job.trigger in SKIPPABLE and not waits,
        )  # fmt: skip
        message = await self._store.begin(
            job, cycle=state.view.cycle, detail=detail, wait_seconds=0.0 if waits else 2 * HOOK_SECONDS
        )
        if message.state != "due" or waits:
            return message.skip and not waits
        return await self._send(self._poster, message, seconds=HOOK_SECONDS, asks=True)

    async def run(self) -> None:
        """Send due messages every `LOOK_SECONDS` until cancelled."""
        while True:
            if self._poster is not None:
                try:
                    await self.send_due()
                except StorageUnavailable as error:
                    log.warning("hook_storage_unavailable", reason=str(error))
            await asyncio.sleep(LOOK_SECONDS)

    async def send_due(self) -> int:
        """Store messages about ended summaries, send at most `AT_ONCE` due messages, and return the number
        tried.

        Raises StorageUnavailable.
        """
        if (poster := self._poster) is None:
            return 0
        await self._store.add_ends()
        due = await self._store.claim(most=AT_ONCE, with_summary=self._with_summary)
        async with asyncio.TaskGroup() as group:
            for message in due:
                group.create_task(self._send_later(poster, message))
        return len(due)

    async def _send_later(self, poster: HookPoster, message: HookMessage) -> None:
        try:
            await self._send(poster, message, seconds=SEND_SECONDS, asks=False)
        except StorageUnavailable as error:
            # The message becomes due again later, and the receiver recognises its key.
            log.warning("hook_storage_unavailable", reason=str(error))

    async def _send(self, poster: HookPoster, message: HookMessage, *, seconds: float, asks: bool) -> bool:
        self._crash_point("before_hook_send")
        outcome, answer = await poster.send(message, seconds=seconds)
        self._crash_point("after_hook_send")
        skip = asks and message.may_skip and isinstance(outcome, Sent) and wants_skip(answer)
        log.info(
            "compaction_hook_sent", phase=message.phase, job_id=message.job_id, skip=skip,
            outcome=type(outcome).__name__, code=getattr(outcome, "code", ""),
        )  # fmt: skip
        await self._store.record_outcome(message, outcome, skip=skip)
        return skip
