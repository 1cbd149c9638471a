"""Commands that change what the assistant sees: summaries, undo, a new conversation, a separator."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from shared.core.commands.commands import compact_arguments
from shared.core.compaction.jobs import MANUAL
from shared.core.compaction.note_requests import FlushWay
from shared.core.context.build_context import LeftOut
from shared.core.session.budget import limit_range
from shared.core.session.policy import ContradictoryPolicy
from shared.core.session.session import View
from shared.core.session.session_state import ChangeRefused, CompactionStored, SessionState
from shared.core.session.turns import DueJob, JobOrder
from shared.core.values.errors import EvertalkError, ModelError
from shared.locales import Catalogue
from shared.ports import DASHBOARD, Announcer, Doorbell
from shared.services.commands.command_call import (
    CommandHandler,
    CommandInvocation,
    CommandReply,
    Ephemeral,
    build_refusal,
)
from shared.services.turns.session_service import SessionService

COMPACT_WAIT_SECONDS = 180.0
"""Seconds that a command waits for its compaction or flush before it replies."""
COMMAND_SECONDS = COMPACT_WAIT_SECONDS + 20.0
"""Timeout of a whole command, from any channel: more than the longest wait in it."""
WITH_SIZES = frozenset({"grows", "gain_too_small"})
"""Reasons whose text names the tokens now and with a summary."""
_LOOK_SECONDS = 0.1


class HideLiveTurns(Protocol):
    """Function that hides the live turns of a session; returns ChangeRefused if there are none.

    `fixed_tokens` is the size of system text and tools, `talk_ratio` the model's tokens per stored token of
    messages (None if unknown), `reserved_tokens` the room for recall.
    """

    async def __call__(
        self,
        session_id: int,
        *,
        fixed_tokens: int,
        talk_ratio: float | None = None,
        reserved_tokens: int = 0,
    ) -> CompactionStored | ChangeRefused: ...


class ContextCommandStore(Protocol):
    """Store of session states, jobs, and changes of the view.

    `request_job` returns None if an unfinished job has the key; `find_waiting_job` returns that job's id,
    None if it has ended. `load_job_outcome` returns a job's state and outcome, `("dead", {})` for an unknown
    id. `undo_compaction` refuses above `limit_tokens`; it and `restore_compaction` return ChangeRefused if
    there is nothing to change.
    """

    async def load_state(self, session_id: int) -> SessionState: ...
    async def request_job(self, session_id: int, order: JobOrder) -> int | None: ...
    async def load_job_outcome(self, job_id: int) -> tuple[str, Mapping[str, Any]]: ...
    async def find_waiting_job(self, session_id: int, key: str) -> int | None: ...
    async def undo_compaction(
        self,
        session_id: int,
        *,
        limit_tokens: int,
        fixed_tokens: int,
        talk_ratio: float | None = None,
        reserved_tokens: int = 0,
        left_out: LeftOut | None = None,
    ) -> CompactionStored | ChangeRefused: ...
    async def restore_compaction(
        self,
        session_id: int,
        *,
        fixed_tokens: int,
        talk_ratio: float | None = None,
        reserved_tokens: int = 0,
        left_out: LeftOut | None = None,
    ) -> CompactionStored | ChangeRefused: ...
    @property
    def start_new_conversation(self) -> HideLiveTurns: ...
    @property
    def insert_separator(self) -> HideLiveTurns: ...
    async def find_due_job(self, session_id: int) -> DueJob | None: ...


class Foreseen(Protocol):
    """Estimate of a manual summary: tokens `before` and `after`, or the code of the `reason` why none is
    `possible`.
    """

    @property
    def possible(self) -> bool: ...
    @property
    def reason(self) -> str: ...
    @property
    def before(self) -> int: ...
    @property
    def after(self) -> int: ...


class CompactionForecast(Protocol):
    """Estimator of summaries that are not made yet; it calls no model and changes nothing.

    `load_flush_way` returns how a flush would save notes. Both raise UnknownSession and ContradictoryPolicy.
    """

    async def estimate_compaction(self, session_id: int, *, force: bool = False) -> Foreseen: ...
    async def load_flush_way(self, session_id: int) -> FlushWay: ...


class CompactionChoice(Protocol):
    """Store of a conversation's own compaction settings."""

    async def choose_compaction(self, session_id: int, choice: str) -> None:
        """Store whether automatic summaries are `off` for a session; empty restores the agent's setting."""
        ...

    async def choose_compaction_limit(self, session_id: int, limit: int | None) -> None:
        """Store the context limit of a session in tokens; None restores the agent's setting."""
        ...


