"""Tests that only a nightly run has time for: `./evertalk test --night` makes more cases."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from typing import Any

import pytest

NIGHT = "TESTS_OF_THE_NIGHT"


def at_night() -> bool:
    return bool(os.environ.get(NIGHT))


def by_night(night: int, *, else_: int) -> int:
    """Return `night` in a nightly run, else `else_`."""
    return night if at_night() else else_


def rest_at_night(cases: Iterable[Any], *, by_day: Container[Any]) -> list[Any]:
    """Return the cases as parameters of a test; those that are not named run with `--night` only.

    A case of several parameters is a tuple.
    """
    return [
        pytest.param(
            *(one if type(one) is tuple else (one,)), marks=() if one in by_day else pytest.mark.night
        )
        for one in cases
    ]
