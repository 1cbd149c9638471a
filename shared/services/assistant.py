"""One attempt at an answer: context, model, tools, until there is something to commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, timedelta
from typing import Any, Protocol

from shared.core.budget import gauge, pressure
from shared.core.errors import CapReached, ContextBudgetExceeded, EvertalkError, ModelError, PromptTooLong
from shared.core.exchange import ContextMeasured, Delta, Emit, ToolRunning
from shared.core.jobs import next_job
from shared.core.messages import Author, Block, Text, ToolResult, ToolUse, text_of, tool_uses
from shared.core.pruning import plan_pruning
from shared.core.session import Entry, View
from shared.core.tokens import estimate_blocks, learned_ratio
from shared.core.turns import Caps, Claim, JobOrder, Outcome, Spending, StepOutcome
from shared.core.upkeep import SessionState
from shared.ports import ChatModel, Clock, Doorbell, ModelCard, ModelReply, Picture, ToolContext, Usage
from shared.services.crash import CrashPoint
from shared.services.pictures import Pictures, Unseen, Whose, unseen_of
from shared.services.prompting import Prepared, Prompting, audit_of, prompt_parts
from shared.services.spending import Purse, SpendStore, spending, spending_of
from shared.services.tools import Toolbox

TOOL_ROUNDS = 8
REMEMBERED_PARTS = 10_000
"""Hashes of prompt parts that a process knows to be stored; beyond that it starts afresh."""
OVERFLOW_TRIES = 3
OVERFLOW_AIM = 0.8
"""After a refusal the request is cut to this share of what the provider accepts."""
CACHE_LIVES = timedelta(minutes=5)
"""How long the provider keeps a prefix that nobody asks for."""
_LOST = "[outcome unknown: the program was restarted while this ran]"
_EMPTY = "I have no words for that. Please ask in another way."


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What to commit, and the gauge's new number."""

    outcome: Outcome
    measured: ContextMeasured | None
    unseen: Unseen | None = None
    """Pictures to be described once this is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPrices:
    micro_per_input_token: float
    micro_output: float
    """The longest answer's price, micro-dollars."""


class ContextStore(Protocol):
    async def load(self, session_id: int, *, base_turn: int, through_turn: int) -> tuple[Entry, ...]: ...
    async def record_tool_calls(
        self,
        claim: Claim,
        *,
        blocks: Sequence[Block],
        tokens: int,
        calls: Sequence[ToolUse],
        spent: Sequence[Spending],
    ) -> int: ...
    async def record_tool_results(
        self, claim: Claim, *, blocks: Sequence[Block], tokens: int, outcomes: dict[str, StepOutcome]
    ) -> int: ...

    async def record_waste(self, claim: Claim, spent: Sequence[Spending], *, settled_micro: int) -> None: ...


class StateStore(Protocol):
    async def state(self, session_id: int) -> SessionState: ...
    async def ask(self, session_id: int, order: JobOrder) -> int | None: ...


class Stopped(Exception):
    """The person asked to stop; carries what was written so far."""

    def __init__(self, text: str) -> None:
        super().__init__("stopped")
        self.text = text


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """What one attempt has gathered; it lives as long as the attempt and belongs to nobody else."""

    claim: Claim
    view: View
    emit: Emit
    stop: asyncio.Future[None]
    """Done as soon as the person asked to stop."""
    texts: list[str] = field(default_factory=list)
    """The visible words of earlier rounds of this turn."""
    spent: list[Spending] = field(default_factory=list)
    spent_before: list[Spending] = field(default_factory=list)
    """Calls whose usage was committed with a tool round."""
    restarts: int = 0
    model_attempt: int = 0
    draft: str = ""
    """The words of the running call."""
    calls: int = 0
    pictures: Mapping[int, Picture] = field(default_factory=dict)
    shown_attempt: int = -1
    """The attempt that screens draw at the moment."""

    @property
    def attempt(self) -> int:
        """Grows with every fresh beginning, so that a screen knows to replace its draft."""
        return self.claim.attempt * 100 + self.restarts * 10 + self.model_attempt


