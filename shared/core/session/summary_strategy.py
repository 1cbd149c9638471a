"""Strategy of a policy: which model writes a summary, in which form, and how long it may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shared.core.session.prune_strategy import Findings

Summariser = Literal["cheap", "warm", "auto", "own"]
"""Model for summaries: the summary model; the chat model on its warm prefix; the cheaper of both; the
session's model by a separate request.
"""
SummaryForm = Literal["ledger", "sections", "thread", "handover", "running"]
"""Form of a summary: our ledger, LobeChat's five sections, Chatbox's growing thread, OpenCode's hand-over, or
langmem's running text.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryStrategy:
    """Writer, form and length of summaries. Lengths are in tokens."""

    summariser: Summariser = "cheap"
    summary_falls_back: bool = True
    """Whether the session's own model may write the summary when the cheap one cannot."""
    summary_form: SummaryForm = "ledger"
    summary_least: int = 300
    summary_most: int = 2_000
    summary_merged: bool = False
    """True if portions are summarised separately and merged by the model, instead of one after the other."""
    summary_margin: float = 1.0
    """Estimates are multiplied by this before a portion is held against the summariser's window."""
    flush_with_summary: bool = False
    """Whether the chat model writes notes and summary in one request; a second model writes the summary where
    it saves more than a tenth of the price. Memory is saved early only beside a second model."""

    def list_models(self, *, summary_model: str, own_model: str) -> tuple[str, ...]:
        """Return the models for a separate request, in order."""
        first, second = summary_model, own_model
        if self.summariser == "own":
            first, second = own_model, summary_model
        return (first, second) if self.summary_falls_back and first != second else (first,)

    @property
    def may_write_on_prefix(self) -> bool:
        """True if the chat model may write the summary on its warm prefix, where that costs less."""
        return self.flush_with_summary or self.summariser in ("warm", "auto")

    def find_contradictions(self) -> Findings:
        """Return each contradiction of these numbers, and whether it holds."""
        least, most = self.summary_least, self.summary_most
        return (
            (not 0 < least <= most, f"summary_least={least} must be positive, at most summary_most={most}"),
            (self.summary_margin < 1, f"summary_margin={self.summary_margin} must be at least 1"),
        )


USUAL_WRITING = SummaryStrategy()
"""Writing of policies that set nothing else."""
