"""`openclaw`: OpenClaw, everything since the last summary is sent, partial summaries are merged."""

from __future__ import annotations

from dataclasses import replace

from shared.core.presets.shares import ANSWER_LEAST, NO_EARLY_FLUSH, NO_PRUNING, WHOLE_WINDOW
from shared.core.session.keep_strategy import KeepStrategy
from shared.core.session.policy import ContextPolicy
from shared.core.session.summary_strategy import SummaryStrategy

PRESET = ContextPolicy(
    name="openclaw",
    context_window=WHOLE_WINDOW,
    # An answer of 8,000 tokens and no other margin: 96 % of 200,000 leave exactly that.
    max_output=8_000,
    answer_least=ANSWER_LEAST,
    overhead=0,
    overhead_share=0.0,
    soft_budget=None,
    timing=replace(NO_EARLY_FLUSH, compact_share=0.96, compact_before_call=True),
    keeping=KeepStrategy(keep_turns=3, tail_most=WHOLE_WINDOW, land_at=0.5),
    writing=SummaryStrategy(summariser="own", summary_merged=True, summary_margin=1.2),
    pruning=NO_PRUNING,
)
