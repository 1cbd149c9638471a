"""Helper of the assistant for one task, with a separate window and budget; only its result is returned."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from shared.core.context.prompts import helper_prompt
from shared.core.context.untrusted_text import defuse
from shared.core.session.turns import Spending
from shared.core.values.errors import ModelError, PromptTooLong
from shared.core.values.messages import (
    Message,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    repair,
    text_of,
    tool_uses,
)
from shared.core.values.money import worst_case_micro
from shared.core.values.tokens import compute_ratio, estimate_messages, estimate_system, estimate_tools
from shared.ports import (
    ChatModel,
    ModelCard,
    ModelReply,
    ModelRequest,
    SystemPart,
    TokenCounter,
    ToolContext,
    ToolFailed,
    ToolSpec,
    Usage,
)
from shared.services.turns.model_caller import MAX_OVERFLOW_RETRIES
from shared.services.turns.spend_tracker import SpendTracker, build_spending, list_spending
from shared.services.turns.toolbox import Toolbox
from shared.services.turns.turn_attempt import lower_ceiling

RESULT_CHARS = 60_000
"""Most characters of a helper's result; the middle of a longer one is cut."""
TOOL_RESULT_CHARS = 24_000
"""Most characters of one tool result in a helper's window; the middle of a longer one is lost to the
helper.
"""
MIN_CHARS = 400
"""Characters below which a text is not halved to make room."""
CLEARED = "[cleared to make room]"
"""Text in place of an old tool result that was cleared to make room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentLimits:
    """Limits of one helper's run."""

    rounds: int = 6
    """Most model calls; the last one has no tools, so that the helper must answer."""
    input_tokens: int = 100_000
    """Most input tokens of all calls together."""
    output_tokens: int = 4_096
    """Most output tokens of each call."""
    seconds: float = 300.0
    caps_share: float = 0.25
    """Share of the person's tightest spending cap that the helper may spend."""


class SubagentLedger(Protocol):
    """Store that books the model calls of a helper on a session, its contact and its turn."""

    async def record_delegated(
        self, session_id: int, *, contact_id: int, turn: int, spent: Sequence[Spending]
    ) -> None: ...


