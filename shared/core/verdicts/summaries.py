"""Pauses of models that write unusable summaries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shared.core.session.session_state import SummaryEnd
from shared.core.verdicts.evidence import SESSIONS

UNUSABLE_TIMES = 3
"""Unusable summaries in a row after which a model pauses."""
UNUSABLE_SECONDS, UNUSABLE_SECONDS_MOST = 900.0, 21_600.0
"""Seconds of a session's first pause, and of its longest; each further fault doubles the pause."""
PROBE_SECONDS = 60.0
"""Seconds of a pause for all sessions; then one of them tries the model, and a usable summary
ends the pause.
"""
EXCUSED = frozenset(
    {
        "model_unavailable", "model_busy", "model_refused_account", "cap_reached", "prompt_too_long",
        "content_refused", "out_of_time",
    }
)  # fmt: skip
"""Failures that say nothing about a model's ability to write a summary."""


def unusable_models(attempts: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the names of models whose answers were unusable, from the attempts in a summary's audit.

    Attempts that failed for another reason, such as a busy provider, do not count.
    """
    return frozenset(
        str(attempt["model"])
        for attempt in attempts
        if attempt.get("step") != "commit" and str(attempt.get("fault", "")).partition(":")[0] not in EXCUSED
    )


def unusable_seconds(written: Sequence[SummaryEnd], model: str) -> float:
    """Return for how many more seconds a model writes no summaries; 0 if it may.

    `written` are recent summaries of all sessions, newest first. Three failures in a row in the asking
    session pause it for 15 minutes to 6 hours; failures in three sessions pause all for a minute, since one
    session's text may be the cause.
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
    """Return the failures since the model's last usable summary, newest first."""
    failures: list[SummaryEnd] = []
    for end in written:
        if end.model == model:
            break
        if model in end.unusable:
            failures.append(end)
    return failures
