"""What commands answer, in English and German: the same words on every channel."""

from __future__ import annotations

from shared.core.commands.commands import Command
from shared.core.commands.texts.english import CommandTexts
from shared.core.commands.texts.german import GermanCommandTexts
from shared.core.commands.texts.shown import (
    BudgetShown,
    ContextShown,
    FoundShown,
    LimitShown,
    LinkListed,
    Markdown,
    PinShown,
    ReminderShown,
    ReminderVerb,
    SettingsShown,
    UsageShown,
)

__all__ = [
    "LANGUAGES",
    "BudgetShown",
    "CommandTexts",
    "ContextShown",
    "FoundShown",
    "LimitShown",
    "LinkListed",
    "Markdown",
    "PinShown",
    "ReminderShown",
    "ReminderVerb",
    "SettingsShown",
    "UsageShown",
    "command_texts",
    "described",
]

LANGUAGES = ("en", "de")
_ENGLISH, _GERMAN = CommandTexts(), GermanCommandTexts()


def command_texts(language: str) -> CommandTexts:
    """By an IETF tag such as `de-AT`, which may be empty; English for every language that has none."""
    return _GERMAN if language.lower().replace("_", "-").split("-")[0] == "de" else _ENGLISH


def described(command: Command, language: str) -> str:
    """What a command does, for menus, pop-ups and help."""
    return command_texts(language).descriptions.get(command.name, command.description)
