"""Commands that people may give on the web: which, to whom, and how lists show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shared.core.commands.commands import Audience, Command, commands_for
from shared.locales import catalogue
from web.auth.visitors import Site
from web.ports import CommandRunner, ModelInfo


@dataclass(slots=True, kw_only=True)
class CommandOffer:
    """Commands of this process and their runner. Changed settings replace the other fields."""

    runner: CommandRunner
    model: ModelInfo
    has_handover: bool
    """True if the settings let a person ask for an operator."""
    speaks: bool

    def list_for(self, audience: str, *, site: Site | None = None) -> tuple[Command, ...]:
        """Return the commands of an audience; `/human` only where an operator can be asked."""
        humans = self.has_handover and (site is None or site.config.handover)
        return commands_for(
            channel="web",
            audience=audience_of(audience),
            humans=humans,
            demo=self.model.offline,
            speaks=self.speaks,
        )


def audience_of(word: str) -> Audience:
    """Return the audience of a site's row; every unknown value is public."""
    return "personal" if word == "personal" else "public"


def build_command_entry(command: Command, language: str = "", *, typed: bool = False) -> dict[str, Any]:
    """Return a command as an entry of a list; `typed` adds the schema of its arguments, for programs."""
    entry: dict[str, Any] = {"name": command.name, "description": command.describe(language)}
    if command.args:
        entry["args"] = command.args
    if not typed:
        return {**entry, "section": catalogue("commands", language).say(f"section_{command.section}")}
    required = [one.name for one in command.arguments if one.required]
    return {**entry, "arguments": command.schema(), "required": required}
