"""Shared parts of one bot's handlers: configuration, API clients and stores."""

from __future__ import annotations

from dataclasses import dataclass, field

from aiogram import Bot

from bot.telegram.client.sender import Sender
from bot.telegram.inbound.updates import BotIdentity
from shared.bootstrap.stores import Stores
from shared.config.bots import BotConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class BotContext:
    """One bot."""

    config: BotConfig
    identity: BotIdentity
    bot: Bot
    sender: Sender
    stores: Stores
    public: bool
    """Strangers use it: its texts do not mention models and accounts."""
    has_handover: bool
    """Operators can take over its conversations."""
    can_speak: bool
    """Its answers can be read aloud."""
    compacting: set[int] = field(default_factory=set)
    """Sessions whose summary a command of their chat makes and reports."""
