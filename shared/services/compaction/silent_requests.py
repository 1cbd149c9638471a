"""Model requests of background jobs: the chat's own request or a separate one, the model, and time limits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Protocol

import structlog

from shared.core.compaction.jobs import next_portion
from shared.core.compaction.note_requests import (
    APART,
    NOTES_SCHEMA,
    FlushWay,
    answer_tokens,
    flush_way,
    note_rules,
    note_task,
    pieces_of,
    room_for_words,
)
from shared.core.compaction.plan import render_source
from shared.core.context.memory import core_block
from shared.core.context.memory_tools import SAVE_MEMORY, UPDATE_MEMORY
from shared.core.context.prompts import flush_instruction, most_notes
from shared.core.session.session import Compaction, View
from shared.core.session.session_state import CompactionPace, JobClaim, NewCompaction, SessionState
from shared.core.session.summary_strategy import SummaryStrategy
from shared.core.session.turns import Caps
from shared.core.values.errors import ModelUnavailable, PromptTooLong
from shared.core.values.local_time import minute_text
from shared.core.values.messages import text_message
from shared.core.values.token_scale import learn_from_foreseen
from shared.core.values.tokens import (
    Count,
    estimate_blocks,
    estimate_messages,
    estimate_system,
    estimate_tools,
)
from shared.core.verdicts.summaries import unusable_seconds
from shared.core.verdicts.unable_models import UnableModels
from shared.ports import (
    ChatModel,
    ModelCard,
    ModelReply,
    ModelRequest,
    SystemPart,
    TokenCounter,
    ToolSpec,
    Usage,
)
from shared.services.turns.pictures import PictureOwner, PictureService
from shared.services.turns.request_builder import PreparedRequest, RequestBuilder, find_learned_ratio
from shared.services.turns.spend_tracker import SpendStore, SpendTracker
from shared.services.turns.toolbox import Toolbox

log = structlog.get_logger(__name__)

PORTION_SHARE = 0.8
"""Share of the hard limit for one portion, since estimates vary and the answer's tool calls are added."""
KNOWN_SHARE = 5
"""Divisor of a small request's room: known notes take at most a fifth."""
PIECES_AT_MOST = 8
"""Most pieces into which a message is split that no request can hold; a longer one is cut in the middle."""
_PLACEHOLDER = "."
"""Text of the message added to count a request that has no new message yet."""
_BESIDE = 60
"""Tokens of the tags and the last sentence around a transcript."""
_CHARS_PER_TOKEN = 8
_CHARS_TO_SPARE = 2_000
"""Characters that an answer may have beyond `_CHARS_PER_TOKEN` per allowed token before it is stopped."""


class LastToolsStore(Protocol):
    """Store of what the last request of a session contained.

    `load_last_tools` returns the tools stored with it, None without any. `find_size_after` returns the
    counted tokens of the context after a turn, None if they are unknown.
    """

    async def load_last_tools(self, session_id: int) -> tuple[ToolSpec, ...] | None: ...
    async def find_size_after(self, session_id: int, turn: int) -> int | None: ...


TAIL_DOUBT = 0.5
"""Share of its estimate by which the counted size of kept turns may differ; above it, pictures have left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentRequest:
    """Request of a background job, with its sizes in tokens as the model counts them.

    `estimate` is its input, `out` the longest answer, `hard` the most input that the window allows.
    """

    request: ModelRequest
    card: ModelCard
    ratio: float
    estimate: int
    out: int
    hard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushPortion:
    """Turns from which memory is saved together, and the way to do it."""

    way: FlushWay
    view: View
    last: int
    """Number of the last turn that is read once this portion is done."""
    prepared: PreparedRequest
    """Chat's own request with these turns; only the way `prefix` sends it."""
    room: int = 0
    """Estimated tokens of the transcript in one separate request."""

    @property
    def model(self) -> str:
        """Name of the model that is asked; empty if the notes are made without a model or not at all."""
        return "" if self.way in ("code", "off") else self.prepared.card.name


