"""Talks with the draft of an agent: the request of a real turn, of which only the cost is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, Protocol

from shared.core.context.agents import Circumstances
from shared.core.memory.knowledge import KnowledgeHit
from shared.core.memory.recall import (
    NOTHING_RECALLED,
    FoundPassage,
    Ranked,
    Recalled,
    pack_passages,
    render_passages,
)
from shared.core.session.session import Entry, View
from shared.core.session.turns import Caps, Spending
from shared.core.values.errors import ModelUnavailable
from shared.core.values.messages import Message, Text, ToolResult, ToolUse, text_of, tool_uses
from shared.ports import Clock, ModelReply, ModelRequest, ToolContext, ToolSpec
from shared.services.compaction.silent_requests import CompletionTimeouts, OneShotCompletion
from shared.services.turns.model_caller import render_runtime_facts
from shared.services.turns.request_builder import PreparedRequest, RequestBuilder
from shared.services.turns.spend_tracker import SpendStore, SpendTracker
from shared.services.turns.toolbox import Toolbox

SECONDS = 75.0
"""Seconds for the whole answer; less than the time after which its reserved money would be released."""
ROUNDS = 4
"""Most model calls of one answer."""
MANY = 1_000
"""Most tools of MCP servers that are listed one by one; above any real number."""
RUN_TOOLS = frozenset({"calculate", "current_time"})
"""Names of tools that the playground runs, since they change nothing and need no conversation; calls of
others are only shown.
"""
NOT_RUN = "This is a rehearsal: the tool was not carried out. Go on as if it had worked; invent no result."
"""Result for the model of a tool that the playground does not run."""
_NOBODY = 0
"""Stands for the session and the person of what belongs to none."""
_CONTEXT = ToolContext(session_id=_NOBODY, contact_id=_NOBODY, scope="playground", turn=0, key="playground")


class KnowledgeSearch(Protocol):
    """Store that searches an agent's knowledge files, best passages first."""

    async def search(self, agent_id: int, text: str) -> Sequence[KnowledgeHit]: ...


