"""Who writes a summary: which models, and the cheaper of two ways by today's prices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shared.core.values.model import Prices

Way = Literal["cheap", "warm"]
_WRITTEN_FACTOR = 1.25
"""What a token costs that the provider is to remember."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What both ways would be charged for, in tokens of the model that counts them."""

    prefix_tokens: int
    """The chat's own request, as the provider may still remember it."""
    instruction_tokens: int
    source_tokens: int
    """What the summary model would read instead."""
    answer_tokens: int
    cache_age_seconds: float
    cache_seconds: float


def cheaper_way(costs: Costs, *, cheap: Prices | None, chat: Prices | None) -> Way:
    """`warm` only when it is surely the cheaper one: with an unknown price the summary model writes."""
    if cheap is None or chat is None:
        return "cheap"
    remembered = costs.cache_age_seconds < costs.cache_seconds
    prefix = chat.cache_read if remembered else chat.input
    warm = (
        costs.prefix_tokens * prefix
        + costs.instruction_tokens * chat.input
        + costs.answer_tokens * chat.output
    )
    by_itself = costs.source_tokens * cheap.input + costs.answer_tokens * cheap.output
    return "warm" if warm < by_itself else "cheap"


def saves_together(costs: Costs, *, writer: Prices | None, chat: Prices | None, same: bool) -> bool:
    """Whether notes and summary in one answer behind the chat cost less than two requests.

    The ghost turn reads the chat's prefix in any case, remembered or not. What is left is the summary: the
    instruction and its answer by the chat model, or the source and its answer by the writer.
    """
    if same:
        return _WRITTEN_FACTOR * costs.instruction_tokens < costs.source_tokens
    if writer is None or chat is None:
        return False
    behind = costs.instruction_tokens * chat.cache_write + costs.answer_tokens * chat.output
    return behind < costs.source_tokens * writer.input + costs.answer_tokens * writer.output


def models_for(summariser: str, *, summary_model: str, own_model: str, falls_back: bool) -> tuple[str, ...]:
    """Who is asked on a request of its own, in this order."""
    first = own_model if summariser == "own" else summary_model
    second = summary_model if summariser == "own" else own_model
    return (first, second) if falls_back and first != second else (first,)
