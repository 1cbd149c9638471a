"""Saves what should outlive a range of turns: a ghost turn that nobody sees and that leaves only notes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from shared.core.compaction.digest import digest
from shared.core.compaction.jobs import LATE, WITH_COMPACTION, retry_seconds, was_flushed
from shared.core.compaction.note_requests import NoteWish, parse_notes, wishes_of
from shared.core.compaction.provenance import foreign_part
from shared.core.context.memory_tools import FLUSH_TOOLS, KEEPING_TOOLS, SAVE_MEMORY
from shared.core.context.prompts import SILENT
from shared.core.context.recall_query import RECALL, RECALLS_PER_TURN
from shared.core.context.untrusted_text import defused
from shared.core.session.backoff import MANUAL
from shared.core.session.ledger import Ledger
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
from shared.core.values.messages import Message, ToolResult, ToolUse, text_of, tool_uses
from shared.ports import DASHBOARD, Announcer, ChatModel, ModelReply, ModelRequest, ToolContext, ToolSpec
from shared.runtime.crash_points import CrashPoint
from shared.services.compaction.flush_requests import (
    FlushPortion,
    FlushRequests,
    LastToolsStore,
    SilentRequest,
)
from shared.services.compaction.unable_models import UnableModels
from shared.services.turns.pictures import PictureService
from shared.services.turns.request_builder import RequestBuilder
from shared.services.turns.spend_tracker import SpendStore, SpendTracker
from shared.services.turns.toolbox import Toolbox

MAX_FLUSH_ROUNDS = 3
MAX_PORTIONS = 8
"""Ghost turns of one job; what is left over is read by the next one."""
LEFT_OVER_SECONDS = 1.0
FAULTS_AT_MOST = 3
_RECALLED_ENOUGH = f"recall was used {RECALLS_PER_TURN} times already, which is the most."
DIGEST_TOKENS = 800
"""Of a range that no model can make notes of; its weightiest sentences are kept instead."""
RESULT_TOKENS = 60
"""What surrounds a tool's result in a request, with some to spare."""
_SPELLED_CALL = re.compile(rf'"{SAVE_MEMORY.name}"|\b{SAVE_MEMORY.name}\W{{0,3}}[({{]')
"""A call as words: its model cannot call tools, or its server cannot."""
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


class UnflushedStore(LastToolsStore, Protocol):
    async def find_unflushed(self, session_id: int) -> Hidden | None: ...
    async def seconds_since_flush(self, session_id: int) -> float | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushResult:
    """What became of a range; `ticket` is that of the last ghost turn, None when there was none to make."""

    outcome: FlushOutcome = "nothing"
    ticket: FlushTicket | None = None
    through: int
    """The last turn that has been read."""
    error: str = ""
    elsewhere: bool = False
    """Whether a model of another provider may do what this one could not."""