class Assistant:
    """Holds no way to a person: it emits, its caller commits."""

    def __init__(
        self,
        *,
        store: ContextStore,
        states: StateStore,
        model: ChatModel,
        prompting: Prompting,
        toolbox: Toolbox,
        spend: SpendStore,
        caps: Caps,
        doorbell: Doorbell,
        pictures: Pictures,
        clock: Clock,
        crash_point: CrashPoint,
    ) -> None:
        self._pictures = pictures
        self._spend = spend
        self._caps = caps
        self._doorbell = doorbell
        self._store = store
        self._states = states
        self._model = model
        self._prompting = prompting
        self._toolbox = toolbox
        self._clock = clock
        self._crash_point = crash_point
        self._stored_parts: set[str] = set()

    async def prices(self) -> ClaimPrices:
        card = await self._model.card(self._prompting.chat_model)
        if card.prices is None:
            return ClaimPrices(micro_per_input_token=0.0, micro_output=0.0)
        longest = min(self._prompting.max_output, card.max_output)
        return ClaimPrices(micro_per_input_token=card.prices.input, micro_output=longest * card.prices.output)

    async def answer(self, claim: Claim, *, emit: Emit, stop: asyncio.Future[None]) -> Answered:
        """Raises ModelError, ContextBudgetExceeded, Fenced, StorageUnavailable."""
        entries = await self._store.load(
            claim.session_id, base_turn=claim.view.base_turn, through_turn=claim.turn
        )
        whose = self._whose(claim)
        # Pictures of this turn are looked at; those of earlier ones are read.
        known = await self._pictures.told([one for one in entries if one.turn < claim.turn], whose=whose)
        entries = (*known, *(one for one in entries if one.turn >= claim.turn))
        view = replace(
            claim.view,
            entries=tuple(entry for entry in entries if entry.turn > claim.view.base_turn),
            pins=tuple(entry for entry in entries if entry.turn <= claim.view.base_turn),
        )
        card = await self._model.card(self._prompting.model_of(claim.agent_config))
        state = _Attempt(claim=claim, view=view, emit=emit, stop=stop)
        state.texts = [text for text in map(text_of, _said_in_this_turn(view)) if text]
        mine = [block for entry in _this_turn(view) for block in entry.blocks]
        state.pictures = await self._pictures.of_turn(mine)
        await self._finish_lost_calls(state)
        # Decisions about the prefix are taken once, at the start of the turn, never between tool calls.
        prunes = plan_pruning(
            state.view.entries,
            self._prompting.policy,
            cache_cold=cache_is_cold(state.view),
            open_turn=claim.turn,
        )
        state.view = _with_prunes(state.view, prunes)
        try:
            prepared, reply = await self._rounds(state, card)
        except Stopped as stopped:
            return self._stopped(state, stopped)
        except (CapReached, ContextBudgetExceeded) as error:
            return refusal(
                error, spent=state.spent, settled_micro=_micro([*state.spent_before, *state.spent])
            )
        answered = self._answered(state, prepared, reply, tuple((prune.seq, prune.form) for prune in prunes))
        if not state.pictures:
            return answered
        return replace(answered, unseen=unseen_of(state.view.entries, whose=whose, turn=claim.turn))

    def describe_later(self, unseen: Unseen, *, then: Callable[[], Awaitable[None]]) -> None:
        """For after the commit: what the pictures of this turn show."""
        self._pictures.describe_later(unseen, then=then)

    def _whose(self, claim: Claim) -> Whose:
        return Whose(
            session_id=claim.session_id,
            party_id=claim.party_id,
            chat_model=self._prompting.model_of(claim.agent_config),
        )

    def stored(self, outcome: Outcome) -> None:
        """The outcome was committed: its prompt parts need not be sent again by this process."""
        if len(self._stored_parts) > REMEMBERED_PARTS:
            self._stored_parts.clear()
        self._stored_parts.update(outcome.prompt_parts)

    async def gauge(self, session_id: int) -> ContextMeasured | None:
        """The gauge as the next request would be built; None before the first turn."""
        state = await self._states.state(session_id)
        if state.context_limit == 0:
            return None
        prepared = await self._next_request(state)
        return self._measured(prepared, state.view.context_tokens or prepared.estimate, estimated=True)

    async def hard_limit(self, state: SessionState) -> int:
        return (await self._next_request(state)).budget.hard

    async def _next_request(self, state: SessionState) -> Prepared:
        return self._prompting.prepare(
            state.view,
            card=await self._model.card(self._prompting.model_of(state.agent_config)),
            agent_config=state.agent_config,
            tools=self._toolbox.specs,
            token_ratio=state.token_ratio,
        )

    async def _rounds(self, state: _Attempt, card: ModelCard) -> tuple[Prepared, ModelReply]:
        for _ in range(TOOL_ROUNDS):
            prepared, reply = await self._call(state, card)
            calls = tool_uses(reply.blocks)
            if not calls or reply.stop_reason != "tool_use":
                return prepared, reply
            await self._run_tools(state, reply, calls)
        prepared, reply = await self._call(state, card, tools=False)
        return prepared, reply

    async def _call(
        self, state: _Attempt, card: ModelCard, *, tools: bool = True
    ) -> tuple[Prepared, ModelReply]:
        """One model call, climbing down the ladder while the provider says that it is too long."""
        ceiling: int | None = None
        ratio = state.claim.token_ratio
        for tried in range(OVERFLOW_TRIES + 1):
            prepared = self._prepare(state, card, ratio, tools=tools)
            hard = min(prepared.budget.hard, ceiling or prepared.budget.hard)
            if prepared.estimate > hard:
                prepared = self._prompting.shrink(prepared, state.view, state.claim.agent_config, hard=hard)
            await self._ask_for_compaction(state, prepared)
            try:
                reply = await self._paid(state, prepared)
            except PromptTooLong as error:
                if tried == OVERFLOW_TRIES:
                    raise ContextBudgetExceeded(hard=hard, largest=_largest(prepared)) from error
                state.restarts += 1
                if error.tokens:
                    ratio = learned_ratio(prepared.ratio, error.tokens, max(1, prepared.built.estimate))
                ceiling = round(OVERFLOW_AIM * (error.maximum or hard * OVERFLOW_AIM))
                continue
            self._crash_point("after_model")
            if reply.stop_reason == "window_exceeded" and tried < OVERFLOW_TRIES:
                state.restarts += 1
                state.spent.append(
                    spending(reply.usage, reply.model, card, request_id=reply.request_id, aborted=True)
                )
                ceiling = round(OVERFLOW_AIM * hard)
                continue
            state.spent.extend(spending_of(reply, prepared.card))
            return prepared, reply
        raise AssertionError("unreachable")

    async def _paid(self, state: _Attempt, prepared: Prepared) -> ModelReply:
        """The claim has set money aside for one call; every further one is reserved by itself."""
        state.calls += 1
        try:
            if state.calls == 1:
                return await self._stoppable(state, prepared)
            purse = Purse(self._spend, session_id=state.claim.session_id, job_id=None, caps=self._caps)
            async with purse.holding(prepared.estimate, prepared.budget.out, prepared.card):
                return await self._stoppable(state, prepared)
        except ModelError as error:
            state.spent.extend(
                spending(usage, prepared.card.name, prepared.card, aborted=True) for usage in error.aborted
            )
            if not isinstance(error, PromptTooLong) and state.spent:
                settled = _micro([*state.spent_before, *state.spent])
                await self._store.record_waste(state.claim, tuple(state.spent), settled_micro=settled)
                state.spent.clear()
            raise

    async def _ask_for_compaction(self, state: _Attempt, prepared: Prepared) -> None:
        """A request above the limit means that a compaction is due: it may begin while the model answers."""
        if state.calls or pressure(prepared.budget, prepared.estimate) not in ("compact", "overflow"):
            return
        job = self._due_job(state.view, prepared, prepared.estimate)
        if job is not None and job.kind == "compact":
            job_id = await self._states.ask(state.claim.session_id, job)
            if job_id is not None:
                await self._doorbell.ring(job_id, 0)

    def _prepare(self, state: _Attempt, card: ModelCard, ratio: float, *, tools: bool) -> Prepared:
        prepared = self._prompting.prepare(
            state.view,
            card=card,
            agent_config=state.claim.agent_config,
            tools=self._toolbox.specs if tools else (),
            token_ratio=ratio,
            runtime_facts=runtime_facts(state.view),
        )
        if state.restarts or not state.claim.context_tokens:
            return prepared
        # What the provider counted last, and only what came after it by estimate.
        fresh = sum(entry.tokens for entry in _this_turn(state.view))
        return replace(prepared, estimate=state.claim.context_tokens + round(prepared.ratio * fresh))

    async def _stoppable(self, state: _Attempt, prepared: Prepared) -> ModelReply:
        """The model's reply, or Stopped as soon as the person asks."""
        if state.stop.done():
            raise Stopped("")
        state.draft, state.model_attempt = "", 0
        call = asyncio.ensure_future(
            self._model.reply(
                replace(prepared.request, pictures=state.pictures) if state.pictures else prepared.request,
                on_text=lambda attempt, text: self._on_text(state, attempt, text),
            )
        )
        try:
            either: tuple[asyncio.Future[Any], ...] = (call, state.stop)
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if call.done():
                return call.result()
            raise Stopped(state.draft)
        finally:
            if not call.done():
                call.cancel()
                await asyncio.wait([call])
                self._charge_stopped(state, prepared)

    async def _on_text(self, state: _Attempt, attempt: int, piece: str) -> None:
        if attempt != state.model_attempt:
            state.model_attempt, state.draft = attempt, ""
        earlier = "\n\n".join(state.texts)
        if state.attempt != state.shown_attempt:
            # A screen that replaces its draft needs the earlier rounds again.
            state.shown_attempt = state.attempt
            offset, text = 0, f"{earlier}\n\n{piece}" if earlier else piece
        elif earlier and not state.draft:
            offset, text = utf16_length(earlier), f"\n\n{piece}"
        else:
            offset, text = utf16_length(f"{earlier}\n\n{state.draft}" if earlier else state.draft), piece
        state.draft += piece
        self._crash_point("mid_stream")
        await state.emit(Delta(turn=state.claim.turn, attempt=state.attempt, offset=offset, text=text))

    async def _run_tools(self, state: _Attempt, reply: ModelReply, calls: Sequence[ToolUse]) -> None:
        """Intent, run, result: two commits, so that a crash in between is known for what it is."""
        count = self._prompting.counter.count
        tokens = estimate_blocks(reply.blocks, count)
        seq = await self._store.record_tool_calls(
            state.claim, blocks=reply.blocks, tokens=tokens, calls=calls, spent=tuple(state.spent)
        )
        state.spent_before += state.spent
        state.spent.clear()
        self._add(state, seq, "assistant", reply.blocks, tokens)
        if text := text_of(reply.blocks):
            state.texts.append(text)
        self._crash_point("after_tool_calls")
        for call in calls:
            await state.emit(ToolRunning(turn=state.claim.turn, name=call.name))
        await self._finish_calls(state, calls, lost=False)

    async def _finish_lost_calls(self, state: _Attempt) -> None:
        """A turn that died between intent and result: run again what does no harm, report the rest."""
        mine = _this_turn(state.view)
        if mine and (calls := tool_uses(mine[-1].blocks)):
            await self._finish_calls(state, calls, lost=True)

    async def _finish_calls(self, state: _Attempt, calls: Sequence[ToolUse], *, lost: bool) -> None:
        results = await asyncio.gather(*(self._finish_call(state, call, lost=lost) for call in calls))
        self._crash_point("after_tool_run")
        blocks = tuple(result for result, _ in results)
        tokens = estimate_blocks(blocks, self._prompting.counter.count)
        outcomes = {call.id: status for call, (_, status) in zip(calls, results, strict=True)}
        seq = await self._store.record_tool_results(
            state.claim, blocks=blocks, tokens=tokens, outcomes=outcomes
        )
        self._add(state, seq, "tool", blocks, tokens)
        self._crash_point("after_tool_results")

    async def _finish_call(
        self, state: _Attempt, call: ToolUse, *, lost: bool
    ) -> tuple[ToolResult, StepOutcome]:
        if lost and not self._toolbox.is_idempotent(call.name):
            return ToolResult(tool_use_id=call.id, text=_LOST, is_error=True), "unknown"
        context = ToolContext(
            session_id=state.claim.session_id,
            party_id=state.claim.party_id,
            scope=state.claim.agent,
            turn=state.claim.turn,
            key=f"{state.claim.session_id}:{state.claim.turn}:{call.id}",
        )
        return await self._toolbox.run(call, context=context)

    def _add(self, state: _Attempt, seq: int, author: Author, blocks: Sequence[Block], tokens: int) -> None:
        entry = Entry(
            seq=seq,
            turn=state.claim.turn,
            step=seq,
            role="assistant" if author == "assistant" else "user",
            author=author,
            blocks=tuple(blocks),
            tokens=tokens,
            at=self._clock.now(),
        )
        state.view = replace(state.view, entries=(*state.view.entries, entry))

    def _charge_stopped(self, state: _Attempt, prepared: Prepared) -> None:
        """A stopped answer is paid for, too, but nobody says how much: our estimate stands in."""
        usage = Usage(
            input_tokens=prepared.estimate,
            output_tokens=self._prompting.counter.count(state.draft),
            known=False,
        )
        state.spent.append(spending(usage, prepared.card.name, prepared.card, aborted=True))

    def _answered(
        self, state: _Attempt, prepared: Prepared, reply: ModelReply, prunes: tuple[tuple[int, str], ...]
    ) -> Answered:
        blocks = _sayable(reply)
        count = self._prompting.counter.count
        tokens = estimate_blocks(blocks, count)
        usage = reply.usage
        used = usage.context_tokens if usage.known else prepared.estimate + round(prepared.ratio * tokens)
        ratio = prepared.ratio
        if usage.known:
            reported = usage.context_tokens - usage.output_tokens
            ratio = learned_ratio(prepared.ratio, reported, max(1, prepared.built.estimate))
        whole = used + prepared.left_out
        turn_tokens = tokens + sum(entry.tokens for entry in _this_turn(state.view))
        parts = prompt_parts(prepared)
        fresh = {key: body for key, body in parts.items() if key not in self._stored_parts}
        screen = {} if not state.texts else {"text": "\n\n".join([*state.texts, text_of(blocks)])}
        outcome = Outcome(
            state="answered",
            blocks=blocks,
            tokens=tokens,
            screen=screen,
            spent=tuple(state.spent),
            settled_micro=_micro([*state.spent_before, *state.spent]),
            audit=audit_of(
                prepared,
                state.view,
                hashes=tuple(parts),
                reported=usage.context_tokens - usage.output_tokens if usage.known else None,
                context_tokens=used,
                before=prepared.estimate,
            ),
            prompt_parts=fresh,
            prunes=prunes,
            context_tokens=whole,
            turn_tokens=round(ratio * turn_tokens),
            context_limit=prepared.budget.limit,
            token_ratio=ratio,
            release_hold=pressure(prepared.budget, whole) == "overflow",
            job=self._due_job(state.view, prepared, whole),
        )
        return Answered(outcome=outcome, measured=self._measured(prepared, whole, estimated=not usage.known))

    def _due_job(self, view: View, prepared: Prepared, used: int) -> JobOrder | None:
        ended = replace(view, open_turn=None, context_tokens=used)
        wish = next_job(
            ended,
            budget=prepared.budget,
            policy=prepared.policy,
            context_tokens=used,
            ratio=prepared.ratio,
        )
        if wish is None:
            return None
        return JobOrder(kind=wish.kind, key=wish.key, trigger=wish.trigger, payload=wish.payload)

    def _stopped(self, state: _Attempt, stopped: Stopped) -> Answered:
        words = "\n\n".join([*state.texts, stopped.text] if stopped.text else state.texts)
        screen: dict[str, Any] = {"partial": True} if words else {"text": "Stopped.", "partial": True}
        blocks = (Text(text=stopped.text or words),) if words else None
        if words and state.texts:
            screen["text"] = words
        outcome = Outcome(
            state="stopped",
            blocks=blocks,
            tokens=estimate_blocks(blocks or (), self._prompting.counter.count),
            screen=screen,
            spent=tuple(state.spent),
            settled_micro=_micro([*state.spent_before, *state.spent]),
        )
        return Answered(outcome=outcome, measured=None)

    def _measured(self, prepared: Prepared, used: int, *, estimated: bool) -> ContextMeasured:
        shown = gauge(prepared.budget, used)
        return ContextMeasured(
            used=shown.used,
            limit=shown.limit,
            percent=shown.percent,
            status=shown.status,
            parts={name: round(prepared.ratio * tokens) for name, tokens in prepared.built.parts.items()},
            estimated=estimated,
        )


