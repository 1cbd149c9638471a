"""The bots of this deployment, as the bot process asks for them."""

from __future__ import annotations

from shared.config.bots import BotConfig, find_remarks, load_bots

__all__ = ["BotConfig", "load_bots", "find_remarks"]
