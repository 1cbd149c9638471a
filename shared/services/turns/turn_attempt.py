"""Attempt at a turn: its input, the fill of the context, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from shared.core.context.agents import Circumstances
from shared.core.memory.recall import NOTHING_RECALLED, Recalled
from shared.core.session.pruning import PruneDecision
from shared.core.session.session import Entry, View
from shared.core.session.turns import (
    AnswerEnd,
    Claim,
    ContextAudit,
    ContextMeasured,
    Emit,
    JobOrder,
    Outcome,
    Spending,
    utf16_units,
)
from shared.core.values.errors import CapReached, EvertalkError, ModelError, PromptTooLong
from shared.core.values.messages import Block, ProviderBlock, Text, Thinking, ToolUse, is_erased
from shared.core.values.token_scale import MOST, TokenScale, learn_from_call, scale_from_json
from shared.core.values.tokens import compute_ratio, measure, update_ratio
from shared.ports import ModelCard, ModelReply, PictureContent, StopReason
from shared.services.turns.pictures import UndescribedPictures
from shared.services.turns.request_builder import PreparedRequest, build_audit, collect_prompt_parts
from shared.services.turns.spend_tracker import CallCosts
from shared.services.turns.toolbox import Toolbox

_EMPTY = "I have no words for that. Please ask in another way."
OVERFLOW_TARGET_SHARE = 0.8
"""After a refusal the request is cut to this share of what the provider accepts."""
UNKNOWN_SIZE_FACTOR = 1.1
"""How much larger a refused request is taken to be where the provider does not say."""


class TurnStopped(Exception):
    """The person asked to stop; carries what was written so far."""

    def __init__(self, text: str) -> None:
        super().__init__("stopped")
        self.text = text


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnInput:
    """Input of an attempt; later changes take effect with the next turn."""

    card: ModelCard
    """The agent's model."""
    emit: Emit
    stop: asyncio.Future[None]
    """Done as soon as the person asked to stop."""
    toolbox: Toolbox
    """The agent's tools: their list stands in the cached prefix."""
    circumstances: Circumstances
    cache_life: timedelta
    """How long the provider keeps the prefix at the pace of this session."""
    recalled: Recalled = NOTHING_RECALLED
    """Passages recalled for this turn, the same in all its rounds."""
    previous_answer: str | None = None
    """Former answer that this one replaces when a question is asked again; None otherwise."""

    @property
    def replacement(self) -> dict[str, str]:
        """Return what the event says of the former answer that it replaces."""
        return {"replaces": self.previous_answer} if self.previous_answer else {}


@dataclass(slots=True, kw_only=True)
class ContextMeter:
    """Meter of the next request's size: the provider's last count, plus an estimate of all later messages.

    All sizes are tokens. An estimate times `ratio` gives the model's tokens.
    """

    ratio: float
    """Model tokens per estimated token, learned for this session and model; 1.0 before the first count."""
    anchor: int | None
    """Last count of the provider; None if it was another model's."""
    pending: int
    """Estimate of what came after the anchor, less what will not be sent again."""
    anchored: bool = False
    """True if the anchor was counted by a call of this turn."""
    pruned_tokens: int = 0
    """Estimate of what this turn's pruning has saved."""
    before_summary: int = 0
    """The size of this turn's request before the person waited for a summary; 0 when they did not."""
    filler_trimmed: bool = False
    """True if this turn's start hid old small talk from the request."""
    counted: bool = False
    """The provider was asked to count."""
    restarts: int = 0
    """How often the provider refused a request of this turn as too long."""
    ceiling: int | None = None
    """Largest allowed size of this turn's requests after a refusal; None before one."""
    refused_size: int = 0
    """Tokens of the smallest refused request."""
    insisted: bool = False
    """True if a request that cannot shrink was sent again unchanged."""

    def read(self, prepared: PreparedRequest) -> PreparedRequest:
        """Return the request with its size, and with its size before this turn's summary and pruning."""
        pending = self.pending + (0 if self.anchored else prepared.built.volatile)
        # What was counted before this turn holds messages that are not sent any more.
        narrower = prepared.selection.slides or prepared.policy.keeping.differs_by_channel
        moved = (self.filler_trimmed or narrower) and not self.anchored
        anchor = None if self.restarts or moved else self.anchor
        estimate = measure(anchor, pending, prepared.built.estimate, prepared.ratio)
        saved = round(prepared.ratio * self.pruned_tokens)
        before = max(self.before_summary, estimate + saved)
        return replace(prepared, estimate=estimate, before=before, saved=saved)

    def prune(self, tokens: int) -> None:
        self.pruned_tokens += tokens
        self.pending -= tokens

    def anchor_at(self, context_tokens: int) -> None:
        """Set the anchor to the provider's new count of the whole context; nothing is pending after it."""
        self.anchor, self.anchored, self.pending = context_tokens, True, 0

    def limit(self, prepared: PreparedRequest) -> int:
        """Return the most tokens of the next request: the hard budget, or the ceiling if it is lower."""
        return min(prepared.budget.hard, self.ceiling or prepared.budget.hard)

    def lower_ceiling(self, prepared: PreparedRequest, refusal: PromptTooLong) -> None:
        """Lower the ceiling after the provider refused a request as too long, and correct the ratio."""
        tried = min(prepared.budget.hard, self.ceiling or prepared.estimate)
        self.restarts += 1
        steeper = prepared.ratio * UNKNOWN_SIZE_FACTOR
        self.ratio = compute_ratio(refusal.tokens or 0, prepared.built.estimate, steeper)
        self.ceiling = lower_ceiling(refusal.maximum, self.ceiling, tried)
        size = round(self.ratio * prepared.built.estimate)
        self.refused_size = min(size, refusal.maximum or size)

    def estimate_growth(self, prepared: PreparedRequest | None, tokens: int, *, pruned: bool) -> int | None:
        """Estimate the context's tokens after this turn, with an answer that the provider has not counted.

        `tokens` is the estimate of that answer, 0 for none. `pruned` is true if this turn's pruning is
        stored, so that its saving lasts. Returns None if there is no anchor.
        """
        if self.anchor is None:
            return None
        ratio = self.ratio_of(prepared)
        if pruned and self.filler_trimmed and not self.anchored and prepared is not None:
            return prepared.estimate + round(ratio * tokens)
        back = 0 if pruned or self.anchored else self.pruned_tokens
        passing = prepared.built.volatile if self.anchored and prepared is not None else 0
        return max(0, self.anchor + round(ratio * (self.pending + back + tokens - passing)))

    def ratio_of(self, prepared: PreparedRequest | None) -> float:
        return self.ratio if prepared is None else prepared.ratio