@dataclass(slots=True, kw_only=True)
class _SilentTurn:
    """What one ghost turn has said and done so far."""

    job: JobClaim
    state: SessionState
    ticket: FlushTicket
    saved: int = 0
    recalls: int = 0
    shown: tuple[str, ...] = ()
    """Words of others that its tools have brought in, for which no steps are kept."""
    stray: list[str]
    unreadable: bool = False
    """Whether a model has written something else than notes."""

    def hear(self, reply: ModelReply) -> None:
        text = text_of(reply.blocks).strip()
        if text and text.strip(".").upper() != SILENT:
            self.stray.append(text)

    def turn_of(self, seq: int | None) -> int | None:
        """The turn of a message that was read; None for any other number."""
        read = range(self.ticket.from_turn, self.ticket.through_turn + 1)
        entries = self.state.view.entries
        return next((entry.turn for entry in entries if entry.seq == seq and entry.turn in read), None)


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
        unable: UnableModels,
    ) -> None:
        self._unable = unable
        self._store = store
        self._owed = owed
        self._spend = spend
        self._model = model
        self._requests = requests
        self._toolbox = toolbox
        self._asks = FlushRequests(
            owed=owed, model=model, requests=requests, toolbox=toolbox, pictures=pictures, unable=unable
        )
        self._caps = caps
        self._announcer = announcer
        self._crash_point = crash_point

    @property
    def requests(self) -> FlushRequests:
        return self._asks

    async def flush_early(self, job: JobClaim, state: SessionState) -> JobDone:
        """The flush that pressure asked for, unless it was made meanwhile or the last one was just now."""
        if state.view.flushed_turn < state.view.base_turn:
            return await self.flush_late(job)
        prepared = await self._asks.prepare(state, state.view, ())
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
            flushed = await self.flush_range(
                job, owed.state, through=owed.through_turn, threshold=LATE, ledger=owed.ledger
            )
            if flushed.outcome == "failed":
                return _retried(job, flushed, for_ever=True)
        done = _done(flushed)
        if await self._owed.find_unflushed(job.session_id) is None:
            return done
        return replace(done, state="due", retry_seconds=LEFT_OVER_SECONDS)

    async def flush_before_compaction(
        self, job: JobClaim, state: SessionState, *, through: int
    ) -> FlushResult:
        """A compaction's own flush, however short ago the last one was; what is owed comes first."""
        view = state.view
        if view.flushed_turn < view.base_turn:
            late = await self.flush_late(job)
            if late.state != "done":
                return FlushResult(outcome="failed", through=view.flushed_turn)
            view = replace(view, flushed_turn=max(view.flushed_turn, view.base_turn))
        return await self.flush_range(
            job, replace(state, view=view), through=through, threshold=WITH_COMPACTION
        )

    async def begin_with_summary(self, job: JobClaim, state: SessionState, *, through: int) -> FlushTicket:
        """For a flush whose notes come with the summary of the same turns."""
        return await self._store.begin_flush(
            job,
            cycle=state.view.cycle,
            threshold=WITH_COMPACTION,
            from_turn=state.view.flushed_turn + 1,
            through_turn=through,
        )

    async def end_with_summary(
        self,
        job: JobClaim,
        state: SessionState,
        ticket: FlushTicket,
        notes: Sequence[NoteWish] | None,
    ) -> FlushResult:
        """Save what came; None came where no answer could be read, and the cursor stays. The summary pays."""
        ghost = _SilentTurn(job=job, state=state, ticket=ticket, stray=[])
        await self._keep(notes or (), ghost)
        self._crash_point("after_flush_model")
        outcome: FlushOutcome = "saved" if ghost.saved else "nothing"
        if notes is None:
            outcome = "failed"
        error = "" if notes is not None else "the summary's answer held no notes"
        report = FlushReport(
            outcome=outcome, stray_text="", error=error, spent=(),
            model=self._requests.resolve_model(state.agent_config),
        )  # fmt: skip
        await self._store.end_flush(job, ticket, report, party_id=state.party_id)
        self._crash_point("after_flush")
        through = state.view.flushed_turn if notes is None else ticket.through_turn
        return FlushResult(outcome=outcome, ticket=ticket, through=through, error=error)

    async def flush_range(
        self,
        job: JobClaim,
        state: SessionState,
        *,
        through: int,
        threshold: str,
        ledger: Ledger | None = None,
    ) -> FlushResult:
        """Save what should outlive the range; a failure is a row, and the cursor stays where it is.

        `ledger` is the record that stands in for it, if any: code makes notes of it where no model can.
        """
        state = await self._asks.with_descriptions(state)
        view = state.view
        done = FlushResult(through=view.flushed_turn)
        way = _FlushRange(first=view.flushed_turn, through=through)
        tools: tuple[ToolSpec, ...] = ()
        if view.flushed_turn < through:
            tools = await self._asks.load_tools(job.session_id, state.agent_config)
        own = self._requests.resolve_model(state.agent_config)
        models = [own, *self._requests.fallbacks(own)]
        saved = False
        for _ in range(MAX_PORTIONS):
            if view.flushed_turn >= through:
                break
            try:
                portion = await self._asks.next_portion(state, view, tools, through=through, model=models[0])
            except ContradictoryPolicy as error:
                return await self._record_contradiction(
                    job, state, view, error, through=through, threshold=threshold
                )
            at = way.part(view.flushed_turn, portion.last)
            done = await self._flush_portion(job, state, portion, threshold, ledger=ledger, at=at)
            if done.elsewhere and len(models) > 1:
                models.pop(0)
                continue
            if done.outcome == "failed":
                break
            saved = saved or done.outcome == "saved"
            done = replace(done, outcome="saved" if saved else done.outcome)
            view = replace(view, flushed_turn=portion.last)
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
        portion: FlushPortion,
        threshold: str,
        *,
        ledger: Ledger | None,
        at: tuple[float, float],
    ) -> FlushResult:
        await self._report_progress(job, at[0])
        ticket = await self._store.begin_flush(
            job,
            cycle=state.view.cycle,
            threshold=threshold,
            from_turn=portion.view.flushed_turn + 1,
            through_turn=portion.last,
        )
        purse = SpendTracker(self._spend, session_id=job.session_id, job_id=job.id, caps=self._caps)
        ghost = _SilentTurn(job=job, state=state, ticket=ticket, stray=[])
        outcome: FlushOutcome
        outcome, error, elsewhere = "nothing", "", False
        try:
            for ask in await self._asks.build(portion, state):
                await self._run_silent_turn(ask, purse, ghost, at=at)
            if portion.way == "code" or ghost.unreadable:
                await self._keep_by_code(portion, ledger, ghost)
            outcome = "saved" if ghost.saved else "nothing"
        except (ModelError, CapReached, ContextBudgetExceeded) as failure:
            outcome, error = "failed", f"{failure.code}: {failure}"
            elsewhere = isinstance(failure, ModelError) and failure.elsewhere
        except asyncio.CancelledError:
            with suppress(LeaseLost, StorageUnavailable):
                await self._record_interruption(portion, purse, ghost)
            raise
        self._crash_point("after_flush_model")
        report = FlushReport(
            outcome=outcome, stray_text="\n\n".join(ghost.stray), error=error,
            model=portion.model, spent=tuple(purse.spent),
        )  # fmt: skip
        await self._store.end_flush(job, ticket, report, party_id=state.party_id)
        self._crash_point("after_flush")
        if outcome != "failed":
            await self._report_progress(job, at[1])
        read = portion.view.flushed_turn if outcome == "failed" else portion.last
        return FlushResult(outcome=outcome, ticket=ticket, through=read, error=error, elsewhere=elsewhere)

    async def _record_interruption(
        self, portion: FlushPortion, purse: SpendTracker, ghost: _SilentTurn
    ) -> None:
        """The process ends: the next attempt reads these turns again, and both have been paid for."""
        report = FlushReport(
            outcome="failed", stray_text="", error="it was cut off", model=portion.model,
            spent=purse.take_spent(),
        )  # fmt: skip
        await self._store.end_flush(ghost.job, ghost.ticket, report, party_id=ghost.state.party_id)

    async def _run_silent_turn(
        self, ask: SilentRequest, purse: SpendTracker, ghost: _SilentTurn, *, at: tuple[float, float]
    ) -> None:
        """The turn itself is never stored: only its notes, and the words that nobody will see."""
        request = ask.request
        for called in range(MAX_FLUSH_ROUNDS):
            reply = await purse.pay_for(
                partial(self._model.reply, request),
                input_tokens=ask.estimate,
                output_tokens=ask.out,
                card=ask.card,
            )
            percent = at[0] + (at[1] - at[0]) * (called + 1) / (MAX_FLUSH_ROUNDS + 1)
            await self._report_progress(ghost.job, percent)
            if not request.tools:
                await self._keep_written(request, reply, ghost)
                return
            ghost.hear(reply)
            calls = tool_uses(reply.blocks)
            spelled = not calls and not called and bool(_SPELLED_CALL.search(text_of(reply.blocks)))
            ghost.unreadable = ghost.unreadable or spelled
            if calls or spelled:
                self._unable.learn(request.model, "tools", able=bool(calls))
            if not calls:
                return
            results = [await self._run_memory_tool(call, ghost) for call in calls]
            if reply.stop_reason != "max_tokens" and _is_all_kept(calls, results):
                return
            told = sum(self._requests.counter.count_tokens(result.text) + RESULT_TOKENS for result in results)
            if reply.usage.context_tokens + round(ask.ratio * told) > ask.hard:
                return
            request = replace(
                request,
                messages=(
                    *request.messages,
                    Message(role="assistant", blocks=reply.blocks),
                    Message(role="user", blocks=tuple(results)),
                ),
            )

    async def _keep_written(self, request: ModelRequest, reply: ModelReply, ghost: _SilentTurn) -> None:
        """What a model without tools has written; where it holds no notes, code goes on."""
        answer = text_of(reply.blocks)
        if request.json_schema is not None and reply.stop_reason != "refusal":
            self._unable.learn_json(request.model, answer)
        wishes = parse_notes(answer)
        if wishes is None:
            ghost.unreadable = True
            ghost.hear(reply)
        await self._keep(wishes or (), ghost)

    async def _keep_by_code(self, portion: FlushPortion, ledger: Ledger | None, ghost: _SilentTurn) -> None:
        """From the record of these turns where there is one, else from their weightiest sentences."""
        read = range(ghost.ticket.from_turn, ghost.ticket.through_turn + 1)
        entries = tuple(entry for entry in portion.view.entries if entry.turn in read)
        seqs = frozenset(entry.seq for entry in entries)
        wishes = wishes_of(ledger, seqs) if ledger is not None else ()
        if not wishes:
            count = self._requests.counter.count_tokens
            made = await asyncio.to_thread(digest, entries, Ledger(), count, budget_tokens=DIGEST_TOKENS)
            wishes = wishes_of(made, seqs)
        await self._keep(wishes, ghost)

    async def _keep(self, wishes: Sequence[NoteWish], ghost: _SilentTurn) -> None:
        """By the same door as a model's own calls; what it refuses is not kept."""
        for wish in wishes:
            shown = ghost.shown
            if wish.by_tool:
                ghost.shown = (*shown, wish.text)
            await self._run_memory_tool(wish.call, ghost, turn=ghost.turn_of(wish.seq))
            ghost.shown = shown

    async def _report_progress(self, job: JobClaim, share: float) -> None:
        """To operators alone: nobody else sees anything of a flush."""
        percent = round((COMPACTION_PERCENT if job.kind == "compact" else 100) * share)
        told = {"t": "progress", "job": job.id, "percent": percent, "stage": STAGE}
        await self._announcer.announce(DASHBOARD, told)

    async def _run_memory_tool(
        self, call: ToolUse, ghost: _SilentTurn, *, turn: int | None = None
    ) -> ToolResult:
        """`turn` is the one that says so, where that is known; else all that were read."""
        if call.name == RECALL.name:
            ghost.recalls += 1
            if ghost.recalls > RECALLS_PER_TURN:
                return ToolResult(tool_use_id=call.id, text=_RECALLED_ENOUGH, is_error=True)
        state, ticket = ghost.state, ghost.ticket
        context = ToolContext(
            session_id=ghost.job.session_id,
            party_id=state.party_id,
            scope=state.agent,
            turn=turn or ticket.from_turn,
            through_turn=turn or ticket.through_turn,
            key=f"flush:{ticket.id}:{call.id}",
            call_id=call.id,
            flush_id=ticket.id,
            shown=ghost.shown,
            agent_config=state.agent_config,
            timezone=state.timezone,
        )
        ran = (
            await self._toolbox.for_agent(state.agent_config)
            .restrict_to(FLUSH_TOOLS)
            .run(call, context=context)
        )
        if isinstance(ran.fault, StorageUnavailable):
            # What cannot be stored now is not passed over: these turns are read again.
            raise ran.fault
        if foreign := foreign_part(call.name, ran.result.text):
            ghost.shown += (foreign,)
        ghost.saved += ran.status == "done" and ran.result.text.startswith(("Saved", "Changed"))
        return replace(ran.result, text=defused(ran.result.text))


def _is_all_kept(calls: Sequence[ToolUse], results: Sequence[ToolResult]) -> bool:
    """Whether a round left nothing to answer: another call would only hear that the model is done."""
    kept = all(call.name in KEEPING_TOOLS for call in calls)
    return kept and not any(result.is_error for result in results)


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
