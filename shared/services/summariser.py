"""Turns a plan into an audited ledger: ask, audit, repair once, ask the main model, else a digest."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from shared.core.audit import AuditVerdict, audit_ledger
from shared.core.compaction import CompactionPlan, summary_room
from shared.core.digest import digest
from shared.core.errors import CapReached, ModelError
from shared.core.identifiers import identifiers_of
from shared.core.ledger import Ledger
from shared.core.messages import Message, Text, text_message, text_of
from shared.core.prompts import repair_request, summary_request
from shared.core.session import Entry, LinkKind
from shared.core.source import render_source, source_words
from shared.core.summarising import warm_instruction
from shared.core.summary import Unreadable, apply_patch, fit_ledger, parse_ledger_patch
from shared.core.upkeep import FailedAttempt
from shared.ports import ChatModel, ModelReply, ModelRequest, SystemPart, TokenCounter
from shared.services.crash import CrashPoint
from shared.services.spending import Purse

log = structlog.get_logger(__name__)

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|(?<=missing: )[^;]*")

DIGEST_TOKENS = 1_000
"""Without a model: with recall this keeps 88.6 % of literal answers reachable (engine.md)."""

OnProgress = Callable[[int, str], Awaitable[None]]
"""`(percent, stage)`"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A ledger that may be committed, and how it came to be."""

    kind: LinkKind
    ledger: Ledger
    verdict: AuditVerdict | None
    model: str
    duration_ms: int
    failures: tuple[FailedAttempt, ...] = ()
    """Answers that could not be used, and calls that failed."""


