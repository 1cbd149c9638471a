"""Forecast of the next automatic summary: how many messages are left, or why none will come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shared.core.compaction.jobs import ends_delay, is_in_backoff
from shared.core.session.budget import ContextBudget
from shared.core.session.policy import ContextPolicy
from shared.core.session.session import View

WithholdingReason = Literal["", "off", "manual", "thrashing", "nothing", "hook", "held"]
"""Reason why no automatic summary is made; empty if one comes at the limit.

`off`: switched off in this conversation; `manual`: the agent makes none; `thrashing` and `nothing`: paused;
`hook`: delayed by the operator's hook; `held`: waits for the hard limit after an undo.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryOutlook:
    """Forecast of the next automatic summary; `withheld` says why none will come, empty if one will."""

    withheld: WithholdingReason = ""
    turns: int = 0
    """Estimated messages of the person until the next summary; 0 if it is due or cannot be estimated."""
    soon: bool = False
    """True if one of the next two messages will probably cause the summary."""


SOON_TURNS = 2
"""Messages of average size that may be left before a summary when it is announced."""


def foresee_summary(
    view: View, *, budget: ContextBudget, policy: ContextPolicy, model: str, context_tokens: int, choice: str
) -> SummaryOutlook:
    """Return the forecast of the next automatic summary, estimated by the average size of live turns.

    `choice` is the conversation's setting, `off` or empty; `model` is the name of its model. `context_tokens`
    includes the tokens reserved for recall.
    """
    if not policy.timing.compact_auto:
        return SummaryOutlook(withheld="off" if choice == "off" else "manual")
    in_backoff = is_in_backoff(view, limit=budget.limit, model=model) and not ends_delay(
        view, budget, context_tokens
    )
    if view.backoff is not None and in_backoff:
        return SummaryOutlook(withheld=view.backoff.reason)
    if view.hold_compaction:
        return SummaryOutlook(withheld="held")
    turns = len({entry.turn for entry in view.entries})
    mean = sum(entry.tokens for entry in view.entries) / max(1, turns)
    left = budget.compact_at - context_tokens
    soon = mean > 0 and left <= SOON_TURNS * mean
    return SummaryOutlook(turns=int(left / mean) if mean and left > 0 else 0, soon=soon)
