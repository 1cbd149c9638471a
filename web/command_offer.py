"""Commands that the web offers: which ones each audience gets, and how lists describe them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shared.core.commands.commands import Audience, Command, commands_for
from shared.locales import catalogue
from web.auth.visitors import Site
from web.ports import CommandRunner, ModelInfo


@dataclass(slots=True, kw_only=True)
class CommandOffer:
    """Commands that the web offers, and their runner; the fields are replaced when settings change."""

    runner: CommandRunner
    model: ModelInfo
    has_handover: bool
    """Whether the settings let a visitor ask for an operator."""
    speaks: bool
    """Whether answers can be read aloud."""

    def list_for(self, audience: str, *, site: Site | None = None) -> tuple[Command, ...]:
        """Return an audience's commands; `/human` only if settings and site, unless None, allow handover."""
        humans = self.has_handover and (site is None or site.config.handover)
        return commands_for(
            channel="web",
            audience=audience_of(audience),
            humans=humans,
            demo=self.model.offline,
            speaks=self.speaks,
        )


def audience_of(word: str) -> Audience:
    """Return the audience that a site's stored value means; any unknown value means `public`."""
    return "personal" if word == "personal" else "public"


def build_command_entry(command: Command, language: str = "") -> dict[str, Any]:
    """Return `{name, description, section}` of a command for a menu, and `args` if it takes any."""
    args = {"args": command.args} if command.args else {}
    section = catalogue("commands", language).say(f"section_{command.section}")
    return {"name": command.name, "description": command.describe(language), **args, "section": section}
