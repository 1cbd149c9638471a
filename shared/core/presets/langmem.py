"""`langmem`: LangGraph and langmem, 4,000 tokens of conversation beside a running summary of 128."""

from __future__ import annotations

from dataclasses import replace

from shared.core.presets.shares import NO_EARLY_FLUSH, NO_PRUNING, NO_TAIL, WHOLE_WINDOW
from shared.core.session.policy import ContextPolicy
from shared.core.session.summary_strategy import SummaryStrategy

PRESET = ContextPolicy(
    name="langmem",
    context_window=WHOLE_WINDOW,
    soft_budget=2_000,
    timing=NO_EARLY_FLUSH,
    keeping=replace(
        NO_TAIL,
        trim_tokens=4_000,
        keep_turns=1,
        keep_turns_least=1,
        land_at=384 / 2_000,
        # 128 tokens hold about a dozen facts; others are recalled from hidden messages.
        recall_tokens=400,
    ),
    writing=SummaryStrategy(summary_form="running", summary_least=128, summary_most=128),
    pruning=NO_PRUNING,
)
