"""Turns a plan into an audited ledger: ask, audit, repair once, ask the next model, else a digest."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from math import ceil

import structlog

from shared.core.compaction.audit import AuditVerdict
from shared.core.compaction.digest import digest
from shared.core.compaction.merging import in_groups, joined, shortly
from shared.core.compaction.plan import CompactionPlan
from shared.core.compaction.summary_filters import may_be_quoted
from shared.core.compaction.transcript_lines import (
    MESSAGE_TOKENS,
    Portion,
    halves,
    readable,
    render_source,
    source_tokens,
    summary_room,
    with_days,
)
from shared.core.context.topics import topics_of
from shared.core.session.ledger import Ledger
from shared.core.session.rendering import fit_ledger, render_summary
from shared.core.values.errors import CapReached, ModelError, PromptTooLong
from shared.core.values.messages import text_message, text_of, tool_uses
from shared.ports import ChatModel, ModelReply, ModelRequest, TokenCounter
from shared.runtime.crash_points import CrashPoint
from shared.services.compaction.one_shot_completion import CompletionTimeouts, OneShotCompletion
from shared.services.compaction.summary_draft import (
    OnProgress,
    SummaryAttempt,
    SummaryDraft,
    SummaryResult,
    build_summary_audit,
)
from shared.services.compaction.summary_tasks import SummaryTask, SummaryTasks
from shared.services.compaction.unable_models import UnableModels
from shared.services.turns.spend_tracker import SpendTracker

__all__ = ["SummaryAttempt", "OnProgress", "Summariser", "SummaryResult"]

log = structlog.get_logger(__name__)

DIGEST_TOKENS = 1_000
"""Without a model: with recall this keeps 88.6 % of literal answers reachable (engine.md)."""
MAX_ATTEMPTS = 2
"""Of one model at one step: an answer, and a repaired one."""
MAX_SPLITS = 16
_ECHOED_CHARS = 12_000
"""Of an answer that is to be repaired; an endless one would not fit beside its own request."""


class Summariser:
    def __init__(
        self,
        *,
        model: ChatModel,
        counter: TokenCounter,
        summary_model: str,
        chat_model: str,
        fall_back: bool,
        crash_point: CrashPoint,
        unable: UnableModels,
        bounds: CompletionTimeouts | None = None,
    ) -> None:
        self._asking = OneShotCompletion(model, counter, bounds=bounds or CompletionTimeouts())
        self._counter = counter
        self._models = (
            [summary_model, chat_model] if fall_back and chat_model != summary_model else [summary_model]
        )
        self._crash_point = crash_point
        self._unable = unable

    async def load_window(self, model: str | None = None) -> int:
        """Of the model that is asked first."""
        return (await self._asking.load_card(model or self._models[0])).window

    async def write(
        self,
        plan: CompactionPlan,
        *,
        purse: SpendTracker,
        focus: str | None,
        on_progress: OnProgress,
        models: Sequence[str] | None = None,
        warm: ModelRequest | None = None,
        with_notes: bool = False,
        attempts: int = MAX_ATTEMPTS,
    ) -> SummaryResult:
        """Never raises for what a model does: the last resort needs none.

        `models` are asked in this order instead of the configured ones, `attempts` times at each step. `warm`
        is the chat's own last request: its model is asked first, on that very prefix with the instruction
        behind it, and `with_notes` for what is to be saved to memory, too.
        """
        started = time.monotonic()
        names = list(models) if models is not None else list(self._models)
        writing = SummaryDraft(
            plan=plan,
            purse=purse,
            tasks=SummaryTasks(plan=plan, focus=focus, count_tokens=self._counter.count_tokens),
            on_progress=on_progress,
            models=names,
            named=set(plan.named),
            title=plan.former.title,
            message_tokens=await self._message_tokens(names, plan),
            most_attempts=attempts,
        )
        ledger = None
        if warm is not None:
            ledger = await self._write_on_warm_prefix(writing, warm, with_notes=with_notes)
        if ledger is None:
            merging = plan.merged and len(plan.chunks) > 1
            ledger = await (self._merge_portions(writing) if merging else self._fold_portions(writing))
        self._crash_point("after_summary_model")
        return self._build_result(writing, ledger, started)

    # ---- three ways

    async def _write_on_warm_prefix(
        self, writing: SummaryDraft, warm: ModelRequest, *, with_notes: bool
    ) -> Ledger | None:
        await writing.on_progress(0, "summarising")
        plan = writing.plan
        source = render_source(plan.entries, message_tokens=_WHOLE, zone=plan.zone)
        task = writing.tasks.build_whole(source, warm, with_notes=with_notes, titled=not writing.title)
        try:
            verdict = await self._ask_model(writing, warm.model, task)
        except PromptTooLong as error:
            writing.record_failure(task.step, warm.model, error.code)
            return None
        if verdict is None:
            return None
        writing.model, writing.way, writing.portions = warm.model, "warm", 1
        writing.verdicts.append(verdict)
        return verdict.ledger

    async def _fold_portions(self, writing: SummaryDraft) -> Ledger:
        """Portion by portion into one ledger; what no model could read is digested behind it."""
        pending = deque(writing.plan.chunks)
        ledger = writing.plan.former
        while pending:
            await self._report_progress(writing, pending)
            portion = pending.popleft()
            after = await self._write_portion(writing, portion, ledger, pending)
            if after is None and pending and self._was_cut(portion, pending):
                continue
            if after is None:
                rest = tuple(entry for part in (portion, *pending) for entry in part)
                return self._write_digest(writing, rest, ledger)
            ledger = after
        return ledger

    async def _merge_portions(self, writing: SummaryDraft) -> Ledger:
        """Each portion by itself, then all of them into one."""
        plan = writing.plan
        writing.way = "merge"
        pending = deque(plan.chunks)
        parts: list[Ledger] = []
        while pending:
            await self._report_progress(writing, pending)
            portion = pending.popleft()
            part = await self._write_portion(writing, portion, Ledger(), pending)
            if part is None and pending and self._was_cut(portion, pending):
                continue
            parts.append(part or self._write_digest(writing, portion, Ledger()))
        if plan.former != Ledger():
            parts.insert(0, plan.former)
        await writing.on_progress(_MERGING_AT, "merging")
        return await self._merge_all(writing, parts)

    async def _merge_all(self, writing: SummaryDraft, parts: list[Ledger]) -> Ledger:
        """In stages where one request cannot hold all parts; without a model, joined by code."""
        while len(parts) > 1:
            room = await self._merge_room(writing)
            groups = in_groups(parts, room, self._counter.count_tokens)
            parts = [await self._merge_group(writing, group) for group in groups]
        return parts[0]

    async def _merge_group(self, writing: SummaryDraft, group: list[Ledger]) -> Ledger:
        if len(group) == 1:
            return group[0]
        whole = joined(group, writing.plan.form)
        source = self._source(writing, writing.plan.entries)
        task = writing.tasks.build_merge(group, whole, source)
        try:
            verdict = await self._ask_models(writing, task)
        except PromptTooLong as error:
            writing.record_failure(task.step, writing.models[0], error.code)
            verdict = None
        if verdict is None:
            return shortly(whole, writing.plan.summary_most, self._counter.count_tokens)
        writing.verdicts.append(verdict)
        return shortly(verdict.ledger, writing.plan.summary_most, self._counter.count_tokens)

    # ---- one portion

    async def _write_portion(
        self, writing: SummaryDraft, portion: Portion, former: Ledger, pending: deque[Portion]
    ) -> Ledger | None:
        """The ledger after it; None when nobody could write one, or when it was cut and put back."""
        source = self._source(writing, portion)
        try:
            task = writing.tasks.build_portion(source, former, titled=not writing.title)
            verdict = await self._ask_models(writing, task)
        except PromptTooLong as error:
            writing.record_failure("portion", writing.models[0], error.code)
            self._cut(writing, portion, pending)
            return None
        if verdict is None:
            return None
        writing.portions += 1
        writing.verdicts.append(verdict)
        return verdict.ledger

    def _cut(self, writing: SummaryDraft, portion: Portion, pending: deque[Portion]) -> None:
        """Two halves instead of a portion that is too long; a message that cannot be cut is named."""
        writing.splits += 1
        if writing.splits > MAX_SPLITS:
            return
        parts = halves(portion)
        if parts is not None:
            pending.extendleft(reversed(parts))
        elif portion[0].seq not in writing.named:
            writing.named.add(portion[0].seq)
            pending.appendleft(portion)

    def _was_cut(self, portion: Portion, pending: deque[Portion]) -> bool:
        return pending[0][0].seq == portion[0].seq

    async def _ask_models(self, writing: SummaryDraft, task: SummaryTask) -> AuditVerdict | None:
        """The first usable answer of the models that are left, or None. Raises PromptTooLong."""
        while writing.models:
            verdict = await self._ask_model(writing, writing.models[0], task)
            if verdict is not None:
                writing.model = writing.models[0]
                return verdict
            writing.models.pop(0)
        return None

    async def _ask_model(self, writing: SummaryDraft, model: str, task: SummaryTask) -> AuditVerdict | None:
        """One answer and, where so many are wanted, a repaired or a shorter one. Raises PromptTooLong."""
        room = await self._answer_room(writing, model)
        as_lines = self._unable.lacks(model, "json")
        request = task.build_request(model, room=room, as_lines=as_lines)
        too_long: AuditVerdict | None = None
        for number in range(writing.most_attempts):
            writing.paid_before = len(writing.purse.spent)
            try:
                reply = await self._asking.complete(request, purse=writing.purse, checked=task.prefix is None)
                if writing.notes is None:
                    writing.notes = task.notes_in(text_of(reply.blocks))
                writing.title = writing.title or await asyncio.to_thread(task.title_in, text_of(reply.blocks))
                judged = await self._audit_reply(reply, task)
            except PromptTooLong as error:
                if number == 0:
                    raise
                writing.record_failure(task.step, model, error.code)
                return too_long
            except (ModelError, CapReached) as error:
                writing.record_failure(task.step, model, f"{error.code}: {error}")
                return too_long
            if not task.is_text and not as_lines and reply.stop_reason != "refusal":
                self._unable.learn_json(model, text_of(reply.blocks))
            if isinstance(judged, AuditVerdict) and judged.ok:
                if not judged.too_long or number + 1 == writing.most_attempts:
                    return judged
                too_long = judged
            fault = judged if isinstance(judged, str) else "; ".join(judged.hard_faults) or judged.too_long
            scores = {} if isinstance(judged, str) else dict(judged.scores)
            writing.record_failure(task.step, model, fault, scores=scores)
            request = _repairing(request, reply, task.build_repair(fault))
        return too_long

    async def _audit_reply(self, reply: ModelReply, task: SummaryTask) -> AuditVerdict | str:
        """Beside the loop: checking a long range takes a good part of a second."""
        if reply.stop_reason == "window_exceeded":
            raise PromptTooLong("the model's window was exceeded while it answered")
        if reply.stop_reason == "refusal":
            return "the model refused"
        text = text_of(reply.blocks).strip()
        if not text and tool_uses(reply.blocks):
            return "it called a tool instead of answering"
        if reply.stop_reason == "max_tokens" and task.is_text:
            return "the answer is cut off"
        return await asyncio.to_thread(task.judge, text)

    # ---- without a model

    def _write_digest(self, writing: SummaryDraft, entries: Portion, former: Ledger) -> Ledger:
        faults = [attempt.code for attempt in writing.attempts]
        log.warning("summary_fell_back_to_digest", faults=faults)
        writing.digested = True
        most = min(DIGEST_TOKENS, writing.plan.summary_limit)
        kept = self._counter.count_tokens(render_summary(former)) if former != writing.plan.former else 0
        return digest(
            entries,
            former,
            self._counter.count_tokens,
            budget_tokens=min(writing.plan.summary_limit, max(most, kept + most // 2)),
        )

    def _build_result(self, writing: SummaryDraft, ledger: Ledger, started: float) -> SummaryResult:
        plan = writing.plan
        topics = topics_of(plan.entries, plan.former.topics)
        ledger = with_days(replace(ledger, topics=topics, title=writing.title), plan.entries, plan.zone)
        ledger = fit_ledger(ledger, plan.summary_limit, self._counter.count_tokens)
        if not writing.digested and not may_be_quoted(render_summary(ledger)):
            ledger = self._write_digest(writing, plan.entries, plan.former)
            writing.verdicts.clear()
        return SummaryResult(
            kind="digest" if writing.digested else "summary",
            ledger=ledger,
            verdict=writing.verdicts[-1] if writing.verdicts else None,
            model=writing.model if writing.verdicts else "",
            duration_ms=round(1000 * (time.monotonic() - started)),
            audit=build_summary_audit(writing, ledger),
            attempts=tuple(writing.attempts),
            notes=writing.notes,
        )

    # ---- sizes

    def _source(self, writing: SummaryDraft, entries: Portion) -> str:
        return render_source(
            entries,
            count=self._counter.count_tokens,
            message_tokens=writing.message_tokens,
            named=frozenset(writing.named),
            zone=writing.plan.zone,
        )

    async def _message_tokens(self, names: list[str], plan: CompactionPlan) -> int:
        """A message is shown whole only where one request can hold it."""
        if not names:
            return MESSAGE_TOKENS
        card = await self._asking.load_card(names[0])
        return min(MESSAGE_TOKENS, int(readable(card.window, plan.summary_most) / card.token_factor))

    async def _answer_room(self, writing: SummaryDraft, model: str) -> int:
        card = await self._asking.load_card(model)
        return min(card.max_output, summary_room(card.window, writing.plan.summary_most))

    async def _merge_room(self, writing: SummaryDraft) -> int:
        """How much of partial records one merging request may hold."""
        if not writing.models:
            return readable(MESSAGE_TOKENS)
        card = await self._asking.load_card(writing.models[0])
        return ceil(readable(card.window, writing.plan.summary_most) / max(1.0, card.token_factor))

    async def _report_progress(self, writing: SummaryDraft, pending: deque[Portion]) -> None:
        total = max(1, source_tokens(writing.plan.entries))
        left = sum(source_tokens(portion) for portion in pending)
        await writing.on_progress(round(_MERGING_AT * max(0, total - left) / total), "summarising")


_MERGING_AT = 90
_WHOLE = 10**9
"""Behind a warm prefix nothing is cut: the model has read every word."""


def _repairing(request: ModelRequest, reply: ModelReply, repair: str) -> ModelRequest:
    said = text_of(reply.blocks).strip()[:_ECHOED_CHARS] or "{}"
    messages = (*request.messages, text_message("assistant", said), text_message("user", repair))
    return replace(request, messages=messages)
