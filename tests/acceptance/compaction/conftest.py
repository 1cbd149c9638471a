"""For tests that hold over every API of a provider, each with its strict fake."""

from __future__ import annotations

import pytest

from tests.kit.fakes.messages_api.harness import WIRES


@pytest.fixture(scope="module", params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)
