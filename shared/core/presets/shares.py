"""Parts of presets whose thresholds are shares of whatever window the model has."""

from __future__ import annotations

from shared.core.session.keep_strategy import KeepStrategy
from shared.core.session.prune_strategy import PruneStrategy
from shared.core.session.timing_strategy import TimingStrategy

WHOLE_WINDOW = 1_000_000
"""Tokens; larger than the window of each model, so that no part of a window stays unused."""
ANSWER_LEAST = 2_048
"""Tokens that an answer may shrink to, where the source's limit lies within its length of the window."""
NO_EARLY_FLUSH = TimingStrategy(flush_threshold=0, idle_compaction=False)
"""Memory is saved only together with what hides messages."""
NO_TAIL = KeepStrategy(tail_share=0.0, tail_least=0)
"""A compaction keeps a number of turns, whatever their size."""
NO_PRUNING = PruneStrategy(prune_rule="none")
