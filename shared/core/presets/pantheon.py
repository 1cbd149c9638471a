"""`pantheon`: Pantheon F23, a summary by size or after eight turns, filler left out at nine tenths."""

from __future__ import annotations

from dataclasses import replace

from shared.core.presets.shares import NO_EARLY_FLUSH, NO_PRUNING, NO_TAIL, WHOLE_WINDOW
from shared.core.session.policy import ContextPolicy

PRESET = ContextPolicy(
    name="pantheon",
    context_window=WHOLE_WINDOW,
    max_output=2_048,
    soft_budget=None,
    timing=replace(
        NO_EARLY_FLUSH,
        compact_share=0.70,
        compact_share_of="input_budget",
        compact_at_equal=True,
        compact_after_turns=8,
        compact_before_call=True,
    ),
    keeping=replace(NO_TAIL, keep_turns=4, hide_chatter_at=0.90),
    pruning=NO_PRUNING,
)
