"""The Telegram channel, built on aiogram, which its first import loads small.

Import it late: `bot.__main__` does, in a thread, when the client of the model is loaded.
"""

from __future__ import annotations

from bot.aiogram_loader import load_aiogram

load_aiogram()
