"""Frames that say what the program is doing, in the words that every screen knows."""

from __future__ import annotations

from shared.core.session.turns import Organizing
from web.protocol import wire


def test_waiting_for_a_summary_moves_the_same_bar_as_the_job_itself() -> None:
    assert wire.organizing(Organizing(turn=4, job_id=17)) == {
        "t": "compaction.progress", "id": "17", "percent": 0, "stage": "waiting", "state": "running",
    }  # fmt: skip
