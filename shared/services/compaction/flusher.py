"""Saves what should outlive a range of turns: a ghost turn that nobody sees and that leaves only notes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from shared.core.compaction.flushing import LATE, WITH_COMPACTION, next_portion, retry_seconds, was_flushed
from shared.core.compaction.provenance import foreign_part
from shared.core.context.agents import Circumstances
from shared.core.context.memory_tools import FLUSH_TOOLS
from shared.core.context.prompts import SILENT, flush_instruction
from shared.core.context.recall_query import RECALL, RECALLS_PER_TURN
from shared.core.context.untrusted_text import defused
from shared.core.session.backoff import MANUAL
from shared.core.session.policy import ContradictoryPolicy
from shared.core.session.session import View
from shared.core.session.session_state import (
    FlushOutcome,
    FlushReport,
    FlushTicket,
    Hidden,
    JobClaim,
    JobDone,
    SessionState,
)
from shared.core.session.turns import Caps
from shared.core.values.errors import (
    CapReached,
    ContextBudgetExceeded,
    LeaseLost,
    ModelError,
    StorageUnavailable,
)
from shared.core.values.local_time import minute_text
from shared.core.values.messages import Message, ToolResult, ToolUse, text_of, tool_uses
from shared.ports import DASHBOARD, Announcer, ChatModel, ModelReply, ModelRequest, ToolContext, ToolSpec
from shared.runtime.crash_points import CrashPoint
from shared.services.turns.pictures import PictureOwner, PictureService
from shared.services.turns.request_builder import PreparedRequest, RequestBuilder
from shared.services.turns.spend_tracker import SpendStore, SpendTracker
from shared.services.turns.toolbox import Toolbox

MAX_FLUSH_ROUNDS = 3
MAX_PORTIONS = 8
"""Ghost turns of one job; what is left over is read by the next one."""
FAULTS_AT_MOST = 3
PORTION_SHARE = 0.8
"""Of the hard limit: estimates of a cut view may be off, and the ghost's own calls come behind it."""
_RECALLED_ENOUGH = f"recall was used {RECALLS_PER_TURN} times already, which is the most."
RESULT_TOKENS = 60
"""What surrounds a tool's result in a request, with some to spare."""
STAGE = "saving to memory"
COMPACTION_PERCENT = 10
"""Percent of a compaction that its own flush stands for; then its summary is told."""


class FlushStore(Protocol):
    async def begin_flush(
        self, job: JobClaim, *, cycle: int, threshold: str, from_turn: int, through_turn: int
    ) -> FlushTicket: ...
    async def end_flush(
        self, job: JobClaim, ticket: FlushTicket, report: FlushReport, *, party_id: int
    ) -> None: ...


class UnflushedStore(Protocol):
    async def find_unflushed(self, session_id: int) -> Hidden | None: ...
    async def seconds_since_flush(self, session_id: int) -> float | None: ...
    async def load_last_tools(self, session_id: int) -> tuple[ToolSpec, ...] | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushResult:
    """What became of a range; `ticket` is that of the last ghost turn, None when there was none to make."""

    outcome: FlushOutcome = "nothing"
    ticket: FlushTicket | None = None
    through: int
    """The last turn that has been read."""
    error: str = ""