@dataclass(slots=True, kw_only=True)
class StreamState:
    """State of a streamed answer for screens."""

    texts: list[str]
    """The visible words of earlier rounds of this turn."""
    draft: str = ""
    """The words of the running call."""
    first_text_at: float | None = None
    """Monotonic time of the first text, in seconds; None before it."""
    attempt: int = 0
    """Number that grows with each restart of the answer, so that screens replace their draft."""
    _shown_attempt: int = -1
    """Attempt that screens show now; -1 before the first."""
    _shown_units: int = 0
    """Length that screens have drawn, earlier rounds included, in UTF-16 units."""

    def begin_call(self) -> None:
        self.draft = ""

    def add(self, piece: str, *, attempt: int) -> tuple[int, str]:
        """Add a piece of the answer; return the offset in UTF-16 units from which screens draw, and the text.

        A new `attempt` discards the draft of the one before.
        """
        if attempt != self.attempt:
            self.attempt, self.draft = attempt, ""
        offset, text = self._follow(piece)
        self._shown_units = offset + utf16_units(text)
        self.draft += piece
        return offset, text

    def _follow(self, piece: str) -> tuple[int, str]:
        if self.attempt == self._shown_attempt and self.draft:
            return self._shown_units, piece
        earlier = "\n\n".join(self.texts)
        following = f"\n\n{piece}" if earlier else piece
        if self.attempt == self._shown_attempt:
            return utf16_units(earlier), following
        # A screen that replaces its draft needs the earlier rounds again.
        self._shown_attempt = self.attempt
        return 0, earlier + following


