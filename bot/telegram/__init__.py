"""The Telegram channel, built on aiogram.

Importing this package loads aiogram with few models. `bot.__main__` imports it in a thread, after the client
of the model provider is loaded.
"""

from __future__ import annotations

from bot.aiogram_loader import load_aiogram

load_aiogram()
