"""What only a night has time for: with `./evertalk test --night` more cases are made up."""

from __future__ import annotations

import os

NIGHT = "TESTS_OF_THE_NIGHT"


def by_night(night: int, *, else_: int) -> int:
    return night if os.environ.get(NIGHT) else else_
