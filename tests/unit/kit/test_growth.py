"""The helper for growth passes linear work and refuses quadratic work."""

from __future__ import annotations

import pytest

from tests.kit.growth import grows_linearly

SIZE = 800


@pytest.mark.parametrize(("power", "expected"), [(1, True), (2, False)])
async def test_linear_work_passes_and_quadratic_work_fails(power: int, expected: bool) -> None:
    async def work(size: int) -> None:
        for _ in range(size**power * (SIZE if power == 1 else 1)):
            pass

    assert await grows_linearly(work, SIZE) is expected
