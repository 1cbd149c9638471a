"""Builds the command menus that Telegram shows, by kind of chat and language."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shared.core.commands.commands import Audience, Command, commands_for
from shared.locales import ENGLISH, list_languages

Scope = Literal["all_private_chats", "all_group_chats", "all_chat_administrators"]
"""Kind of chat that sees a menu: `type` of the Bot API's BotCommandScope."""
NAME_CHARS = 32
"""Maximum characters of a command's name at Telegram."""
DESCRIPTION_CHARS = 256
"""Maximum characters of a command's description at Telegram."""
MAX_COMMANDS = 100
"""Maximum commands of one menu at Telegram."""

_HIDDEN_IN_GROUPS = frozenset({"start"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandMenu:
    """Arguments of one call of `setMyCommands`."""

    scope: Scope
    language: str
    """Two-letter language code; empty for the menu of all languages without a menu."""
    commands: tuple[tuple[str, str], ...]
    """Pairs of a command name without slash and its description."""


def list_menu_languages() -> tuple[str, ...]:
    """Return the language codes of the menus: empty for the English default, then each two-letter code once.

    Of languages that share two letters, the first in the list gives the texts.
    """
    return ("", *dict.fromkeys(language[:2] for language in list_languages() if language != ENGLISH))


def build_command_menus(
    audience: Audience, *, humans: bool = True, speaks: bool = False
) -> tuple[CommandMenu, ...]:
    """Return the menus of a bot, one for each kind of chat and language.

    `audience` selects the commands. `humans` and `speaks` say whether the commands for handover and for voice
    answers are included. Menus of groups have no `/start`; those of group members have only the commands that
    everyone there may use.
    """
    table = commands_for(channel="telegram", audience=audience, humans=humans, speaks=speaks)
    in_groups = tuple(command for command in table if command.name not in _HIDDEN_IN_GROUPS)
    commands_by_scope: dict[Scope, tuple[Command, ...]] = {
        "all_private_chats": table,
        "all_group_chats": tuple(command for command in in_groups if command.groups == "everyone"),
        "all_chat_administrators": in_groups,
    }
    return tuple(
        CommandMenu(scope=scope, language=language, commands=_build_entries(commands, language))
        for scope, commands in commands_by_scope.items()
        for language in list_menu_languages()
    )


def _build_entries(commands: tuple[Command, ...], language: str) -> tuple[tuple[str, str], ...]:
    return tuple((command.name, command.describe(language)) for command in commands)
