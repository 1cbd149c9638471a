"""`lobechat`: LobeChat, a summary in five sections above half of 128,000 tokens."""

from __future__ import annotations

from dataclasses import replace

from shared.core.presets.shares import NO_EARLY_FLUSH, NO_PRUNING, NO_TAIL
from shared.core.session.policy import ContextPolicy
from shared.core.session.summary_strategy import SummaryStrategy

PRESET = ContextPolicy(
    name="lobechat",
    context_window=128_000,
    soft_budget=None,
    timing=replace(NO_EARLY_FLUSH, compact_share=0.5, compact_before_call=True),
    keeping=replace(NO_TAIL, keep_turns=1, keep_turns_least=1),
    writing=SummaryStrategy(summary_form="sections", summary_most=8_000),
    pruning=NO_PRUNING,
    exact_outputs=True,
)
