"""Brings alerts to operators' chats: by the first configured bot, from the process that holds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bot.telegram.markup import render, split
from bot.telegram.outcomes import Done, Gone, Moved, NotSent, Rejected, Unknown
from bot.telegram.outcomes import Outcome as TelegramOutcome
from bot.telegram.outcomes import Sent as Arrived
from bot.telegram.pacing import Priority
from bot.telegram.sender import Sender, Where
from shared.core.ops import alerts
from shared.core.ops.alerts import Outcome, Sending
from shared.services.admin.alert_sender import Bringing, Carrier


class ChatOfOperators:
    """One chat. A group that became a supergroup is followed."""

    def __init__(self, sender: Sender, chat_id: int, *, dashboard_url: str) -> None:
        self._sender = sender
        self._chat_id = chat_id
        self._dashboard_url = dashboard_url

    async def send(self, sending: Sending) -> Outcome:
        words = alerts.message(sending.alert, sending.phase, dashboard_url=self._dashboard_url)
        outcome = await self._once(words)
        if isinstance(outcome, Moved):
            self._chat_id = outcome.new_chat_id
            outcome = await self._once(words)
        match outcome:
            case Arrived() | Done():
                return alerts.Sent()
            case NotSent(retry_after=seconds):
                return alerts.NotSent(code="no_connection", retry_after=seconds)
            case Unknown():
                return alerts.Unknown(code="lost_connection")
            case Gone():
                return alerts.Refused(code="chat_gone")
            case Rejected() | Moved():
                return alerts.Refused(code="telegram_refused")

    async def _once(self, words: str) -> TelegramOutcome:
        return await self._sender.send_text(
            Where(chat_id=self._chat_id), split(render(words))[0], priority=Priority.NOTICE, patience=10.0,
            tries=1,
        )  # fmt: skip


class TelegramAlerts:
    """Nothing is claimed while another process holds the bot."""

    def __init__(
        self,
        bringing: Bringing,
        *,
        bot_id: int | None,
        chats: Sequence[int],
        senders: Mapping[int, Sender],
        held: Callable[[], Sequence[int]],
        dashboard_url: str,
    ) -> None:
        self._bringing = bringing
        self._bot_id = bot_id
        self._chats = tuple(chats)
        self._senders = senders
        self._held = held
        self._dashboard_url = dashboard_url
        self._carriers: dict[str, Carrier] = {}

    async def bring(self) -> int:
        """Raises StorageUnavailable."""
        sender = self._senders.get(self._bot_id) if self._bot_id in self._held() and self._bot_id else None
        if sender is None or not self._chats:
            return 0
        for chat in self._chats:
            place = ChatOfOperators(sender, chat, dashboard_url=self._dashboard_url)
            self._carriers.setdefault(f"telegram:{chat}", place)
        return await self._bringing.bring(self._carriers)
