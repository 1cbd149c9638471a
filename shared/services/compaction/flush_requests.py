"""What a flush asks, and which way: behind the chat's own prefix, alone, for JSON or lines, or nobody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

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
from shared.core.compaction.transcript_lines import render_source
from shared.core.context.memory import core_block
from shared.core.context.memory_tools import SAVE_MEMORY, UPDATE_MEMORY
from shared.core.context.prompts import flush_instruction
from shared.core.session.session import View
from shared.core.session.session_state import SessionState
from shared.core.values.local_time import minute_text
from shared.core.values.messages import text_message
from shared.core.values.tokens import Count, estimate_tools
from shared.ports import ChatModel, ModelCard, ModelRequest, SystemPart, ToolSpec
from shared.services.compaction.unable_models import UnableModels
from shared.services.turns.pictures import PictureOwner, PictureService
from shared.services.turns.request_builder import PreparedRequest, RequestBuilder
from shared.services.turns.toolbox import Toolbox

PORTION_SHARE = 0.8
"""Of the hard limit: estimates of a cut view may be off, and the ghost's own calls come behind it."""
KNOWN_SHARE = 5
"""What is known already takes at most one part in five of a small request."""
PIECES_AT_MOST = 8
"""Of one message that no request can hold; what is longer is read by its head and tail."""
_BESIDE = 60
"""Tags and last sentence around a transcript."""


class LastToolsStore(Protocol):
    async def load_last_tools(self, session_id: int) -> tuple[ToolSpec, ...] | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentRequest:
    """One request that nobody waits for, and its sizes in the model's unit."""

    request: ModelRequest
    card: ModelCard
    ratio: float
    estimate: int
    out: int
    hard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushPortion:
    """Turns that are read together, and how."""

    way: FlushWay
    view: View
    last: int
    """The last turn that has been read after it."""
    prepared: PreparedRequest
    """The chat's request; only a ghost turn sends it."""
    room: int = 0
    """Estimated tokens of the transcript in one request that is not the chat's."""

    @property
    def model(self) -> str:
        return "" if self.way in ("code", "off") else self.prepared.card.name


