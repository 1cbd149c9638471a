"""Memory flush: background calls, invisible to people, that save notes from a range of turns."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from shared.core.compaction.digest import digest
from shared.core.compaction.jobs import LATE, MANUAL, WITH_COMPACTION, retry_seconds, was_flushed
from shared.core.compaction.note_requests import NoteDraft, drafts_of, foreign_part, parse_notes
from shared.core.context.memory_tools import FLUSH_TOOLS, KEEPING_TOOLS, SAVE_MEMORY
from shared.core.context.prompts import SILENT, most_notes
from shared.core.context.recall_query import RECALL, RECALLS_PER_TURN
from shared.core.context.untrusted_text import defuse
from shared.core.session.ledger import Ledger
from shared.core.session.policy import ContradictoryPolicy
from shared.core.session.session import View
from shared.core.session.session_state import (
    FlushOutcome,
    FlushReport,
    FlushTicket,
    HiddenTurns,
    JobClaim,
    JobDone,
    SessionState,
)
from shared.core.session.turns import Spending
from shared.core.values.errors import (
    CapReached,
    ContextBudgetExceeded,
    EvertalkError,
    LeaseLost,
    ModelError,
    StorageUnavailable,
)
from shared.core.values.messages import Message, ToolResult, ToolUse, text_of, tool_uses
from shared.core.verdicts.unable_models import UnableModels
from shared.ports import DASHBOARD, Announcer, ChatModel, ModelReply, ModelRequest, ToolContext
from shared.runtime import CrashPoint
from shared.services.compaction.silent_requests import (
    FlushPortion,
    SilentRequest,
    SilentRequests,
)
from shared.services.compaction.summarizer import redact_quotes
from shared.services.turns.spend_tracker import SpendTracker
from shared.services.turns.toolbox import Toolbox

MAX_FLUSH_ROUNDS = 3
"""Most model calls for one request of a flush."""
MAX_PORTIONS = 8
"""Most portions of turns that a job reads before it is due again for the rest.

A compaction does not wait for the rest, which a late flush reads.
"""
LEFT_OVER_SECONDS = 1.0
"""Seconds before a job that read `MAX_PORTIONS` reads the rest."""
FAULTS_AT_MOST = 3
"""Faults after which a job is dead; a late flush is tried without that limit."""
_RECALLED_ENOUGH = f"recall was used {RECALLS_PER_TURN} times already, which is the most."
DIGEST_TOKENS = 800
"""Most tokens of the digest from which notes are made if no model can write them."""
RESULT_TOKENS = 60
"""Tokens assumed around a tool result in a request, with a margin."""
_SPELLED_CALL = re.compile(rf'"name"\s*:\s*"{SAVE_MEMORY.name}"|\b{SAVE_MEMORY.name}\W{{0,3}}[({{]')
"""Pattern of a tool call written as text, which shows that the model or its server cannot call tools."""
STAGE = "saving to memory"
"""Stage that the dashboard shows while memory is saved."""
COMPACTION_PERCENT = 10
"""Percent of a compaction's progress assigned to its flush; the summary has the rest."""


class FlushStore(Protocol):
    """Store of memory flushes.

    `begin_flush` records the range of turns to read and returns its ticket. `end_flush` stores the report and
    its cost, and moves the session's flushed turn unless the flush failed. Both raise LeaseLost if
    another worker has the job. `record_spending` stores the cost of calls alone, also without the claim.
    """

    async def begin_flush(
        self, job: JobClaim, *, cycle: int, threshold: str, from_turn: int, through_turn: int
    ) -> FlushTicket: ...
    async def end_flush(
        self, job: JobClaim, ticket: FlushTicket, report: FlushReport, *, contact_id: int
    ) -> None: ...
    async def record_spending(
        self, job: JobClaim, *, purpose: str, spent: Sequence[Spending], contact_id: int
    ) -> None: ...