class PlaygroundLedger(SpendStore, Protocol):
    """Store of the playground's spending; calls are booked on no person."""

    async def record_playground(self, spent: Sequence[Spending]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One message of a talk in the playground, sent by the operator (`user`) or the assistant."""

    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaygroundAnswer:
    """Answer of an agent's draft, with the model, the tools that it called, and the cost."""

    text: str
    model: str
    tools: tuple[ToolUse, ...]
    context_tokens: int
    """Estimated tokens of the request."""
    cost_micro: int | None
    """Micro-dollars of all calls; None if a price is unknown."""


class Playground:
    """Talks of operators with an agent's draft; messages, notes and files are not stored."""

    def __init__(
        self, *, asking: OneShotCompletion, requests: RequestBuilder, toolbox: Toolbox,
        ledger: PlaygroundLedger, knowledge: KnowledgeSearch, caps: Caps, clock: Clock,
    ) -> None:  # fmt: skip
        self._asking = asking
        self._requests = requests
        self._toolbox = toolbox
        self._ledger = ledger
        self._knowledge = knowledge
        self._caps = replace(caps, person=None, visitor=None, session=None, network=None, visitors_hour=None)
        self._clock = clock

    def list_tools(self) -> Mapping[str, tuple[ToolSpec, str]]:
        """Return all tools that an agent could have, by name, each with its MCP server ("" for built-in
        ones).
        """
        box = self._toolbox.for_agent({"tools": {"search_above": MANY}})
        return {spec.name: (spec, box.server_of(spec.name)) for spec in box.specs}

    def list_offered(self, config: Mapping[str, Any]) -> tuple[ToolSpec, ...]:
        """Return the tools that an agent's configuration allows, before a small window leaves some out."""
        return self._toolbox.for_agent(config).specs

    async def answer(
        self, agent_id: int, config: Mapping[str, Any], said: Sequence[Said]
    ) -> PlaygroundAnswer:
        """Answer the last message of a talk as the agent with this configuration would.

        Recalls only the agent's knowledge. Tools of `RUN_TOOLS` run; others are rehearsed without effect. The
        cost is stored. Raises ModelError, also after 75 seconds, CapReached, ContextBudgetExceeded and
        NoRoom.
        """
        toolbox = self._toolbox.for_agent(config)
        prepared = await self._prepare(agent_id, config, toolbox, said)
        tracker = SpendTracker(self._ledger, session_id=_NOBODY, job_id=None, caps=self._caps)
        spent: tuple[Spending, ...] = ()
        try:
            async with asyncio.timeout(SECONDS):
                text, used = await self._rounds(prepared.request, toolbox, tracker)
        except TimeoutError as error:
            raise ModelUnavailable("the answer took too long") from error
        finally:
            if spent := tracker.take_spent():
                await self._ledger.record_playground(spent)
        costs = [call.cost_micro for call in spent]
        return PlaygroundAnswer(
            text=text, model=prepared.card.name, tools=used, context_tokens=prepared.estimate,
            cost_micro=None if None in costs else sum(filter(None, costs)),
        )  # fmt: skip

    async def _prepare(
        self, agent_id: int, config: Mapping[str, Any], toolbox: Toolbox, said: Sequence[Said]
    ) -> PreparedRequest:
        card = await self._asking.load_card(self._requests.resolve_model(config))
        view, turn = self._view(said), sum(one.role == "user" for one in said)
        at = Circumstances(
            private=config.get("audience") != "public", turn=turn,
            workspace=self._requests.load_workspace(config),
        )  # fmt: skip
        facts = render_runtime_facts(view, self._requests.zone_of(at), channel="web")
        limit = self._requests.recall_limit(config, card.window)
        recalled = await self._recall(agent_id, said[-1].text, limit)
        prepared = self._requests.build(
            view, card=card, agent_config=config, tools=toolbox.specs, token_ratio=card.token_factor,
            runtime_facts=facts, channel="web", recalled=recalled, circumstances=at,
        )  # fmt: skip
        if prepared.estimate > prepared.budget.hard:
            prepared = self._requests.shrink(prepared, view, config, hard=prepared.budget.hard)
        return prepared.with_answer_room()

    async def _recall(self, agent_id: int, words: str, limit: int) -> Recalled:
        """Return passages of the agent's knowledge that a turn would recall."""
        if limit == 0:
            return NOTHING_RECALLED
        hits = await self._knowledge.search(agent_id, words)
        items = [_ranked(hit, agent_id, self._clock.now(), score=-at) for at, hit in enumerate(hits)]
        chosen = pack_passages(
            items, limit_tokens=limit, count=self._requests.counter.count_tokens, session_id=_NOBODY
        )
        text = render_passages(chosen, session_id=_NOBODY)
        return Recalled(text=text, short=text)

    def _view(self, said: Sequence[Said]) -> View:
        """Return a view as if the messages were stored; each message of the person begins a turn."""
        entries: list[Entry] = []
        for seq, one in enumerate(said, 1):
            turn = sum(before.role == "user" for before in said[:seq])
            entries.append(
                Entry(
                    seq=seq, turn=turn, step=seq, role=one.role, blocks=(Text(text=one.text),),
                    author="person" if one.role == "user" else "assistant",
                    tokens=self._requests.estimate_tokens(one.text), at=self._clock.now(),
                )
            )  # fmt: skip
        return View(
            session_id=_NOBODY, base_turn=0, flushed_turn=0, view_epoch=0, cycle=0, head=None,
            entries=tuple(entries), open_turn=entries[-1].turn,
        )  # fmt: skip

    async def _rounds(
        self, request: ModelRequest, toolbox: Toolbox, tracker: SpendTracker
    ) -> tuple[str, tuple[ToolUse, ...]]:
        reply = await self._asking.complete(request, tracker=tracker)
        used = list(tool_uses(reply.blocks))
        for _ in range(ROUNDS - 1):
            if reply.stop_reason != "tool_use":
                break
            request = replace(request, messages=(*request.messages, *await _after(reply, toolbox)))
            reply = await self._asking.complete(request, tracker=tracker)
            used += tool_uses(reply.blocks)
        return text_of(reply.blocks).strip(), tuple(used)


def _ranked(hit: KnowledgeHit, agent_id: int, at: datetime, *, score: float) -> Ranked:
    passage = FoundPassage(
        lane="knowledge", owner=agent_id, number=hit.place, at=at, text=hit.text, terms=0, hits=(),
        path=hit.path, heading=hit.heading,
    )  # fmt: skip
    return Ranked(passage=passage, score=score)


async def _after(reply: ModelReply, toolbox: Toolbox) -> tuple[Message, Message]:
    results = [await _result(call, toolbox) for call in tool_uses(reply.blocks)]
    asked = Message(role="assistant", blocks=reply.blocks)
    return asked, Message(role="user", blocks=tuple(results))


async def _result(call: ToolUse, toolbox: Toolbox) -> ToolResult:
    if call.name not in RUN_TOOLS:
        return ToolResult(tool_use_id=call.id, text=NOT_RUN)
    return (await toolbox.run(call, context=replace(_CONTEXT, call_id=call.id))).result


PLAYGROUND_TIMEOUTS = CompletionTimeouts(first_seconds=SECONDS, total_seconds=SECONDS)
"""Time limits of one model call in the playground."""
