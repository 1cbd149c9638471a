"""Parses JSON from Telegram, and checks whether it is an update that can be stored."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

MAX_DEPTH = 64
"""Maximum nesting of stored JSON; updates of Telegram have about 10 levels."""
MAX_UPDATE_ID = 2**62
"""Maximum of an update id, so that a database column holds it."""


class InvalidJson(ValueError):
    """Raised for bytes that are not JSON, or for JSON that cannot be stored."""


def parse_json(body: bytes, *, strict: bool = True) -> Any:
    """Parse JSON from Telegram. Raises InvalidJson for malformed JSON.

    With `strict`, NaN, infinite numbers and more than `MAX_DEPTH` levels raise, too. Otherwise such numbers
    become None, and the caller checks the depth.
    """
    constant, decimal = (_reject_constant, _parse_finite) if strict else (_return_none, _parse_finite_or_none)
    try:
        found = json.loads(body, parse_constant=constant, parse_float=decimal)
    except (ValueError, RecursionError) as error:
        raise InvalidJson(type(error).__name__) from None
    if strict and not is_shallow(found):
        raise InvalidJson("nested too deeply")
    return found


def is_update(found: Any) -> bool:
    """Return whether parsed JSON is an object with a valid `update_id`; no other field is checked."""
    if not isinstance(found, Mapping):
        return False
    number = found.get("update_id")
    return type(number) is int and 0 <= number <= MAX_UPDATE_ID


def is_shallow(found: Any, levels: int = MAX_DEPTH) -> bool:
    """Return whether JSON has at most `levels` nested objects and lists."""
    match found:
        case dict():
            return levels > 0 and all(is_shallow(item, levels - 1) for item in found.values())
        case list():
            return levels > 0 and all(is_shallow(item, levels - 1) for item in found)
        case _:
            return True


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(constant)


def _return_none(constant: str) -> None:
    return None


def _parse_finite_or_none(number: str) -> float | None:
    found = float(number)
    return found if math.isfinite(found) else None


def _parse_finite(number: str) -> float:
    found = float(number)
    if not math.isfinite(found):
        raise ValueError("a number beyond all measure")
    return found
