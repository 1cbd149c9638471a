"""Text that can be kept and sent on: Postgres refuses NUL, and no encoding carries half a character."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

REPLACEMENT = "\ufffd"


def storable(text: str) -> str:
    """The same text with U+FFFD for what cannot be kept; two halves that meet become their character."""
    if "\x00" in text:
        text = text.replace("\x00", REPLACEMENT)
    return (
        text if is_whole(text) else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    )


def storable_json(value: Any) -> Any:
    """The same for every text of a JSON value, keys included."""
    match value:
        case str():
            return storable(value)
        case Mapping():
            return {storable_json(key): storable_json(item) for key, item in value.items()}
        case list() | tuple():
            return [storable_json(item) for item in value]
        case _:
            return value


def is_whole(text: str) -> bool:
    """No half of a surrogate pair stands alone, nor beside its other half."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def ends_in_half(text: str) -> bool:
    """Whether the other half of the last character may be in the piece that comes next."""
    return "\ud800" <= text[-1:] <= "\udbff"
