"""Effective agent of a conversation: models, modes, layers, tools."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from shared.core.context.prompts import MODES, SystemLayers, base_rules, default_manners, default_persona
from shared.core.session.session import View
from shared.core.session.session_state import SessionState
from shared.core.session.turns import Claim
from shared.core.values.messages import BEGINNERS, ToolSpec
from shared.core.values.tokens import Count, estimate_tools
from shared.core.values.ttl_cache import ttl_cache

INSTRUCTIONS = ("AGENTS.md", "SOUL.md", "IDENTITY.md", "TOOLS.md")
"""How the agent works, who it is and what its tools are for: in every turn, in this order."""
BOOTSTRAP = "BOOTSTRAP.md"
"""For the first turn of a conversation only."""
PERSON = "USER.md"
MEMORY = "MEMORY.md"
MEMORY_FOLDER = "memory"
HEARTBEAT = "HEARTBEAT.md"
"""For turns that no person begins; ordinary turns go without."""
FILES = (*INSTRUCTIONS, BOOTSTRAP, PERSON, MEMORY, HEARTBEAT)
KNOWLEDGE_FOLDER = "knowledge"

FILE_CHARS = 20_000
MEMORY_CHARS = 20_000
"""Characters of all files in `memory/` together."""
MEMORY_FILES = 10
_HEAD, _TAIL = 0.7, 0.2
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_LEAST_CHARS = 200
"""A file of `memory/` of which no more than this would be left is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """The folder as it was read last: texts by the file's name, and what a person should put right."""

    files: tuple[tuple[str, str], ...] = ()
    problems: tuple[str, ...] = ()

    def text(self, name: str) -> str:
        return next((text for known, text in self.files if known == name), "")

    @property
    def days(self) -> tuple[tuple[str, str], ...]:
        """The files of `memory/`, newest first: they are named for their dates."""
        inside = [file for file in self.files if file[0].startswith(f"{MEMORY_FOLDER}/")]
        return tuple(sorted(inside, reverse=True))


EMPTY = Workspace()


def instructions(workspace: Workspace, *, first_turn: bool, by_itself: bool = False) -> str:
    """Return the instructions for everyone; `by_itself` is True if no person began the turn."""
    if not workspace.files:
        return ""
    names = (*INSTRUCTIONS, *((BOOTSTRAP,) if first_turn else ()), *((HEARTBEAT,) if by_itself else ()))
    return _render_files((name, workspace.text(name)) for name in names)


def has_character(workspace: Workspace) -> bool:
    """Whether its own files say who the agent is, so that our name for it would contradict them."""
    return any(workspace.text(name) for name in ("SOUL.md", "IDENTITY.md"))


def memories(workspace: Workspace) -> str:
    """Return the file about a person; not for groups."""
    left, days = MEMORY_CHARS, []
    for name, text in workspace.days[:MEMORY_FILES]:
        if left < min(len(text), _LEAST_CHARS):
            break
        days.append((name, cut(text, left)))
        left -= len(days[-1][1])
    return _render_files([(MEMORY, workspace.text(MEMORY)), *days])


def about_person(workspace: Workspace) -> str:
    """Return the file about a person; not for groups."""
    return _render_files([(PERSON, workspace.text(PERSON))])


def cut(text: str, most: int = FILE_CHARS) -> str:
    """Head and tail of what is too long, with a mark between them that says so; never longer than `most`."""
    if len(text) <= most:
        return text
    head, tail = int(most * _HEAD), int(most * _TAIL)
    mark = f"\n\n[… {len(text) - head - tail:,} characters of this file are left out here …]\n\n"
    if head + len(mark) + tail > most:
        return text[:most]
    return text[:head] + mark + text[-tail:]


def shrink(workspace: Workspace, share: float) -> Workspace:
    """Every file cut to this share of itself."""
    files = tuple((name, cut(text, int(share * len(text)))) for name, text in workspace.files)
    return replace(workspace, files=files)


def clean(text: str) -> str:
    """Lines as `\\n`, nothing that a database or a terminal would choke on."""
    return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).strip()


def _render_files(files: Iterable[tuple[str, str]]) -> str:
    return "\n\n".join(f"[{name}]\n{text}" for name, text in files if text)


ASSISTANT = "Evertalk"
GOAL_CHARS = 500
LAYERS_KEPT = 64
"""Prompts of agents that a process keeps, since they rarely change between turns."""
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
    """Return the circumstances of a turn, or of a session's last one, so that silent turns read the same
    prefix.

    `view` is theirs if its entries came after the claim. `trusts_visitors`: an anonymous visitor of the
    widget counts as the owner; people of programs and sites never do.
    """
    group = whose.contact_kind == "group"
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


GUEST_RULES = (
    "You are a guest in this chat: you see the question and the message that it replies to, nothing else of "
    "the chat. Everybody there reads your answer. Answer in one message of at most 2,000 characters, without "
    "files, in the language of the question."
)


