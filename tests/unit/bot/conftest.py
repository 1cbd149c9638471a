"""Loads aiogram as the bot does, before a test imports it: its models build themselves when they are used."""

from __future__ import annotations

from bot.aiogram_loader import load_aiogram

# At the import of this file: a fixture would come after the tests' own imports.
load_aiogram()