@dataclass(slots=True, kw_only=True)
class TurnAttempt:
    """State of a single attempt."""

    given: TurnInput
    costs: CallCosts
    meter: ContextMeter
    stream: StreamState
    view: View
    pictures: Mapping[int, PictureContent] = field(default_factory=dict)
    prunes: tuple[PruneDecision, ...] = ()
    """Decided in this turn, stored with its end."""
    prepared: PreparedRequest | None = None
    """The newest request, whatever became of it."""
    calls: int = 0
    model_seconds: float = 0.0
    """How long the model was waited for."""
    compaction_asked: bool = False
    organised: bool = False
    """A summary was made while the person waited."""
    chosen: PreparedRequest | None = None
    """Request to the agent's own model, if another model answers in its place; None otherwise."""
    refusal: ModelError | None = None
    """Error of the agent's own model; None if it did not fail."""
    moves: int = 0
    """Number of times that the turn moved to another model."""

    def move_to(self, card: ModelCard, *, ratio: float) -> None:
        """Continue the turn with another model, whose count of the prefix is unknown."""
        if self.moves == 0:
            self.chosen = self.prepared
        self.moves += 1
        self.given = replace(self.given, card=card)
        self.meter = replace(
            self.meter, ratio=ratio, anchor=None, anchored=False, counted=False,
            restarts=0, ceiling=None, refused_size=0, insisted=False,
        )  # fmt: skip

    def for_chosen_model(self, prepared: PreparedRequest) -> PreparedRequest:
        """Return the request as the agent's own model would measure it."""
        if (own := self.chosen) is None:
            return prepared
        return replace(prepared, card=own.card, policy=own.policy, budget=own.budget, ratio=own.ratio)

    @property
    def claim(self) -> Claim:
        return self.costs.claim

    def attempt_number(self, model_attempt: int) -> int:
        """Return the number of a call in the turn; `model_attempt` counts the adapter's tries within it."""
        return self.claim.attempt * 100 + (self.moves + self.meter.restarts) * 10 + model_attempt

    def count_turn_tokens(self, tokens: int) -> int:
        """Return the tokens that this turn adds to the view with an answer of `tokens`."""
        mine = sum(entry.tokens for entry in select_open_turn_entries(self.view))
        return round(self.meter.ratio_of(self.prepared) * (mine + tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """Outcome to commit, and the new value of the gauge."""

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
    """Build the end of a turn that was refused: the person sees the error's advice, not an answer."""
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
    """Return the audit of a request that was refused or not sent.

    `overflow_rejected` is true unless a spending cap refused. Without a prepared request, budgets are 0 and
    estimates are the size of the conversation before the turn.
    """
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
    """Return the audit of the interrupted call and its prompt parts by hash; None and {} without a call."""
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


_ENDS: Mapping[StopReason, AnswerEnd] = {
    "max_tokens": "length",
    "window_exceeded": "length",
    "refusal": "filter",
}


def read_answer_end(reason: StopReason) -> AnswerEnd:
    """Return why an answer ended, for its person."""
    return _ENDS.get(reason, "stop")


def select_storable_blocks(reply: ModelReply) -> tuple[Block, ...]:
    """Return the blocks of the last reply to store: at least one text, and no unanswered call."""
    kept = tuple(
        block
        for block in reply.blocks
        if not isinstance(block, ToolUse) and not (isinstance(block, Text) and not block.text.strip())
    )
    return kept if any(isinstance(block, Text) for block in kept) else (*kept, Text(text=_EMPTY))


def learn_token_ratio(reply: ModelReply, prepared: PreparedRequest, tokens: int) -> tuple[float, int]:
    """Return the token ratio after this reply, and the tokens of the request together with the reply.

    Without the provider's counts, the ratio stays and the tokens are estimated; `tokens` is the reply's
    estimate.
    """
    usage = reply.usage
    if not usage.known:
        return prepared.ratio, prepared.estimate + round(prepared.ratio * tokens)
    counted, estimate = usage.context_tokens - usage.output_tokens, max(1, prepared.built.estimate)
    return update_ratio(prepared.ratio, counted, estimate), usage.context_tokens


def learn_scale(state: TurnAttempt, reply: ModelReply, prepared: PreparedRequest, answer: int) -> TokenScale:
    """Return how the model counts each kind of text, after what it counted for this call.

    `answer` is the estimate of its answer.
    """
    usage = reply.usage
    scale = scale_from_json(state.claim.token_scale, prepared.card.name, ratio=prepared.ratio)
    if not usage.known:
        return scale
    plain = not any(isinstance(block, Thinking | ProviderBlock | ToolUse) for block in reply.blocks)
    return learn_from_call(
        scale,
        prepared.estimates,
        counted=usage.context_tokens - usage.output_tokens,
        epoch=state.view.view_epoch,
        passes=prepared.passing,
        passed=count_passed(reply, prepared),
        foreseen=None if state.meter.anchored or state.meter.restarts else state.meter.anchor,
        added=state.meter.pending,
        answer=answer if plain and prepared.talk is None and usage.output_tokens <= MOST * answer else 0,
        answered=usage.output_tokens,
    )


def count_passed(reply: ModelReply, prepared: PreparedRequest) -> int | None:
    """Return the counted tokens of what passes with the turn; None if the provider does not tell them apart.

    They alone stand after the last mark of the cache, so they alone are neither read from it nor written.
    """
    usage, built = reply.usage, prepared.built
    marked = usage.cache_read_tokens + usage.cache_write_tokens > 0 and bool(built.cache_at)
    alone = built.behind_mark == 1 and built.cache_at[-1:] == (len(built.messages) - 1,)
    exact = "cache" in prepared.card.capabilities and not prepared.known.since
    return usage.input_tokens if marked and alone and exact and built.volatile else None


def has_requested_summary(state: TurnAttempt, job: JobOrder | None) -> bool:
    """Whether this turn had a summary made, or asked for one."""
    return state.organised or state.compaction_asked or (job is not None and job.kind == "compact")


def build_entry(blocks: tuple[Block, ...], tokens: int, last: Entry) -> Entry:
    return replace(last, role="assistant", author="assistant", blocks=blocks, tokens=tokens, pruned=None)


def lower_ceiling(maximum: int | None, ceiling: int | None, tried: int) -> int:
    """How large the next try may be: clearly below what the provider takes, and below the last try's aim."""
    known = maximum or tried
    return round(OVERFLOW_TARGET_SHARE * min(known, ceiling or known))


def is_emptied(entries: Sequence[Entry]) -> bool:
    """Return whether a turn's person has deleted everything that they said in it."""
    asked = [entry for entry in entries if entry.author == "person"]
    return bool(asked) and all(is_erased(entry.blocks) for entry in asked)


def select_open_turn_entries(view: View) -> tuple[Entry, ...]:
    """Entries stand in the order of their turns, and the open one is the last."""
    start = len(view.entries)
    while start and view.entries[start - 1].turn == view.open_turn:
        start -= 1
    return view.entries[start:]