@dataclass(slots=True, kw_only=True)
class Subagent:
    """Running helper, with its messages, usage and limits; `most_micro` None sets no spending limit."""

    model: ChatModel
    card: ModelCard
    others: list[str]
    """Names of models to use when the present one cannot answer, in order."""
    tools: Toolbox
    specs: tuple[ToolSpec, ...]
    tracker: SpendTracker
    ledger: SubagentLedger
    counter: TokenCounter
    bounds: SubagentLimits
    most_micro: int | None
    context: ToolContext
    messages: list[Message]
    ratio: float
    texts: list[str] = field(default_factory=list)
    input_tokens: int = 0
    output_tokens: int = 0
    booked: int = 0
    """Number of the tracker's calls that are stored in the ledger."""
    ceiling: int | None = None
    """Most tokens of a request after the provider refused its length; None before that."""

    async def run(self) -> str:
        """Work on the task in rounds of model calls and tools, and return the text of the last reply.

        The cost of each call is stored at once. Raises ToolFailed if tokens or money are used up or the last
        reply has no text, CapReached and ModelError.
        """
        for number in range(1, self.bounds.rounds + 1):
            reply = await self._ask(last=number == self.bounds.rounds)
            if words := text_of(reply.blocks).strip():
                self.texts.append(words)
            calls = tool_uses(reply.blocks)
            if not calls or reply.stop_reason != "tool_use" or number == self.bounds.rounds:
                return self._result(words)
            await self._use(reply, calls)
        raise AssertionError("unreachable")

    def describe_partial_result(self, why: str) -> str:
        """Return the text for the assistant when the helper did not finish: the reason `why` and its last
        reply.
        """
        return f"The helper did not finish. {why}" + (
            f"\nIts last words were:\n{shorten_middle(self.texts[-1], RESULT_CHARS)}" if self.texts else ""
        )

    def usage_stats(self) -> dict[str, int]:
        """Return `{calls, input_tokens, output_tokens, cost_micro}` used so far, for the log; money in
        micro-dollars.
        """
        return {
            "calls": len(self.tracker.spent),
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost_micro": self._spent_micro,
        }

    def _result(self, words: str) -> str:
        if not words:
            raise ToolFailed(self.describe_partial_result("It had no words for a result."))
        return words

    # -- calls ----------------------------------------------------------------------------------------

    async def _ask(self, *, last: bool) -> ModelReply:
        """Return the reply of the present model or, if it cannot answer, of the next one."""
        while True:
            try:
                return await self._ask_model(last=last)
            except ModelError as error:
                if not (error.elsewhere and self.others):
                    raise
                self.card, self.ceiling = await self.model.load_card(self.others.pop(0)), None
                self.ratio = self.card.token_factor

    async def _ask_model(self, *, last: bool) -> ModelReply:
        specs = () if last or "tools" not in self.card.capabilities else self.specs
        for tried in range(1, MAX_OVERFLOW_RETRIES + 1):
            estimate = self._make_fit(specs)
            try:
                return await self._call_paying(self._request(specs), estimate)
            except PromptTooLong as error:
                if tried == MAX_OVERFLOW_RETRIES:
                    raise
                self.ratio = compute_ratio(error.tokens or 0, self._estimate_tokens(specs), self.ratio * 1.1)
                self.ceiling = lower_ceiling(error.maximum, self.ceiling, estimate)
        raise AssertionError("unreachable")

    def _request(self, specs: tuple[ToolSpec, ...]) -> ModelRequest:
        messages = repair(self.messages)
        return ModelRequest(
            model=self.card.name,
            system=(SystemPart(text=helper_prompt(), cache=True),),
            messages=messages,
            tools=specs,
            max_output_tokens=self._output,
            cache_at=(len(messages) - 1,) if specs else (),
            about=self.tracker.trace_ids,
        )

    async def _call_paying(self, request: ModelRequest, estimate: int) -> ModelReply:
        """Make one model call under a reservation and store its cost; `estimate` is its input in tokens.

        A cancelled call is charged by the estimate. Raises ToolFailed beyond the subagent's budget,
        CapReached and ModelError.
        """
        self._refuse_beyond_budget(estimate)
        try:
            async with self.tracker.hold(estimate, self._output, self.card) as pay:
                try:
                    reply = await self.model.reply(request)
                except ModelError as error:
                    pay(
                        [
                            build_spending(usage, self.card.name, self.card, aborted=True)
                            for usage in error.aborted
                        ]
                    )
                    raise
                except asyncio.CancelledError:
                    guess = Usage(input_tokens=estimate, known=False)
                    pay([build_spending(guess, self.card.name, self.card, aborted=True)])
                    raise
                pay(list_spending(reply, self.card))
        finally:
            await self._book()
        usage = reply.usage
        self.input_tokens += usage.context_tokens - usage.output_tokens if usage.known else estimate
        self.output_tokens += usage.output_tokens
        return reply

    async def _book(self) -> None:
        fresh, self.booked = self.tracker.spent[self.booked :], len(self.tracker.spent)
        if fresh:
            await self.ledger.record_delegated(
                self.context.session_id,
                contact_id=self.context.contact_id,
                turn=self.context.turn,
                spent=fresh,
            )

    def _refuse_beyond_budget(self, estimate: int) -> None:
        if self.most_micro is None or self.card.prices is None:
            return
        worst = worst_case_micro(estimate, self._output, self.card.prices)
        if self._spent_micro + worst > self.most_micro:
            raise ToolFailed(self.describe_partial_result("Its share of the spending limit is used up."))

    @property
    def _spent_micro(self) -> int:
        return sum(call.cost_micro or 0 for call in self.tracker.spent)

    @property
    def _output(self) -> int:
        return min(self.bounds.output_tokens, self.card.max_output, max(1, self.card.window // 5))

    # -- tools ----------------------------------------------------------------------------------------

    async def _use(self, reply: ModelReply, calls: Sequence[ToolUse]) -> None:
        results = await asyncio.gather(*(self._run(call) for call in calls))
        self.messages.append(Message(role="assistant", blocks=reply.blocks))
        self.messages.append(Message(role="user", blocks=tuple(results)))

    async def _run(self, call: ToolUse) -> ToolResult:
        context = replace(self.context, key=f"{self.context.key}:{call.id}", call_id=call.id)
        ran = await self.tools.run(call, context=context)
        return replace(ran.result, text=shorten_middle(defuse(ran.result.text), TOOL_RESULT_CHARS))

    # -- room -----------------------------------------------------------------------------------------

    def _estimate_tokens(self, specs: tuple[ToolSpec, ...]) -> int:
        count = self.counter.count_tokens
        system = estimate_system((SystemPart(text=helper_prompt()),), count)
        return system + estimate_messages(self.messages, count) + estimate_tools(specs, count)

    def _input_limit(self) -> int:
        window = self.card.window - self._output - max(1_024, self.card.window // 20)
        return min(window, self.bounds.input_tokens - self.input_tokens, self.ceiling or window)

    def _make_fit(self, specs: tuple[ToolSpec, ...]) -> int:
        """Shorten the messages until the request fits: clear old results first, then halve long texts.

        Returns the estimated tokens. Raises ToolFailed if nothing is left to shorten.
        """
        room, estimate = self._input_limit(), math.ceil(self.ratio * self._estimate_tokens(specs))
        while estimate > room:
            if not (self._clear_oldest() or self._halve_longest()):
                raise ToolFailed(self.describe_partial_result("It has read all that it may read."))
            estimate = math.ceil(self.ratio * self._estimate_tokens(specs))
        return estimate

    def _clear_oldest(self) -> bool:
        for index, message in enumerate(self.messages[:-1]):
            if any(isinstance(block, ToolResult) and block.text != CLEARED for block in message.blocks):
                blocks = tuple(
                    replace(block, text=CLEARED) if isinstance(block, ToolResult) else block
                    for block in message.blocks
                )
                self._replace_message(index, replace(message, blocks=blocks))
                return True
        return False

    def _halve_longest(self) -> bool:
        places = [
            (len(block.text), index, place)
            for index, message in enumerate(self.messages)
            for place, block in enumerate(message.blocks)
            if isinstance(block, Text | ToolResult) and len(block.text) > MIN_CHARS
        ]
        if not places:
            return False
        chars, index, place = max(places)
        blocks = list(self.messages[index].blocks)
        block = blocks[place]
        assert isinstance(block, Text | ToolResult)
        blocks[place] = replace(block, text=shorten_middle(block.text, max(MIN_CHARS // 2, chars // 2)))
        self._replace_message(index, replace(self.messages[index], blocks=tuple(blocks)))
        return True

    def _replace_message(self, index: int, message: Message) -> None:
        """Replace a message and drop all thinking blocks, since providers refuse them after a changed
        message.
        """
        self.messages[index] = message
        self.messages = [
            replace(one, blocks=tuple(block for block in one.blocks if not isinstance(block, Thinking)))
            for one in self.messages
        ]


def shorten_middle(text: str, most: int) -> str:
    """Return the text; if it is longer than `most` characters, a note replaces its middle.

    The note comes on top of `most` characters.
    """
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"
