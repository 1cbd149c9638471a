"""Models that write unusable summaries: for which session they pause, and for how long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shared.core.session.session_state import SummaryEnd
from shared.core.verdicts.evidence import SESSIONS

UNUSABLE_TIMES = 3
"""Unusable summaries in a row after which a model pauses."""
UNUSABLE_SECONDS, UNUSABLE_SECONDS_MOST = 900.0, 21_600.0
"""Seconds of the first pause for the session itself, and of the longest; each further fault doubles them."""
PROBE_SECONDS = 60.0
"""Seconds of a pause for all sessions; then one of them probes the model, and a summary ends the pause."""
EXCUSED = frozenset(
    {
        "model_unavailable", "model_busy", "model_refused_account", "cap_reached", "prompt_too_long",
        "content_refused",
    }
)  # fmt: skip
"""Failures that say nothing about a model's ability to write a summary."""


def unusable_models(attempts: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the models whose answers in a summary's audit were unusable."""
    return frozenset(
        str(attempt["model"])
        for attempt in attempts
        if attempt.get("step") != "commit" and str(attempt.get("fault", "")).partition(":")[0] not in EXCUSED
    )


def unusable_seconds(written: Sequence[SummaryEnd], model: str) -> float:
    """Return the seconds that a model with unusable summaries still pauses; `written` are newest first.

    The failures of a session count for itself. For others they count only after three different sessions
    have met them: the text of a single one may be the reason.
    """
    own = _find_failures([end for end in written if end.is_own], model)
    pause = 0.0
    if len(own) >= UNUSABLE_TIMES:
        longest = min(UNUSABLE_SECONDS_MOST, UNUSABLE_SECONDS * 2.0 ** (len(own) - UNUSABLE_TIMES))
        pause = longest - own[0].age_seconds
    everywhere = _find_failures(written, model)
    if len({end.session_id for end in everywhere}) >= SESSIONS:
        pause = max(pause, PROBE_SECONDS - everywhere[0].age_seconds)
    return max(0.0, pause)


def _find_failures(written: Sequence[SummaryEnd], model: str) -> list[SummaryEnd]:
    """Return the failures since the model's last summary, newest first."""
    failures: list[SummaryEnd] = []
    for end in written:
        if end.model == model:
            break
        if model in end.unusable:
            failures.append(end)
    return failures
