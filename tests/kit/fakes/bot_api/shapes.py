"""Small readings of text and JSON that the whole fake shares; Telegram counts in UTF-16 units."""

from __future__ import annotations

import json
from typing import Any

Json = dict[str, Any]


def units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def splits_a_pair(text: str, offset: int) -> bool:
    """Whether this offset lies between the two halves of one character."""
    half = text.encode("utf-16-le", "surrogatepass")[offset * 2 : offset * 2 + 2]
    return len(half) == 2 and 0xDC <= half[1] <= 0xDF


def compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def without_nones(**values: Any) -> Json:
    return {name: value for name, value in values.items() if value is not None}
