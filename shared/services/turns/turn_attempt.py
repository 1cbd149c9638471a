"""State and results of one attempt at a turn: its input, the size of its context, its stream, its end."""

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
"""Share of the size that the provider accepts, to which a refused request is cut."""
DRAFTS_PER_ATTEMPT = 1_000
"""Numbers of drafts that an attempt at a turn has; calls and retries are limited, so it discards far fewer.
"""
UNKNOWN_SIZE_FACTOR = 1.1
"""Factor by which a refused request is assumed larger than estimated if the provider names no size."""


class TurnStopped(Exception):
    """Signal that the person stopped the turn; `text` is the answer's text so far."""

    def __init__(self, text: str) -> None:
        super().__init__("stopped")
        self.text = text


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnInput:
    """Input of an attempt, fixed for the turn; later changes of settings apply to the next turn."""

    card: ModelCard
    """Description of the agent's model, or of the fallback that answers."""
    emit: Emit
    stop: asyncio.Future[None]
    """Future that is done once the person asks to stop."""
    toolbox: Toolbox
    """Tools of the agent, whose list is part of the cached prefix."""
    circumstances: Circumstances
    cache_life: timedelta
    """Time for which the provider caches the prefix, chosen by the pace of the session."""
    recalled: Recalled = NOTHING_RECALLED
    """Passages recalled for this turn; the same in all its rounds."""
    previous_answer: str | None = None
    """Public id of the answer that this one replaces when a question is asked again; None otherwise."""

    @property
    def replacement(self) -> dict[str, str]:
        """Field of the answer's event that names the replaced answer; empty if there is none."""
        return {"replaces": self.previous_answer} if self.previous_answer else {}


@dataclass(slots=True, kw_only=True)
class ContextMeter:
    """Meter of the next request's size: the provider's last count, plus an estimate of all later messages.

    All sizes are tokens. An estimate times `ratio` gives the model's tokens.
    """

    ratio: float
    """Model's tokens per estimated token, learned for this session and model; 1.0 before the first count."""
    anchor: int | None
    """Provider's last token count; None if there is none or another model counted."""
    pending: int
    """Estimated tokens added after the anchor, less those that will not be sent again."""
    anchored: bool = False
    """True if a call of this turn counted the anchor."""
    pruned_tokens: int = 0
    """Estimated tokens that this turn's pruning removed."""
    before_summary: int = 0
    """Tokens of this turn's request before the turn waited for a summary; 0 if it did not wait."""
    filler_trimmed: bool = False
    """True if old low-signal messages were hidden at the start of this turn."""
    counted: bool = False
    """True once the provider was asked to count this turn's request."""
    restarts: int = 0
    """Number of requests of this turn that the provider refused as too long."""
    ceiling: int | None = None
    """Most tokens of this turn's requests after a refusal; None before one."""
    refused_size: int = 0
    """Tokens of the smallest request that the provider refused; 0 if none was refused."""
    insisted: bool = False
    """True if a request that cannot shrink was sent again unchanged after a refusal."""

    def read(self, prepared: PreparedRequest) -> PreparedRequest:
        """Return the request with its measured size (`estimate`), and its size before this turn's summary and
        pruning.
        """
        pending = self.pending + (0 if self.anchored else prepared.built.volatile)
        # The count from before this turn includes messages that are no longer sent.
        narrower = prepared.selection.slides or prepared.policy.keeping.differs_by_channel
        moved = (self.filler_trimmed or narrower) and not self.anchored
        anchor = None if self.restarts or moved else self.anchor
        estimate = measure(anchor, pending, prepared.built.estimate, prepared.ratio)
        saved = round(prepared.ratio * self.pruned_tokens)
        before = max(self.before_summary, estimate + saved)
        return replace(prepared, estimate=estimate, before=before, saved=saved)

    def prune(self, tokens: int) -> None:
        """Subtract estimated tokens that pruning removed."""
        self.pruned_tokens += tokens
        self.pending -= tokens

    def anchor_at(self, context_tokens: int) -> None:
        """Set the anchor to the provider's count of the whole context; nothing is pending after it."""
        self.anchor, self.anchored, self.pending = context_tokens, True, 0

    def limit(self, prepared: PreparedRequest) -> int:
        """Return the most tokens of the next request: the hard budget, or the ceiling if it is lower."""
        return min(prepared.budget.hard, self.ceiling or prepared.budget.hard)

    def lower_ceiling(self, prepared: PreparedRequest, refusal: PromptTooLong) -> None:
        """Count a refusal as too long, lower the ceiling of the next request and correct the ratio."""
        tried = min(prepared.budget.hard, self.ceiling or prepared.estimate)
        self.restarts += 1
        steeper = prepared.ratio * UNKNOWN_SIZE_FACTOR
        self.ratio = compute_ratio(refusal.tokens or 0, prepared.built.estimate, steeper)
        self.ceiling = lower_ceiling(refusal.maximum, self.ceiling, tried)
        size = round(self.ratio * prepared.built.estimate)
        self.refused_size = min(size, refusal.maximum or size)

    def estimate_growth(self, prepared: PreparedRequest | None, tokens: int, *, pruned: bool) -> int | None:
        """Return the estimated tokens of the context after this turn, with an answer that the provider did
        not count.

        `tokens` is the answer's estimate, 0 for none. `pruned` says that this turn's pruning is stored.
        Returns None if there is no anchor.
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
        """Return the model's tokens per estimated token of a request; without one, the learned ratio."""
        return self.ratio if prepared is None else prepared.ratio