class UnflushedStore(Protocol):
    """Store that finds turns from which no notes were saved yet.

    `find_unflushed` returns the first range that was hidden before a flush had read it, None if there is
    none. `seconds_since_flush` counts from the last successful flush, None without one.
    """

    async def find_unflushed(self, session_id: int) -> HiddenTurns | None: ...
    async def seconds_since_flush(self, session_id: int) -> float | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushResult:
    """Result of flushing a range of turns; `ticket` belongs to the last portion, None if none was read."""

    outcome: FlushOutcome = "nothing"
    ticket: FlushTicket | None = None
    through: int
    """Number of the last turn that was read."""
    portions: int = 0
    """Number of portions that were read or tried."""
    error: str = ""
    elsewhere: bool = False
    """True if a fallback model may succeed where this one failed."""


class _NoteNotStored(Exception):
    """Exception for a note that the store did not take, so that its turns must be read again."""


@dataclass(slots=True, kw_only=True)
class _SilentTurn:
    """State of reading one portion of turns."""

    job: JobClaim
    state: SessionState
    ticket: FlushTicket
    saved: int = 0
    recalls: int = 0
    shown: tuple[str, ...] = ()
    """Text of others that tools brought into this call, whose steps are not stored."""
    stray: list[str]
    unreadable: bool = False
    """True if a model answered with something other than notes."""

    @property
    def outcome(self) -> FlushOutcome:
        return "saved" if self.saved else "nothing"

    def hear(self, reply: ModelReply) -> None:
        """Keep an answer's text, unless it only says that there is nothing to save."""
        text = text_of(reply.blocks).strip()
        if text and text.strip(".").upper() != SILENT:
            self.stray.append(text)

    def turn_of(self, seq: int | None) -> int | None:
        """Return the turn of a message that was read; None for any other number."""
        read = range(self.ticket.from_turn, self.ticket.through_turn + 1)
        entries = self.state.view.entries
        return next((entry.turn for entry in entries if entry.seq == seq and entry.turn in read), None)


