"""How a turn ends: what is committed of an answer, a stop, a refusal, and how each was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shared.core.session.events import ContextMeasured
from shared.core.session.session import Entry
from shared.core.session.turns import ContextAudit, JobOrder, Outcome, Spending
from shared.core.values.errors import CapReached, EvertalkError
from shared.core.values.messages import Block, Text, ToolUse
from shared.core.values.tokens import learned_ratio
from shared.ports import ModelReply
from shared.services.turns.pictures import UndescribedPictures
from shared.services.turns.request_builder import PreparedRequest, build_audit, collect_prompt_parts
from shared.services.turns.turn_attempt import TurnAttempt

_EMPTY = "I have no words for that. Please ask in another way."


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """What to commit, and the gauge's new number."""

    outcome: Outcome
    measured: ContextMeasured | None
    unseen: UndescribedPictures | None = None
    """Pictures to be described once this is stored."""


def build_refusal(
    error: EvertalkError,
    *,
    spent: Sequence[Spending] = (),
    settled_micro: int = 0,
    audit: ContextAudit | None = None,
    grown: int | None = None,
    turn_tokens: int = 0,
    view_epoch: int | None = None,
) -> TurnResult:
    """The turn ends with the error's advice, in the program's own voice."""
    outcome = Outcome(
        state="refused",
        blocks=None,
        tokens=0,
        screen={"text": error.advice, "error": error.code},
        error_code=error.code,
        refused_scope=error.scope if isinstance(error, CapReached) else None,
        spent=tuple(spent),
        settled_micro=settled_micro,
        audit=audit,
        context_tokens=grown,
        turn_tokens=turn_tokens,
        view_epoch=view_epoch,
    )
    return TurnResult(outcome=outcome, measured=None)


def audit_refusal(state: TurnAttempt, error: EvertalkError) -> ContextAudit:
    """Nothing was sent, or nothing that was taken: the row says by how much it did not fit."""
    overflow = not isinstance(error, CapReached)
    if state.prepared is None:
        return ContextAudit(
            model_alias=state.given.card.name,
            model_context_limit=state.given.card.window,
            input_budget=0,
            hard_limit=0,
            estimated_before=state.claim.context_tokens,
            estimated_after_summary=state.claim.context_tokens,
            estimated_after_prune=state.claim.context_tokens,
            reported=None,
            context_tokens=state.claim.context_tokens,
            overflow_rejected=overflow,
        )
    return build_audit(
        state.prepared,
        state.view,
        hashes=(),
        reported=None,
        context_tokens=state.claim.context_tokens,
        summary_triggered=has_requested_summary(state, None),
        prune_triggered=state.meter.pruned_tokens > 0,
        overflow_rejected=overflow,
    )


def audit_stop(state: TurnAttempt) -> tuple[ContextAudit | None, dict[str, str]]:
    """Of the call that was broken off, if there was one."""
    if state.prepared is None or not state.calls:
        return None, {}
    parts = collect_prompt_parts(state.prepared)
    audit = build_audit(
        state.prepared,
        state.view,
        hashes=tuple(parts),
        reported=None,
        context_tokens=state.claim.context_tokens,
        summary_triggered=has_requested_summary(state, None),
        prune_triggered=state.meter.pruned_tokens > 0,
    )
    return audit, parts


def select_storable_blocks(reply: ModelReply) -> tuple[Block, ...]:
    """What is stored of the last reply: never nothing, never a call that nobody will answer."""
    kept = tuple(
        block
        for block in reply.blocks
        if not isinstance(block, ToolUse) and not (isinstance(block, Text) and not block.text.strip())
    )
    return kept if any(isinstance(block, Text) for block in kept) else (*kept, Text(text=_EMPTY))


def learn_token_ratio(reply: ModelReply, prepared: PreparedRequest, tokens: int) -> tuple[float, int]:
    """The ratio after this reply, and the size of the request with it."""
    usage = reply.usage
    if not usage.known:
        return prepared.ratio, prepared.estimate + round(prepared.ratio * tokens)
    counted, estimate = usage.context_tokens - usage.output_tokens, max(1, prepared.built.estimate)
    return learned_ratio(prepared.ratio, counted, estimate), usage.context_tokens


def has_requested_summary(state: TurnAttempt, job: JobOrder | None) -> bool:
    """Whether this turn had a summary made, or asked for one."""
    return state.organised or state.compaction_asked or (job is not None and job.kind == "compact")


def build_entry(blocks: tuple[Block, ...], tokens: int, last: Entry) -> Entry:
    return replace(last, role="assistant", author="assistant", blocks=blocks, tokens=tokens, pruned=None)