@dataclass(slots=True, kw_only=True)
class StreamState:
    """Text of a streamed answer, and how much of it clients show."""

    texts: list[str]
    """Visible texts of the turn's earlier rounds."""
    draft: str = ""
    """Text of the running call so far."""
    first_text_at: float | None = None
    """Monotonic time of the first text, in seconds; None before it."""
    number: int = 0
    """Number of the draft. It grows each time that text of a call is discarded, by a retry, a refusal or a
    move to another model, so that screens replace what they show.
    """
    _model_attempt: int | None = None
    """Adapter's attempt at the running call; None before its first piece."""
    _shown_number: int = -1
    """Number of the draft that clients show at present; -1 before the first."""
    _shown_units: int = 0
    """UTF-16 units that clients show, earlier rounds included."""

    def begin_call(self) -> None:
        """Discard the text of a former call that `end_round` has not kept."""
        self._model_attempt = None
        self._discard()

    def end_round(self, text: str) -> None:
        """Keep the text of a call that ended with tool calls, so that later text follows it; empty text
        discards what an earlier try of the call has sent.
        """
        if text:
            self.texts.append(text)
            self.draft = ""
        else:
            self._discard()

    def add(self, piece: str, *, model_attempt: int) -> tuple[int, str]:
        """Add a piece of the answer; return the offset in UTF-16 units at which clients place the text, and
        the text.

        A new `model_attempt`, which counts the adapter's retries of a call, discards the text of the
        previous one.
        """
        if self._model_attempt not in (None, model_attempt):
            self._discard()
        self._model_attempt = model_attempt
        offset, text = self._follow(piece)
        self._shown_units = offset + utf16_units(text)
        self.draft += piece
        return offset, text

    def _discard(self) -> None:
        if self.draft:
            self.number, self.draft = self.number + 1, ""

    def _follow(self, piece: str) -> tuple[int, str]:
        if self.number == self._shown_number and self.draft:
            return self._shown_units, piece
        earlier = "\n\n".join(self.texts)
        following = f"\n\n{piece}" if earlier else piece
        if self.number == self._shown_number:
            return utf16_units(earlier), following
        # A client that replaces its draft needs the earlier rounds again.
        self._shown_number = self.number
        return 0, earlier + following


