"""Cache of results computed from people's text, which expire after minutes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, ParamSpec, TypeVar
from weakref import WeakSet

SECONDS_AT_MOST = 600.0
"""Seconds until a result expires, equal to the life of cached entries."""
_Asked = ParamSpec("_Asked")
_Answer = TypeVar("_Answer")
_KEPT: WeakSet[Any] = WeakSet()
_BEGAN = [0.0]


def ttl_cache(maxsize: int) -> Callable[[Callable[_Asked, _Answer]], Callable[_Asked, _Answer]]:
    """Cache results as `lru_cache` does, until `clear_recent` expires them."""

    def remembering(function: Callable[_Asked, _Answer]) -> Callable[_Asked, _Answer]:
        kept: Any = lru_cache(maxsize=maxsize)(function)
        _KEPT.add(kept)
        remembered: Callable[_Asked, _Answer] = kept
        return remembered

    return remembering


def clear_recent(now: float) -> None:
    """To be called every few seconds, by a clock that only goes forward."""
    if now - _BEGAN[0] < SECONDS_AT_MOST:
        return
    _BEGAN[0] = now
    for kept in list(_KEPT):
        kept.cache_clear()