@dataclass(slots=True, kw_only=True)
class _SilentTurn:
    """What one ghost turn has said and done so far."""

    saved: int = 0
    recalls: int = 0
    shown: tuple[str, ...] = ()
    """Words of others that its tools have brought in, for which no steps are kept."""
    stray: list[str]

    def hear(self, reply: ModelReply) -> None:
        text = text_of(reply.blocks).strip()
        if text and text.strip(".").upper() != SILENT:
            self.stray.append(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FlushRange:
    """The turns that are to be read, and which share of them a portion is."""

    first: int
    through: int

    def part(self, after: int, last: int) -> tuple[float, float]:
        whole = max(1, self.through - self.first)
        return (after - self.first) / whole, (last - self.first) / whole


class Flusher:
    def __init__(
        self,
        *,
        store: FlushStore,
        owed: UnflushedStore,
        spend: SpendStore,
        model: ChatModel,
        requests: RequestBuilder,
        toolbox: Toolbox,
        pictures: PictureService,
        caps: Caps,
        announcer: Announcer,
        crash_point: CrashPoint,
    ) -> None:
        self._store = store
        self._owed = owed
        self._spend = spend
        self._model = model
        self._requests = requests
        self._toolbox = toolbox
        self._pictures = pictures
        self._caps = caps
        self._announcer = announcer
        self._crash_point = crash_point

    async def flush_early(self, job: JobClaim, state: SessionState) -> JobDone:
        """The flush that pressure asked for, unless it was made meanwhile or the last one was just now."""
        if state.view.flushed_turn < state.view.base_turn:
            return await self.flush_late(job)
        prepared = await self._prepared(state, state.view, ())
        threshold = str(job.payload.get("threshold", "pressure"))
        cycle = int(job.payload.get("cycle", state.view.cycle))
        if job.trigger == MANUAL:
            flushed = await self.flush_range(job, state, through=state.answered_turn, threshold=MANUAL)
            failed = flushed.outcome == "failed"
            return _retried(job, flushed, dead=True) if failed else _done(flushed)
        tried = state.view.flush_thresholds if job.attempt == 1 else frozenset[str]()
        if cycle != state.view.cycle or was_flushed(threshold, tried, prepared.policy):
            # Asked for by a turn that was claimed before the flush of this cycle had ended.
            return _done(FlushResult(through=state.view.flushed_turn))
        since = await self._owed.seconds_since_flush(job.session_id)
        wait = 0.0 if since is None else prepared.policy.flush_cooldown_seconds - since
        if wait > 0 and state.view.flushed_turn < state.answered_turn:
            return JobDone(outcome={"resting": "cooldown"}, state="due", retry_seconds=wait)
        flushed = await self.flush_range(job, state, through=state.answered_turn, threshold=threshold)
        return _retried(job, flushed, for_ever=False) if flushed.outcome == "failed" else _done(flushed)

    async def flush_late(self, job: JobClaim) -> JobDone:
        """What was hidden unread is read from the log, one link after the other; tried until it works."""
        flushed = FlushResult(through=0)
        for _ in range(MAX_PORTIONS):
            owed = await self._owed.find_unflushed(job.session_id)
            if owed is None:
                break
            flushed = await self.flush_range(job, owed.state, through=owed.through_turn, threshold=LATE)
            if flushed.outcome == "failed":
                return _retried(job, flushed, for_ever=True)
        return _done(flushed)

    async def flush_before_compaction(
        self, job: JobClaim, state: SessionState, *, through: int
    ) -> FlushResult:
        """A compaction's own flush, however short ago the last one was; what is owed comes first."""
        view = state.view
        if view.flushed_turn < view.base_turn:
            late = await self.flush_late(job)
            if late.state != "done" or await self._owed.find_unflushed(job.session_id) is not None:
                return FlushResult(outcome="failed", through=view.flushed_turn)
            view = replace(view, flushed_turn=max(view.flushed_turn, view.base_turn))
        return await self.flush_range(
            job, replace(state, view=view), through=through, threshold=WITH_COMPACTION
        )

    async def flush_range(
        self, job: JobClaim, state: SessionState, *, through: int, threshold: str
    ) -> FlushResult:
        """Save what should outlive the range; a failure is a row, and the cursor stays where it is."""
        state = await self.with_descriptions(state)
        view = state.view
        done = FlushResult(through=view.flushed_turn)
        way = _FlushRange(first=view.flushed_turn, through=through)
        tools = (
            await self.load_tools(job.session_id, state.agent_config) if view.flushed_turn < through else ()
        )
        for _ in range(MAX_PORTIONS):
            if view.flushed_turn >= through:
                break
            try:
                whole = await self._prepared(state, view, tools)
                portion, last = next_portion(view, through=through, room=_room(whole, view))
                prepared = whole if portion is view else await self._prepared(state, portion, tools)
            except ContradictoryPolicy as error:
                return await self._record_contradiction(
                    job, state, view, error, through=through, threshold=threshold
                )
            at = way.part(view.flushed_turn, last)
            before, done = (
                done,
                await self._flush_portion(job, state, portion, prepared, last, threshold, at=at),
            )
            if done.outcome == "failed":
                break
            if before.outcome == "saved":
                done = replace(done, outcome="saved")
            view = replace(view, flushed_turn=last)
        return done

    async def _record_contradiction(
        self,
        job: JobClaim,
        state: SessionState,
        view: View,
        error: ContradictoryPolicy,
        *,
        through: int,
        threshold: str,
    ) -> FlushResult:
        """No request can be made with these settings: a failure like any other, which is tried again."""
        ticket = await self._store.begin_flush(
            job,
            cycle=state.view.cycle,
            threshold=threshold,
            from_turn=view.flushed_turn + 1,
            through_turn=through,
        )
        told = f"{error.code}: {error}"
        model = self._requests.resolve_model(state.agent_config)
        report = FlushReport(outcome="failed", stray_text="", error=told, model=model, spent=())
        await self._store.end_flush(job, ticket, report, party_id=state.party_id)
        return FlushResult(outcome="failed", ticket=ticket, through=view.flushed_turn, error=told)

    async def _flush_portion(
        self,
        job: JobClaim,
        state: SessionState,
        view: View,
        prepared: PreparedRequest,
        last: int,
        threshold: str,
        *,
        at: tuple[float, float],
    ) -> FlushResult:
        await self._report_progress(job, at[0])
        ticket = await self._store.begin_flush(
            job,
            cycle=state.view.cycle,
            threshold=threshold,
            from_turn=view.flushed_turn + 1,
            through_turn=last,
        )
        purse = SpendTracker(self._spend, session_id=job.session_id, job_id=job.id, caps=self._caps)
        ghost = _SilentTurn(stray=[])
        outcome: FlushOutcome
        outcome, error = "nothing", ""
        try:
            if prepared.estimate > prepared.budget.hard:
                prepared = self._requests.shrink(
                    prepared, view, state.agent_config, hard=prepared.budget.hard
                )
            await self._run_silent_turn(job, state, ticket, prepared, purse, ghost, at=at)
            outcome = "saved" if ghost.saved else "nothing"
        except (ModelError, CapReached, ContextBudgetExceeded) as failure:
            outcome, error = "failed", f"{failure.code}: {failure}"
        except asyncio.CancelledError:
            with suppress(LeaseLost, StorageUnavailable):
                await self._record_interruption(job, state, ticket, prepared, purse)
            raise
        self._crash_point("after_flush_model")
        report = FlushReport(
            outcome=outcome, stray_text="\n\n".join(ghost.stray), error=error,
            model=prepared.card.name, spent=tuple(purse.spent),
        )  # fmt: skip
        await self._store.end_flush(job, ticket, report, party_id=state.party_id)
        self._crash_point("after_flush")
        if outcome != "failed":
            await self._report_progress(job, at[1])
        read = view.flushed_turn if outcome == "failed" else last
        return FlushResult(outcome=outcome, ticket=ticket, through=read, error=error)

    async def _record_interruption(
        self,
        job: JobClaim,
        state: SessionState,
        ticket: FlushTicket,
        prepared: PreparedRequest,
        purse: SpendTracker,
    ) -> None:
        """The process ends: the next attempt reads these turns again, and both have been paid for."""
        report = FlushReport(
            outcome="failed", stray_text="", error="it was cut off", model=prepared.card.name,
            spent=purse.take_spent(),
        )  # fmt: skip
        await self._store.end_flush(job, ticket, report, party_id=state.party_id)

    async def _run_silent_turn(
        self,
        job: JobClaim,
        state: SessionState,
        ticket: FlushTicket,
        prepared: PreparedRequest,
        purse: SpendTracker,
        ghost: _SilentTurn,
        *,
        at: tuple[float, float],
    ) -> None:
        """The turn itself is never stored: only its notes, and the words that nobody will see."""
        if not prepared.request.tools:
            return  # a model without tools cannot save: the call would cost a whole context for nothing
        request = await self.with_pictures(prepared)
        for called in range(MAX_FLUSH_ROUNDS):
            reply = await purse.pay_for(
                partial(self._model.reply, request),
                input_tokens=prepared.estimate,
                output_tokens=prepared.budget.out,
                card=prepared.card,
            )
            ghost.hear(reply)
            await self._report_progress(job, at[0] + (at[1] - at[0]) * (called + 1) / (MAX_FLUSH_ROUNDS + 1))
            calls = tool_uses(reply.blocks)
            if not calls:
                return
            results = [await self._run_memory_tool(job, state, ticket, call, ghost) for call in calls]
            ghost.saved += sum(fresh for _, fresh in results)
            told = sum(
                self._requests.counter.count_tokens(result.text) + RESULT_TOKENS for result, _ in results
            )
            if reply.usage.context_tokens + round(prepared.ratio * told) > prepared.budget.hard:
                return
            request = replace(
                request,
                messages=(
                    *request.messages,
                    Message(role="assistant", blocks=reply.blocks),
                    Message(role="user", blocks=tuple(result for result, _ in results)),
                ),
            )

    async def _report_progress(self, job: JobClaim, share: float) -> None:
        """To operators alone: nobody else sees anything of a flush."""
        percent = round((COMPACTION_PERCENT if job.kind == "compact" else 100) * share)
        told = {"t": "progress", "job": job.id, "percent": percent, "stage": STAGE}
        await self._announcer.announce(DASHBOARD, told)

    async def _run_memory_tool(
        self, job: JobClaim, state: SessionState, ticket: FlushTicket, call: ToolUse, ghost: _SilentTurn
    ) -> tuple[ToolResult, bool]:
        if call.name == RECALL.name:
            ghost.recalls += 1
            if ghost.recalls > RECALLS_PER_TURN:
                return ToolResult(tool_use_id=call.id, text=_RECALLED_ENOUGH, is_error=True), False
        context = ToolContext(
            session_id=job.session_id,
            party_id=state.party_id,
            scope=state.agent,
            turn=ticket.from_turn,
            through_turn=ticket.through_turn,
            key=f"flush:{ticket.id}:{call.id}",
            call_id=call.id,
            flush_id=ticket.id,
            shown=ghost.shown,
            agent_config=state.agent_config,
        )
        ran = (
            await self._toolbox.for_agent(state.agent_config)
            .restrict_to(FLUSH_TOOLS)
            .run(call, context=context)
        )
        if foreign := foreign_part(call.name, ran.result.text):
            ghost.shown += (foreign,)
        result = replace(ran.result, text=defused(ran.result.text))
        return result, ran.status == "done" and ran.result.text.startswith(("Saved", "Changed"))

    async def with_descriptions(self, state: SessionState) -> SessionState:
        """With what its pictures show: whoever reads these words later has no pictures."""
        whose = PictureOwner(
            session_id=state.session_id,
            party_id=state.party_id,
            chat_model=self._requests.resolve_model(state.agent_config),
        )
        entries = await self._pictures.with_descriptions(state.view.entries, whose=whose)
        pins = await self._pictures.with_descriptions(state.view.pins, whose=whose)
        return replace(state, view=replace(state.view, entries=entries, pins=pins))

    async def with_pictures(self, prepared: PreparedRequest) -> ModelRequest:
        """With the bytes that its prefix has in the provider's cache."""
        pictures = await self._pictures.load_pictures(prepared.pictures)
        return replace(prepared.request, pictures=pictures) if pictures else prepared.request

    async def load_tools(self, session_id: int, agent_config: Mapping[str, Any]) -> tuple[ToolSpec, ...]:
        """Those of the last turn: with another list the provider would have to read the whole prefix anew."""
        stored = await self._owed.load_last_tools(session_id)
        specs = self._toolbox.for_agent(agent_config).specs
        return specs if stored in (None, specs) else stored or ()

    async def _prepared(
        self, state: SessionState, view: View, tools: tuple[ToolSpec, ...]
    ) -> PreparedRequest:
        card = await self._model.load_card(self._requests.resolve_model(state.agent_config))
        circumstances = self._requests.load_circumstances(state)
        return self._requests.build(
            view,
            card=card,
            agent_config=state.agent_config,
            tools=tools,
            token_ratio=state.ratio_for(card.name),
            instruction=flush_instruction(now=self._written(view, circumstances)),
            channel=state.channel,
            circumstances=circumstances,
        )

    def _written(self, view: View, circumstances: Circumstances) -> str:
        """When the newest of it was said, by the person's clock."""
        zone = self._requests.zone_of(circumstances)
        return minute_text(view.entries[-1].at, zone) if view.entries else ""


def _room(prepared: PreparedRequest, view: View) -> int:
    """What the conversation may take, in stored estimates, so that a portion and its answer fit."""
    stored = sum(entry.tokens for entry in view.entries)
    hard = prepared.budget.hard
    if prepared.estimate <= hard:
        return stored
    return stored - int((prepared.estimate - PORTION_SHARE * hard) / prepared.ratio) - 1


def _done(flushed: FlushResult) -> JobDone:
    ticket = flushed.ticket
    return JobDone(outcome={"flush": ticket.id if ticket else None, "outcome": flushed.outcome})


def _retried(job: JobClaim, flushed: FlushResult, *, for_ever: bool = False, dead: bool = False) -> JobDone:
    """Late, never lost: until it works, or until a compaction takes the early flush upon itself.

    Who asked for it by hand is told at once (`dead`), and may ask again.
    """
    over = dead or (not for_ever and job.faults + 1 >= FAULTS_AT_MOST)
    return replace(
        _done(flushed),
        state="dead" if over else "due",
        error=flushed.error,
        retry_seconds=retry_seconds(job.faults),
    )
