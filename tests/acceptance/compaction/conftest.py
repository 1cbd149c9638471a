"""For tests that hold over every API of a provider, each with its strict fake."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.fakes.messages_api import RunningFake, running_fake
from tests.kit.fakes.messages_api.harness import WIRES


@pytest.fixture(scope="module", params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(wire: str) -> Iterator[RunningFake]:
    fake = running_fake(wire=wire)
    fake.start()
    try:
        yield fake
    finally:
        fake.close()