class ContextCommands:
    """Handlers of the commands that change what the assistant sees."""

    def __init__(
        self,
        *,
        store: ContextCommandStore,
        choice: CompactionChoice,
        sessions: SessionService,
        announcer: Announcer,
        doorbell: Doorbell,
        forecast: CompactionForecast,
    ) -> None:
        self._forecast = forecast
        self._store = store
        self._choice = choice
        self._sessions = sessions
        self._announcer = announcer
        self._doorbell = doorbell

    @property
    def handlers(self) -> dict[str, CommandHandler]:
        """Handlers of `/new`, `/separator`, `/compact`, `/flush`, `/undo` and `/restore` by command name."""
        return {
            "new": self._new,
            "separator": self._separator,
            "compact": self._compact,
            "flush": self._flush,
            "undo": self._undo,
            "restore": self._restore,
        }

    async def _new(self, call: CommandInvocation) -> CommandReply:
        return await self._hide(
            call,
            self._store.start_new_conversation,
            said=call.texts.say("fresh_start"),
            already=call.texts.say("new_already"),
        )

    async def _separator(self, call: CommandInvocation) -> CommandReply:
        return await self._hide(
            call,
            self._store.insert_separator,
            said=call.texts.say("separated"),
            already=call.texts.say("separated_already"),
        )

    async def _hide(
        self, call: CommandInvocation, hide: HideLiveTurns, *, said: str, already: str
    ) -> CommandReply:
        state = await self._store.load_state(call.session_id)
        try:
            room = await self._sessions.load_request_limits(state)
        except (ContradictoryPolicy, ModelError):
            # No request is possible with these settings, but a new conversation is.
            done = await hide(call.session_id, fixed_tokens=state.fixed_tokens)
        else:
            done = await hide(
                call.session_id,
                fixed_tokens=room.fixed,
                talk_ratio=room.talk_ratio,
                reserved_tokens=room.reserved,
            )
        if isinstance(done, ChangeRefused):
            return False, already
        await self._announce(call, done)
        await self._ring_late_flush(call)
        return True, said

    async def _ring_late_flush(self, call: CommandInvocation) -> None:
        """Announce the due job that saves memory from the turns just hidden."""
        job = await self._store.find_due_job(call.session_id)
        if job is not None:
            await self._doorbell.ring(job)

    async def _undo(self, call: CommandInvocation) -> CommandReply:
        state = await self._store.load_state(call.session_id)
        room = await self._sessions.load_request_limits(state)
        done = await self._store.undo_compaction(
            call.session_id,
            limit_tokens=room.hard,
            fixed_tokens=room.fixed,
            talk_ratio=room.talk_ratio,
            reserved_tokens=room.reserved if stays_hidden(state.view) else 0,
            left_out=room.left_out,
        )
        if isinstance(done, ChangeRefused):
            return build_refusal(call, done)
        await self._announce(call, done)
        return True, call.texts.say("undone", after=call.texts.thousands(done.tokens_after))

    async def _restore(self, call: CommandInvocation) -> CommandReply:
        state = await self._store.load_state(call.session_id)
        room = await self._sessions.load_request_limits(state)
        done = await self._store.restore_compaction(
            call.session_id,
            fixed_tokens=room.fixed,
            talk_ratio=room.talk_ratio,
            reserved_tokens=room.reserved,
            left_out=room.left_out,
        )
        if isinstance(done, ChangeRefused):
            return build_refusal(call, done)
        await self._announce(call, done)
        return True, call.texts.say("restored", **_sizes(call.texts, done.tokens_before, done.tokens_after))

    async def _compact(self, call: CommandInvocation) -> CommandReply:
        wish = compact_arguments(call.args)
        if wish.automatic:
            return await self._switch(call, wish.automatic)
        if wish.limit is not None:
            return await self._choose_limit(call, wish.limit)
        if (nothing := await self._nothing_to_compact(call, force=wish.force)) is not None:
            return True, nothing
        key = f"compact:{call.session_id}:manual"
        order = JobOrder(
            kind="compact", key=key, trigger="manual", payload={"force": wish.force, "focus": wish.focus}
        )
        job_id = await self._store.request_job(call.session_id, order)
        if job_id is None:
            job_id = await self._store.find_waiting_job(call.session_id, key)
        if job_id is None:
            return False, call.texts.say("compact_running")
        await self._doorbell.ring(DueJob(id=job_id, kind=order.kind))
        await call.progress(call.texts.say("summarising"), 0)
        ended = await self._wait_for_job(job_id)
        return (
            (True, call.texts.say("compact_goes_on"))
            if ended is None
            else describe_compaction(call.texts, *ended)
        )

    async def _switch(self, call: CommandInvocation, automatic: str) -> CommandReply:
        """Switch automatic summaries of the conversation on or off; reply what happens at the limit."""
        await self._choice.choose_compaction(call.session_id, "off" if automatic == "off" else "")
        await self._announcer.announce(DASHBOARD, {"t": "changed", "topics": ["sessions"]})
        withheld = (await self._sessions.foresee_summary(call.session_id)).withheld
        return True, call.texts.say(f"compacting_{'manual' if withheld == 'manual' else automatic}")

    async def _choose_limit(
        self, call: CommandInvocation, wish: int | Literal["max", "default"]
    ) -> CommandReply:
        """Store the context limit of the conversation in tokens; reply with the allowed range if it is
        outside.
        """
        state = await self._store.load_state(call.session_id)
        allowed = await self._sessions.load_request_limits(state)
        least, most = limit_range(hard=allowed.hard, fixed=allowed.fixed, reserved=allowed.reserved)
        limit = {"max": most, "default": None}.get(wish) if isinstance(wish, str) else wish
        if limit is not None and not least <= limit <= most:
            key = "compact_limit_too_large" if limit > most else "compact_limit_too_small"
            return False, call.texts.say(key, limit=limit, least=least, most=most)
        await self._choice.choose_compaction_limit(call.session_id, limit)
        await self._announcer.announce(DASHBOARD, {"t": "changed", "topics": ["sessions"]})
        withheld = (await self._sessions.foresee_summary(call.session_id)).withheld
        if withheld == "manual":
            return True, call.texts.say("compacting_manual")
        if limit is None:
            return True, call.texts.say("compact_limit_default")
        key = "compact_limit_off" if withheld == "off" else "compact_limit"
        return True, call.texts.say(key, limit=limit, most=most)

    async def _nothing_to_compact(self, call: CommandInvocation, *, force: bool) -> str | None:
        """Return why a compaction would do nothing; None if it would work or cannot be estimated."""
        try:
            found = await self._forecast.estimate_compaction(call.session_id, force=force)
        except EvertalkError:
            return None
        sizes = (found.before, found.after) if found.after else ()
        return None if found.possible else _nothing_compacted(call.texts, found.reason, sizes)

    async def _flush(self, call: CommandInvocation) -> CommandReply:
        """Save memory now, for an operator; the result is shown to the caller only, not to the person."""
        state = await self._store.load_state(call.session_id)
        key = f"flush:{call.session_id}:{MANUAL}"
        payload = {"threshold": MANUAL, "cycle": state.view.cycle}
        order = JobOrder(kind="flush", key=key, trigger=MANUAL, payload=payload)
        job_id = await self._store.request_job(call.session_id, order)
        if job_id is None:
            job_id = await self._store.find_waiting_job(call.session_id, key)
        if job_id is None:
            return False, Ephemeral(call.texts.say("compact_running"))
        await self._doorbell.ring(DueJob(id=job_id, kind=order.kind))
        ended = await self._wait_for_job(job_id)
        if ended is None:
            return True, Ephemeral(call.texts.say("flush_goes_on"))
        job_state, outcome = ended
        done = job_state == "done"
        key = f"flush_{outcome.get('outcome') if done else ''}"
        return done, Ephemeral(call.texts.say(key if key in call.texts else "flush_failed"))

    async def _wait_for_job(self, job_id: int) -> tuple[str, Mapping[str, Any]] | None:
        """Return a job's final state and outcome; None if it takes longer than `COMPACT_WAIT_SECONDS`."""
        try:
            async with asyncio.timeout(COMPACT_WAIT_SECONDS):
                while True:
                    state, outcome = await self._store.load_job_outcome(job_id)
                    if state in ("done", "dead"):
                        return state, outcome
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            return None

    async def _announce(self, call: CommandInvocation, stored: CompactionStored) -> None:
        await self._announcer.announce(call.session_id, {"event_seq": stored.event_seq})


