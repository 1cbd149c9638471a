"""Compaction of a sliding window: turns that no request can send are hidden without a model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from shared.core.presets.catalog import preset
from shared.core.session.session_state import JobClaim
from shared.services.compaction import compactor
from shared.services.compaction.compactor import Compactor
from shared.services.compaction.flusher import FlushResult

JOB = JobClaim(
    id=7, kind="compact", session_id=1, key="key", trigger="window", payload={}, attempt=1, faults=0, epoch=1,
    worker_id=1,
)  # fmt: skip


class Session:
    """A session whose flush saves a note, with the services that a window compaction uses."""

    def __init__(self) -> None:
        self.notes = 0
        self.foreseen: list[int] = []

    async def load_state(self, _: int) -> Any:
        return SimpleNamespace(
            notes=self.notes,
            view=SimpleNamespace(base_turn=0, flushed_turn=0),
            with_sizes_of=lambda after: after,
        )

    async def build_next(self, _: Any) -> Any:
        return SimpleNamespace(policy=preset("steady"), channel="web", ratio=1.0)

    async def flush_before_compaction(self, *_: Any, through: int) -> FlushResult:
        self.notes += 1
        return FlushResult(through=through)

    async def foresee(self, state: Any, _: Any) -> Any:
        self.foreseen.append(state.notes)
        return state

    async def record_compaction(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(compaction_id=3, event_seq=5)

    async def announce(self, *_: Any) -> None:
        return None


async def test_sizes_after_a_window_compaction_include_the_notes_that_its_flush_saved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compactor, "window_through", lambda *_: 2)
    monkeypatch.setattr(compactor, "build_window_compaction", lambda *_, **__: None)
    session = Session()
    parts: Any = cast("Any", session)
    window = Compactor(
        store=parts, pace=parts, flusher=parts, silent_requests=parts, summariser=parts, announcer=parts,
        crash_point=lambda _: None, hooks=parts,
    )  # fmt: skip
    done = await window.compact(JOB)
    assert done.outcome == {"compaction": 3, "kind": "window", "turns": 2}
    assert session.foreseen == [1]
