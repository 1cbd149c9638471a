"""Configuration, API clients and stores that the handlers of one bot share."""

from __future__ import annotations

from dataclasses import dataclass, field

from aiogram import Bot

from bot.telegram.client.sender import Sender
from bot.telegram.inbound.updates import BotIdentity
from shared.bootstrap.stores import Stores
from shared.config.bots import BotConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class BotContext:
    """Configuration, API clients and stores of one bot."""

    config: BotConfig
    identity: BotIdentity
    bot: Bot
    sender: Sender
    stores: Stores
    public: bool
    """Whether anyone may use the bot; its texts then do not mention models and accounts."""
    has_handover: bool
    """Whether operators can take over conversations."""
    can_speak: bool
    """Whether answers can be read aloud."""
    compacting: set[int] = field(default_factory=set)
    """Ids of sessions that a command is compacting; the command itself reports the result."""
