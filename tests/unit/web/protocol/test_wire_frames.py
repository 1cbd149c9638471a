"""Frames that say what the program is doing, in the words that every screen knows."""

from __future__ import annotations

from typing import Any

import pytest

from shared.core.session.turns import ContextMeasured, Organizing
from web.protocol import wire


def test_waiting_for_a_summary_moves_the_same_bar_as_the_job_itself() -> None:
    assert wire.organizing(Organizing(turn=4, job_id=17)) == {
        "t": "compaction.progress", "id": "17", "percent": 0, "stage": "waiting", "state": "running",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("outlook", "told"),
    [
        ({"summary_turns": 7}, {"turns": 7, "soon": False}),
        ({"summary_turns": 1, "summary_soon": True}, {"turns": 1, "soon": True}),
        ({"summary_withheld": "held", "summary_turns": 3}, {"withheld": "held"}),
    ],
)
def test_gauge_frame_says_when_the_next_summary_comes(outlook: dict[str, Any], told: dict[str, Any]) -> None:
    measured = ContextMeasured(
        used=10, limit=100, percent=10.0, status="ok", parts={}, estimated=False, **outlook
    )
    assert wire.ctx(measured)["next"] == told
