"""Cache of session views that this process has read or written, so that the next turn need not read them."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from shared.core.session.session import Entry
from shared.core.values.ttl_cache import SECONDS_AT_MOST

TOKENS_AT_MOST = 1_000_000
"""Maximum tokens of all cached views together; 4.3 MiB, measured with messages of 4 to 3,600 letters."""
TOKENS_OF_AN_ENTRY = 100
"""Tokens added per entry, since empty messages use memory too."""
_TOKENS: Callable[[Entry], int] = attrgetter("tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedView:
    """Entries of a session's live view after an answer."""

    version: int
    """Id of the transaction that last wrote the session's row; every change of a view writes that row."""
    entries: tuple[Entry, ...]
    """Entries as `load` would return them, with the answer last."""
    turn_times: tuple[datetime, ...]
    """Times at which the newest turns began; they decide how long the provider caches a request."""

    @property
    def weight(self) -> int:
        """Estimated tokens of the entries, with TOKENS_OF_AN_ENTRY for each."""
        return sum(map(_TOKENS, self.entries)) + TOKENS_OF_AN_ENTRY * len(self.entries)


class ViewCache:
    """Cache of the newest view per session in memory, limited in tokens and age; losing it loses no data."""

    def __init__(
        self,
        *,
        most_tokens: int = TOKENS_AT_MOST,
        seconds: float = SECONDS_AT_MOST,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most_tokens = most_tokens
        self._seconds = seconds
        self._now = now
        self._kept: OrderedDict[int, tuple[CachedView, int, float]] = OrderedDict()
        self._tokens = 0

    def take(self, session_id: int) -> CachedView | None:
        """Remove a session's view from the cache and return it.

        Returns None if it is missing or older than the limit of seconds. The caller compares its version with
        the database, and stores it again with the answer.
        """
        kept = self._drop(session_id)
        if kept is None or self._now() - kept[2] > self._seconds:
            return None
        return kept[0]

    def keep(self, session_id: int, view: CachedView) -> None:
        """Store a session's view; above the limit of tokens, the views stored longest ago are removed."""
        self._drop(session_id)
        weight = view.weight
        self._kept[session_id] = view, weight, self._now()
        self._tokens += weight
        while self._tokens > self._most_tokens:
            self._drop(next(iter(self._kept)))

    def evict_old(self) -> None:
        """Remove all views that are older than the limit of seconds."""
        while self._kept and self._now() - next(iter(self._kept.values()))[2] > self._seconds:
            self._drop(next(iter(self._kept)))

    def _drop(self, session_id: int) -> tuple[CachedView, int, float] | None:
        kept = self._kept.pop(session_id, None)
        if kept is not None:
            self._tokens -= kept[1]
        return kept
