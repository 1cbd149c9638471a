"""Sends alerts to operators' chats by the first configured bot, from the process that holds its lease."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bot.telegram.client.calls import (
    CallDone,
    CallNotSent,
    CallRejected,
    CallUnknown,
    ChatClosed,
    ChatMoved,
    ChatUnreachable,
    Priority,
)
from bot.telegram.client.calls import CallOutcome as TelegramOutcome
from bot.telegram.client.calls import MessageSent as Arrived
from bot.telegram.client.sender import ChatTarget, Sender
from bot.telegram.client.session import create_bot
from bot.telegram.markup.entity_text import render, split
from shared.config.bots import load_bots
from shared.config.settings import Settings
from shared.core.ops import alerts
from shared.core.ops.alerts import Outcome, Sending
from shared.services.admin.alert_sender import AlertChannel, AlertSender


class TelegramAlertChannel:
    """Alert channel for one Telegram chat; follows a group that became a supergroup."""

    def __init__(self, sender: Sender, chat_id: int, *, dashboard_url: str) -> None:
        self._sender = sender
        self._chat_id = chat_id
        self._dashboard_url = dashboard_url

    async def send(self, sending: Sending) -> Outcome:
        """Send one alert and return its outcome in terms of the alert service."""
        text = alerts.message(sending.alert, sending.phase, dashboard_url=self._dashboard_url)
        outcome = await self._attempt(text)
        if isinstance(outcome, ChatMoved):
            self._chat_id = outcome.new_chat_id
            outcome = await self._attempt(text)
        match outcome:
            case Arrived() | CallDone():
                return alerts.Sent()
            case CallNotSent(retry_after=seconds):
                return alerts.NotSent(code="no_connection", retry_after=seconds)
            case CallUnknown():
                return alerts.AlertOutcomeUnknown(code="lost_connection")
            case ChatUnreachable() | ChatClosed():
                return alerts.AlertRefused(code="chat_gone")
            case CallRejected() | ChatMoved():
                return alerts.AlertRefused(code="telegram_refused")

    async def _attempt(self, text: str) -> TelegramOutcome:
        return await self._sender.send_text(
            ChatTarget(chat_id=self._chat_id), split(render(text))[0], priority=Priority.NOTICE,
            patience=10.0,
            tries=1,
        )  # fmt: skip


class TelegramAlertSender:
    """Sender of due alerts to the configured chats; sends none while another process holds the bot."""

    def __init__(
        self,
        alert_sender: AlertSender,
        *,
        bot_id: int | None,
        chats: Sequence[int],
        senders: Mapping[int, Sender],
        list_held_bots: Callable[[], Sequence[int]],
        dashboard_url: str,
    ) -> None:
        self._alert_sender = alert_sender
        self._bot_id = bot_id
        self._chats = tuple(chats)
        self._senders = senders
        self._list_held_bots = list_held_bots
        self._dashboard_url = dashboard_url
        self._channels: dict[str, AlertChannel] = {}

    async def send_due(self) -> int:
        """Send the due alerts and return how many were tried. Raises StorageUnavailable."""
        channels = self.open_channels()
        return await self._alert_sender.send_due(channels) if channels else 0

    def open_channels(self) -> Mapping[str, AlertChannel]:
        """Return an alert channel for each chat, by channel name.

        Empty while another process holds the bot.
        """
        sender = (
            self._senders.get(self._bot_id)
            if self._bot_id in self._list_held_bots() and self._bot_id
            else None
        )
        if sender is None:
            return {}
        for chat in self._chats:
            channel = TelegramAlertChannel(sender, chat, dashboard_url=self._dashboard_url)
            self._channels.setdefault(f"telegram:{chat}", channel)
        return self._channels


def build_outage_channels(settings: Settings) -> Mapping[str, AlertChannel]:
    """Return the alert channels by name for a bot process without database, made from its settings alone.

    Empty without a bot or without alert chats.
    """
    bots = load_bots(settings)
    if not bots or not settings.alert_telegram_chats:
        return {}
    bot = create_bot(bots[0].token.get_secret_value(), api_url=settings.telegram_api_url)
    sender, dashboard_url = Sender(bot), f"{settings.base_url}/dashboard"
    return {
        f"telegram:{chat}": TelegramAlertChannel(sender, chat, dashboard_url=dashboard_url)
        for chat in settings.alert_telegram_chats
    }