@dataclass(slots=True, kw_only=True)
class TurnAttempt:
    """State of one attempt at a turn, changed by its rounds."""

    given: TurnInput
    costs: CallCosts
    meter: ContextMeter
    stream: StreamState
    view: View
    pictures: Mapping[int, PictureContent] = field(default_factory=dict)
    prunes: tuple[PruneDecision, ...] = ()
    """Pruning decisions of this turn, stored with its end."""
    prepared: PreparedRequest | None = None
    """Newest request that was built, sent or not; None before the first."""
    calls: int = 0
    model_seconds: float = 0.0
    """Seconds spent waiting for the model."""
    compaction_asked: bool = False
    organised: bool = False
    """True if a summary was made while the turn waited."""
    chosen: PreparedRequest | None = None
    """Last request to the agent's own model, if a fallback answers; None otherwise."""
    refusal: ModelError | None = None
    """First error of the agent's own model; None if it did not fail."""
    moves: int = 0
    """Number of times that the turn moved to another model."""

    def move_to(self, card: ModelCard, *, ratio: float) -> None:
        """Continue the turn with another model; `ratio` is its tokens per estimated token.

        The provider's counts so far are dropped, since they are the former model's.
        """
        if self.moves == 0:
            self.chosen = self.prepared
        self.moves += 1
        self.given = replace(self.given, card=card)
        self.meter = replace(
            self.meter, ratio=ratio, anchor=None, anchored=False, counted=False,
            restarts=0, ceiling=None, refused_size=0, insisted=False,
        )  # fmt: skip

    def for_chosen_model(self, prepared: PreparedRequest) -> PreparedRequest:
        """Return the request with card, policy, budget and ratio of the agent's own model, if a fallback
        answers.

        Otherwise it is returned unchanged.
        """
        if (own := self.chosen) is None:
            return prepared
        return replace(prepared, card=own.card, policy=own.policy, budget=own.budget, ratio=own.ratio)

    @property
    def claim(self) -> Claim:
        """Claim of the turn, with its current reservation."""
        return self.costs.claim

    @property
    def draft_number(self) -> int:
        """Number that clients see of the draft; it grows each time that text of the turn is discarded."""
        return self.claim.attempt * DRAFTS_PER_ATTEMPT + self.stream.number

    def count_turn_tokens(self, tokens: int) -> int:
        """Return the tokens that this turn adds to the view with an answer of `tokens` estimated tokens."""
        mine = sum(entry.tokens for entry in select_open_turn_entries(self.view))
        return round(self.meter.ratio_of(self.prepared) * (mine + tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """Outcome of a turn to be committed, and the gauge afterwards (None if not measured)."""

    outcome: Outcome
    measured: ContextMeasured | None
    unseen: UndescribedPictures | None = None
    """Pictures to describe once the result is stored; None if there are none."""


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
    """Return the result of a refused turn; the person sees the error's advice instead of an answer.

    `spent` are calls to book, `settled_micro` the micro-dollars of all calls of the turn. `grown` is the
    context in tokens after it, None to leave it unchanged; `audit` describes the refused request, None if
    there was none. `view_epoch` is the view that was answered, None without one.
    """
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

    `overflow_rejected` is True unless a spending cap refused. Without a built request, budgets are 0 and
    sizes are those before the turn.
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
    """Return the audit of the interrupted call and its prompt parts by hash; None and {} if no
    call was made.
    """
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
    """Return the reason why an answer ended, as clients receive it."""
    return _ENDS.get(reason, "stop")


def select_storable_blocks(reply: ModelReply) -> tuple[Block, ...]:
    """Return the blocks of the last reply to store: without unanswered tool calls, and with at least one
    text.
    """
    kept = tuple(
        block
        for block in reply.blocks
        if not isinstance(block, ToolUse) and not (isinstance(block, Text) and not block.text.strip())
    )
    return kept if any(isinstance(block, Text) for block in kept) else (*kept, Text(text=_EMPTY))


def learn_token_ratio(reply: ModelReply, prepared: PreparedRequest, tokens: int) -> tuple[float, int]:
    """Return the token ratio after this reply, and the tokens of request and reply together.

    If the provider reported no usage, the ratio stays and the tokens are estimated; `tokens` is the reply's
    estimate.
    """
    usage = reply.usage
    if not usage.known:
        return prepared.ratio, prepared.estimate + round(prepared.ratio * tokens)
    counted, estimate = usage.context_tokens - usage.output_tokens, max(1, prepared.built.estimate)
    return update_ratio(prepared.ratio, counted, estimate), usage.context_tokens


def learn_scale(state: TurnAttempt, reply: ModelReply, prepared: PreparedRequest, answer: int) -> TokenScale:
    """Return the ratios of counted to estimated tokens by kind of text, updated by this call.

    `answer` is the estimate of the reply.
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
    """Return the counted tokens of the parts that only this turn sends; None if they are not counted
    separately.

    They are the only ones after the last cache mark, so the provider neither reads nor writes them in its
    cache.
    """
    usage, built = reply.usage, prepared.built
    marked = usage.cache_read_tokens + usage.cache_write_tokens > 0 and bool(built.cache_at)
    alone = built.behind_mark == 1 and built.cache_at[-1:] == (len(built.messages) - 1,)
    exact = "cache" in prepared.card.capabilities and not prepared.known.since
    return usage.input_tokens if marked and alone and exact and built.volatile else None


def has_requested_summary(state: TurnAttempt, job: JobOrder | None) -> bool:
    """Return whether this turn waited for a summary or requested one, also by `job`, None if it has none."""
    return state.organised or state.compaction_asked or (job is not None and job.kind == "compact")


def build_entry(blocks: tuple[Block, ...], tokens: int, last: Entry) -> Entry:
    """Return an assistant's entry with these blocks, in the turn of the entry `last`."""
    return replace(last, role="assistant", author="assistant", blocks=blocks, tokens=tokens, pruned=None)


def lower_ceiling(maximum: int | None, ceiling: int | None, tried: int) -> int:
    """Return the most tokens of the next try after a refusal: 80 percent of what is accepted or was last
    allowed.

    `maximum` is what the provider accepts, None if it does not say; then `tried`, the refused size, counts.
    `ceiling` is the last limit, None if there was none.
    """
    known = maximum or tried
    return round(OVERFLOW_TARGET_SHARE * min(known, ceiling or known))


def is_emptied(entries: Sequence[Entry]) -> bool:
    """Return whether the person has erased all their messages of a turn."""
    asked = [entry for entry in entries if entry.author == "person"]
    return bool(asked) and all(is_erased(entry.blocks) for entry in asked)


def select_open_turn_entries(view: View) -> tuple[Entry, ...]:
    """Return the entries of the open turn, which are the last ones of the view."""
    start = len(view.entries)
    while start and view.entries[start - 1].turn == view.open_turn:
        start -= 1
    return view.entries[start:]
