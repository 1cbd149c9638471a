"""Writing of summaries: ask a model, audit the answer, repair it once, ask the next model, else make a
digest.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, floor, inf
from typing import Any, Literal, Protocol

import structlog

from shared.core.compaction.audit import (
    AuditVerdict,
    audit_patch,
    carry_over,
    changes_nothing,
    has_content,
)
from shared.core.compaction.digest import digest
from shared.core.compaction.hints import topics_of, with_clauses
from shared.core.compaction.jobs import total_cost
from shared.core.compaction.next_ledger import (
    LedgerPatch,
    Unreadable,
    group_parts,
    join_ledgers,
    parse_ledger_patch,
    shorten_ledger,
    with_days,
)
from shared.core.compaction.note_requests import NoteDraft, drafts_from
from shared.core.compaction.plan import (
    MESSAGE_TOKENS,
    CompactionPlan,
    Portion,
    halves,
    readable,
    render_source,
    source_tokens,
    summary_room,
)
from shared.core.compaction.summary_filters import (
    check_title,
    language_of_source,
    may_be_quoted,
    split_title,
)
from shared.core.compaction.summary_prompts import (
    SUMMARY_SCHEMA,
    TITLED_SCHEMA,
    as_lines_request,
    merge_request,
    repair_request,
    summary_request,
    warm_instruction,
)
from shared.core.compaction.text_audit import audit_text, read_text
from shared.core.session.ledger import Ledger
from shared.core.session.session import CompactionKind
from shared.core.session.summary import (
    convert_to_ledger,
    fit_ledger,
    form_of,
    render_summary,
    says_nothing_new,
)
from shared.core.values.errors import CapReached, ModelError, PromptTooLong
from shared.core.values.messages import Text, text_message, text_of, tool_uses
from shared.core.values.tokens import Count
from shared.core.verdicts.evidence import Clock
from shared.core.verdicts.unable_models import UnableModels
from shared.ports import ChatModel, ModelReply, ModelRequest, SystemPart, TokenCounter
from shared.runtime import CrashPoint
from shared.services.compaction.silent_requests import CompletionTimeouts, OneShotCompletion
from shared.services.turns.spend_tracker import SpendTracker

log = structlog.get_logger(__name__)

DIGEST_TOKENS = 1_000
"""Most tokens of a digest; with recall, this kept 88.6 % of literal answers within reach when it
was chosen.
"""
MAX_ATTEMPTS = 2
"""Attempts per model and step of a summary: one answer, and one repaired answer."""
OUT_OF_TIME = "out_of_time"
"""Fault code of a step for which the job has no time left; it does not count against the model."""
MAX_SPLITS = 16
"""Most times that too long portions of one summary are halved."""
_ECHOED_CHARS = 12_000
"""Most characters of an answer that are sent back for repair; an endless one would not fit."""
_MERGING_AT = 90
_WHOLE = 10**9
"""Token limit that cuts nothing; after the cached chat the model has read the whole text."""
_WORDS_PER_TOKEN = 0.7
_WORDS_PER_ANSWER_TOKEN = 0.55
"""Words to request per token of the answer; JSON, numbers and other languages take more tokens per word."""
_SHARE_AFTER_A_CUT = 0.5
"""Share of the usual words to request after an answer that was cut off."""
_FAULTS_STORED = 40
_CODE = re.compile(r"([a-z]+(?:_[a-z]+)+)(?::|$)")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|“[^“”]*+”|(?<=missing: )[^;]*")
"""Quotations in a fault, which may be text of people."""

OnProgress = Callable[[int, str], Awaitable[None]]
"""Function that receives the progress in percent (0 to 100) and the stage in English."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryAttempt:
    """Failed attempt at a step: an unusable answer with its fault, or a call without an answer."""

    step: str
    model: str
    fault: str
    scores: Mapping[str, float] = field(default_factory=dict)
    cost_micro: int | None = None
    """Cost in micro-dollars; None if the price is unknown or no model was called."""

    @property
    def costs(self) -> dict[str, int]:
        """Cost as a field of the attempt's row; empty if unknown."""
        return {} if self.cost_micro is None else {"cost_micro": self.cost_micro}

    @property
    def as_stored(self) -> dict[str, Any]:
        """Attempt as stored in the audit of the summary: step, model, the first 300 characters of the fault,
        and cost.
        """
        return {"step": self.step, "model": self.model, "fault": self.fault[:300], **self.costs}

    @property
    def code(self) -> str:
        """Fault as operators read it: an error's code, or at most 200 characters without quotations."""
        code = _CODE.match(self.fault)
        return code[1] if code else redact_quotes(self.fault)[:200] or "not_usable"


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryResult:
    """Ledger that may be committed, and how it was written.

    `kind` is `summary`, or `digest` if a part was made without a model; `model` is the last model that wrote,
    "" without one.
    """

    kind: CompactionKind
    ledger: Ledger
    verdict: AuditVerdict | None
    """Verdict on the last step; None for a digest alone."""
    model: str
    duration_ms: int
    audit: Mapping[str, Any] = field(default_factory=dict)
    """Scores, faults and rejected attempts of all steps, as stored and shown."""
    attempts: tuple[SummaryAttempt, ...] = ()
    notes: tuple[NoteDraft, ...] | None = None
    """Notes from the answer; None if they were not requested or are missing, even if the summary failed."""