def runtime_facts(view: View) -> str:
    """The clock as it was when the person wrote: the same in every tool round and after a crash."""
    asked = [entry.at for entry in _this_turn(view) if entry.author == "person"]
    return f"It is {max(asked).astimezone(UTC):%A, %Y-%m-%d %H:%M} UTC." if asked else ""


def cache_is_cold(view: View) -> bool:
    """True when the provider has surely forgotten the prefix: more than five minutes since the last turn."""
    mine = _this_turn(view)
    before = view.entries[: len(view.entries) - len(mine)]
    if not before or not mine:
        return True
    return max(entry.at for entry in mine) - max(entry.at for entry in before) > CACHE_LIVES


def refusal(error: EvertalkError, *, spent: Sequence[Spending] = (), settled_micro: int = 0) -> Answered:
    """The turn ends with the error's advice, in the program's own voice."""
    outcome = Outcome(
        state="refused",
        blocks=None,
        tokens=0,
        screen={"text": error.advice, "error": error.code},
        error_code=error.code,
        spent=tuple(spent),
        settled_micro=settled_micro,
    )
    return Answered(outcome=outcome, measured=None)


def utf16_length(text: str) -> int:
    """How browsers count: characters beyond the basic plane are two units."""
    return len(text.encode("utf-16-le")) // 2


