"""Cache for results computed from people's texts, emptied every few minutes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, ParamSpec, TypeVar
from weakref import WeakSet

SECONDS_AT_MOST = 600.0
"""Seconds after which cached results are dropped."""
_Asked = ParamSpec("_Asked")
_Answer = TypeVar("_Answer")
_KEPT: WeakSet[Any] = WeakSet()
_BEGAN = [0.0]


def ttl_cache(maxsize: int) -> Callable[[Callable[_Asked, _Answer]], Callable[_Asked, _Answer]]:
    """Return a decorator that caches up to `maxsize` results like `lru_cache`; `clear_recent` empties it."""

    def remembering(function: Callable[_Asked, _Answer]) -> Callable[_Asked, _Answer]:
        kept: Any = lru_cache(maxsize=maxsize)(function)
        _KEPT.add(kept)
        remembered: Callable[_Asked, _Answer] = kept
        return remembered

    return remembering


def clear_recent(now: float) -> None:
    """Empty all caches made by `ttl_cache` if 600 seconds have passed since they were last emptied.

    `now` is the time in seconds of a monotonic clock. Call it every few seconds.
    """
    if now - _BEGAN[0] < SECONDS_AT_MOST:
        return
    _BEGAN[0] = now
    for kept in list(_KEPT):
        kept.cache_clear()
