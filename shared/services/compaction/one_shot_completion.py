"""Asks a model for one answer that nobody waits for, within bounds of time, length and money."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from shared.core.values.errors import ModelUnavailable, PromptTooLong
from shared.core.values.tokens import estimate_messages, estimate_system, estimate_tools
from shared.ports import ChatModel, ModelCard, ModelReply, ModelRequest, TokenCounter, Usage
from shared.services.turns.spend_tracker import SpendTracker

_CHARS_PER_TOKEN = 8
_CHARS_TO_SPARE = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionTimeouts:
    """How long one attempt may take. Until the first words the adapter's own patience counts, too."""

    first_seconds: float = 180.0
    """A model on this machine reads for minutes before it says a word."""
    silence_seconds: float = 30.0
    total_seconds: float = 600.0


@dataclass(slots=True)
class _StreamProgress:
    chars: int = 0
    attempt: int = 1
    endless: bool = False


class OneShotCompletion:
    def __init__(self, model: ChatModel, counter: TokenCounter, *, bounds: CompletionTimeouts) -> None:
        self._model = model
        self._counter = counter
        self._bounds = bounds

    async def load_card(self, model: str) -> ModelCard:
        return await self._model.load_card(model)

    async def complete(
        self, request: ModelRequest, *, purse: SpendTracker, checked: bool = True
    ) -> ModelReply:
        """Raises ModelErrors and CapReached. `checked` refuses what cannot fit before anybody is asked."""
        card = await self._model.load_card(request.model)
        tokens = self._tokens(request, card)
        if checked and tokens > card.window:
            raise PromptTooLong(
                f"about {tokens} tokens for a window of {card.window}", tokens=tokens, maximum=card.window
            )
        return await purse.pay_for(
            lambda: self._bounded(replace(request, about=purse.trace_ids), tokens),
            input_tokens=tokens,
            output_tokens=min(request.max_output_tokens, card.max_output),
            card=card,
        )

    async def _bounded(self, request: ModelRequest, tokens: int) -> ModelReply:
        """An answer that stops coming, or never stops, is an answer that did not come."""
        heard = _StreamProgress()
        most_chars = request.max_output_tokens * _CHARS_PER_TOKEN + _CHARS_TO_SPARE
        clock = asyncio.get_running_loop().time
        ends = clock() + self._bounds.total_seconds
        try:
            async with asyncio.timeout(min(self._bounds.first_seconds, self._bounds.total_seconds)) as limit:

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
