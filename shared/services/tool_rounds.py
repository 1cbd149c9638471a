"""The tool rounds of one turn: intent, run, result, and what a crash in between left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from shared.core.exchange import ToolRunning
from shared.core.messages import Author, Block, ToolResult, ToolUse, text_of, tool_uses
from shared.core.session import Entry
from shared.core.spill import OPEN_ARTIFACT, Artifact, spill_results
from shared.core.tokens import estimate_blocks, reply_tokens
from shared.core.turns import Claim, Spending, StepOutcome
from shared.ports import Clock, ModelReply, ToolContext
from shared.services.calling import Attempt, entries_of_open_turn
from shared.services.crash import CrashPoint
from shared.services.prompting import Prepared, Prompting
from shared.services.tools import Toolbox

LONG_CHARS = 50_000
"""Results of this size together are counted beside the loop, so that nobody else waits for it."""
SPILL_SECONDS = 30.0
_LOST = "[outcome unknown: the program was restarted while this ran]"


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
        toolbox: Toolbox,
        clock: Clock,
        crash_point: CrashPoint,
    ) -> None:
        self._store = store
        self._prompting = prompting
        self._toolbox = toolbox
        self._clock = clock
        self._crash_point = crash_point

    async def run(
        self, state: Attempt, prepared: Prepared, reply: ModelReply, calls: Sequence[ToolUse]
    ) -> None:
        """Intent, run, result: two commits, so that a crash in between is known for what it is."""
        tokens = self.tokens_of(reply, reply.blocks, prepared)
        seq = await self._store.record_tool_calls(
            state.claim, blocks=reply.blocks, tokens=tokens, calls=calls, spent=tuple(state.spent)
        )
        state.spent_before += state.spent
        state.spent.clear()
        self._add(state, seq, "assistant", reply.blocks, tokens)
        if reply.usage.known and not prepared.left_out and reply.model == prepared.card.name:
            state.anchor, state.anchored, state.pending = reply.usage.context_tokens, True, 0
        if text := text_of(reply.blocks):
            state.texts.append(text)
        self._crash_point("after_tool_calls")
        for call in calls:
            await state.emit(ToolRunning(turn=state.claim.turn, name=call.name))
        await self._finish_calls(state, calls, lost=False)

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
        results = await asyncio.gather(*(self._finish_call(state, call, lost=lost) for call in calls))
        self._crash_point("after_tool_run")
        blocks, artifacts = await self._spilled(state, calls, [result for result, _ in results])
        tokens = estimate_blocks(blocks, self._prompting.counter.count)
        outcomes = {call.id: status for call, (_, status) in zip(calls, results, strict=True)}
        seq = await self._store.record_tool_results(
            state.claim, blocks=blocks, tokens=tokens, outcomes=outcomes, artifacts=artifacts
        )
        self._add(state, seq, "tool", blocks, tokens)
        self._crash_point("after_tool_results")

    async def _spilled(
        self, state: Attempt, calls: Sequence[ToolUse], results: Sequence[ToolResult]
    ) -> tuple[tuple[ToolResult, ...], tuple[Artifact, ...]]:
        """What is too long for the log becomes an artifact; a portion of one is not spilled again."""
        policy = self._prompting.policy_of(state.claim.agent_config)
        portions = {call.id for call in calls if call.name == OPEN_ARTIFACT.name}
        count = self._prompting.counter.count
        if sum(len(result.text) for result in results) < LONG_CHARS:
            return spill_results(results, policy, count, spare=portions)
        async with asyncio.timeout(SPILL_SECONDS):
            return await asyncio.to_thread(spill_results, results, policy, count, spare=portions)

    async def _finish_call(
        self, state: Attempt, call: ToolUse, *, lost: bool
    ) -> tuple[ToolResult, StepOutcome]:
        if lost and not self._toolbox.is_idempotent(call.name):
            return ToolResult(tool_use_id=call.id, text=_LOST, is_error=True), "unknown"
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
        return await self._toolbox.run(call, context=context)

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
