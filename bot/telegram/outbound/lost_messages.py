"""Finds messages of the bot whose ids were lost, because Telegram's response to the request did not arrive.

Telegram numbers messages in the order in which it stores them, so a lost one has an id between an older
message and one sent later. The bot probes each id in between by ending its live location, which no message of
the bot has. The error differs for a message of the bot, of another account, and a missing one. The Bot API
does not promise these errors: after an unknown one, the person decides.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import structlog
from aiogram.methods import StopMessageLiveLocation

from bot.telegram.client.calls import CallRejected, Priority
from bot.telegram.client.sender import EDIT_PATIENCE_SECONDS, Sender
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.adapters.postgres.telegram.uncertain_notices import PostgresUncertainNotices, UncertainNotice

log = structlog.get_logger(__name__)

MOST_PROBES = 60
"""Maximum ids that are probed; between two messages of a chat there are rarely more than a few."""
_IS_OWN = re.compile(r"no live location", re.IGNORECASE)
_IS_NOT = re.compile(r"not found|can't be edited|MESSAGE_ID_INVALID", re.IGNORECASE)


class LostMessages:
    """Search for lost messages, for all bots of the process."""

    def __init__(self, store: PostgresUncertainNotices) -> None:
        self._store = store

    async def find(
        self, notice: UncertainNotice, chat: ChatRow, sender: Sender, *, before: int
    ) -> tuple[int, ...] | None:
        """Return ids of unknown messages of the bot between a turn's question and the message `before`, in
        order.

        None if Telegram did not answer clearly, or if there are more than MOST_PROBES ids. Raises
        StorageUnavailable.
        """
        span = await self._store.find_span(notice, bot_id=chat.bot_id, chat_id=chat.chat_id, before=before)
        if span is None:
            return None
        known = {*span.known_here, *sender.list_sent(chat.chat_id)}
        candidates = [number for number in range(span.after + 1, before) if number not in known]
        ordered = _order_probes(candidates, span.known_elsewhere)
        if len(ordered) > MOST_PROBES:
            log.info("lost_message_search_skipped", chat_id=chat.chat_id, ids=len(ordered))
            return None
        found = []
        for number in ordered:
            is_own = await _is_own(sender, chat.chat_id, number)
            if is_own is None:
                return None
            if is_own:
                found.append(number)
        return tuple(sorted(found))


def _order_probes(candidates: Iterable[int], elsewhere: Collection[int]) -> list[int]:
    """Return ids in the order in which to probe them: those known from other chats of the bot last.

    Private chats and small groups of a bot share one sequence of ids.
    """
    return sorted(candidates, key=lambda number: (number in elsewhere, number))


async def _is_own(sender: Sender, chat_id: int, message_id: int) -> bool | None:
    """Return whether the bot sent this message; None if Telegram's answer is unclear."""
    outcome = await sender.call(
        StopMessageLiveLocation(chat_id=chat_id, message_id=message_id),
        chat_id=chat_id, priority=Priority.SETTLE, patience=EDIT_PATIENCE_SECONDS,
        repeatable=True, counts=False,
    )  # fmt: skip
    if not isinstance(outcome, CallRejected):
        return None
    if _IS_OWN.search(outcome.reason):
        return True
    return False if _IS_NOT.search(outcome.reason) else None
