"""Administrators of groups by Telegram, asked at most once a minute."""

from __future__ import annotations

import time

import structlog

from bot.telegram.client.bot_api import BotApi, CallRefused, TelegramUnavailable

log = structlog.get_logger(__name__)

CACHE_SECONDS = 60.0
MAX_CACHED = 5_000
_ADMINS = frozenset({"administrator", "creator"})


class GroupAdmins:
    """Administrators of groups for one bot; without an answer of Telegram a member counts as none."""

    def __init__(self, api: BotApi) -> None:
        self._api = api
        self._cache: dict[tuple[int, int], tuple[float, bool]] = {}

    async def is_admin(self, chat_id: int, user_id: int) -> bool:
        if user_id == chat_id:
            return True  # an anonymous administrator speaks as the group itself
        cached = self._cache.get((chat_id, user_id))
        if cached is not None and time.monotonic() - cached[0] < CACHE_SECONDS:
            return cached[1]
        try:
            member = await self._api.call("getChatMember", {"chat_id": chat_id, "user_id": user_id})
        except (CallRefused, TelegramUnavailable) as error:
            log.warning("group_admin_lookup_failed", chat_id=chat_id, reason=str(error))
            return False
        found = isinstance(member, dict) and member.get("status") in _ADMINS
        if len(self._cache) >= MAX_CACHED:
            self._cache.clear()
        self._cache[chat_id, user_id] = time.monotonic(), found
        return found