class Flusher:
    """Service that saves memory notes from turns before they are hidden."""

    def __init__(
        self,
        *,
        store: FlushStore,
        owed: UnflushedStore,
        model: ChatModel,
        toolbox: Toolbox,
        silent_requests: SilentRequests,
        announcer: Announcer,
        crash_point: CrashPoint,
        unable: UnableModels,
    ) -> None:
        self._unable = unable
        self._store = store
        self._owed = owed
        self._model = model
        self._toolbox = toolbox
        self._silent_requests = silent_requests
        self._announcer = announcer
        self._crash_point = crash_point

    async def flush_early(self, job: JobClaim, state: SessionState) -> JobDone:
        """Run a flush that a threshold or a person requested; return the job's end.

        Turns that compactions hid unread come first; if some of them are left, the job is due again. Nothing
        more is done if the threshold was flushed already in this cycle; within the cooldown the job is due
        again later, and after `MAX_PORTIONS` portions soon. After a failure it is due again, or dead after
        `FAULTS_AT_MOST` faults; an operator's flush is dead at once. A later attempt reads again, since the
        first may have ended before its job did. Raises LeaseLost, StorageUnavailable, and NoRoom.
        """
        if state.view.flushed_turn < state.view.base_turn:
            late = await self.flush_late(job)
            if late.state != "done":
                return late
            state = replace(state, view=replace(state.view, flushed_turn=state.view.base_turn))
        prepared = await self._silent_requests.prepare(state, state.view, ())
        threshold = str(job.payload.get("threshold", "pressure"))
        cycle = int(job.payload.get("cycle", state.view.cycle))
        if job.trigger == MANUAL:
            flushed = await self.flush_range(job, state, through=state.answered_turn, threshold=MANUAL)
            failed = flushed.outcome == "failed"
            return _build_retry(job, flushed, dead=True) if failed else _end_at(flushed, state.answered_turn)
        tried = state.view.flush_thresholds if job.attempt == 1 else frozenset[str]()
        if cycle != state.view.cycle or was_flushed(threshold, tried, prepared.policy):
            # The turn that requested this was claimed before the flush of this cycle had ended.
            return _done(FlushResult(through=state.view.flushed_turn))
        since = await self._owed.seconds_since_flush(job.session_id)
        wait = 0.0 if since is None else prepared.policy.timing.flush_cooldown_seconds - since
        if wait > 0 and state.view.flushed_turn < state.answered_turn:
            return JobDone(outcome={"deferred": "cooldown"}, state="due", retry_seconds=wait)
        flushed = await self.flush_range(job, state, through=state.answered_turn, threshold=threshold)
        if flushed.outcome == "failed":
            return _build_retry(job, flushed, for_ever=False)
        return _end_at(flushed, state.answered_turn)

    async def flush_late(self, job: JobClaim) -> JobDone:
        """Flush turns that compactions hid unread, one compaction after the other; return the job's end.

        The job is due again until all are read, however often it fails; an operator's flush is dead at once.
        Raises LeaseLost and StorageUnavailable.
        """
        flushed, left = FlushResult(through=0), MAX_PORTIONS
        while left > 0:
            owed = await self._owed.find_unflushed(job.session_id)
            if owed is None:
                break
            flushed = await self.flush_range(
                job, owed.state, through=owed.through_turn, threshold=LATE, ledger=owed.ledger, most=left
            )
            if flushed.outcome == "failed":
                return _build_retry(job, flushed, for_ever=True, dead=job.trigger == MANUAL)
            left -= max(1, flushed.portions)
        done = _done(flushed)
        if await self._owed.find_unflushed(job.session_id) is None:
            return done
        return replace(done, state="due", retry_seconds=LEFT_OVER_SECONDS)

    async def flush_before_compaction(
        self, job: JobClaim, state: SessionState, *, through: int
    ) -> FlushResult:
        """Flush turns up to `through` before a compaction hides them, without a cooldown; return the result.

        Turns that earlier compactions hid unread come first; if some are left or fail, the result is failed.
        Raises LeaseLost and StorageUnavailable, nothing for failures of models.
        """
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
        """Record the start of a flush whose notes come with the summary of the same turns; return its ticket.

        Raises LeaseLost.
        """
        return await self._begin(job, state.view, WITH_COMPACTION, through)

    async def end_with_summary(
        self,
        job: JobClaim,
        state: SessionState,
        ticket: FlushTicket,
        notes: Sequence[NoteDraft] | None,
    ) -> FlushResult:
        """Save the notes of a summary's answer, end its flush, and return the result.

        None as `notes` means an unreadable answer. With it, or if a note cannot be stored, the flush has
        failed and its turns stay unflushed. The cost is recorded with the summary. Raises LeaseLost and
        StorageUnavailable.
        """
        silent = _SilentTurn(job=job, state=state, ticket=ticket, stray=[])
        error = "" if notes is not None else "the summary's answer held no notes"
        try:
            await self._keep(notes or (), silent)
        except _NoteNotStored as failure:
            error = str(failure)
        self._crash_point("after_flush_model")
        outcome: FlushOutcome = "failed" if error else silent.outcome
        through = state.view.flushed_turn if error else ticket.through_turn
        report = FlushReport(
            outcome=outcome, model=self._silent_requests.list_chat_models(state)[0], error=error
        )
        await self._store.end_flush(job, ticket, report, contact_id=state.contact_id)
        self._crash_point("after_flush")
        return FlushResult(outcome=outcome, ticket=ticket, through=through, error=error)

    async def flush_range(
        self,
        job: JobClaim,
        state: SessionState,
        *,
        through: int,
        threshold: str,
        ledger: Ledger | None = None,
        most: int | None = None,
    ) -> FlushResult:
        """Save notes from the unflushed turns up to `through`, in at most `most` portions; return the result.

        None as `most` means `MAX_PORTIONS`. If turns are left, the result's `through` is below `through`.
        A model that fails is replaced by its fallback. Failures of models, caps and settings are stored, not
        raised, and leave their turns unflushed. `ledger` is the summary that replaced the turns, None without
        one; the program makes notes from it if no model can. Raises LeaseLost and StorageUnavailable.
        """
        state = await self._silent_requests.with_descriptions(state)
        view = state.view
        first, saved, models = view.flushed_turn, False, self._silent_requests.list_chat_models(state)
        done = FlushResult(through=first)
        tools = await self._silent_requests.load_tools(state) if first < through else ()

        def share(turn: int) -> float:
            return (turn - first) / max(1, through - first)

        for number in range(MAX_PORTIONS if most is None else most):
            if view.flushed_turn >= through:
                break
            try:
                portion = await self._silent_requests.next_portion(
                    state, view, tools, through=through, model=models[0]
                )
            except ContradictoryPolicy as error:
                # No request fits these settings: a failure like any other, tried again later.
                ticket = await self._begin(job, view, threshold, through)
                fault = _describe(error)
                report = FlushReport(outcome="failed", model=models[0], error=fault)
                await self._store.end_flush(job, ticket, report, contact_id=state.contact_id)
                return FlushResult(outcome="failed", ticket=ticket, through=view.flushed_turn, error=fault)
            at = share(view.flushed_turn), share(portion.last)
            done = await self._flush_portion(job, state, portion, threshold, ledger=ledger, at=at)
            if done.elsewhere and len(models) > 1:
                models.pop(0)
                continue
            if done.outcome == "failed":
                break
            saved = saved or done.outcome == "saved"
            done = replace(done, outcome="saved" if saved else done.outcome, portions=number + 1)
            view = replace(view, flushed_turn=portion.last)
        return done

    async def _begin(self, job: JobClaim, view: View, threshold: str, through: int) -> FlushTicket:
        return await self._store.begin_flush(
            job,
            cycle=view.cycle,
            threshold=threshold,
            from_turn=view.flushed_turn + 1,
            through_turn=through,
        )

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
        ticket = await self._begin(job, portion.view, threshold, portion.last)
        tracker = self._silent_requests.open_spend_tracker(job)
        silent = _SilentTurn(job=job, state=state, ticket=ticket, stray=[])
        try:
            return await self._read_portion(portion, tracker, silent, ledger=ledger, at=at)
        except Exception:
            await self._book(silent, tracker.take_spent())
            raise

    async def _read_portion(
        self,
        portion: FlushPortion,
        tracker: SpendTracker,
        silent: _SilentTurn,
        *,
        ledger: Ledger | None,
        at: tuple[float, float],
    ) -> FlushResult:
        """Save notes from one portion and store the end of its flush; return the result.

        The calls that no stored end contains stay in `tracker`. Raises LeaseLost and StorageUnavailable.
        """
        job, state, ticket = silent.job, silent.state, silent.ticket
        outcome: FlushOutcome
        outcome, error, elsewhere = "nothing", "", False
        try:
            for ask in await self._silent_requests.build(portion, state):
                await self._run_silent_turn(ask, tracker, silent, at=at)
            if portion.way == "code" or silent.unreadable:
                await self._save_without_model(portion, ledger, silent)
            outcome = silent.outcome
        except (ModelError, CapReached, ContextBudgetExceeded) as failure:
            outcome, error = "failed", _describe(failure)
            elsewhere = isinstance(failure, ModelError) and failure.elsewhere
        except _NoteNotStored as failure:
            outcome, error = "failed", str(failure)
        except asyncio.CancelledError:
            with suppress(LeaseLost, StorageUnavailable):
                await self._record_interruption(portion, tracker, silent)
            raise
        self._crash_point("after_flush_model")
        report = FlushReport(
            outcome=outcome, stray_text="\n\n".join(silent.stray), error=error,
            model=portion.model, spent=tracker.take_spent(),
        )  # fmt: skip
        await self._end(silent, report)
        self._crash_point("after_flush")
        if outcome != "failed":
            await self._report_progress(job, at[1])
        read = portion.view.flushed_turn if outcome == "failed" else portion.last
        return FlushResult(outcome=outcome, ticket=ticket, through=read, error=error, elsewhere=elsewhere)

    async def _record_interruption(
        self, portion: FlushPortion, tracker: SpendTracker, silent: _SilentTurn
    ) -> None:
        """Store an interrupted flush as failed, with its cost; the next attempt reads these turns again.

        Raises LeaseLost, after booking the cost alone, and StorageUnavailable.
        """
        report = FlushReport(
            outcome="failed", model=portion.model, error="it was cut off", spent=tracker.take_spent()
        )
        await self._end(silent, report)

    async def _end(self, silent: _SilentTurn, report: FlushReport) -> None:
        """Store the end of a flush and its cost.

        Raises LeaseLost, after booking the cost alone, and StorageUnavailable.
        """
        try:
            await self._store.end_flush(silent.job, silent.ticket, report, contact_id=silent.state.contact_id)
        except LeaseLost:
            await self._book(silent, report.spent)
            raise

    async def _book(self, silent: _SilentTurn, spent: tuple[Spending, ...]) -> None:
        """Store the cost of calls whose flush has no stored end, since they are paid; ignore an outage."""
        if spent:
            with suppress(StorageUnavailable):
                await self._store.record_spending(
                    silent.job, purpose="flush", spent=spent, contact_id=silent.state.contact_id
                )

    async def _run_silent_turn(
        self, ask: SilentRequest, tracker: SpendTracker, silent: _SilentTurn, *, at: tuple[float, float]
    ) -> None:
        """Ask the model for notes with at most `MAX_FLUSH_ROUNDS` calls, and save them.

        `at` is the job's progress before and after, each 0 to 1. The messages are not stored in the log.
        Raises ModelError, CapReached, LeaseLost, StorageUnavailable, and _NoteNotStored.
        """
        request = ask.request
        for called in range(MAX_FLUSH_ROUNDS):
            reply = await tracker.pay_for(
                partial(self._model.reply, request),
                input_tokens=ask.estimate,
                output_tokens=ask.out,
                card=ask.card,
            )
            percent = at[0] + (at[1] - at[0]) * (called + 1) / (MAX_FLUSH_ROUNDS + 1)
            await self._report_progress(silent.job, percent)
            if not request.tools:
                await self._save_text_notes(request, reply, silent)
                return
            silent.hear(reply)
            calls = tool_uses(reply.blocks)
            spelled = not calls and not called and bool(_SPELLED_CALL.search(text_of(reply.blocks)))
            silent.unreadable = silent.unreadable or spelled
            if calls or spelled:
                self._unable.learn(request.model, "tools", able=bool(calls), session=silent.job.session_id)
            if not calls:
                return
            results = [await self._run_memory_tool(call, silent) for call in calls]
            if reply.stop_reason != "max_tokens" and _needs_no_answer(calls, results):
                return
            told = sum(self._silent_requests.count_tokens(result.text) + RESULT_TOKENS for result in results)
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

    async def _save_text_notes(self, request: ModelRequest, reply: ModelReply, silent: _SilentTurn) -> None:
        """Save the notes in a text answer; mark the answer as unreadable if it has no usable form."""
        answer = text_of(reply.blocks)
        if request.json_schema is not None and reply.stop_reason != "refusal":
            self._unable.learn_json(request.model, answer, session=silent.job.session_id)
        drafts = parse_notes(answer)
        if drafts is None:
            silent.unreadable = True
            silent.hear(reply)
        await self._keep(drafts or (), silent)

    async def _save_without_model(
        self, portion: FlushPortion, ledger: Ledger | None, silent: _SilentTurn
    ) -> None:
        """Save notes made without a model: from the ledger of the turns, else from a digest of their
        messages.
        """
        read = range(silent.ticket.from_turn, silent.ticket.through_turn + 1)
        entries = tuple(entry for entry in portion.view.entries if entry.turn in read)
        seqs = frozenset(entry.seq for entry in entries)
        most = most_notes(sum(entry.tokens for entry in entries))
        drafts = drafts_of(ledger, seqs, most=most) if ledger is not None else ()
        if not drafts:
            count = self._silent_requests.count_tokens
            made = await asyncio.to_thread(digest, entries, Ledger(), count, budget_tokens=DIGEST_TOKENS)
            drafts = drafts_of(made, seqs, most=most)
        await self._keep(drafts, silent)

    async def _keep(self, drafts: Sequence[NoteDraft], silent: _SilentTurn) -> None:
        """Store notes by the memory tool, with the same checks as calls of a model.

        Leaves out refused notes. Raises LeaseLost, StorageUnavailable, and _NoteNotStored.
        """
        for wish in drafts:
            shown = silent.shown
            if wish.by_tool:
                silent.shown = (*shown, wish.text)
            await self._run_memory_tool(wish.call, silent, turn=silent.turn_of(wish.seq))
            silent.shown = shown

    async def _report_progress(self, job: JobClaim, share: float) -> None:
        """Announce progress to the dashboard only, since people do not see flushes."""
        percent = round((COMPACTION_PERCENT if job.kind == "compact" else 100) * share)
        told = {"t": "progress", "job": job.id, "percent": percent, "stage": STAGE}
        await self._announcer.announce(DASHBOARD, told)

    async def _run_memory_tool(
        self, call: ToolUse, silent: _SilentTurn, *, turn: int | None = None
    ) -> ToolResult:
        """Run one call of a memory tool and count saved notes.

        Raises LeaseLost and StorageUnavailable, and _NoteNotStored after any other fault of a tool that
        changes notes; a refused note is no fault. `turn` is the turn of the note; None stands for all turns
        of the flush.
        """
        if call.name == RECALL.name:
            silent.recalls += 1
            if silent.recalls > RECALLS_PER_TURN:
                return ToolResult(tool_use_id=call.id, text=_RECALLED_ENOUGH, is_error=True)
        state, ticket = silent.state, silent.ticket
        context = ToolContext(
            session_id=silent.job.session_id,
            contact_id=state.contact_id,
            scope=state.agent,
            turn=turn or ticket.from_turn,
            through_turn=turn or ticket.through_turn,
            key=f"flush:{ticket.id}:{call.id}",
            call_id=call.id,
            flush_id=ticket.id,
            job_id=silent.job.id,
            epoch=silent.job.epoch,
            shown=silent.shown,
            agent_config=state.agent_config,
            timezone=state.timezone,
        )
        ran = (
            await self._toolbox.for_agent(state.agent_config)
            .restrict_to(FLUSH_TOOLS)
            .run(call, context=context)
        )
        if isinstance(ran.fault, LeaseLost | StorageUnavailable):
            # Nothing more can be stored, so the attempt ends, and these turns are read again.
            raise ran.fault
        if ran.fault is not None and call.name in KEEPING_TOOLS:
            raise _NoteNotStored(f"note_not_stored: {ran.result.text}") from ran.fault
        if foreign := foreign_part(call.name, ran.result.text):
            silent.shown += (foreign,)
        silent.saved += ran.status == "done" and ran.result.text.startswith(("Saved", "Changed"))
        return replace(ran.result, text=defuse(ran.result.text))


