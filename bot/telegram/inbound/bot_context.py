"""What everything that serves one bot works with: its configuration, its line to Telegram, its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot.telegram.client.bot_api import BotApi
from bot.telegram.client.sender import Sender
from bot.telegram.inbound.updates import BotIdentity
from bot.telegram.texts import get_texts
from shared.adapters.postgres.telegram.chats import ChatRow
from shared.bootstrap.stores import Stores
from shared.config.bots import BotConfig
from shared.core.commands.commands import Audience
from shared.locales import Catalogue, catalogue


@dataclass(frozen=True, slots=True, kw_only=True)
class BotContext:
    """One bot."""

    config: BotConfig
    identity: BotIdentity
    api: BotApi
    sender: Sender
    stores: Stores
    humans: bool = True
    """Operators may take its conversations."""
    speaks: bool = False
    """Its answers can be read aloud."""

    @property
    def bot_id(self) -> int:
        return self.identity.bot_id

    @property
    def audience(self) -> Audience:
        return "public" if self.config.audience == "public" else "personal"

    @property
    def public(self) -> bool:
        return self.audience == "public"


def get_chat_texts(place: ChatRow) -> Catalogue:
    """In the language that the chat chose, or that its person's app speaks."""
    return get_texts(get_chat_language(place.settings))


def get_command_texts(place: ChatRow) -> Catalogue:
    return catalogue("commands", get_chat_language(place.settings))


def get_chat_language(settings: Mapping[str, object]) -> str:
    return str(settings.get("language") or settings.get("app_language") or "en")