@dataclass(slots=True, kw_only=True)
class _Writing:
    plan: CompactionPlan
    purse: Purse
    focus: str | None
    models: list[str]
    """Who is asked, in this order; the first that works stays."""
    failures: list[FailedAttempt] = field(default_factory=list)


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
    ) -> None:
        self._model = model
        self._counter = counter
        self._models = (
            [summary_model, chat_model] if fall_back and chat_model != summary_model else [summary_model]
        )
        self._crash_point = crash_point

    async def window(self) -> int:
        return (await self._model.card(self._models[0])).window

    async def write(
        self,
        plan: CompactionPlan,
        *,
        purse: Purse,
        focus: str | None,
        on_progress: OnProgress,
        models: Sequence[str] | None = None,
        warm: ModelRequest | None = None,
    ) -> Written:
        """Never raises for what a model does: the last resort needs none, and no `models` go there at once.

        `warm` is the chat's own request: its model is asked first, with the task behind that prefix.
        """
        started = time.monotonic()
        asked = list(self._models if models is None else models)
        writing = _Writing(plan=plan, purse=purse, focus=focus, models=asked)
        ledger, verdict = plan.former, None
        if warm is not None and (outcome := await self._warm(writing, warm, on_progress)) is not None:
            return self._written(writing, outcome.ledger, outcome, warm.model, started)
        for number, chunk in enumerate(plan.chunks):
            await on_progress(round(100 * number / len(plan.chunks)), "summarising")
            outcome = await self._chunk(writing, chunk, ledger)
            if outcome is None:
                return self._digest(writing, started)
            verdict = outcome
            ledger = outcome.ledger
        return self._written(writing, ledger, verdict, writing.models[0], started)

    def _written(
        self, writing: _Writing, ledger: Ledger, verdict: AuditVerdict | None, model: str, started: float
    ) -> Written:
        self._crash_point("after_summary_model")
        return Written(
            kind="summary",
            ledger=fit_ledger(ledger, writing.plan.summary_limit, self._counter.count),
            verdict=verdict,
            model=model,
            duration_ms=_milliseconds(started),
            failures=tuple(writing.failures),
        )

    async def _warm(
        self, writing: _Writing, request: ModelRequest, on_progress: OnProgress
    ) -> AuditVerdict | None:
        """One answer of the chat model on its own prefix, judged like every other."""
        await on_progress(0, "summarising")
        source = render_source(writing.plan.entries, count=self._counter.count)
        card = await self._model.card(request.model)
        task = warm_instruction(writing.plan.entries, writing.plan.former, writing.focus)
        last = request.messages[-1]
        behind = replace(last, blocks=(*last.blocks, Text(text=task)))
        request = replace(request, messages=(*request.messages[:-1], behind))
        texts = [part.text for part in request.system] + [text_of(m.blocks) for m in request.messages]
        try:
            reply = await writing.purse.pay_for(
                lambda: self._model.reply(request),
                input_tokens=round(card.token_factor * sum(map(self._counter.count, texts))),
                output_tokens=request.max_output_tokens,
                card=card,
            )
        except (ModelError, CapReached) as error:
            writing.failures.append(FailedAttempt(model=request.model, code=error.code))
            return None
        verdict, fault = self._judge(text_of(reply.blocks), source, writing.plan.former)
        if verdict is not None and verdict.ok:
            return verdict
        writing.failures.append(_failed(request.model, fault, verdict))
        return None

    def _digest(self, writing: _Writing, started: float) -> Written:
        plan = writing.plan
        log.warning("summary_fell_back_to_digest", faults=[failure.code for failure in writing.failures])
        ledger = digest(
            plan.entries,
            plan.former,
            self._counter.count,
            budget_tokens=min(DIGEST_TOKENS, plan.summary_limit),
        )
        return Written(
            kind="digest",
            ledger=ledger,
            verdict=None,
            model="",
            duration_ms=_milliseconds(started),
            failures=tuple(writing.failures),
        )

    async def _chunk(
        self, writing: _Writing, chunk: tuple[Entry, ...], former: Ledger
    ) -> AuditVerdict | None:
        """The audited ledger after this chunk, or None when no model could write one."""
        while writing.models:
            try:
                verdict = await self._ask(writing, writing.models[0], chunk, former)
            except (ModelError, CapReached) as error:
                writing.failures.append(FailedAttempt(model=writing.models[0], code=error.code))
            else:
                if verdict is not None and verdict.ok:
                    return verdict
            writing.models.pop(0)
        return None

    async def _ask(
        self, writing: _Writing, model: str, chunk: tuple[Entry, ...], former: Ledger
    ) -> AuditVerdict | None:
        """One answer and, if it cannot be used, one repaired answer."""
        source = render_source(chunk, count=self._counter.count)
        system, user = summary_request(source, former, writing.focus)
        messages = [text_message("user", user)]
        verdict: AuditVerdict | None = None
        for _ in range(2):
            reply = await self._reply(writing, model, system, messages)
            text = text_of(reply.blocks)
            verdict, fault = self._judge(text, source, former)
            if verdict is not None and verdict.ok:
                return verdict
            writing.failures.append(_failed(model, fault, verdict))
            messages += [text_message("assistant", text or "{}"), text_message("user", repair_request(fault))]
        return verdict

    def _judge(self, text: str, source: str, former: Ledger) -> tuple[AuditVerdict | None, str]:
        patch = parse_ledger_patch(text)
        if isinstance(patch, Unreadable):
            return None, patch.reason
        patched = apply_patch(former, patch, identifiers=identifiers_of(source_words(source)))
        verdict = audit_ledger(patched, former=former, source_text=source, count=self._counter.count)
        return verdict, "; ".join(verdict.hard_faults)

    async def _reply(self, writing: _Writing, model: str, system: str, messages: list[Message]) -> ModelReply:
        card = await self._model.card(model)
        most = summary_room(card.window)
        request = ModelRequest(
            model=model,
            system=(SystemPart(text=system),),
            messages=tuple(messages),
            max_output_tokens=most,
        )
        estimate = sum(self._counter.count(text_of(message.blocks)) for message in messages)
        return await writing.purse.pay_for(
            lambda: self._model.reply(request),
            input_tokens=round(card.token_factor * estimate),
            output_tokens=most,
            card=card,
        )


def _failed(model: str, fault: str, verdict: AuditVerdict | None) -> FailedAttempt:
    """Faults quote what they complain of; for operators the quotations are left out."""
    code = _QUOTED.sub("…", fault)[:200] or "not usable"
    return FailedAttempt(model=model, code=code, scores={} if verdict is None else dict(verdict.scores))


def _milliseconds(started: float) -> int:
    return round(1000 * (time.monotonic() - started))
