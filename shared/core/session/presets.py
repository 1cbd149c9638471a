"""The named policies: `steady` is ours, the others keep a context as the system that they are named after."""

from __future__ import annotations

from dataclasses import replace

from shared.core.session.keep_strategy import KeepStrategy
from shared.core.session.policy import ContextPolicy, ContradictoryPolicy
from shared.core.session.prune_strategy import PruneStrategy
from shared.core.session.summary_strategy import SummaryStrategy
from shared.core.session.timing_strategy import TimingStrategy

_OWN_WINDOW = 1_000_000
"""For presets that count in shares of whatever window the model has."""

_ANSWER_LEAST = 2_048
"""Where the source's limit lies within an answer's length of the window."""

_NO_EARLY_FLUSH = TimingStrategy(flush_threshold=0, idle_compaction=False)
_NO_TAIL = KeepStrategy(tail_share=0.0, tail_least=0)
_BY_SHARE = ContextPolicy(
    name="",
    context_window=_OWN_WINDOW,
    soft_budget=None,
    pruning=PruneStrategy(prune_rule="none"),
    keeping=_NO_TAIL,
    timing=_NO_EARLY_FLUSH,
)
"""Base of most other presets: the whole window, no early flush, no tail by size, no pruning."""

PRESETS: dict[str, ContextPolicy] = {
    policy.name: policy
    for policy in (
        ContextPolicy(
            name="steady",
            pruning=PruneStrategy(prune_error_tail_chars=2_500),
            writing=SummaryStrategy(flush_with_summary=True),
            # Each compaction pays for its tail again, and each call reads it: what is older can be recalled.
            # Of 200 turns of 1,470 tokens, one in the tail costs 6 % less than two.
            keeping=KeepStrategy(
                recall_tokens=1_200,
                keep_turns_least=1,
                tail_share=0.1,
                tail_least=400,
                tail_share_most=0.15,
                tail_room=2_000,
            ),
            timing=TimingStrategy(compact_ahead=True),
        ),
        ContextPolicy(
            name="spec008",
            answer_least=_ANSWER_LEAST,
            soft_budget=None,
            writing=SummaryStrategy(summary_falls_back=False),
            pruning=PruneStrategy(
                prune_rule="age",
                prune_batch=0,
                prune_clear_over_chars=0,
                prune_duplicates=False,
                prune_mark="...",
            ),
            keeping=KeepStrategy(picture_turns=None),
            timing=TimingStrategy(idle_compaction=False, compact_before_call=True),
        ),
        replace(
            _BY_SHARE,
            name="pantheon",
            max_output=2_048,
            keeping=replace(_NO_TAIL, keep_turns=4, hide_chatter_at=0.90),
            timing=replace(
                _NO_EARLY_FLUSH,
                compact_share=0.70,
                compact_share_of="input_budget",
                compact_at_equal=True,
                compact_after_turns=8,
                compact_before_call=True,
            ),
        ),
        replace(
            _BY_SHARE,
            name="lobechat",
            context_window=128_000,
            writing=SummaryStrategy(summary_form="sections", summary_most=8_000),
            exact_outputs=True,
            keeping=replace(_NO_TAIL, keep_turns=1, keep_turns_least=1),
            timing=replace(_NO_EARLY_FLUSH, compact_share=0.5, compact_before_call=True),
        ),
        replace(
            _BY_SHARE,
            name="chatbox",
            writing=SummaryStrategy(summariser="own", summary_form="thread"),
            keeping=replace(_NO_TAIL, window_messages=6, keep_turns=0, keep_turns_least=0),
            timing=replace(_NO_EARLY_FLUSH, compact_auto=False),
        ),
        replace(
            _BY_SHARE,
            name="opencode",
            answer_least=_ANSWER_LEAST,
            # Margins of our own would refuse a window of 200,000 below 95 %; the provider refuses for itself.
            overhead=0,
            overhead_share=0.0,
            pruning=PruneStrategy(
                prune_rule="protect",
                prune_batch=20_000,
                prune_batch_over=True,
                prune_when_cold=False,
                prune_duplicates=False,
                prune_clear_over_chars=0,
                prune_cleared="[output too long, was trimmed]",
            ),
            writing=SummaryStrategy(summariser="own", summary_form="handover"),
            keeping=replace(_NO_TAIL, keep_turns=2),
            timing=replace(_NO_EARLY_FLUSH, compact_share=0.95),
        ),
        replace(
            _BY_SHARE,
            name="claude-code",
            pruning=PruneStrategy(
                prune_rule="age", prune_first=True, prune_clear_over_chars=400, prune_when_cold=False
            ),
            writing=SummaryStrategy(summariser="own"),
            keeping=replace(_NO_TAIL, keep_turns=2),
            timing=replace(_NO_EARLY_FLUSH, compact_share=0.75),
        ),
        replace(
            _BY_SHARE,
            name="langmem",
            soft_budget=2_000,
            writing=SummaryStrategy(summary_form="running", summary_least=128, summary_most=128),
            # 128 tokens hold a dozen facts; the others are found in the hidden words when they are asked for.
            keeping=replace(
                _NO_TAIL,
                trim_tokens=4_000,
                keep_turns=1,
                keep_turns_least=1,
                land_at=384 / 2_000,
                recall_tokens=400,
            ),
        ),
        replace(
            _BY_SHARE,
            name="arawn",
            answer_least=_ANSWER_LEAST,
            overhead=0,
            writing=SummaryStrategy(summariser="own"),
            status_of="window",
            keeping=replace(_NO_TAIL, keep_turns=3),
            timing=replace(_NO_EARLY_FLUSH, compact_share=0.9, compact_at_equal=True),
        ),
        replace(
            _BY_SHARE,
            name="openclaw",
            answer_least=_ANSWER_LEAST,
            # An answer of 8,000 and no other margin: 96 % of 200,000 leaves just that.
            max_output=8_000,
            overhead=0,
            overhead_share=0.0,
            writing=SummaryStrategy(summariser="own", summary_merged=True, summary_margin=1.2),
            keeping=replace(
                _NO_TAIL, tail_least=1500, tail_share=0.25, keep_turns=3, tail_most=_OWN_WINDOW, land_at=0.5
            ),
            timing=replace(_NO_EARLY_FLUSH, compact_share=0.96, compact_before_call=True),
        ),
        replace(
            _BY_SHARE,
            name="goclaw",
            answer_least=_ANSWER_LEAST,
            max_output=8_000,
            overhead=0,
            overhead_share=0.0,
            writing=SummaryStrategy(summary_merged=True, summary_margin=1.2),
            keeping=replace(
                _NO_TAIL, tail_least=1500, tail_share=0.25, keep_turns=3, tail_most=_OWN_WINDOW, land_at=0.5
            ),
            timing=replace(
                _NO_EARLY_FLUSH,
                compact_share=0.96,
                compact_before_call=True,
                flush_shares=(0.50, 0.75, 0.90),
                checkpoints=True,
            ),
        ),
    )
}


def preset(name: str) -> ContextPolicy:
    """Raises `ContradictoryPolicy` for a name that no preset has."""
    if name not in PRESETS:
        raise ContradictoryPolicy(f"there is no preset {name!r}; choose one of {', '.join(sorted(PRESETS))}")
    return PRESETS[name]
