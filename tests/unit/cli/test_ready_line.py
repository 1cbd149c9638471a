"""The line that says Evertalk is ready counts from the start, however long that took."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shared.cli import up
from shared.cli.startup.assistant import StartAssistant


async def test_ready_seconds_count_from_the_start_after_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    measured: list[float] = []
    looks = iter([False] * 5 + [True])

    async def is_ready(_: object) -> bool:
        return next(looks)

    async def greet(_: object, *, seconds: float) -> frozenset[int]:
        measured.append(seconds)
        return frozenset()

    async def close() -> None:
        pass

    monkeypatch.setattr(up, "_is_ready", is_ready)
    monkeypatch.setattr(up, "_READY_SECONDS", 0.15)
    monkeypatch.setattr(up, "print_line", lines.append)
    supervisor: Any = SimpleNamespace(
        _settings=SimpleNamespace(data_dir=Path("/data")), _began=time.monotonic(), _everything={},
        _starting=SimpleNamespace(aclose=close), _announce_late=lambda *_: close(),
    )  # fmt: skip
    assistant = cast("StartAssistant", SimpleNamespace(greet=greet))
    await up._Supervisor._announce_when_ready(supervisor, "", assistant)
    assert len(lines) >= 2
    assert lines[0].startswith("Not ready after 0 s, still waiting.")
    assert measured[0] >= 0.5