class SilentRequests:
    """Builder of the model requests of background jobs.

    It also chooses their models and measures their size, for which it asks providers and stores.
    """

    def __init__(
        self,
        *,
        last_requests: LastToolsStore,
        spend: SpendStore,
        model: ChatModel,
        requests: RequestBuilder,
        toolbox: Toolbox,
        pictures: PictureService,
        unable: UnableModels,
        caps: Caps,
    ) -> None:
        self._last_requests = last_requests
        self._spend = spend
        self._model = model
        self._requests = requests
        self._toolbox = toolbox
        self._pictures = pictures
        self._unable = unable
        self._caps = caps

    # ---- for every job

    def count_tokens(self, text: str) -> int:
        """Return the estimated tokens of a text."""
        return self._requests.counter.count_tokens(text)

    def open_spend_tracker(self, job: JobClaim) -> SpendTracker:
        """Return a new tracker of the spending of a job, under the caps of the deployment."""
        return SpendTracker(self._spend, session_id=job.session_id, job_id=job.id, caps=self._caps)

    async def build_next(
        self, state: SessionState, tools: tuple[ToolSpec, ...] | None = None
    ) -> PreparedRequest:
        """Return the chat's next request, with these tools or, if None, those of its agent; nothing is sent.

        Raises NoRoom if system text and tools leave no room for a conversation.
        """
        card = await self._model.load_card(self._requests.resolve_model(state.agent_config))
        tools = self._toolbox.for_agent(state.agent_config).specs if tools is None else tools
        return self._requests.build_next(state, card=card, tools=tools)

    async def foresee(self, state: SessionState, compaction: NewCompaction) -> SessionState:
        """Return the state with the sizes that the next request will have once `compaction` is committed.

        `state` must be loaded after the flush, since the request contains the notes it saved. A provider that
        can count tokens is asked; else they are estimated. Nothing is stored.
        """
        view, through = state.view, compaction.through_turn
        head = Compaction(
            id=0,
            kind=compaction.kind,
            from_turn=compaction.from_turn,
            through_turn=through,
            through_seq=compaction.through_seq,
            summary_text=compaction.summary_text,
            ledger=compaction.ledger,
            tokens=compaction.tokens,
        )
        hidden = tuple(entry for entry in view.entries if entry.turn <= through)
        after = replace(
            view,
            base_turn=through,
            head=head,
            frozen=None,
            entries=view.entries[len(hidden) :],
            pins=(*view.pins, *(entry for entry in hidden if entry.pinned)),
        )
        prepared = await self.build_next(replace(state, view=after))
        shown = prepared.selection.view
        stored = compaction.tokens + sum(entry.tokens for entry in (*shown.entries, *shown.pins))
        scale = prepared.read_scale(state.token_scale)
        talk_ratio = prepared.ratio_of_stored(scale)
        plain = scale.size(prepared.estimates)
        kept = scale.size({"talk": prepared.estimates["talk"]})
        tail = None if prepared.unsent else await self._find_counted_tail(state, after, kept=kept)
        counted = await self._count_next(prepared)
        if counted is not None:
            size = counted
            scale = learn_from_foreseen(
                scale, prepared.estimates, counted=counted, kept=tail, epoch=view.view_epoch + 1
            )
        else:
            # The kept turns were counted before, so only what replaces the others is estimated.
            size = plain + (0 if tail is None else tail - kept)
        return replace(
            state,
            view=replace(view, context_tokens=plain),
            fixed_tokens=max(0, size - round(talk_ratio * stored)),
            talk_ratio=talk_ratio,
            reserved_tokens=prepared.reserved,
            learned_scale=None if counted is None else scale.to_json(),
        )

    async def _find_counted_tail(self, state: SessionState, after: View, *, kept: int) -> int | None:
        """Return the counted tokens of the turns that stay live; None if they are unknown or differ much from
        `kept`.

        `kept` is their estimate.
        """
        view = state.view
        if view.base_turn == after.base_turn or any(entry.pruned == "hide" for entry in view.entries):
            return None
        former = await self._last_requests.find_size_after(state.session_id, after.base_turn)
        if former is None:
            return None
        tail = view.context_tokens - former
        return tail if abs(tail - kept) <= TAIL_DOUBT * kept else None

    async def _count_next(self, prepared: PreparedRequest) -> int | None:
        """Return the provider's token count of a request without a new message; None if the provider cannot
        count.

        A request must end with a message of the person, so a short one is added and subtracted.
        """
        if "count_tokens" not in prepared.card.capabilities:
            return None
        request = await self.with_pictures(prepared)
        added = 0
        if not request.messages or request.messages[-1].role == "assistant":
            message = text_message("user", _PLACEHOLDER)
            request = replace(request, messages=(*request.messages, message))
            added = estimate_blocks(message.blocks, self.count_tokens)
        counted = await self._model.count_tokens(request)
        return max(0, counted - added) if counted else None

    async def estimate_size(self, state: SessionState) -> int:
        """Return the estimated tokens of a request with the whole view, by the model's learned ratios.

        Messages that the policy never sends are included, since a summary replaces them, too; a compaction
        must be smaller than this. Raises NoRoom if system text and tools leave no room for a conversation.
        """
        prepared = await self.build_next(replace(state, view=replace(state.view, frozen=None)))
        return prepared.read_scale(state.token_scale).size(prepared.estimates) + prepared.unsent

    async def estimate_growth(self, before: SessionState, now: SessionState) -> int:
        """Return the tokens by which the next request is larger in the state `now` than it was `before`."""
        former, later = await self.build_next(before), await self.build_next(now)
        scale = later.read_scale(now.token_scale)
        return scale.size(later.estimates) - scale.size(former.estimates)

    def list_chat_models(self, state: SessionState) -> list[str]:
        """Return the names of the session's chat model and of its fallbacks, in order."""
        own = self._requests.resolve_model(state.agent_config)
        return [own, *self._requests.fallbacks(own)]

    async def load_tools(self, state: SessionState) -> tuple[ToolSpec, ...]:
        """Return the tools of the session's last turn, since another list would not match the provider's
        cached prefix.
        """
        stored = await self._last_requests.load_last_tools(state.session_id)
        specs = self._toolbox.for_agent(state.agent_config).specs
        return specs if stored in (None, specs) else stored or ()

    async def with_descriptions(self, state: SessionState) -> SessionState:
        """Return the state with descriptions of its pictures, for readers of text alone; missing ones are
        made and stored.
        """
        whose = PictureOwner(
            session_id=state.session_id,
            contact_id=state.contact_id,
            chat_model=self._requests.resolve_model(state.agent_config),
        )
        entries = await self._pictures.with_descriptions(state.view.entries, whose=whose)
        pins = await self._pictures.with_descriptions(state.view.pins, whose=whose)
        return replace(state, view=replace(state.view, entries=entries, pins=pins))

    async def with_pictures(self, prepared: PreparedRequest) -> ModelRequest:
        """Load the bytes of the request's pictures, and return the request with them, equal to the cached
        prefix.
        """
        pictures = await self._pictures.load_pictures(prepared.pictures)
        return replace(prepared.request, pictures=pictures) if pictures else prepared.request

    # ---- for a summary

    def list_models(self, prepared: PreparedRequest) -> tuple[str, ...]:
        """Return the names of the models that may write the summary, in order of preference; never empty."""
        return self._list_writers(prepared.policy.writing, prepared.card.name)

    def list_import_models(self, agent_config: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the models that may write summaries of an agent's imports, in order of
        preference.
        """
        policy = self._requests.resolve_policy(agent_config)
        return self._list_writers(policy.writing, self._requests.resolve_model(agent_config))

    def _list_writers(self, writing: SummaryStrategy, own_model: str) -> tuple[str, ...]:
        first = writing.list_models(summary_model=self._requests.summary_model, own_model=own_model)
        if not writing.summary_falls_back:
            return first
        others = (other for name in first for other in self._requests.fallbacks(name))
        return tuple(dict.fromkeys((*first, *others)))

    async def load_card(self, model: str) -> ModelCard:
        """Return the card of a model; it is loaded from the provider if it is unknown yet."""
        return await self._model.load_card(model)

    def list_available_models(self, prepared: PreparedRequest, pace: CompactionPace) -> tuple[str, ...]:
        """Return the names of the models to ask for a summary, without those that pause after unusable
        summaries.
        """
        models = self.list_models(prepared)
        able = tuple(name for name in models if not unusable_seconds(pace.written, name))
        if able != models:
            log.info("summary_models_backing_off", models=sorted({*models} - {*able}))
        return able

    def seconds_until_available(self, prepared: PreparedRequest, pace: CompactionPace) -> float:
        """Return the seconds until one of the summary models may be asked; 0 if one may be asked now."""
        return min(unusable_seconds(pace.written, name) for name in self.list_models(prepared))

    async def load_writer(self, prepared: PreparedRequest) -> ModelCard:
        """Return the card of the first model that may write the summary."""
        return await self._model.load_card(self.list_models(prepared)[0])

    # ---- for a flush

    async def next_portion(
        self, state: SessionState, view: View, tools: tuple[ToolSpec, ...], *, through: int, model: str
    ) -> FlushPortion:
        """Return the next portion of `view` to save memory from, as large as the model `model` can read at
        once.

        `through` is the last turn that it may contain; `tools` are those of the chat's request. Raises
        ContradictoryPolicy.
        """
        whole = await self.prepare(state, view, tools, model=model)
        way, room = self.find_way(whole, state.agent_config)
        if way == "prefix":
            portion, last = next_portion(view, through=through, room=_room(whole, view))
            prepared = whole if portion is view else await self.prepare(state, portion, tools, model=model)
            return FlushPortion(way=way, view=portion, last=last, prepared=prepared)
        unread = tuple(entry for entry in view.entries if view.flushed_turn < entry.turn <= through)
        if way == "off":
            return FlushPortion(way=way, view=replace(view, entries=unread), last=through, prepared=whole)
        # A view of unread turns alone: the read ones must not be shown again.
        total = sum(entry.tokens for entry in unread)
        portion, last = next_portion(
            replace(view, entries=unread), through=through, room=total if way == "code" else room
        )
        return FlushPortion(way=way, view=portion, last=last, prepared=whole, room=room)

    def find_way(self, prepared: PreparedRequest, agent_config: Mapping[str, Any]) -> tuple[FlushWay, int]:
        """Return the way to save notes from this conversation, and the tokens that a transcript may have.

        The ways are the chat's own request (`prefix`), a separate one, code alone (`code`) or none (`off`);
        the tokens are estimated ones, and 0 unless the request is separate.
        """
        card = prepared.card
        missing = self._unable.list_missing_forms(card.name, session=prepared.request.about[0])
        return find_flush_way(
            replace(card, capabilities=card.capabilities - missing),
            window=prepared.budget.window,
            ratio=prepared.ratio,
            offered=prepared.request.tools,
            allowed=self._save_tool(agent_config) is not None,
            count=self._requests.counter.count_tokens,
        )

    async def build(self, portion: FlushPortion, state: SessionState) -> tuple[SilentRequest, ...]:
        """Return the requests for one portion, in the order to send them; empty if no model is asked.

        Raises ContextBudgetExceeded if the chat's request cannot be shrunk to the window.
        """
        if portion.way == "prefix":
            return (await self._build_after_chat(portion, state),)
        if portion.way not in APART:
            return ()
        entries = portion.view.entries
        source = render_source(
            entries,
            count=self._requests.counter.count_tokens,
            message_tokens=PIECES_AT_MOST * portion.room,
            zone=self._requests.zone_of(portion.prepared.circumstances),
        )
        pieces = pieces_of(source, portion.room, self._requests.counter.count_tokens)
        return tuple(self._build_separate(portion, state.agent_config, piece) for piece in pieces)

    async def prepare(
        self, state: SessionState, view: View, tools: tuple[ToolSpec, ...], *, model: str = ""
    ) -> PreparedRequest:
        """Return the chat's request with the instruction to save memory after it; nothing is sent.

        `model` replaces the agent's chat model if not empty. Raises NoRoom.
        """
        card = await self._model.load_card(model or self._requests.resolve_model(state.agent_config))
        circumstances = self._requests.load_circumstances(state)
        zone = self._requests.zone_of(circumstances)
        now = minute_text(view.entries[-1].at, zone) if view.entries else ""
        return self._requests.build(
            view,
            card=card,
            agent_config=state.agent_config,
            tools=tools,
            token_ratio=find_learned_ratio(state, card.name),
            instruction=flush_instruction(
                most_notes=most_notes(
                    sum(entry.tokens for entry in view.entries if entry.turn > view.flushed_turn)
                ),
                now=now,
                has_notes=any(tool.name == UPDATE_MEMORY.name for tool in tools),
            ),
            channel=state.channel,
            circumstances=circumstances,
        )

    async def _build_after_chat(self, portion: FlushPortion, state: SessionState) -> SilentRequest:
        prepared = portion.prepared
        if prepared.estimate > prepared.budget.hard:
            prepared = self._requests.shrink(
                prepared, portion.view, state.agent_config, hard=prepared.budget.hard
            )
        return SilentRequest(
            request=await self.with_pictures(prepared),
            card=prepared.card,
            ratio=prepared.ratio,
            estimate=prepared.estimate,
            out=prepared.budget.out,
            hard=prepared.budget.hard,
        )

    def _build_separate(
        self, portion: FlushPortion, agent_config: Mapping[str, Any], piece: str
    ) -> SilentRequest:
        """Return a separate request: short rules and a transcript, with `save_memory` or a JSON schema if the
        model can use it.
        """
        prepared, way = portion.prepared, portion.way
        card, window = prepared.card, prepared.budget.window
        save = self._save_tool(agent_config)
        words = note_task(piece, self._known_notes(portion), way=way)
        fixed = _count_fixed(self._requests.counter.count_tokens, way)
        out = min(answer_tokens(window), card.max_output)
        most = most_notes(self._requests.counter.count_tokens(piece))
        return SilentRequest(
            request=ModelRequest(
                model=card.name,
                system=(SystemPart(text=note_rules(way, most=most)),),
                messages=(text_message("user", words),),
                tools=(save,) if way == "request" and save is not None else (),
                max_output_tokens=out,
                json_schema=NOTES_SCHEMA if way == "json" else None,
                about=prepared.request.about,
            ),
            card=card,
            ratio=prepared.ratio,
            estimate=round(prepared.ratio * (fixed + self._requests.counter.count_tokens(words))),
            out=out,
            hard=window - out,
        )

    def _save_tool(self, agent_config: Mapping[str, Any]) -> ToolSpec | None:
        specs = self._toolbox.for_agent(agent_config).specs
        return next((spec for spec in specs if spec.name == SAVE_MEMORY.name), None)

    def _known_notes(self, portion: FlushPortion) -> str:
        return core_block(
            portion.view.notes,
            self._requests.counter.count_tokens,
            limit_tokens=portion.room // KNOWN_SHARE,
            zone=self._requests.zone_of(portion.prepared.circumstances),
        )


def find_flush_way(
    card: ModelCard,
    *,
    window: int,
    ratio: float,
    offered: Sequence[ToolSpec],
    allowed: bool,
    count: Count,
) -> tuple[FlushWay, int]:
    """Return the way in which a model saves notes, and the estimated tokens that a separate transcript may
    have.

    `window` is in tokens, `ratio` the model's tokens per estimated one. `offered` are the tools of the chat's
    own request; `allowed` says that the agent keeps notes. The tokens are 0 if the request is not separate.
    """

    def room_by(way: FlushWay) -> int:
        room = room_for_words(window, fixed=_count_fixed(count, way), ratio=ratio)
        return room - room // KNOWN_SHARE

    can = card.capabilities | {"tools"} if card.offline else card.capabilities
    room = {way: room_by(way) for way in APART}
    on_prefix = "tools" in can and any(tool.name == SAVE_MEMORY.name for tool in offered)
    way = flush_way(allowed=allowed, on_prefix=on_prefix, can=can, room=room)
    return way, room.get(way, 0)


def _count_fixed(count: Count, way: FlushWay) -> int:
    tools = estimate_tools((SAVE_MEMORY,), count) if way == "request" else 0
    return count(note_rules(way)) + tools + _BESIDE


def _room(prepared: PreparedRequest, view: View) -> int:
    """Return the stored tokens that a portion may have, so that it and its answer fit into the window."""
    stored = sum(entry.tokens for entry in view.entries)
    hard = prepared.budget.hard
    if prepared.estimate <= hard:
        return stored
    return stored - int((prepared.estimate - PORTION_SHARE * hard) / prepared.ratio) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionTimeouts:
    """Time limits in seconds of one attempt; until the first text, the adapter's own limits apply, too.

    `silence_seconds` may pass between two pieces of text, `total_seconds` until the end. A caller may allow
    less in all.
    """

    first_seconds: float = 180.0
    """Seconds until the first text; a local model reads for minutes before it answers."""
    silence_seconds: float = 30.0
    total_seconds: float = 600.0


@dataclass(slots=True)
class _StreamProgress:
    chars: int = 0
    attempt: int = 1
    endless: bool = False


class OneShotCompletion:
    """Caller of a model for a single answer, with time limits and recorded cost."""

    def __init__(self, model: ChatModel, counter: TokenCounter, *, bounds: CompletionTimeouts) -> None:
        self._model = model
        self._counter = counter
        self._bounds = bounds

    async def load_card(self, model: str) -> ModelCard:
        """Return the card of a model."""
        return await self._model.load_card(model)

    async def complete(
        self, request: ModelRequest, *, tracker: SpendTracker, checked: bool = True, seconds: float = inf
    ) -> ModelReply:
        """Call the model within the time limits, book the cost on `tracker`, and return the reply.

        `checked` refuses a request above the model's window with PromptTooLong before the call; `seconds` may
        shorten the time limits. Raises ModelError, also ModelUnavailable if the answer stops coming or does
        not end, and CapReached.
        """
        card = await self._model.load_card(request.model)
        tokens = self._tokens(request, card)
        if checked and tokens > card.window:
            raise PromptTooLong(
                f"about {tokens} tokens for a window of {card.window}", tokens=tokens, maximum=card.window
            )
        return await tracker.pay_for(
            lambda: self._reply_within_limits(
                replace(request, about=tracker.trace_ids), tokens, min(seconds, self._bounds.total_seconds)
            ),
            input_tokens=tokens,
            output_tokens=min(request.max_output_tokens, card.max_output),
            card=card,
        )

    async def _reply_within_limits(
        self, request: ModelRequest, tokens: int, total_seconds: float
    ) -> ModelReply:
        """Return the model's reply; raise ModelUnavailable if it stops coming or does not end."""
        heard = _StreamProgress()
        most_chars = request.max_output_tokens * _CHARS_PER_TOKEN + _CHARS_TO_SPARE
        clock = asyncio.get_running_loop().time
        ends = clock() + total_seconds
        try:
            async with asyncio.timeout(min(self._bounds.first_seconds, total_seconds)) as limit:

                async def listen(attempt: int, piece: str) -> None:
                    if attempt != heard.attempt:
                        heard.attempt, heard.chars = attempt, 0
                    heard.chars += len(piece)
                    heard.endless = heard.chars > most_chars
                    silence = 0.0 if heard.endless else self._bounds.silence_seconds
                    limit.reschedule(min(clock() + silence, ends))

                return await self._model.reply(request, on_text=listen)
        except TimeoutError as error:
            stopped = ModelUnavailable("the answer did not end" if heard.endless else "the model fell silent")
            stopped.aborted = (
                Usage(input_tokens=tokens, output_tokens=heard.chars // _CHARS_PER_TOKEN, known=False),
            )
            raise stopped from error

    def _tokens(self, request: ModelRequest, card: ModelCard) -> int:
        count = self._counter.count_tokens
        estimate = (
            estimate_system(request.system, count)
            + estimate_tools(request.tools, count)
            + estimate_messages(request.messages, count)
        )
        return round(card.token_factor * estimate)