def _this_turn(view: View) -> tuple[Entry, ...]:
    """Entries stand in the order of their turns, and the open one is the last."""
    start = len(view.entries)
    while start and view.entries[start - 1].turn == view.open_turn:
        start -= 1
    return view.entries[start:]


def _said_in_this_turn(view: View) -> list[tuple[Block, ...]]:
    return [entry.blocks for entry in _this_turn(view) if entry.author == "assistant"]


def _with_prunes(view: View, prunes: Sequence[Any]) -> View:
    forms = {prune.seq: prune.form for prune in prunes}
    if not forms:
        return view
    entries = (replace(e, pruned=forms[e.seq]) if e.seq in forms else e for e in view.entries)
    return replace(view, entries=tuple(entries))


def _sayable(reply: ModelReply) -> tuple[Block, ...]:
    """What is stored of the last reply: never nothing, never a call that nobody will answer."""
    kept = tuple(
        block
        for block in reply.blocks
        if not isinstance(block, ToolUse) and not (isinstance(block, Text) and not block.text.strip())
    )
    return kept if any(isinstance(block, Text) for block in kept) else (*kept, Text(text=_EMPTY))


def _largest(prepared: Prepared) -> list[tuple[str, int]]:
    ranked = sorted(prepared.built.parts.items(), key=lambda part: -part[1])
    return [(name, round(prepared.ratio * tokens)) for name, tokens in ranked[:3]]


def _micro(spent: Sequence[Spending]) -> int:
    return sum(call.cost_micro or 0 for call in spent)