class FlushRequests:
    def __init__(
        self,
        *,
        owed: LastToolsStore,
        model: ChatModel,
        requests: RequestBuilder,
        toolbox: Toolbox,
        pictures: PictureService,
        unable: UnableModels,
    ) -> None:
        self._unable = unable
        self._owed = owed
        self._model = model
        self._requests = requests
        self._toolbox = toolbox
        self._pictures = pictures

    async def next_portion(
        self, state: SessionState, view: View, tools: tuple[ToolSpec, ...], *, through: int, model: str
    ) -> FlushPortion:
        """As `model` can read it; raises ContradictoryPolicy."""
        whole = await self.prepare(state, view, tools, model=model)
        way, room = self.find_way(whole, state.agent_config)
        if way == "prefix":
            portion, last = next_portion(view, through=through, room=_room(whole, view))
            prepared = whole if portion is view else await self.prepare(state, portion, tools, model=model)
            return FlushPortion(way=way, view=portion, last=last, prepared=prepared)
        unread = tuple(entry for entry in view.entries if view.flushed_turn < entry.turn <= through)
        if way == "off":
            return FlushPortion(way=way, view=replace(view, entries=unread), last=through, prepared=whole)
        # A view of these turns alone is never "the whole": only what is unread is shown.
        total = sum(entry.tokens for entry in unread)
        portion, last = next_portion(
            replace(view, entries=unread), through=through, room=total if way == "code" else room
        )
        return FlushPortion(way=way, view=portion, last=last, prepared=whole, room=room)

    def find_way(self, prepared: PreparedRequest, agent_config: Mapping[str, Any]) -> tuple[FlushWay, int]:
        """How memory of this conversation is saved, and the room that a request of its own has."""
        card = prepared.card
        return find_flush_way(
            replace(card, capabilities=card.capabilities - self._unable.lacked_by(card.name)),
            window=prepared.budget.window,
            ratio=prepared.ratio,
            offered=prepared.request.tools,
            allowed=self._save_tool(agent_config) is not None,
            count=self._requests.counter.count_tokens,
        )

    async def build(self, portion: FlushPortion, state: SessionState) -> tuple[SilentRequest, ...]:
        """What is asked one after the other about one portion; raises ContextBudgetExceeded."""
        if portion.way == "prefix":
            return (await self._behind_the_chat(portion, state),)
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
        return tuple(self._alone(portion, state.agent_config, piece) for piece in pieces)

    async def prepare(
        self, state: SessionState, view: View, tools: tuple[ToolSpec, ...], *, model: str = ""
    ) -> PreparedRequest:
        """The chat's own request with the flush's instruction behind it; `model` stands in for its own."""
        card = await self._model.load_card(model or self._requests.resolve_model(state.agent_config))
        circumstances = self._requests.load_circumstances(state)
        zone = self._requests.zone_of(circumstances)
        now = minute_text(view.entries[-1].at, zone) if view.entries else ""
        return self._requests.build(
            view,
            card=card,
            agent_config=state.agent_config,
            tools=tools,
            token_ratio=state.ratio_for(card.name),
            instruction=flush_instruction(
                now=now, has_notes=any(tool.name == UPDATE_MEMORY.name for tool in tools)
            ),
            channel=state.channel,
            circumstances=circumstances,
        )

    async def load_tools(self, session_id: int, agent_config: Mapping[str, Any]) -> tuple[ToolSpec, ...]:
        """Those of the last turn: with another list the provider would have to read the whole prefix anew."""
        stored = await self._owed.load_last_tools(session_id)
        specs = self._toolbox.for_agent(agent_config).specs
        return specs if stored in (None, specs) else stored or ()

    async def with_descriptions(self, state: SessionState) -> SessionState:
        """With what its pictures show: whoever reads these words later has no pictures."""
        whose = PictureOwner(
            session_id=state.session_id,
            party_id=state.party_id,
            chat_model=self._requests.resolve_model(state.agent_config),
        )
        entries = await self._pictures.with_descriptions(state.view.entries, whose=whose)
        pins = await self._pictures.with_descriptions(state.view.pins, whose=whose)
        return replace(state, view=replace(state.view, entries=entries, pins=pins))

    async def with_pictures(self, prepared: PreparedRequest) -> ModelRequest:
        """With the bytes that its prefix has in the provider's cache."""
        pictures = await self._pictures.load_pictures(prepared.pictures)
        return replace(prepared.request, pictures=pictures) if pictures else prepared.request

    async def _behind_the_chat(self, portion: FlushPortion, state: SessionState) -> SilentRequest:
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

    def _alone(self, portion: FlushPortion, agent_config: Mapping[str, Any], piece: str) -> SilentRequest:
        """A small system, the transcript, and `save_memory` or a schema where the model can do that."""
        prepared, way = portion.prepared, portion.way
        card, window = prepared.card, prepared.budget.window
        save = self._save_tool(agent_config)
        words = note_task(piece, self._known(portion), way=way)
        fixed = _fixed(self._requests.counter.count_tokens, way)
        out = min(answer_tokens(window), card.max_output)
        return SilentRequest(
            request=ModelRequest(
                model=card.name,
                system=(SystemPart(text=note_rules(way)),),
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

    def _known(self, portion: FlushPortion) -> str:
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
    """How a model of this window saves memory, and the room for words in a request that is not the chat's.

    `offered` are the tools of the chat's own request.
    """

    def room_by(way: FlushWay) -> int:
        room = room_for_words(window, fixed=_fixed(count, way), ratio=ratio)
        return room - room // KNOWN_SHARE

    can = card.capabilities | {"tools"} if card.offline else card.capabilities
    room = {way: room_by(way) for way in APART}
    on_prefix = "tools" in can and any(tool.name == SAVE_MEMORY.name for tool in offered)
    way = flush_way(allowed=allowed, on_prefix=on_prefix, can=can, room=room)
    return way, room.get(way, 0)


def _fixed(count: Count, way: FlushWay) -> int:
    tools = estimate_tools((SAVE_MEMORY,), count) if way == "request" else 0
    return count(note_rules(way)) + tools + _BESIDE


def _room(prepared: PreparedRequest, view: View) -> int:
    """What the conversation may take, in stored estimates, so that a portion and its answer fit."""
    stored = sum(entry.tokens for entry in view.entries)
    hard = prepared.budget.hard
    if prepared.estimate <= hard:
        return stored
    return stored - int((prepared.estimate - PORTION_SHARE * hard) / prepared.ratio) - 1
