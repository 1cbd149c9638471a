"""Tool rounds of a turn: storing calls, running tools, storing results, and finishing rounds
after a crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from shared.core.session.artifacts import READER, Artifact, spill_results
from shared.core.session.session import Entry, View
from shared.core.session.turns import Claim, Spending, StepOutcome, ToolRunning
from shared.core.values.messages import Author, Block, Text, ToolResult, ToolUse, text_of, tool_uses
from shared.core.values.tokens import estimate_blocks
from shared.ports import Clock, ModelReply, ToolContext
from shared.runtime import CrashPoint
from shared.services.turns.pictures import PictureService
from shared.services.turns.request_builder import PreparedRequest, RequestBuilder
from shared.services.turns.toolbox import ToolCallResult
from shared.services.turns.turn_attempt import TurnAttempt, TurnStopped, select_open_turn_entries

FILES_PER_TURN = 5
"""Most files that tools may send with one answer."""
THREAD_CHARS = 50_000
"""Characters of all results together above which their tokens are counted in a thread, off the event loop."""
ARTIFACT_SECONDS = 30.0
"""Most seconds for shortening the long results of one round."""
END_SECONDS = 5.0
"""Seconds that cancelled tools have to end."""
_LOST = "[outcome unknown: the program was restarted while this ran]"
_UNCLEAR = "[outcome unknown: the person asked to stop while this ran]"
_ENDED = "[ended before it was done: the person asked to stop]"


class ToolRoundStore(Protocol):
    """Store of tool calls and their results; returns the number (`seq`) of the new entry.

    Calls are stored before any tool runs, results in another commit with the artifacts that they show in
    part. Both raise LeaseLost.
    """

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
    """Runner of tool rounds; calls and results are committed separately, so that a crash in between is
    recognised.
    """

    def __init__(
        self,
        *,
        store: ToolRoundStore,
        requests: RequestBuilder,
        pictures: PictureService,
        clock: Clock,
        crash_point: CrashPoint,
    ) -> None:
        self._store = store
        self._requests = requests
        self._pictures = pictures
        self._clock = clock
        self._crash_point = crash_point

    async def run(
        self, state: TurnAttempt, prepared: PreparedRequest, reply: ModelReply, calls: Sequence[ToolUse]
    ) -> None:
        """Store the model's calls, run the tools at the same time, and store their results in another commit.

        The entries are added to the view of `state`, and each call is announced by `emit`. If the person
        stops the turn, running tools are cancelled, and TurnStopped is raised after their results are stored.
        """
        tokens = self.count_tokens(reply, reply.blocks, prepared)
        spent = tuple(state.costs.unpaid)
        seq = await self._store.record_tool_calls(
            state.claim, blocks=reply.blocks, tokens=tokens, calls=calls, spent=spent
        )
        state.costs.mark_stored(spent)
        state.costs.has_stored_round = True
        self._add(state, seq, "assistant", reply.blocks, tokens)
        if reply.usage.known and not prepared.left_out:
            state.meter.anchor_at(reply.usage.context_tokens)
        state.stream.end_round(text_of(reply.blocks))
        self._crash_point("after_tool_calls")
        for call in calls:
            about = state.given.toolbox.describe_subject(call)
            await state.given.emit(ToolRunning(turn=state.claim.turn, name=call.name, subject=about))
        await self._finish_calls(state, calls, lost=False)
        if state.given.stop.done():
            raise TurnStopped("")

    def count_tokens(self, reply: ModelReply, blocks: Sequence[Block], prepared: PreparedRequest) -> int:
        """Return the tokens to store for `blocks` of a model's reply, in estimated tokens.

        If the policy says so, that is the provider's count divided by the model's ratio; else, and for a
        reply with thinking or without a count, the estimate.
        """
        return prepared.policy.count_answer(
            blocks,
            reported=reply.usage.output_tokens if reply.usage.known else None,
            ratio=prepared.ratio,
            estimate=estimate_blocks(blocks, self._requests.counter.count_tokens),
        )

    async def finish_interrupted(self, state: TurnAttempt) -> None:
        """Finish a tool round that a crash interrupted, and store its results; does nothing if there is none.

        Idempotent calls run again; others are reported to the model as of unknown outcome.
        """
        mine = select_open_turn_entries(state.view)
        if mine and (calls := tool_uses(mine[-1].blocks)):
            await self._finish_calls(state, calls, lost=True)

    async def _finish_calls(self, state: TurnAttempt, calls: Sequence[ToolUse], *, lost: bool) -> None:
        ran = limit_files(await self._run_all(state, calls, lost=lost), len(list_sent_files(state.view)))
        self._crash_point("after_tool_run")
        results, artifacts = await self._move_to_artifacts(state, calls, [one.result for one in ran])
        images = tuple(image for one in ran for image in one.images)
        files = tuple(file for one in ran for file in one.files)
        blocks: tuple[Block, ...] = (*results, *images, *files)
        tokens = estimate_blocks(blocks, self._requests.counter.count_tokens)
        outcomes = {call.id: one.status for call, one in zip(calls, ran, strict=True)}
        seq = await self._store.record_tool_results(
            state.claim, blocks=blocks, tokens=tokens, outcomes=outcomes, artifacts=artifacts
        )
        self._add(state, seq, "tool", blocks, tokens)
        if images:
            state.pictures = {**state.pictures, **await self._pictures.load_pictures(images)}
        self._crash_point("after_tool_results")

    async def _run_all(
        self, state: TurnAttempt, calls: Sequence[ToolUse], *, lost: bool
    ) -> list[ToolCallResult]:
        """Return the results of the calls, run at the same time; calls that run when the person stops are
        cancelled.
        """
        tasks = [asyncio.ensure_future(self._finish_call(state, call, lost=lost)) for call in calls]
        running = asyncio.gather(*tasks, return_exceptions=True)
        try:
            either: tuple[asyncio.Future[Any], ...] = (running, state.given.stop)
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=END_SECONDS)
        return [self._collect_result(state, call, task) for call, task in zip(calls, tasks, strict=True)]

    def _collect_result(
        self, state: TurnAttempt, call: ToolUse, task: asyncio.Task[ToolCallResult]
    ) -> ToolCallResult:
        if task.done() and not task.cancelled():
            return task.result()
        harmless = state.given.toolbox.is_idempotent(call.name)
        result = ToolResult(tool_use_id=call.id, text=_ENDED if harmless else _UNCLEAR, is_error=True)
        return ToolCallResult(result=result, status="failed" if harmless else "unknown")

    async def _move_to_artifacts(
        self, state: TurnAttempt, calls: Sequence[ToolUse], results: Sequence[ToolResult]
    ) -> tuple[tuple[ToolResult, ...], tuple[Artifact, ...]]:
        """Return the results with those too long for the log replaced by excerpts, and the artifacts to
        store.

        Results of the tool that reads artifacts stay whole.
        """
        policy = self._requests.resolve_policy(state.claim.agent_config)
        portions = {call.id for call in calls if call.name == READER}
        count = self._requests.counter.count_tokens
        if sum(len(result.text) for result in results) < THREAD_CHARS:
            return spill_results(results, policy, count, spare=portions)
        async with asyncio.timeout(ARTIFACT_SECONDS):
            return await asyncio.to_thread(spill_results, results, policy, count, spare=portions)

    async def _finish_call(self, state: TurnAttempt, call: ToolUse, *, lost: bool) -> ToolCallResult:
        if lost and not state.given.toolbox.is_idempotent(call.name):
            return ToolCallResult(
                result=ToolResult(tool_use_id=call.id, text=_LOST, is_error=True), status="unknown"
            )
        context = ToolContext(
            session_id=state.claim.session_id,
            contact_id=state.claim.contact_id,
            scope=state.claim.agent,
            turn=state.claim.turn,
            key=f"{state.claim.session_id}:{state.claim.turn}:{call.id}",
            call_id=call.id,
            epoch=state.claim.epoch,
            base_turn=state.view.base_turn,
            address_id=state.claim.address_id,
            channel=state.claim.channel,
            group=state.claim.contact_kind == "group",
            anonymous=state.claim.anonymous,
            timezone=state.claim.timezone,
            agent_config=state.claim.agent_config,
        )
        return await state.given.toolbox.run(call, context=context)

    def _add(
        self, state: TurnAttempt, seq: int, author: Author, blocks: Sequence[Block], tokens: int
    ) -> None:
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
        state.meter.pending += tokens


def count_tool_rounds(view: View) -> int:
    """Return the number of tool rounds in the open turn, those of earlier attempts and an unfinished one
    included.
    """
    return sum(bool(tool_uses(entry.blocks)) for entry in select_open_turn_entries(view))


def list_sent_files(view: View) -> list[int]:
    """Return the attachment ids of files that tools created for the person in the open turn, in order."""
    found = (
        block.attachment_id
        for entry in select_open_turn_entries(view)
        if entry.author == "tool"
        for block in entry.blocks
        if isinstance(block, Text) and block.attachment_id is not None
    )
    return list(dict.fromkeys(found))


def limit_files(ran: Iterable[ToolCallResult], before: int) -> list[ToolCallResult]:
    """Return the results; those with files beyond `FILES_PER_TURN` lose their files and are marked as failed.

    `before` is the number of files that the turn has sent already.
    """
    kept: list[ToolCallResult] = []
    for one in ran:
        before += len(one.files)
        if one.files and before > FILES_PER_TURN:
            words = f"Not sent: {FILES_PER_TURN} files are the most for one answer."
            refused = replace(one.result, text=words, is_error=True)
            one = ToolCallResult(result=refused, status="failed")
        kept.append(one)
    return kept
