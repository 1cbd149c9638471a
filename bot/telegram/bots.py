"""The bots of this deployment, as the bot process asks for them."""

from __future__ import annotations

from shared.config.bots import BotConfig, configured_bots, remarks_about

__all__ = ["BotConfig", "configured_bots", "remarks_about"]
