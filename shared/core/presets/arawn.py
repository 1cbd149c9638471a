"""`arawn`: Arawn, a summary at the critical share of the window, which the gauge shows."""

from __future__ import annotations

from dataclasses import replace

from shared.core.presets.shares import ANSWER_LEAST, NO_EARLY_FLUSH, NO_PRUNING, NO_TAIL, WHOLE_WINDOW
from shared.core.session.policy import ContextPolicy
from shared.core.session.summary_strategy import SummaryStrategy

PRESET = ContextPolicy(
    name="arawn",
    context_window=WHOLE_WINDOW,
    answer_least=ANSWER_LEAST,
    overhead=0,
    soft_budget=None,
    timing=replace(NO_EARLY_FLUSH, compact_share=0.9, compact_at_equal=True),
    keeping=replace(NO_TAIL, keep_turns=3),
    writing=SummaryStrategy(summariser="own"),
    pruning=NO_PRUNING,
    status_of="window",
)
