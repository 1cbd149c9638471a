"""`steady`: our default, with a soft budget for the conversation, pruning in batches, and background
summaries.
"""

from __future__ import annotations

from shared.core.session.keep_strategy import KeepStrategy
from shared.core.session.policy import ContextPolicy
from shared.core.session.prune_strategy import PruneStrategy
from shared.core.session.summary_strategy import SummaryStrategy
from shared.core.session.timing_strategy import TimingStrategy

PRESET = ContextPolicy(
    name="steady",
    timing=TimingStrategy(compact_ahead=True),
    # Each compaction writes the kept turns again and each call reads them, while older turns can be recalled.
    # With 200 turns of 1,470 tokens, keeping one costs 6 % less than keeping two.
    keeping=KeepStrategy(
        recall_tokens=1_200,
        keep_turns_least=1,
        tail_share=0.1,
        tail_least=400,
        tail_share_most=0.15,
        tail_room=2_000,
    ),
    writing=SummaryStrategy(flush_with_summary=True),
    pruning=PruneStrategy(prune_error_tail_chars=2_500),
)
