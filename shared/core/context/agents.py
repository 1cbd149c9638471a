"""What an agent's config, its folder and the choices of a conversation come to: models, modes, layers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shared.core.context.prompts import MODES, SystemLayers, base_rules, default_manners, default_persona
from shared.core.context.workspace import (
    EMPTY,
    Workspace,
    about_person,
    has_character,
    instructions,
    memories,
)
from shared.core.session.session import View
from shared.core.session.session_state import SessionState
from shared.core.session.turns import Claim
from shared.core.values.messages import BEGINNERS
from shared.core.values.ttl_cache import recent

ASSISTANT = "Evertalk"
GOAL_CHARS = 500
LAYERS_KEPT = 64
"""Prompts of agents that a process remembers: between two turns of a person nothing of theirs changes."""
_NAME_CHARS = 80
_ZONE = re.compile(r"[A-Za-z0-9_+/-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """Under which a request is made: the same for all calls of a turn, so that its prefix stands still."""

    goal: str = ""
    mode: str = ""
    name: str = ""
    """The person's, or the group's."""
    timezone: str = ""
    group: bool = False
    private: bool = False
    """Whether what the folder knows of its one person may be shown."""
    turn: int = 0
    by_itself: bool = False
    """No person began the turn."""
    workspace: Workspace = EMPTY


def circumstances_of(
    whose: Claim | SessionState,
    view: View | None = None,
    *,
    workspace: Workspace = EMPTY,
    trusts_visitors: bool = False,
) -> Circumstances:
    """Those of a turn, or those that the last turn of a session had: ghost turns read the same prefix.

    `view` is theirs, where its entries came after the claim. `trusts_visitors`: whoever comes to the widget
    without a name is the owner of this installation; whom a program or a site brings never is.
    """
    group = whose.party_kind == "group"
    trusted = trusts_visitors and whose.channel == "web" and not whose.brought
    stranger = whose.anonymous and not trusted
    public = whose.agent_config.get("audience") == "public"
    turn = whose.turn if isinstance(whose, Claim) else max(1, whose.answered_turn)
    entries = (view or whose.view).entries
    begun_by = {entry.author for entry in entries if entry.turn == turn} & BEGINNERS
    return Circumstances(
        goal=whose.goal,
        mode=whose.mode,
        name=whose.display_name,
        timezone=whose.timezone or "",
        group=group,
        private=not (group or stranger or public),
        turn=turn,
        by_itself=begun_by == {"program"},
        workspace=workspace,
    )


def layers_for(config: Mapping[str, Any], at: Circumstances) -> SystemLayers:
    """In the order in which they win: rules, agent, mode, goal, memory, who the person is."""
    persona, name = str(config.get("persona") or ""), str(config.get("name") or ASSISTANT)
    mode = modes_of(config).get(at.mode, "") if at.mode else ""
    # Of the turn it matters whether it is the first, of the mode what it asks for: all else is one prompt.
    return _layers(persona, name, mode, replace(at, turn=min(at.turn, 2), mode=""))


@recent(LAYERS_KEPT)
def _layers(persona: str, name: str, mode: str, at: Circumstances) -> SystemLayers:
    workspace = at.workspace
    person = [_who(at), about_person(workspace) if at.private else ""]
    return SystemLayers(
        base=base_rules(),
        agent=persona or _agent(name, workspace),
        workspace=instructions(workspace, first_turn=at.turn == 1, by_itself=at.by_itself and at.private),
        mode=mode,
        goal=one_line(at.goal)[:GOAL_CHARS],
        memory=memories(workspace) if at.private else "",
        person="\n\n".join(part for part in person if part),
    )


def modes_of(config: Mapping[str, Any]) -> dict[str, str]:
    """What each mode asks for, by its name; an agent's own stand beside ours and may replace them."""
    own = config.get("modes")
    if not isinstance(own, Mapping):
        return dict(MODES)
    return {**MODES, **{str(name): str(text) for name, text in own.items()}}


def models_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What a person may choose from, in the operator's order; empty when there is nothing to choose."""
    offered = config.get("models")
    if not isinstance(offered, list | tuple):
        return ()
    return tuple(dict.fromkeys(str(name) for name in offered if name))


def with_chosen_model(config: Mapping[str, Any], chosen: str) -> Mapping[str, Any]:
    """The config as it holds in a session whose person chose a model that the operator still offers."""
    return {**config, "model": chosen} if chosen and chosen in models_of(config) else config


def without_tool(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The config as it holds where one tool would do nothing."""
    section = config.get("tools")
    tools = section if isinstance(section, Mapping) else {}
    denied = tools.get("deny") or ()
    denied = (denied,) if isinstance(denied, str) else denied
    return {**config, "tools": {**tools, "deny": [*denied, name] if isinstance(denied, Sequence) else [name]}}


def one_line(text: str) -> str:
    if not text.isprintable():
        text = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(text.split())


def _agent(name: str, workspace: Workspace) -> str:
    if has_character(workspace):
        return default_manners()
    return default_persona(assistant_name=one_line(name))


def _who(at: Circumstances) -> str:
    """Names are what strangers call themselves: one short line, never more."""
    name = one_line(at.name)[:_NAME_CHARS]
    if at.group:
        return f"This is a group{f' called “{name}”' if name else ''}: several people write here."
    zone = at.timezone if _ZONE.fullmatch(at.timezone) else ""
    told = (f"They go by the name “{name}”." if name else "", f"Their time zone is {zone}." if zone else "")
    return " ".join(part for part in told if part)
