"""The real model, the whole system in front of it, and what was seen, printed at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.config.settings import load_settings
from tests.acceptance.local_model.__main__ import NAME
from tests.acceptance.local_model.running import ENTRIES, RunningModel, missing
from tests.kit.replay.system import ReplayTarget, TemporaryInstallation

HERE = Path(__file__).parent
LONGEST_ANSWER = 24
ALL_SECONDS = 5_400


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Minutes of computing are for whoever asks for them, also where the model is installed."""
    asked = "local_model" in str(config.getoption("markexpr"))
    reason = missing() if missing() or asked else "run them with ./evertalk test local-model"
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.local_model)
            item.add_marker(pytest.mark.timeout(ALL_SECONDS))
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module")
async def model(run_folder: Path) -> AsyncIterator[RunningModel]:
    async with RunningModel(run_folder) as running:
        yield running


@pytest.fixture(scope="module", params=ENTRIES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
async def system(model: RunningModel, wire: str) -> AsyncIterator[ReplayTarget]:
    """All processes of `up`, with nothing changed but the model and the length of its answers."""
    settings = load_settings(models_file=model.models_file(wire), model=NAME, max_output=LONGEST_ANSWER)
    async with TemporaryInstallation(settings, window=None) as running:
        yield running


@pytest.fixture(scope="module")
def figures() -> list[str]:
    return _SEEN


_SEEN: list[str] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in _SEEN:
        terminalreporter.write_line(line)
