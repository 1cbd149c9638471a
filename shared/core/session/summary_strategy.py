"""Part of a policy that decides which model writes a summary, in which form, and how long it may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shared.core.session.prune_strategy import Findings

Summariser = Literal["cheap", "warm", "auto", "own"]
"""Model that writes summaries.

`cheap`: the summary model; `warm`: the chat model on its cached prefix; `auto`: the cheaper of both; `own`:
the session's model in a separate request.
"""
SummaryForm = Literal["ledger", "sections", "thread", "handover", "running"]
"""Form of a summary: our ledger, LobeChat's sections, Chatbox's thread, OpenCode's hand-over, langmem's
running text.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryStrategy:
    """Settings for writing summaries. Lengths are in tokens."""

    summariser: Summariser = "cheap"
    summary_falls_back: bool = True
    """True lets the session's own model write the summary when the summary model cannot."""
    summary_form: SummaryForm = "ledger"
    summary_least: int = 300
    """Fewest tokens that a summary is allowed, however small the hidden range."""
    summary_most: int = 2_000
    """Most tokens of a summary."""
    summary_merged: bool = False
    """True summarises portions separately and lets the model merge them; False extends one summary portion by
    portion.
    """
    summary_margin: float = 1.0
    """Factor on estimated tokens when portions are fitted into the summary model's window."""
    flush_with_summary: bool = False
    """True lets the chat model write notes and summary in one request.

    A second model writes the summary if that saves more than a tenth of the price; only then is memory saved
    early.
    """

    def list_models(self, *, summary_model: str, own_model: str) -> tuple[str, ...]:
        """Return the names of the models to ask for a summary by a separate request, one or two, in order.

        The second is asked if the first fails; it is missing if `summary_falls_back` is off or both are the
        same.
        """
        first, second = summary_model, own_model
        if self.summariser == "own":
            first, second = own_model, summary_model
        return (first, second) if self.summary_falls_back and first != second else (first,)

    @property
    def may_write_on_prefix(self) -> bool:
        """True if the chat model may write the summary after its cached chat, where that costs less."""
        return self.flush_with_summary or self.summariser in ("warm", "auto")

    def find_contradictions(self) -> Findings:
        """Return one pair for each check of these settings: True if it failed, and the text of the
        contradiction.
        """
        least, most = self.summary_least, self.summary_most
        return (
            (not 0 < least <= most, f"summary_least={least} must be positive, at most summary_most={most}"),
            (self.summary_margin < 1, f"summary_margin={self.summary_margin} must be at least 1"),
        )


USUAL_WRITING = SummaryStrategy()
"""Writing of summaries by the default values of `SummaryStrategy`."""
