"""Parts of presets whose thresholds are shares of the model's window."""

from __future__ import annotations

from shared.core.session.keep_strategy import KeepStrategy
from shared.core.session.prune_strategy import PruneStrategy
from shared.core.session.timing_strategy import TimingStrategy

WHOLE_WINDOW = 1_000_000
"""Tokens above the window of every model, so that no part of a window stays unused."""
ANSWER_LEAST = 2_048
"""Fewest tokens that an answer may shrink to, in presets whose source sets its limit close to the window."""
NO_EARLY_FLUSH = TimingStrategy(flush_threshold=0, idle_compaction=False)
"""Timing that saves memory only together with a compaction."""
NO_TAIL = KeepStrategy(tail_share=0.0, tail_least=0)
"""Message selection in which a compaction keeps a number of turns, whatever their size."""
NO_PRUNING = PruneStrategy(prune_rule="none")
"""Pruning that shortens nothing."""
