"""`opencode`: OpenCode, a hand-over summary at 95 % of the window, the newest tool output protected."""

from __future__ import annotations

from dataclasses import replace

from shared.core.presets.shares import ANSWER_LEAST, NO_EARLY_FLUSH, NO_TAIL, WHOLE_WINDOW
from shared.core.session.policy import ContextPolicy
from shared.core.session.prune_strategy import PruneStrategy
from shared.core.session.summary_strategy import SummaryStrategy

PRESET = ContextPolicy(
    name="opencode",
    context_window=WHOLE_WINDOW,
    answer_least=ANSWER_LEAST,
    # With margins a window of 200,000 would be refused below 95 %; the provider itself refuses what is too
    # long.
    overhead=0,
    overhead_share=0.0,
    soft_budget=None,
    timing=replace(NO_EARLY_FLUSH, compact_share=0.95),
    keeping=replace(NO_TAIL, keep_turns=2),
    writing=SummaryStrategy(summariser="own", summary_form="handover"),
    pruning=PruneStrategy(
        prune_rule="protect",
        prune_batch=20_000,
        prune_batch_over=True,
        prune_when_cold=False,
        prune_duplicates=False,
        prune_clear_over_chars=0,
        prune_cleared="[output too long, was trimmed]",
    ),
)
