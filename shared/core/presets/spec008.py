"""`spec008`: SPEC-008, thresholds counted from the window, pruning before each call."""

from __future__ import annotations

from shared.core.presets.shares import ANSWER_LEAST
from shared.core.session.keep_strategy import KeepStrategy
from shared.core.session.policy import ContextPolicy
from shared.core.session.prune_strategy import PruneStrategy
from shared.core.session.summary_strategy import SummaryStrategy
from shared.core.session.timing_strategy import TimingStrategy

PRESET = ContextPolicy(
    name="spec008",
    answer_least=ANSWER_LEAST,
    soft_budget=None,
    timing=TimingStrategy(idle_compaction=False, compact_before_call=True),
    keeping=KeepStrategy(picture_turns=None),
    writing=SummaryStrategy(summary_falls_back=False),
    pruning=PruneStrategy(
        prune_rule="age",
        prune_batch=0,
        prune_clear_over_chars=0,
        prune_duplicates=False,
        prune_mark="...",
    ),
)
