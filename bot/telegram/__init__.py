"""The Telegram channel, built on aiogram.

A message passes `inbound` (stores the update, then acknowledges it, and makes batches), `handlers` (store a
batch as a turn) and `outbound` (delivers the answer). Begin with `inbound.inbox`.

Importing this package loads aiogram with few models. `bot.__main__` imports it in a thread, after the client
of the model provider is loaded.
"""

from __future__ import annotations

from bot.aiogram_loader import load_aiogram

load_aiogram()
