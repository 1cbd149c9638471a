"""What only a night has time for: with `./evertalk test --night` more cases are made up."""

from __future__ import annotations

import os

NIGHT = "TESTS_OF_THE_NIGHT"


def at_night() -> bool:
    return bool(os.environ.get(NIGHT))


def by_night(night: int, *, else_: int) -> int:
    return night if at_night() else else_
