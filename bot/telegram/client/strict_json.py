"""JSON from outside: what Postgres could not hold, and what is nested without end, is found out here."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

MAX_DEPTH = 64
"""Telegram's own updates have some ten."""
MAX_UPDATE_ID = 2**62


class InvalidJson(ValueError):
    """These bytes are not JSON that we could keep."""


def parse_json(body: bytes, *, strict: bool = True) -> Any:
    """Raises NotJson. Not strict: numbers beyond measure are None, depth is for the caller to judge."""
    constant, decimal = (_refused, _finite) if strict else (_nothing, _finite_or_nothing)
    try:
        found = json.loads(body, parse_constant=constant, parse_float=decimal)
    except (ValueError, RecursionError) as error:
        raise InvalidJson(type(error).__name__) from None
    if strict and not is_shallow(found):
        raise InvalidJson("nested too deeply")
    return found


def is_update(found: Any) -> bool:
    """An object with a number of its own; what else is in it shows when it is read."""
    if not isinstance(found, Mapping):
        return False
    number = found.get("update_id")
    return type(number) is int and 0 <= number <= MAX_UPDATE_ID


def is_shallow(found: Any, levels: int = MAX_DEPTH) -> bool:
    match found:
        case dict():
            return levels > 0 and all(is_shallow(item, levels - 1) for item in found.values())
        case list():
            return levels > 0 and all(is_shallow(item, levels - 1) for item in found)
        case _:
            return True


def _refused(constant: str) -> NoReturn:
    raise ValueError(constant)


def _nothing(constant: str) -> None:
    return None


def _finite_or_nothing(number: str) -> float | None:
    found = float(number)
    return found if math.isfinite(found) else None


def _finite(number: str) -> float:
    found = float(number)
    if not math.isfinite(found):
        raise ValueError("a number beyond all measure")
    return found
