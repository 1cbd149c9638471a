"""The silent jobs: flush memory, compact, ask what is due next. Nothing here can reach a person."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import structlog

from shared.core.compaction import CompactionPlan, NothingToCompact, plan_compaction
from shared.core.errors import CapReached, EvertalkError, Fenced, ModelError, StaleView, StorageUnavailable
from shared.core.jobs import next_job
from shared.core.messages import Message, ToolUse, text_of, tool_uses
from shared.core.prompts import SILENT, flush_instruction
from shared.core.summary import five_fields, render_summary
from shared.core.turns import Caps, JobOrder, Spending
from shared.core.upkeep import (
    FlushOutcome,
    FlushReport,
    FlushTicket,
    JobClaim,
    LinkStored,
    NewLink,
    SessionState,
)
from shared.ports import Announcer, ChatModel, Doorbell, ToolContext
from shared.services.crash import CrashPoint
from shared.services.pictures import Pictures, Whose
from shared.services.prompting import Prepared, Prompting
from shared.services.spending import Purse, SpendStore
from shared.services.summariser import Summariser, Written
from shared.services.tools import Toolbox

log = structlog.get_logger(__name__)

FLUSH_ROUNDS = 3
PLANS_AT_MOST = 4
FAULTS_AT_MOST = 3
RETRY_SECONDS = 15.0
BREAKER_SECONDS = 900.0
"""After three failures a background job rests for 15 minutes (engine.md, invariant 8)."""
MEMORY_TOOLS = frozenset({"save_memory"})


class UpkeepStore(Protocol):
    async def due_job(self, session_id: int) -> int | None: ...
    async def state(self, session_id: int) -> SessionState: ...
    async def claim_job(self, job_id: int, *, worker_id: int) -> JobClaim | None: ...
    async def end_job(
        self,
        job: JobClaim,
        *,
        state: str,
        outcome: Mapping[str, Any],
        error: str = "",
        retry_seconds: float = 0.0,
        successor: JobOrder | None = None,
    ) -> int | None: ...
    async def begin_flush(
        self, job: JobClaim, *, cycle: int, threshold: str, from_turn: int, through_turn: int
    ) -> FlushTicket: ...
    async def end_flush(
        self, job: JobClaim, ticket: FlushTicket, report: FlushReport, *, party_id: int
    ) -> None: ...
    async def record_spending(
        self, job: JobClaim, *, purpose: str, spent: Sequence[Spending], party_id: int
    ) -> None: ...
    async def record_compaction(
        self, job: JobClaim, link: NewLink, *, seen: SessionState, spent: Sequence[Spending]
    ) -> LinkStored: ...
    async def compaction_of(self, job: JobClaim) -> Mapping[str, Any] | None: ...


class Maintenance:
    def __init__(
        self,
        *,
        worker_id: int,
        store: UpkeepStore,
        spend: SpendStore,
        model: ChatModel,
        prompting: Prompting,
        summariser: Summariser,
        toolbox: Toolbox,
        announcer: Announcer,
        doorbell: Doorbell,
        pictures: Pictures,
        caps: Caps,
        crash_point: CrashPoint,
    ) -> None:
        self._worker_id = worker_id
        self._store = store
        self._spend = spend
        self._model = model
        self._prompting = prompting
        self._summariser = summariser
        self._toolbox = toolbox
        self._announcer = announcer
        self._doorbell = doorbell
        self._pictures = pictures
        self._caps = caps
        self._crash_point = crash_point

    async def run(self, job_id: int) -> None:
        """Do one job if it is still to be done; its row ends as done, dead or due again, whatever happens."""
        job = await self._store.claim_job(job_id, worker_id=self._worker_id)
        if job is None:
            return
        self._crash_point("after_job_claim")
        try:
            outcome = await (self._compact(job) if job.kind == "compact" else self._flush(job))
            successor = await self._next(job)
            rung = await self._store.end_job(job, state="done", outcome=outcome, successor=successor)
        except Fenced:
            log.info("job_fenced", job_id=job.id)
        except Exception as error:
            log.exception("job_failed", job_id=job.id, kind=job.kind, session_id=job.session_id)
            await self._failed(job, error)
        else:
            await self._ring_next(job, rung)

    async def _ring_next(self, job: JobClaim, successor: int | None) -> None:
        """One job of a session runs at a time: whatever waited for this one would wait for the sweep."""
        with contextlib.suppress(StorageUnavailable):
            waiting = successor if successor is not None else await self._store.due_job(job.session_id)
            if waiting is not None:
                await self._doorbell.ring(waiting, 0)

    async def _failed(self, job: JobClaim, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        dead = job.trigger == "manual" or job.faults + 1 >= FAULTS_AT_MOST
        advice = error.advice if isinstance(error, EvertalkError) else EvertalkError.advice
        try:
            await self._store.end_job(
                job,
                state="dead" if dead else "due",
                outcome={"advice": advice},
                error=reason,
                retry_seconds=RETRY_SECONDS,
            )
            await self._progress(job, 100, "failed", state="failed")
        except (Fenced, StorageUnavailable):
            log.warning("job_left_to_the_sweep", job_id=job.id)

    async def _next(self, job: JobClaim) -> JobOrder | None:
        """Look again, as after every turn: the work may not be over."""
        state = await self._store.state(job.session_id)
        prepared = await self._prepared(state)
        wish = next_job(
            state.view,
            budget=prepared.budget,
            policy=prepared.policy,
            context_tokens=state.view.context_tokens,
        )
        if wish is None or wish.key == job.key:
            return None
        return JobOrder(kind=wish.kind, key=wish.key, trigger=wish.trigger, payload=wish.payload)

    async def _told(self, state: SessionState) -> SessionState:
        """With what its pictures show: whoever reads these words later has no pictures."""
        whose = Whose(
            session_id=state.session_id,
            party_id=state.party_id,
            chat_model=self._prompting.model_of(state.agent_config),
        )
        view = state.view
        entries = await self._pictures.told(view.entries, whose=whose)
        pins = await self._pictures.told(view.pins, whose=whose)
        return replace(state, view=replace(view, entries=entries, pins=pins))

    # ---- flush

    async def _flush(self, job: JobClaim) -> dict[str, Any]:
        state = await self._store.state(job.session_id)
        threshold = str(job.payload.get("threshold", "pressure"))
        if job.attempt == 1 and threshold in state.view.flush_thresholds:
            # Asked for by a turn that was claimed before the flush of this cycle had ended.
            return {"flush": None, "outcome": "nothing"}
        state = await self._told(state)
        ticket, outcome = await self._flush_range(
            job, state, through=state.answered_turn, threshold=threshold
        )
        return {"flush": ticket.id if ticket else None, "outcome": outcome}

    async def _flush_range(
        self, job: JobClaim, state: SessionState, *, through: int, threshold: str
    ) -> tuple[FlushTicket | None, FlushOutcome]:
        """Save what should outlive the range; a failure is a row, and the cursor stays where it is."""
        if state.view.flushed_turn >= through:
            return None, "nothing"
        ticket = await self._store.begin_flush(
            job, cycle=state.view.cycle, threshold=threshold,
            from_turn=state.view.flushed_turn + 1, through_turn=through,
        )  # fmt: skip
        purse = self._purse(job)
        saved, stray, error = 0, "", ""
        outcome: FlushOutcome = "nothing"
        try:
            saved, stray = await self._ghost_turn(job, state, ticket, purse)
            outcome = "saved" if saved else "nothing"
        except (ModelError, CapReached) as failure:
            outcome, error = "failed", f"{failure.code}: {failure}"
        self._crash_point("after_flush_model")
        report = FlushReport(
            outcome=outcome, stray_text=stray, error=error,
            model=self._prompting.model_of(state.agent_config), spent=tuple(purse.spent),
        )  # fmt: skip
        await self._store.end_flush(job, ticket, report, party_id=state.party_id)
        self._crash_point("after_flush")
        return ticket, outcome

    async def _ghost_turn(
        self, job: JobClaim, state: SessionState, ticket: FlushTicket, purse: Purse
    ) -> tuple[int, str]:
        """Notes saved, and the words that nobody will see; the turn itself is never stored."""
        prepared = await self._prepared(state, instruction=flush_instruction())
        if prepared.estimate > prepared.budget.hard:
            prepared = self._prompting.shrink(
                prepared, state.view, state.agent_config, hard=prepared.budget.hard
            )
        if not prepared.request.tools:
            return 0, ""  # a model without tools cannot save: the call would cost a whole context for nothing
        request, saved = prepared.request, 0
        for _ in range(FLUSH_ROUNDS):
            reply = await purse.pay_for(
                partial(self._model.reply, request),
                input_tokens=prepared.estimate,
                output_tokens=prepared.budget.out,
                card=prepared.card,
            )
            calls = tool_uses(reply.blocks)
            if not calls:
                text = text_of(reply.blocks).strip()
                return saved, "" if text.strip(".").upper() == SILENT else text
            results = [await self._remember(job, state, ticket, call) for call in calls]
            saved += sum(fresh for _, fresh in results)
            request = replace(
                request,
                messages=(
                    *request.messages,
                    Message(role="assistant", blocks=reply.blocks),
                    Message(role="user", blocks=tuple(result for result, _ in results)),
                ),
            )
        return saved, ""

    async def _remember(
        self, job: JobClaim, state: SessionState, ticket: FlushTicket, call: ToolUse
    ) -> tuple[Any, bool]:
        context = ToolContext(
            session_id=job.session_id,
            party_id=state.party_id,
            scope=state.agent,
            turn=ticket.from_turn,
            through_turn=ticket.through_turn,
            key=f"flush:{ticket.id}:{call.id}",
            flush_id=ticket.id,
        )
        result, status = await self._toolbox.only(MEMORY_TOOLS).run(call, context=context)
        return result, status == "done" and result.text.startswith("Saved")

    # ---- compaction

    async def _compact(self, job: JobClaim) -> dict[str, Any]:
        force = bool(job.payload.get("force"))
        focus = job.payload.get("focus") or None
        purse = self._purse(job)
        if job.attempt > 1 and (done := await self._store.compaction_of(job)) is not None:
            # An earlier attempt died after its commit: what was asked for is there.
            return dict(done)
        for _ in range(PLANS_AT_MOST):
            state = await self._told(await self._store.state(job.session_id))
            prepared = await self._prepared(state)
            plan = plan_compaction(
                state.view,
                budget=prepared.budget,
                policy=prepared.policy,
                force=force,
                now_tokens=state.view.context_tokens,
                summariser_window=await self._summariser.window(),
                ratio=prepared.ratio,
            )
            if isinstance(plan, NothingToCompact):
                return {"nothing": plan.reason, "detail": plan.detail}
            try:
                return await self._carry_out(job, state, plan, purse, focus)
            except StaleView:
                log.info("compaction_planned_again", job_id=job.id, session_id=job.session_id)
                await self._pay_for_nothing(job, state, purse)
        return {"nothing": "busy", "detail": "The conversation kept changing."}

    async def _carry_out(
        self,
        job: JobClaim,
        state: SessionState,
        plan: CompactionPlan,
        purse: Purse,
        focus: str | None,
    ) -> dict[str, Any]:
        await self._progress(job, 0, "saving what should be kept")
        ticket, _ = await self._flush_range(job, state, through=plan.through_turn, threshold="compaction")

        async def told(percent: int, stage: str) -> None:
            await self._progress(job, 10 + percent * 8 // 10, stage)

        written = await self._summariser.write(plan, purse=purse, focus=focus, on_progress=told)
        link = self._link(job, state, plan, written, purse, focus, ticket)
        stored = await self._store.record_compaction(job, link, seen=state, spent=purse.spent)
        self._crash_point("after_compaction")
        await self._announcer.announce(job.session_id, {"event_seq": stored.event_seq})
        await self._progress(job, 100, "done", state="done")
        return {
            "link": stored.link_id,
            "kind": written.kind,
            "before": stored.tokens_before,
            "after": stored.tokens_after,
            "turns": plan.through_turn - plan.from_turn + 1,
        }

    def _link(
        self,
        job: JobClaim,
        state: SessionState,
        plan: CompactionPlan,
        written: Written,
        purse: Purse,
        focus: str | None,
        ticket: FlushTicket | None,
    ) -> NewLink:
        summary = render_summary(written.ledger)
        costs = [call.cost_micro for call in purse.spent]
        verdict = written.verdict
        return NewLink(
            kind=written.kind,
            from_turn=plan.from_turn,
            through_turn=plan.through_turn,
            from_seq=min(entry.seq for entry in plan.entries),
            through_seq=plan.through_seq,
            trigger=job.trigger,
            summary_text=summary,
            ledger=written.ledger,
            contract=five_fields(written.ledger),
            audit={} if verdict is None else {
                "scores": dict(verdict.scores),
                "soft_faults": list(verdict.soft_faults),
                "dropped": len(verdict.dropped_items),
            },
            tokens=self._prompting.counter.count(summary),
            tokens_before=state.view.context_tokens,
            model=written.model,
            cost_micro=None if None in costs else sum(cost or 0 for cost in costs),
            duration_ms=written.duration_ms,
            flush_id=ticket.id if ticket else None,
            focus=focus or "",
        )  # fmt: skip

    async def _pay_for_nothing(self, job: JobClaim, state: SessionState, purse: Purse) -> None:
        await self._store.record_spending(job, purpose="compact", spent=purse.spent, party_id=state.party_id)
        purse.spent.clear()

    # ---- shared by both

    async def _prepared(self, state: SessionState, *, instruction: str = "") -> Prepared:
        card = await self._model.card(self._prompting.model_of(state.agent_config))
        return self._prompting.prepare(
            state.view,
            card=card,
            agent_config=state.agent_config,
            tools=self._toolbox.specs,
            token_ratio=state.token_ratio,
            instruction=instruction,
        )

    def _purse(self, job: JobClaim) -> Purse:
        return Purse(self._spend, session_id=job.session_id, job_id=job.id, caps=self._caps)

    async def _progress(self, job: JobClaim, percent: int, stage: str, *, state: str = "running") -> None:
        if job.kind == "compact":
            frame = {"t": "compaction.progress", "id": str(job.id), "percent": percent, "stage": stage}
            await self._announcer.announce(job.session_id, {**frame, "state": state})
