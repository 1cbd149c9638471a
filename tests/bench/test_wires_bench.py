"""A short replay on a wire: no invalid request, no lost message."""

from __future__ import annotations

import pytest

from tests.bench.wires import measure
from tests.kit.replay.strict_server import Wire


@pytest.mark.parametrize(
    "wire",
    [
        "openai",
        pytest.param("messages", marks=pytest.mark.night),
        pytest.param("responses", marks=pytest.mark.night),
    ],
)
@pytest.mark.timeout(300)
def test_short_replay_on_each_wire_has_no_invalid_request(wire: Wire) -> None:
    found = measure(turns=6, wires=(wire,))[wire]
    assert (found["sent"], found["answered"], found["lost"], found["invalid"]) == (6, 6, 0, 0)
    assert found["requests"] >= 6
