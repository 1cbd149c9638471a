"""Small readings of text and JSON that the whole fake shares.

Lengths are UTF-16 units, as Telegram counts.
"""

from __future__ import annotations

import json
from typing import Any

Json = dict[str, Any]


def units(text: str) -> int:
    """Return the length of a text in UTF-16 units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def splits_a_pair(text: str, offset: int) -> bool:
    """Return whether this offset, in UTF-16 units, lies between the two halves of one character."""
    half = text.encode("utf-16-le", "surrogatepass")[offset * 2 : offset * 2 + 2]
    return len(half) == 2 and 0xDC <= half[1] <= 0xDF


def compact(value: object) -> str:
    """Return a value as JSON without spaces, with sorted keys."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def without_nones(**values: Any) -> Json:
    """Return the named values that are not None, as a dict."""
    return {name: value for name, value in values.items() if value is not None}
