"""Named places where the fault suite ends a process, as hard as a power cut; free when unset."""

from __future__ import annotations

import os
from collections.abc import Callable

CrashPoint = Callable[[str], None]

POINTS = (
    "before_accept",
    "after_accept",
    "after_ack",
    "after_edit",
    "after_claim",
    "mid_stream",
    "after_model",
    "after_tool_calls",
    "after_note",
    "after_tool_run",
    "after_tool_results",
    "after_answer",
    "after_delivered",
    "after_put_back",
    "after_slice",
    "before_reminder",
    "after_reminder",
    "after_sample",
    "after_link",
    "after_feedback",
    "after_read",
    "after_ask_human",
    "after_handover",
    "after_operator_reply",
    "mid_login",
    "mid_settings",
    "after_job_claim",
    "after_flush_model",
    "after_flush",
    "after_summary_model",
    "after_compaction",
    "after_tidy",
    "before_hearing",
    "after_hearing",
    "after_speech",
    "before_voice_note",
    "after_voice_note",
    "after_work_change",
    "before_indexing",
    "mid_listing",
    "telegram_after_store",
    "telegram_before_bubble",
    "telegram_after_bubble",
    "telegram_before_send",
    "telegram_after_send",
    "telegram_before_edit",
    "telegram_after_edit",
    "telegram_after_part",
    "telegram_before_notice",
    "telegram_after_notice",
    "telegram_after_press",
    "telegram_before_word",
    "telegram_after_word",
    "mid_erasure",
    "before_alert_opens",
    "after_alert_opens",
    "before_alert_send",
    "after_alert_send",
    "before_push",
    "after_push",
    "backup_after_dump",
    "backup_before_name",
    "restore_before_swap",
    "restore_mid_swap",
)
_EXIT_CODE = 9


def ignore_crash_point(_name: str) -> None:
    """What every process has that the fault suite does not aim at."""


def build_crash_point(point: str | None) -> CrashPoint:
    """`name` or `name:3` for its third passing. Raises ValueError for a name that no code passes."""
    if not point:
        return ignore_crash_point
    name, _, nth = point.partition(":")
    if name not in POINTS:
        raise ValueError(f"no crash point is called {name!r}; there are {', '.join(POINTS)}")
    left = [int(nth or 1)]

    def passing(here: str) -> None:
        if here == name:
            left[0] -= 1
            if left[0] == 0:
                os._exit(_EXIT_CODE)

    return passing
