"""Every word that the bot itself says to people, in English and German."""

from __future__ import annotations

from bot.telegram.texts.english import Texts
from bot.telegram.texts.german import GermanTexts
from bot.telegram.texts.markdown_text import Markdown, Plain, escape_markdown

__all__ = ["Texts", "get_texts", "LANGUAGES", "Markdown", "Plain", "escape_markdown"]

LANGUAGES = ("en", "de")
_ENGLISH, _GERMAN = Texts(), GermanTexts()


def get_texts(language_code: str) -> Texts:
    """By Telegram's `language_code` (IETF, may be empty) or by a chat's own choice; English for all else."""
    return _GERMAN if language_code.lower().partition("-")[0].partition("_")[0] == "de" else _ENGLISH
