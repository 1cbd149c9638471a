"""The tool rounds of one turn: intent, run, result, and what a crash in between left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from shared.core.context.recall_query import RECALL
from shared.core.session.artifacts import OPEN_ARTIFACT, Artifact, spill_results
from shared.core.session.events import ToolRunning
from shared.core.session.session import Entry
from shared.core.session.turns import Claim, Spending, StepOutcome
from shared.core.values.messages import Author, Block, ToolResult, ToolUse, text_of, tool_uses
from shared.core.values.tokens import estimate_blocks, reply_tokens
from shared.ports import Clock, ModelReply, ToolContext
from shared.runtime.crash_points import CrashPoint
from shared.services.turns.model_caller import Attempt, Stopped, entries_of_open_turn
from shared.services.turns.pictures import Pictures
from shared.services.turns.request_builder import Prepared, Prompting
from shared.services.turns.toolbox import Ran

LONG_CHARS = 50_000
"""Results of this size together are counted beside the loop, so that nobody else waits for it."""
SPILL_SECONDS = 30.0
_PORTIONS = frozenset({OPEN_ARTIFACT.name, RECALL.name})
END_SECONDS = 5.0
"""How long tools that are ended may take to let go."""
_LOST = "[outcome unknown: the program was restarted while this ran]"
_UNCLEAR = "[outcome unknown: the person asked to stop while this ran]"
_ENDED = "[ended before it was done: the person asked to stop]"


class RoundStore(Protocol):
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
        self,
        claim: Claim,
        *,
        blocks: Sequence[Block],
        tokens: int,
        outcomes: dict[str, StepOutcome],
        artifacts: Sequence[Artifact] = (),
    ) -> int: ...


class ToolRounds:
    """Each round is two commits, so that a crash between them is known for what it is."""

    def __init__(
        self,
        *,
        store: RoundStore,
        prompting: Prompting,
        pictures: Pictures,
        clock: Clock,
        crash_point: CrashPoint,
    ) -> None:
        self._store = store
        self._prompting = prompting
        self._pictures = pictures
        self._clock = clock
        self._crash_point = crash_point

    async def run(
        self, state: Attempt, prepared: Prepared, reply: ModelReply, calls: Sequence[ToolUse]
    ) -> None:
        """Intent, run, result: two commits, so that a crash in between is known for what it is."""
        tokens = self.tokens_of(reply, reply.blocks, prepared)
        spent = state.take_spent()
        seq = await self._store.record_tool_calls(
            state.claim, blocks=reply.blocks, tokens=tokens, calls=calls, spent=spent
        )
        state.spent_before += spent
        self._add(state, seq, "assistant", reply.blocks, tokens)
        if reply.usage.known and not prepared.left_out and reply.model == prepared.card.name:
            state.anchor, state.anchored, state.pending = reply.usage.context_tokens, True, 0
        if text := text_of(reply.blocks):
            state.texts.append(text)
        self._crash_point("after_tool_calls")
        for call in calls:
            about = state.toolbox.subject(call)
            await state.emit(ToolRunning(turn=state.claim.turn, name=call.name, subject=about))
        await self._finish_calls(state, calls, lost=False)
        if state.stop.done():
            raise Stopped("")

    def tokens_of(self, reply: ModelReply, blocks: Sequence[Block], prepared: Prepared) -> int:
        return reply_tokens(
            blocks,
            exact=prepared.policy.exact_outputs,
            reported=reply.usage.output_tokens if reply.usage.known else None,
            ratio=prepared.ratio,
            estimate=estimate_blocks(blocks, self._prompting.counter.count),
        )

    async def finish_lost(self, state: Attempt) -> None:
        """A turn that died between intent and result: run again what does no harm, report the rest."""
        mine = entries_of_open_turn(state.view)
        if mine and (calls := tool_uses(mine[-1].blocks)):
            await self._finish_calls(state, calls, lost=True)

    async def _finish_calls(self, state: Attempt, calls: Sequence[ToolUse], *, lost: bool) -> None:
        ran = await self._all(state, calls, lost=lost)
        self._crash_point("after_tool_run")
        results, artifacts = await self._spilled(state, calls, [one.result for one in ran])
        images = tuple(image for one in ran for image in one.images)
        blocks: tuple[Block, ...] = (*results, *images)
        tokens = estimate_blocks(blocks, self._prompting.counter.count)
        outcomes = {call.id: one.status for call, one in zip(calls, ran, strict=True)}
        seq = await self._store.record_tool_results(
            state.claim, blocks=blocks, tokens=tokens, outcomes=outcomes, artifacts=artifacts
        )
        self._add(state, seq, "tool", blocks, tokens)
        if images:
            state.pictures = {**state.pictures, **await self._pictures.of_turn(images)}
        self._crash_point("after_tool_results")

    async def _all(self, state: Attempt, calls: Sequence[ToolUse], *, lost: bool) -> list[Ran]:
        """All at once; those that still run when the person asks to stop are ended there."""
        tasks = [asyncio.ensure_future(self._finish_call(state, call, lost=lost)) for call in calls]
        running = asyncio.gather(*tasks, return_exceptions=True)
        try:
            either: tuple[asyncio.Future[Any], ...] = (running, state.stop)
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=END_SECONDS)
        return [self._ended(state, call, task) for call, task in zip(calls, tasks, strict=True)]

    def _ended(self, state: Attempt, call: ToolUse, task: asyncio.Task[Ran]) -> Ran:
        if task.done() and not task.cancelled():
            return task.result()
        harmless = state.toolbox.is_idempotent(call.name)
        result = ToolResult(tool_use_id=call.id, text=_ENDED if harmless else _UNCLEAR, is_error=True)
        return Ran(result=result, status="failed" if harmless else "unknown")

    async def _spilled(
        self, state: Attempt, calls: Sequence[ToolUse], results: Sequence[ToolResult]
    ) -> tuple[tuple[ToolResult, ...], tuple[Artifact, ...]]:
        """What is too long for the log becomes an artifact; a portion of one is not spilled again."""
        policy = self._prompting.policy_of(state.claim.agent_config)
        portions = {call.id for call in calls if call.name in _PORTIONS}
        count = self._prompting.counter.count
        if sum(len(result.text) for result in results) < LONG_CHARS:
            return spill_results(results, policy, count, spare=portions)
        async with asyncio.timeout(SPILL_SECONDS):
            return await asyncio.to_thread(spill_results, results, policy, count, spare=portions)

    async def _finish_call(self, state: Attempt, call: ToolUse, *, lost: bool) -> Ran:
        if lost and not state.toolbox.is_idempotent(call.name):
            return Ran(result=ToolResult(tool_use_id=call.id, text=_LOST, is_error=True), status="unknown")
        context = ToolContext(
            session_id=state.claim.session_id,
            party_id=state.claim.party_id,
            scope=state.claim.agent,
            turn=state.claim.turn,
            key=f"{state.claim.session_id}:{state.claim.turn}:{call.id}",
            call_id=call.id,
            epoch=state.claim.epoch,
            base_turn=state.view.base_turn,
            address_id=state.claim.address_id,
            channel=state.claim.channel,
            group=state.claim.party_kind == "group",
            anonymous=state.claim.anonymous,
            timezone=state.claim.timezone,
            agent_config=state.claim.agent_config,
        )
        return await state.toolbox.run(call, context=context)

    def _add(self, state: Attempt, seq: int, author: Author, blocks: Sequence[Block], tokens: int) -> None:
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
        state.pending += tokens