class WriteInstructions(Protocol):
    """Function that returns system and user text for an answer of at most `most_words` words."""

    def __call__(self, *, most_words: int) -> tuple[str, str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryTask:
    """One step of writing a summary: what to ask the model, and how to judge its answer.

    `portion` summarises messages, `warm` the whole range after the cached chat, `merge` joins ledgers.
    """

    step: Literal["portion", "warm", "merge"]
    plan: CompactionPlan
    source: str
    former: Ledger
    """Ledger that this step continues."""
    write: WriteInstructions
    count: Count
    prefix: ModelRequest | None = None
    """Chat request that the provider has cached, after which the instruction is sent; None for a separate
    request.
    """
    with_notes: bool = False
    titled: bool = False

    @property
    def is_text(self) -> bool:
        """True if the summary is a running text; False if it is JSON."""
        return form_of(self.plan.form).is_text

    def build_request(self, model: str, *, room: int, as_lines: bool, share: float = 1.0) -> ModelRequest:
        """Return the request of this step for an answer of at most `room` tokens; nothing is sent.

        It asks for as many words as fit, times `share`, which is lower after an answer that was cut off.
        `as_lines` requests lines instead of JSON. After a cached chat, that request's own limit replaces
        `room`.
        """
        room = room if self.prefix is None else self.prefix.max_output_tokens
        fitting = min(_WORDS_PER_TOKEN * self.plan.summary_limit, _WORDS_PER_ANSWER_TOKEN * room)
        system, user = self.write(most_words=max(1, floor(share * fitting)))
        if self.prefix is not None:
            return _append_text(self.prefix, user)
        as_lines = as_lines and not self.is_text
        schema = TITLED_SCHEMA if self.titled else SUMMARY_SCHEMA
        words = as_lines_request(user, titled=self.titled) if as_lines else user
        return ModelRequest(
            model=model,
            system=(SystemPart(text=system),),
            messages=(text_message("user", words),),
            max_output_tokens=room,
            json_schema=None if self.is_text or as_lines else schema,
        )

    def judge(self, answer: str) -> AuditVerdict | str:
        """Return the audit's verdict on an answer, or the reason why it cannot be read."""
        plan, form = self.plan, form_of(self.plan.form)
        known = has_content(self.former)
        if form.is_text:
            told = split_title(answer)[1] if self.titled else answer
            if known and says_nothing_new(told):
                return carry_over(self.former, self.source, count=self.count, limit=plan.summary_limit)
            sections = read_text(told, form)
            if isinstance(sections, Unreadable):
                return sections.reason
            return audit_text(
                sections, self.former, self.source, form=form, count=self.count, limit=plan.summary_limit
            )
        patch = parse_ledger_patch(answer)
        if isinstance(patch, Unreadable) and known and says_nothing_new(answer):
            patch = LedgerPatch(narrative="")
        if isinstance(patch, Unreadable):
            return patch.reason
        if known and changes_nothing(patch):
            former = convert_to_ledger(self.former)
            return carry_over(former, self.source, count=self.count, limit=plan.summary_most)
        merging = self.step == "merge"
        return audit_patch(
            self.former,
            replace(patch, add=()) if merging else patch,
            self.source,
            count=self.count,
            limit=plan.summary_most,
            may_be_empty=merging,
        )

    def title_in(self, answer: str) -> str:
        """Return the title in an answer; empty if it was not asked for or is unusable."""
        if not self.titled:
            return ""
        if self.is_text:
            said = split_title(answer)[0]
        else:
            patch = parse_ledger_patch(answer)
            said = patch.title if isinstance(patch, LedgerPatch) else ""
        return check_title(said, self.source, self.former)

    def notes_in(self, answer: str) -> tuple[NoteDraft, ...] | None:
        """Return the memory notes in an answer; None if they were not requested or are missing."""
        patch = parse_ledger_patch(answer) if self.with_notes else None
        if not isinstance(patch, LedgerPatch) or patch.notes is None:
            return None
        return drafts_from(patch.notes)


@dataclass(slots=True, kw_only=True)
class SummaryDraft:
    """State of writing one summary, through all its steps."""

    plan: CompactionPlan
    tracker: SpendTracker
    focus: str | None
    count: Count
    on_progress: OnProgress
    models: list[str]
    """Models to ask, in order; failed ones are removed."""
    named: set[int]
    message_tokens: int
    most_attempts: int
    seconds_left: Callable[[], float]
    """Function that returns the seconds in which models may still be asked; 0 or less if there are none."""
    title: str = ""
    """Title of the conversation; requested with further steps until a model gives a usable one."""
    model: str = ""
    way: str = "fold"
    digested: bool = False
    portions: int = 0
    splits: int = 0
    attempts: list[SummaryAttempt] = field(default_factory=list)
    verdicts: list[AuditVerdict] = field(default_factory=list)
    notes: tuple[NoteDraft, ...] | None = None
    paid_before: int = 0
    """Number of calls paid for before the one that runs."""

    def record_failure(
        self, step: str, model: str, fault: str, *, scores: Mapping[str, float] | None = None
    ) -> None:
        """Record that the last call brought nothing usable, with its cost and the audit's scores, if there
        are any.

        The failure is kept in `attempts`, not stored.
        """
        calls = self.tracker.spent[self.paid_before :]
        cost = total_cost(calls) if calls else None
        self.attempts.append(
            SummaryAttempt(step=step, model=model, fault=fault, scores=dict(scores or {}), cost_micro=cost)
        )

    def is_out_of_time(self, step: str, model: str) -> bool:
        """Return whether no model may be asked any more; the first time, that is recorded as a failure."""
        if self.seconds_left() > 0:
            return False
        if all(attempt.fault != OUT_OF_TIME for attempt in self.attempts):
            self.record_failure(step, model, OUT_OF_TIME)
        return True

    def build_portion(self, source: str, former: Ledger) -> SummaryTask:
        """Return the task of summarising one portion, whose transcript is `source`, after a former ledger."""
        titled = not self.title
        write = partial(
            summary_request,
            source,
            former,
            self.focus,
            language=language_of_source(source),
            form=self.plan.form,
            titled=titled,
        )
        return self._task("portion", source, former, write=write, titled=titled)

    def build_whole(self, source: str, prefix: ModelRequest, *, with_notes: bool) -> SummaryTask:
        """Return the task of summarising the whole range by an instruction after the cached chat `prefix`.

        `source` is the transcript against which the answer is judged; `with_notes` also requests memory
        notes.
        """
        titled, former = not self.title, self.plan.former
        instruct = partial(
            warm_instruction,
            source,
            former,
            self.focus,
            language=language_of_source(source),
            form=self.plan.form,
            with_notes=with_notes,
            titled=titled,
        )

        def write(*, most_words: int) -> tuple[str, str]:
            return "", instruct(most_words=most_words)

        return self._task(
            "warm", source, former, write=write, titled=titled, prefix=prefix, with_notes=with_notes
        )

    def build_merge(self, parts: Sequence[Ledger], whole: Ledger, source: str) -> SummaryTask:
        """Return the task of merging `parts`, the ledgers of portions, into one.

        `whole` is the ledger with all of their items; `source` is the transcript against which the answer is
        judged.
        """
        write = partial(
            merge_request,
            whole,
            [render_summary(part) for part in parts],
            self.focus,
            language=language_of_source(source),
            form=self.plan.form,
        )
        return self._task("merge", source, whole, write=write)

    def _task(
        self, step: Literal["portion", "warm", "merge"], source: str, former: Ledger, **more: Any
    ) -> SummaryTask:
        return SummaryTask(step=step, plan=self.plan, source=source, former=former, count=self.count, **more)

    def build_audit(self, ledger: Ledger) -> dict[str, Any]:
        """Return the audit to store: the lowest scores of all steps, and all faults and failed attempts."""
        scores: dict[str, float] = {}
        for verdict in self.verdicts:
            for name, score in verdict.scores.items():
                scores[name] = min(scores.get(name, score), score)
        soft = [fault for verdict in self.verdicts for fault in verdict.soft_faults]
        return {
            "form": ledger.form,
            "way": "digest" if self.digested and not self.verdicts else self.way,
            "portions": self.portions,
            "scores": scores,
            "soft_faults": soft[:_FAULTS_STORED],
            "dropped": sum(len(verdict.dropped_items) for verdict in self.verdicts),
            "attempts": [attempt.as_stored for attempt in self.attempts],
            "named": sorted(self.named),
        }


class Summariser:
    """Writer of summaries; each call returns one, at worst a digest that is made without a model."""

    def __init__(
        self,
        *,
        model: ChatModel,
        counter: TokenCounter,
        crash_point: CrashPoint,
        unable: UnableModels,
        bounds: CompletionTimeouts | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """Set up the writer; `clock` is the clock of deadlines, in seconds."""
        self._clock = clock
        self._asking = OneShotCompletion(model, counter, bounds=bounds or CompletionTimeouts())
        self._counter = counter
        self._crash_point = crash_point
        self._unable = unable

    async def write(
        self,
        plan: CompactionPlan,
        *,
        tracker: SpendTracker,
        focus: str | None,
        on_progress: OnProgress,
        models: Sequence[str],
        warm: ModelRequest | None = None,
        with_notes: bool = False,
        attempts: int = MAX_ATTEMPTS,
        deadline: float = inf,
    ) -> SummaryResult:
        """Write the summary of a plan and return it; failures of models lead to a digest instead of an error.

        Calls end at `deadline`, a time of the writer's clock; the part that is not written then becomes a
        digest.

        `models` are asked in order, `attempts` times per step; empty makes a digest. `warm` is the chat's
        cached request, after which its model is asked first, `with_notes` also for memory notes. `focus` is a
        subject that the person asked to keep, None for none. Calls are collected in `tracker`; nothing is
        stored.
        """
        started = time.monotonic()
        draft = SummaryDraft(
            plan=plan,
            tracker=tracker,
            focus=focus,
            count=self._counter.count_tokens,
            on_progress=on_progress,
            models=list(models),
            named=set(plan.named),
            title=plan.former.title,
            message_tokens=await self._message_tokens(models, plan),
            most_attempts=attempts,
            seconds_left=lambda: deadline - self._clock(),
        )
        ledger = None
        if warm is not None:
            ledger = await self._write_on_warm_prefix(draft, warm, with_notes=with_notes)
        if ledger is None:
            merging = plan.merged and len(plan.chunks) > 1
            ledger = await (self._merge_portions(draft) if merging else self._fold_portions(draft))
        self._crash_point("after_summary_model")
        return self._build_result(draft, ledger, started)

    # ---- three ways

    async def _write_on_warm_prefix(
        self, draft: SummaryDraft, warm: ModelRequest, *, with_notes: bool
    ) -> Ledger | None:
        await draft.on_progress(0, "summarising")
        plan = draft.plan
        source = render_source(plan.entries, message_tokens=_WHOLE, zone=plan.zone)
        task = draft.build_whole(source, warm, with_notes=with_notes)
        try:
            verdict = await self._ask_model(draft, warm.model, task)
        except PromptTooLong as error:
            draft.record_failure(task.step, warm.model, error.code)
            return None
        if verdict is None:
            return None
        draft.model, draft.way, draft.portions = warm.model, "warm", 1
        draft.verdicts.append(verdict)
        return verdict.ledger

    async def _fold_portions(self, draft: SummaryDraft) -> Ledger:
        """Return the ledger extended portion by portion; portions that no model could read are added as a
        digest.
        """
        pending = deque(draft.plan.chunks)
        ledger = draft.plan.former
        while pending:
            await self._report_progress(draft, pending)
            portion = pending.popleft()
            after = await self._write_portion(draft, portion, ledger, pending)
            if after is None and pending and self._was_cut(portion, pending):
                continue
            if after is None:
                rest = tuple(entry for part in (portion, *pending) for entry in part)
                return self._write_digest(draft, rest, ledger)
            ledger = after
        return ledger

    async def _merge_portions(self, draft: SummaryDraft) -> Ledger:
        """Return the merged ledgers of all portions, each summarised separately."""
        plan = draft.plan
        draft.way = "merge"
        pending = deque(plan.chunks)
        parts: list[Ledger] = []
        while pending:
            await self._report_progress(draft, pending)
            portion = pending.popleft()
            part = await self._write_portion(draft, portion, Ledger(), pending)
            if part is None and pending and self._was_cut(portion, pending):
                continue
            parts.append(part or self._write_digest(draft, portion, Ledger()))
        if plan.former != Ledger():
            parts.insert(0, plan.former)
        await draft.on_progress(_MERGING_AT, "merging")
        return await self._merge_all(draft, parts)

    async def _merge_all(self, draft: SummaryDraft, parts: list[Ledger]) -> Ledger:
        """Return one ledger of all parts, merged in stages if one request cannot hold them; without a model,
        joined.
        """
        while len(parts) > 1:
            room = await self._merge_room(draft)
            groups = group_parts(parts, room, self._counter.count_tokens)
            parts = [await self._merge_group(draft, group) for group in groups]
        return parts[0]

    async def _merge_group(self, draft: SummaryDraft, group: list[Ledger]) -> Ledger:
        if len(group) == 1:
            return group[0]
        whole = join_ledgers(group, draft.plan.form)
        source = self._source(draft, draft.plan.entries)
        task = draft.build_merge(group, whole, source)
        try:
            verdict = await self._ask_models(draft, task)
        except PromptTooLong as error:
            draft.record_failure(task.step, draft.models[0], error.code)
            verdict = None
        if verdict is None:
            return shorten_ledger(whole, draft.plan.summary_most, self._counter.count_tokens)
        draft.verdicts.append(verdict)
        return shorten_ledger(verdict.ledger, draft.plan.summary_most, self._counter.count_tokens)

    # ---- one portion

    async def _write_portion(
        self, draft: SummaryDraft, portion: Portion, former: Ledger, pending: deque[Portion]
    ) -> Ledger | None:
        """Return the ledger after a portion; None if no model could write it, or if it was split."""
        source = self._source(draft, portion)
        try:
            task = draft.build_portion(source, former)
            verdict = await self._ask_models(draft, task)
        except PromptTooLong as error:
            draft.record_failure("portion", draft.models[0], error.code)
            self._cut(draft, portion, pending)
            return None
        if verdict is None:
            return None
        draft.portions += 1
        draft.verdicts.append(verdict)
        return verdict.ledger

    def _cut(self, draft: SummaryDraft, portion: Portion, pending: deque[Portion]) -> None:
        """Replace a portion that is too long by its halves; a message that cannot be divided is only
        mentioned.
        """
        draft.splits += 1
        if draft.splits > MAX_SPLITS:
            return
        parts = halves(portion)
        if parts is not None:
            pending.extendleft(reversed(parts))
        elif portion[0].seq not in draft.named:
            draft.named.add(portion[0].seq)
            pending.appendleft(portion)

    def _was_cut(self, portion: Portion, pending: deque[Portion]) -> bool:
        return pending[0][0].seq == portion[0].seq

    async def _ask_models(self, draft: SummaryDraft, task: SummaryTask) -> AuditVerdict | None:
        """Return the verdict on the first usable answer of the remaining models; None if none gives one.

        Models that fail are not asked again, and none is asked after the deadline. Raises PromptTooLong.
        """
        while draft.models:
            verdict = await self._ask_model(draft, draft.models[0], task)
            if verdict is not None:
                draft.model = draft.models[0]
                return verdict
            if draft.seconds_left() <= 0:
                return None
            draft.models.pop(0)
        return None

    async def _ask_model(self, draft: SummaryDraft, model: str, task: SummaryTask) -> AuditVerdict | None:
        """Return the verdict on a model's answer, repaired or shortened within the attempts; None if
        unusable or out of time.

        Raises PromptTooLong.
        """
        room = await self._answer_room(draft, model)
        as_lines = self._unable.lacks(model, "json", session=draft.tracker.trace_ids[0])
        request = task.build_request(model, room=room, as_lines=as_lines)
        too_long: AuditVerdict | None = None
        for number in range(draft.most_attempts):
            draft.paid_before = len(draft.tracker.spent)
            if draft.is_out_of_time(task.step, model):
                return too_long
            try:
                reply = await self._asking.complete(
                    request,
                    tracker=draft.tracker,
                    checked=task.prefix is None,
                    seconds=draft.seconds_left(),
                )
                if draft.notes is None:
                    draft.notes = task.notes_in(text_of(reply.blocks))
                draft.title = draft.title or await asyncio.to_thread(task.title_in, text_of(reply.blocks))
                judged = await self._audit_reply(reply, task)
            except PromptTooLong as error:
                if number == 0:
                    raise
                draft.record_failure(task.step, model, error.code)
                return too_long
            except (ModelError, CapReached) as error:
                if not draft.is_out_of_time(task.step, model):
                    draft.record_failure(task.step, model, f"{error.code}: {error}")
                return too_long
            if not task.is_text and not as_lines and reply.stop_reason != "refusal":
                self._unable.learn_json(model, text_of(reply.blocks), session=draft.tracker.trace_ids[0])
            if isinstance(judged, AuditVerdict) and judged.ok:
                if not judged.too_long or number + 1 == draft.most_attempts:
                    return judged
                too_long = judged
            fault = judged if isinstance(judged, str) else "; ".join(judged.hard_faults) or judged.too_long
            scores = {} if isinstance(judged, str) else dict(judged.scores)
            draft.record_failure(task.step, model, fault, scores=scores)
            if reply.stop_reason == "max_tokens":
                request = task.build_request(model, room=room, as_lines=as_lines, share=_SHARE_AFTER_A_CUT)
            else:
                request = _build_repair(request, reply, repair_request(fault, form=task.plan.form))
        return too_long

    async def _audit_reply(self, reply: ModelReply, task: SummaryTask) -> AuditVerdict | str:
        """Return the verdict on a reply, or why it is unusable; audited in a thread, since a long range takes
        time.
        """
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

    def _write_digest(self, draft: SummaryDraft, entries: Portion, former: Ledger) -> Ledger:
        faults = [attempt.code for attempt in draft.attempts]
        log.warning("summary_fell_back_to_digest", faults=faults)
        draft.digested = True
        most = min(DIGEST_TOKENS, draft.plan.summary_limit)
        kept = self._counter.count_tokens(render_summary(former)) if former != draft.plan.former else 0
        return digest(
            entries,
            former,
            self._counter.count_tokens,
            budget_tokens=min(draft.plan.summary_limit, max(most, kept + most // 2)),
        )

    def _build_result(self, draft: SummaryDraft, ledger: Ledger, started: float) -> SummaryResult:
        plan = draft.plan
        topics = topics_of(plan.entries, plan.former.topics)
        ledger = with_clauses(replace(ledger, topics=topics, title=draft.title), plan.entries)
        ledger = with_days(ledger, plan.entries, plan.zone)
        ledger = fit_ledger(ledger, plan.summary_limit, self._counter.count_tokens)
        if not draft.digested and not may_be_quoted(render_summary(ledger)):
            ledger = self._write_digest(draft, plan.entries, plan.former)
            draft.verdicts.clear()
        return SummaryResult(
            kind="digest" if draft.digested else "summary",
            ledger=ledger,
            verdict=draft.verdicts[-1] if draft.verdicts else None,
            model=draft.model if draft.verdicts else "",
            duration_ms=round(1000 * (time.monotonic() - started)),
            audit=draft.build_audit(ledger),
            attempts=tuple(draft.attempts),
            notes=draft.notes,
        )

    # ---- sizes

    def _source(self, draft: SummaryDraft, entries: Portion) -> str:
        return render_source(
            entries,
            count=self._counter.count_tokens,
            message_tokens=draft.message_tokens,
            named=frozenset(draft.named),
            zone=draft.plan.zone,
        )

    async def _message_tokens(self, models: Sequence[str], plan: CompactionPlan) -> int:
        """Return the most tokens of a message that is shown whole, so that one request can hold it."""
        if not models:
            return MESSAGE_TOKENS
        card = await self._asking.load_card(models[0])
        return min(MESSAGE_TOKENS, int(readable(card.window, plan.summary_most) / card.token_factor))

    async def _answer_room(self, draft: SummaryDraft, model: str) -> int:
        card = await self._asking.load_card(model)
        return min(card.max_output, summary_room(card.window, draft.plan.summary_most))

    async def _merge_room(self, draft: SummaryDraft) -> int:
        """Return the tokens of partial ledgers that one merging request may hold."""
        if not draft.models:
            return readable(MESSAGE_TOKENS)
        card = await self._asking.load_card(draft.models[0])
        return ceil(readable(card.window, draft.plan.summary_most) / max(1.0, card.token_factor))

    async def _report_progress(self, draft: SummaryDraft, pending: deque[Portion]) -> None:
        total = max(1, source_tokens(draft.plan.entries))
        left = sum(source_tokens(portion) for portion in pending)
        await draft.on_progress(round(_MERGING_AT * max(0, total - left) / total), "summarising")


def _build_repair(request: ModelRequest, reply: ModelReply, repair: str) -> ModelRequest:
    said = text_of(reply.blocks).strip()[:_ECHOED_CHARS] or "{}"
    messages = (*request.messages, text_message("assistant", said), text_message("user", repair))
    return replace(request, messages=messages)


def _append_text(prefix: ModelRequest, words: str) -> ModelRequest:
    """Return the request with a text added to its last user message, or as a new one."""
    messages = prefix.messages
    if not messages or messages[-1].role != "user":
        return replace(prefix, messages=(*messages, text_message("user", words)))
    last = replace(messages[-1], blocks=(*messages[-1].blocks, Text(text=words)))
    is_marked = len(messages) - 1 in prefix.cache_at
    return replace(prefix, messages=(*messages[:-1], last), behind_mark=prefix.behind_mark + int(is_marked))


def redact_quotes(fault: str) -> str:
    """Return a fault with each quotation replaced by `…`, since quotations may be text of people."""
    return _QUOTED.sub("…", fault)
