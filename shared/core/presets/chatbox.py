"""`chatbox`: Chatbox, the last six messages are sent, and summaries are made on command only."""

from __future__ import annotations

from dataclasses import replace

from shared.core.presets.shares import NO_EARLY_FLUSH, NO_PRUNING, NO_TAIL, WHOLE_WINDOW
from shared.core.session.policy import ContextPolicy
from shared.core.session.summary_strategy import SummaryStrategy

PRESET = ContextPolicy(
    name="chatbox",
    context_window=WHOLE_WINDOW,
    soft_budget=None,
    timing=replace(NO_EARLY_FLUSH, compact_auto=False),
    keeping=replace(NO_TAIL, window_messages=6, keep_turns=0, keep_turns_least=0),
    writing=SummaryStrategy(summariser="own", summary_form="thread"),
    pruning=NO_PRUNING,
)
