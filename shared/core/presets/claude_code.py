"""`claude-code`: Claude Code, old tool results are cleared first, then a summary at three quarters."""

from __future__ import annotations

from dataclasses import replace

from shared.core.presets.shares import NO_EARLY_FLUSH, NO_TAIL, WHOLE_WINDOW
from shared.core.session.policy import ContextPolicy
from shared.core.session.prune_strategy import PruneStrategy
from shared.core.session.summary_strategy import SummaryStrategy

PRESET = ContextPolicy(
    name="claude-code",
    context_window=WHOLE_WINDOW,
    soft_budget=None,
    timing=replace(NO_EARLY_FLUSH, compact_share=0.75),
    keeping=replace(NO_TAIL, keep_turns=2),
    writing=SummaryStrategy(summariser="own"),
    pruning=PruneStrategy(
        prune_rule="age", prune_first=True, prune_clear_over_chars=400, prune_when_cold=False
    ),
)
