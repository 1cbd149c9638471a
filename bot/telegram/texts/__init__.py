"""Every word that the bot itself says to people, in English and German."""

from __future__ import annotations

from bot.telegram.texts.english import Texts
from bot.telegram.texts.german import German
from bot.telegram.texts.shown import Markdown, Plain, literal

__all__ = ["Texts", "texts_for", "LANGUAGES", "Markdown", "Plain", "literal"]

LANGUAGES = ("en", "de")
_ENGLISH, _GERMAN = Texts(), German()


def texts_for(language_code: str) -> Texts:
    """By Telegram's `language_code` (IETF, may be empty) or by a chat's own choice; English for all else."""
    return _GERMAN if language_code.lower().partition("-")[0].partition("_")[0] == "de" else _ENGLISH