def _needs_no_answer(calls: Sequence[ToolUse], results: Sequence[ToolResult]) -> bool:
    """Return whether all calls save, change or archive notes without an error.

    The model need not be asked again then.
    """
    kept = all(call.name in KEEPING_TOOLS for call in calls)
    return kept and not any(result.is_error for result in results)


def _done(flushed: FlushResult) -> JobDone:
    ticket = flushed.ticket
    return JobDone(outcome={"flush": ticket.id if ticket else None, "outcome": flushed.outcome})


def _end_at(flushed: FlushResult, through: int) -> JobDone:
    """Return the end of a flush of the turns up to `through`: done, or due again if some are left."""
    done = _done(flushed)
    if flushed.through >= through:
        return done
    return replace(done, state="due", retry_seconds=LEFT_OVER_SECONDS)


def _describe(failure: EvertalkError) -> str:
    """Return a failure's code and text without quotations, which may be text of people."""
    return redact_quotes(f"{failure.code}: {failure}")


def _build_retry(
    job: JobClaim, flushed: FlushResult, *, for_ever: bool = False, dead: bool = False
) -> JobDone:
    """Return the end of a failed flush: due again, or dead after `FAULTS_AT_MOST` faults unless `for_ever`.

    `dead` ends a flush that an operator requested at once.
    """
    over = dead or (not for_ever and job.faults + 1 >= FAULTS_AT_MOST)
    return replace(
        _done(flushed),
        state="dead" if over else "due",
        error=flushed.error,
        retry_seconds=retry_seconds(job.faults),
    )