def for_guests(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the config as it holds in a chat where the bot is a guest."""
    return {**config, "guest": True}


def layers_for(config: Mapping[str, Any], at: Circumstances) -> SystemLayers:
    """In the order in which they win: rules, agent, mode, goal, memory, who the person is."""
    persona, name = str(config.get("persona") or ""), str(config.get("name") or ASSISTANT)
    mode = modes_of(config).get(at.mode, "") if at.mode else ""
    # Of the turn it matters whether it is the first, of the mode what it asks for: all else is one prompt.
    place = GUEST_RULES if config.get("guest") is True else ""
    return _layers(persona, name, mode, place, replace(at, turn=min(at.turn, 2), mode=""))


@ttl_cache(LAYERS_KEPT)
def _layers(persona: str, name: str, mode: str, place: str, at: Circumstances) -> SystemLayers:
    workspace = at.workspace
    person = [place, _who(at), about_person(workspace) if at.private else ""]
    return SystemLayers(
        base=base_rules(),
        agent=persona or _agent(name, workspace),
        workspace=instructions(workspace, first_turn=at.turn == 1, by_itself=at.by_itself and at.private),
        mode=mode,
        goal=join_lines(at.goal)[:GOAL_CHARS],
        memory=memories(workspace) if at.private else "",
        person="\n\n".join(part for part in person if part),
    )


def modes_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of each mode by name; an agent's own add to ours or replace them."""
    own = config.get("modes")
    if not isinstance(own, Mapping):
        return dict(MODES)
    return {**MODES, **{str(name): str(text) for name, text in own.items()}}


def models_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the models that a person may choose, in the operator's order; empty without a choice."""
    offered = config.get("models")
    if not isinstance(offered, list | tuple):
        return ()
    return tuple(dict.fromkeys(str(name) for name in offered if name))


def with_chosen_model(config: Mapping[str, Any], chosen: str) -> Mapping[str, Any]:
    """The config as it holds in a session whose person chose a model that the operator still offers."""
    return {**config, "model": chosen} if chosen and chosen in models_of(config) else config


def with_chosen_compaction(config: Mapping[str, Any], chosen: str, limit: int | None) -> Mapping[str, Any]:
    """Return the config of a session.

    With `off` nothing is summarised unless a command asks for it. `limit` takes the place of the agent's own.
    """
    own: dict[str, Any] = {} if chosen != "off" else {"compact_auto": False}
    if limit is not None:
        own["compact_at"] = limit
    if not own:
        return config
    context = config.get("context")
    return {**config, "context": {**(context if isinstance(context, Mapping) else {}), **own}}


def without_tool(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the config with one more denied tool, which would have no effect."""
    section = config.get("tools")
    tools = section if isinstance(section, Mapping) else {}
    denied = tools.get("deny") or ()
    denied = (denied,) if isinstance(denied, str) else denied
    return {**config, "tools": {**tools, "deny": [*denied, name] if isinstance(denied, Sequence) else [name]}}


def join_lines(text: str) -> str:
    if not text.isprintable():
        text = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(text.split())


def _agent(name: str, workspace: Workspace) -> str:
    if has_character(workspace):
        return default_manners()
    return default_persona(assistant_name=join_lines(name))


def _who(at: Circumstances) -> str:
    """Describe the group or person that writes, for the prompt; empty if nothing is known.

    A name is what strangers call themselves, so it is cut to one short line.
    """
    name = join_lines(at.name)[:_NAME_CHARS]
    if at.group:
        return f"This is a group{f' called “{name}”' if name else ''}: several people write here."
    zone = at.timezone if _ZONE.fullmatch(at.timezone) else ""
    told = (f"They go by the name “{name}”." if name else "", f"Their time zone is {zone}." if zone else "")
    return " ".join(part for part in told if part)


# -- tools ----------------------------------------------------------------------------------------------

PROVIDER_TOOLS_AT_MOST = 16
SEARCH_ABOVE = 20
WINDOW_SHARE = 0.2
"""Share of a model's window for descriptions of tools, so that small windows leave room for messages."""
LOOK_AT_PICTURE = ToolSpec(
    name="look_at_picture",
    description="Show an older picture again, of which you see only a description.",
    input_schema={
        "type": "object",
        "properties": {
            "picture": {"type": "integer", "minimum": 1, "description": "N of (picture N: …)"},
        },
        "required": ["picture"],
        "additionalProperties": False,
    },
)
_ON_NOTES = frozenset({"search_memory", "update_memory", "forget_memory"})
_RANK = (
    "save_memory", "recall", "search_memory", "current_time", "fetch_url", "calculate",
    "forget_memory", "update_memory", "ask_human", "remind_me", "send_file", "look_at_picture", "delegate",
)  # fmt: skip
"""Tools that a small window is offered first; tools of servers follow."""
_MEMORY = ("save_memory", "recall")
"""Tools without which a conversation forgets; every window is offered these before all others."""
_GLOB = re.compile(r"[*?\[]")


_LIMITS = frozenset(
    {
        "additionalProperties",
        "maxItems",
        "maxLength",
        "maximum",
        "minItems",
        "minLength",
        "minimum",
        "pattern",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedTools:
    """Tools that an agent may use, by names and globs; `deny` takes precedence over `allow`."""

    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    servers: tuple[str, ...] | None = None
    """Names of MCP servers; None for all, also later ones."""
    provider: tuple[ToolSpec, ...] = ()
    """Tools that the provider runs itself, passed on as they are."""
    search_above: int = SEARCH_ABOVE
    """Number of servers' tools above which only names are sent, until they are searched for."""

    @classmethod
    def of(cls, section: object) -> AllowedTools:
        """Read `config["tools"]`; invalid parts have the effect of missing ones."""
        if not isinstance(section, Mapping):
            return cls()
        allow = _globs(section.get("allow"))
        return cls(
            allow=("*",) if allow is None else allow,
            deny=_globs(section.get("deny")) or (),
            servers=_globs(section.get("servers")),
            provider=_provider_tools(section.get("provider")),
            search_above=_count(section.get("search_above")),
        )

    def has(self, name: str) -> bool:
        return _fits(name, self.allow) and not _fits(name, self.deny)

    def has_server(self, name: str) -> bool:
        return self.servers is None or name in self.servers


def _fits(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _globs(raw: object) -> tuple[str, ...] | None:
    """Return the globs of a list or of a single text; None for any other value."""
    if isinstance(raw, str):
        return (raw,)
    if isinstance(raw, Sequence):
        return tuple(glob for glob in raw if isinstance(glob, str))
    return None


def _count(raw: object) -> int:
    return raw if isinstance(raw, int) and not isinstance(raw, bool) and raw >= 0 else SEARCH_ABOVE


def _provider_tools(raw: Any) -> tuple[ToolSpec, ...]:
    if not isinstance(raw, Sequence) or isinstance(raw, str):
        return ()
    found = (provider_tool(one) for one in raw)
    by_name = {spec.name: spec for spec in found if spec is not None}
    return tuple(by_name[name] for name in sorted(by_name))[:PROVIDER_TOOLS_AT_MOST]


def provider_tool(raw: object) -> ToolSpec | None:
    """A definition that the provider knows by its `type`; None where it has no type or no name."""
    if not isinstance(raw, Mapping):
        return None
    kind, name = raw.get("type"), raw.get("name")
    if not isinstance(kind, str) or not isinstance(name, str) or not kind or not name:
        return None
    return ToolSpec(name=name, description=kind, input_schema={}, provider=dict(raw))


def without_limits(tool: ToolSpec) -> ToolSpec:
    """Return a tool without limits of its arguments, which a refused call explains.

    A nested object with a description is reduced to it.
    """
    return replace(tool, input_schema=_strip_limits(tool.input_schema))


def _strip_limits(schema: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in schema.items() if name not in _LIMITS}
    if "enum" in kept:
        kept.pop("type", None)
    if fields := schema.get("properties"):
        kept["properties"] = {name: _render_field(field) for name, field in fields.items()}
    if items := schema.get("items"):
        kept["items"] = _strip_limits(items)
    return kept


def _render_field(schema: Mapping[str, Any]) -> dict[str, Any]:
    if schema.get("type") == "object" and "description" in schema:
        return {"type": "object", "description": schema["description"]}
    return _strip_limits(schema)


def useful_tools(tools: tuple[ToolSpec, ...], *, has_notes: bool) -> tuple[ToolSpec, ...]:
    """Without those that work on notes where there are none: the list stands before all else in a request."""
    return tools if has_notes else tuple(tool for tool in tools if tool.name not in _ON_NOTES)


@lru_cache(maxsize=256)
def pick_affordable(
    tools: tuple[ToolSpec, ...], most: int, count: Count, preferred: tuple[str, ...] = ()
) -> tuple[ToolSpec, ...]:
    """Return all tools if they take at most `most` tokens, else the most important ones, in their order.

    Memory comes first, then `preferred` names in their order, other built-in tools, and those of servers in
    the order of the list. A tool that is too large for all of the room takes none from those after it.
    """
    if estimate_tools(tools, count) <= most:
        return tools
    kept: list[ToolSpec] = []
    for tool in sorted(tools, key=lambda tool: _rank(tool, preferred)):
        if estimate_tools((*kept, tool), count) <= most:
            kept.append(tool)
        elif estimate_tools((tool,), count) <= most:
            break
    return tuple(tool for tool in tools if tool in kept)


def _rank(tool: ToolSpec, preferred: tuple[str, ...]) -> tuple[int, int]:
    if tool.name in _MEMORY:
        return 0, _MEMORY.index(tool.name)
    if tool.name in preferred:
        return 1, preferred.index(tool.name)
    if tool.name in _RANK:
        return 2, _RANK.index(tool.name)
    return 3, 0


def list_preferred_tools(config: Mapping[str, Any], used: Iterable[str] = ()) -> tuple[str, ...]:
    """Return names of tools that a small window keeps: those `used`, then whole names of the agent."""
    named = AllowedTools.of(config.get("tools")).allow
    return tuple(dict.fromkeys((*used, *(name for name in named if not _GLOB.search(name)))))
