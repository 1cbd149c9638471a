"""What everything that serves one bot works with: its configuration, its line to Telegram, its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot.telegram.client.bot_api import BotApi
from bot.telegram.client.sender import Sender
from bot.telegram.inbound.updates import BotIdentity
from bot.telegram.texts import Texts, get_texts
from shared.adapters.postgres.db.leases import PostgresLeases
from shared.adapters.postgres.people.handover import PostgresHandovers
from shared.adapters.postgres.telegram.access import PostgresTelegramAccess
from shared.adapters.postgres.telegram.chats import ChatRow, PostgresTelegramChats
from shared.adapters.postgres.telegram.inbox import PostgresTelegramInbox
from shared.adapters.postgres.turns.attachments import PostgresAttachments
from shared.adapters.postgres.turns.deliveries import PostgresDeliveries
from shared.adapters.postgres.turns.edits import PostgresEdits
from shared.adapters.postgres.turns.pins import PostgresPins
from shared.adapters.postgres.turns.uncertain_notices import PostgresUncertainNotices
from shared.bootstrap.app import App
from shared.config.bots import BotConfig
from shared.core.commands.commands import Audience


@dataclass(frozen=True, slots=True, kw_only=True)
class BotStores:
    """Telegram's rows, and those of the core that only this channel uses so far."""

    inbox: PostgresTelegramInbox
    places: PostgresTelegramChats
    access: PostgresTelegramAccess
    leases: PostgresLeases
    deliveries: PostgresDeliveries
    notices: PostgresUncertainNotices
    attachments: PostgresAttachments
    pins: PostgresPins
    edits: PostgresEdits
    handovers: PostgresHandovers

    @classmethod
    def of(cls, app: App) -> BotStores:
        pool = app.pool
        return cls(
            inbox=PostgresTelegramInbox(pool),
            places=PostgresTelegramChats(pool),
            access=PostgresTelegramAccess(pool),
            leases=PostgresLeases(pool),
            deliveries=PostgresDeliveries(pool),
            notices=PostgresUncertainNotices(pool),
            attachments=PostgresAttachments(pool),
            pins=PostgresPins(pool),
            edits=PostgresEdits(pool),
            handovers=PostgresHandovers(pool),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BotContext:
    """One bot."""

    config: BotConfig
    identity: BotIdentity
    api: BotApi
    sender: Sender
    stores: BotStores
    humans: bool = True
    """Operators may take its conversations."""

    @property
    def bot_id(self) -> int:
        return self.identity.bot_id

    @property
    def audience(self) -> Audience:
        return "public" if self.config.audience == "public" else "personal"

    @property
    def public(self) -> bool:
        return self.audience == "public"


def get_chat_texts(place: ChatRow) -> Texts:
    """In the language that the chat chose, or that its person's app speaks."""
    return get_texts(get_chat_language(place.settings))


def get_chat_language(settings: Mapping[str, object]) -> str:
    return str(settings.get("language") or settings.get("app_language") or "en")
