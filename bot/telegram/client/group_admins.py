"""Looks up whether people are administrators of their group, and keeps each result for a minute."""

from __future__ import annotations

import time
from typing import Literal

import structlog

from bot.telegram.client.calls import CallDone, is_undecided
from bot.telegram.client.sender import Sender

log = structlog.get_logger(__name__)

CACHE_SECONDS = 60.0
"""Seconds for which a role is cached."""
MAX_CACHED = 5_000
"""Maximum cached roles; at more, the whole cache is dropped."""
_ADMINS = frozenset({"administrator", "creator"})

GroupRole = Literal["admin", "member", "unknown"]
"""Role of a person in a group; `unknown` if Telegram does not answer or postpones the call."""


class GroupAdmins:
    """Cached lookup of group roles by one bot."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._cache: dict[tuple[int, int], tuple[float, GroupRole]] = {}

    async def find_role(self, chat_id: int, user_id: int, *, patience: float) -> GroupRole:
        """Return the role of a person, from the cache or from Telegram.

        Waits at most `patience` seconds in the queue and through a rate limit, then returns `unknown`. If
        Telegram refuses the question, the role is `member`; both are not cached.
        """
        if user_id == chat_id:
            return "admin"  # an anonymous administrator writes with the id of the group
        cached = self._cache.get((chat_id, user_id))
        if cached is not None and time.monotonic() - cached[0] < CACHE_SECONDS:
            return cached[1]
        outcome = await self._sender.get_member(chat_id, user_id, patience=patience)
        if not isinstance(outcome, CallDone):
            log.warning("group_admin_lookup_failed", chat_id=chat_id, outcome=str(outcome))
            return "unknown" if is_undecided(outcome) else "member"
        role: GroupRole = "admin" if getattr(outcome.result, "status", "") in _ADMINS else "member"
        if len(self._cache) >= MAX_CACHED:
            self._cache.clear()
        self._cache[chat_id, user_id] = time.monotonic(), role
        return role