def stays_hidden(view: View) -> bool:
    """Return whether turns stay hidden by an earlier summary after the newest one is undone."""
    return view.head is not None and view.head.from_turn > 1


def describe_compaction(texts: Catalogue, state: str, outcome: Mapping[str, Any]) -> CommandReply:
    """Return success and text for the person who requested a compaction, of a job that has ended.

    `state` is `done` or `dead`, `outcome` what the job stored. "Nothing to summarise" counts as success.
    """
    if state == "dead":
        advice = str(outcome.get("advice") or "") if texts.language == "en" else ""
        return False, advice or texts.say("compact_failed")
    if "nothing" in outcome:
        return True, _nothing_compacted(texts, str(outcome["nothing"]), outcome.get("sizes") or ())
    before, after = outcome["before"], outcome["after"]
    key = "compacted" if after < before else "compacted_for_nothing"
    if outcome.get("kind") == "digest":
        key = "excerpted"
    return True, texts.say(key, count=outcome["turns"], **_sizes(texts, before, after))


def _nothing_compacted(texts: Catalogue, reason: str, sizes: Sequence[int] = ()) -> str:
    key = f"nothing_compacted_{reason}"
    if key not in texts or (reason in WITH_SIZES and not sizes):
        return texts.say("nothing_compacted")
    return texts.say(key, **dict(zip(("before", "after"), sizes, strict=False)))


def _sizes(texts: Catalogue, before: int, after: int) -> dict[str, str]:
    return {"before": texts.thousands(before), "after": texts.thousands(after)}
