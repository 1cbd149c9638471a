"""Agent of a conversation as it applies to one request: workspace files, layers of the prompt, models and
tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache, reduce
from typing import Any

from shared.core.context.prompts import MODES, SystemLayers, base_rules, default_manners, default_persona
from shared.core.session.session import View
from shared.core.session.session_state import SessionState
from shared.core.session.turns import Claim
from shared.core.values.messages import BEGINNERS, ToolSpec
from shared.core.values.tokens import Count, estimate_tools
from shared.core.values.ttl_cache import ttl_cache

INSTRUCTIONS = ("AGENTS.md", "SOUL.md", "IDENTITY.md", "TOOLS.md")
"""Names of the files with instructions, used in every turn in this order."""
BOOTSTRAP = "BOOTSTRAP.md"
"""Name of the file that is used only in the first turn of a conversation."""
PERSON = "USER.md"
"""Name of the file that describes the agent's one person."""
MEMORY = "MEMORY.md"
"""Name of the file with the agent's lasting memory of its one person."""
MEMORY_FOLDER = "memory"
"""Name of the folder with the agent's memory by day."""
HEARTBEAT = "HEARTBEAT.md"
"""Name of the file that is used only in turns that no person begins, such as reminders."""
FILES = (*INSTRUCTIONS, BOOTSTRAP, PERSON, MEMORY, HEARTBEAT)
"""Names of all files of a workspace that are used, outside of its folders."""
KNOWLEDGE_FOLDER = "knowledge"
"""Folder with documents that recall searches."""

FILE_CHARS = 20_000
"""Most characters of one file that a request has."""
MEMORY_CHARS = 20_000
"""Most characters of all files in `memory/` together."""
MEMORY_FILES = 10
"""Most files in `memory/` that a request has, the newest ones."""
_HEAD, _TAIL = 0.7, 0.2
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_LEAST_CHARS = 200
"""Characters below which the rest of a file in `memory/` is left out instead of cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """Files of an agent's folder as last read, and problems, in English, that the operator should fix.

    `files` are pairs of name and text.
    """

    files: tuple[tuple[str, str], ...] = ()
    problems: tuple[str, ...] = ()

    def text(self, name: str) -> str:
        """Return the text of a file by its name; empty if there is none."""
        return next((text for known, text in self.files if known == name), "")

    @property
    def days(self) -> tuple[tuple[str, str], ...]:
        """Pairs of name and text of the files in `memory/`, newest first, since they are named by date."""
        inside = [file for file in self.files if file[0].startswith(f"{MEMORY_FOLDER}/")]
        return tuple(sorted(inside, reverse=True))


EMPTY = Workspace()
"""Workspace without files."""


def instructions(workspace: Workspace, *, first_turn: bool, by_itself: bool = False) -> str:
    """Return the files with instructions as prompt text, each below its name; empty without files.

    `first_turn` adds `BOOTSTRAP.md`; `by_itself` adds `HEARTBEAT.md`, for a turn that no person began.
    """
    if not workspace.files:
        return ""
    names = (*INSTRUCTIONS, *((BOOTSTRAP,) if first_turn else ()), *((HEARTBEAT,) if by_itself else ()))
    return _render_files((name, workspace.text(name)) for name in names)


def has_character(workspace: Workspace) -> bool:
    """Return whether the agent's files describe its character (`SOUL.md`, `IDENTITY.md`).

    Then the default persona is not used.
    """
    return any(workspace.text(name) for name in ("SOUL.md", "IDENTITY.md"))


def memories(workspace: Workspace) -> str:
    """Return `MEMORY.md` and the newest files in `memory/` as prompt text; empty without them.

    They are about the agent's one person: the caller must not use them for groups.
    """
    left, days = MEMORY_CHARS, []
    for name, text in workspace.days[:MEMORY_FILES]:
        if left < min(len(text), _LEAST_CHARS):
            break
        days.append((name, cut(text, left)))
        left -= len(days[-1][1])
    return _render_files([(MEMORY, workspace.text(MEMORY)), *days])


def about_person(workspace: Workspace) -> str:
    """Return the file `USER.md` as prompt text; empty without it. The caller must not use it for groups."""
    return _render_files([(PERSON, workspace.text(PERSON))])


def cut(text: str, most: int = FILE_CHARS) -> str:
    """Return a text of at most `most` characters: its head (70 percent) and tail (20 percent) with a mark
    between.

    A text that fits is unchanged; if the mark does not fit, only the head remains.
    """
    if len(text) <= most:
        return text
    head, tail = int(most * _HEAD), int(most * _TAIL)
    mark = f"\n\n[… {len(text) - head - tail:,} characters of this file are left out here …]\n\n"
    if head + len(mark) + tail > most:
        return text[:most]
    return text[:head] + mark + text[-tail:]


def shrink(workspace: Workspace, share: float) -> Workspace:
    """Return the workspace with each file cut to the share `share`, 0 to 1, of its length."""
    files = tuple((name, cut(text, int(share * len(text)))) for name, text in workspace.files)
    return replace(workspace, files=files)


def clean(text: str) -> str:
    """Return the text with line feeds as line ends, without control characters, surrogates and
    outer blanks.
    """
    return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).strip()


def _render_files(files: Iterable[tuple[str, str]]) -> str:
    return "\n\n".join(f"[{name}]\n{text}" for name, text in files if text)


ASSISTANT = "Evertalk"
"""Name of an assistant whose configuration gives no name."""
GOAL_CHARS = 500
"""Most characters of a goal in a request."""
LAYERS_KEPT = 64
"""Most prompts that a process caches; they rarely change between turns."""
_NAME_CHARS = 80
_ZONE = re.compile(r"[A-Za-z0-9_+/-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """Facts that a request depends on besides the log, the same for all calls of a turn.

    `turn` is the number of the turn; `goal`, `mode` and `timezone` are empty if not set.
    """

    goal: str = ""
    mode: str = ""
    name: str = ""
    """Name of the person or the group; empty if unknown."""
    timezone: str = ""
    group: bool = False
    private: bool = False
    """True if the request may contain what the agent's files say about its one person."""
    turn: int = 0
    by_itself: bool = False
    """True if no person began the turn, as for a reminder."""
    workspace: Workspace = EMPTY


def circumstances_of(
    whose: Claim | SessionState,
    view: View | None = None,
    *,
    workspace: Workspace = EMPTY,
    trusts_visitors: bool = False,
) -> Circumstances:
    """Return the circumstances of a claimed turn, or of a session's last answered turn for background calls.

    `view` holds the entries if they were loaded after the claim; None takes those of `whose`.
    `trusts_visitors` treats an anonymous visitor of the widget as the owner; people identified by programs
    and sites never count as the owner.
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
"""Rules for the model in a chat in which the bot is a guest."""


_NOT_FOR_GUESTS = ("ask_human", "remind_me", "send_file", "make_picture")
"""Names of tools that a guest chat cannot use, since the bot sends one text per question there."""


def for_guests(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a copy of the agent's configuration for a chat in which the bot is a guest: with `guest` set,
    and without tools that cannot work there.
    """
    guest: Mapping[str, Any] = {**config, "guest": True}
    return reduce(without_tool, _NOT_FOR_GUESTS, guest)


def layers_for(config: Mapping[str, Any], at: Circumstances) -> SystemLayers:
    """Return the layers of the system text for a request, each as a text that may be empty."""
    persona, name = str(config.get("persona") or ""), str(config.get("name") or ASSISTANT)
    mode = modes_of(config).get(at.mode, "") if at.mode else ""
    # Only whether it is the first turn matters, and the mode's text; all else is part of one cached prompt.
    place = GUEST_RULES if config.get("guest") is True else ""
    return _layers(persona, name, mode, place, replace(at, turn=min(at.turn, 2), mode=""))


@ttl_cache(LAYERS_KEPT)
def _layers(persona: str, name: str, mode: str, place: str, at: Circumstances) -> SystemLayers:
    workspace = at.workspace
    person = [place, _describe_person(at), about_person(workspace) if at.private else ""]
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
    """Return the instruction of each mode by its name: the built-in modes, then those of the agent.

    A mode of the agent replaces a built-in one of the same name.
    """
    own = config.get("modes")
    if not isinstance(own, Mapping):
        return dict(MODES)
    return {**MODES, **{str(name): str(text) for name, text in own.items()}}


def models_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the models that a person may choose, in the operator's order, each once.

    Empty if the agent offers none.
    """
    offered = config.get("models")
    if not isinstance(offered, list | tuple):
        return ()
    return tuple(dict.fromkeys(str(name) for name in offered if name))


def with_chosen_model(config: Mapping[str, Any], chosen: str) -> Mapping[str, Any]:
    """Return the agent's configuration with the person's chosen model, if the agent still offers it, else
    unchanged.
    """
    return {**config, "model": chosen} if chosen and chosen in models_of(config) else config


def with_chosen_compaction(config: Mapping[str, Any], chosen: str, limit: int | None) -> Mapping[str, Any]:
    """Return the agent's configuration with the conversation's own choices.

    `off` disables automatic summaries; commands still make them. `limit` replaces the agent's context limit
    in tokens; None keeps it.
    """
    own: dict[str, Any] = {} if chosen != "off" else {"compact_auto": False}
    if limit is not None:
        own["compact_at"] = limit
    if not own:
        return config
    context = config.get("context")
    return {**config, "context": {**(context if isinstance(context, Mapping) else {}), **own}}


def without_tool(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a copy of the agent's configuration with one more denied tool."""
    section = config.get("tools")
    tools = section if isinstance(section, Mapping) else {}
    denied = tools.get("deny") or ()
    denied = (denied,) if isinstance(denied, str) else denied
    return {**config, "tools": {**tools, "deny": [*denied, name] if isinstance(denied, Sequence) else [name]}}


def join_lines(text: str) -> str:
    """Return a text on one line with single blanks; unprintable characters become blanks."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(text.split())


def _agent(name: str, workspace: Workspace) -> str:
    if has_character(workspace):
        return default_manners()
    return default_persona(assistant_name=join_lines(name))


def _describe_person(at: Circumstances) -> str:
    """Return the sentences that describe the group or person for the prompt; empty if nothing is known.

    The name may come from a stranger, so it is cut to one short line.
    """
    name = join_lines(at.name)[:_NAME_CHARS]
    if at.group:
        return f"This is a group{f' called “{name}”' if name else ''}: several people write here."
    zone = at.timezone if _ZONE.fullmatch(at.timezone) else ""
    told = (f"They go by the name “{name}”." if name else "", f"Their time zone is {zone}." if zone else "")
    return " ".join(part for part in told if part)


# -- tools ----------------------------------------------------------------------------------------------

PROVIDER_TOOLS_AT_MOST = 16
"""Most tools of an agent that the provider runs itself."""
SEARCH_ABOVE = 20
"""Default number of servers' tools above which only their names are offered."""
WINDOW_SHARE = 0.2
"""Largest share of a model's window for descriptions of tools."""
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
"""Description of the tool with which a model sees an older picture again."""
_ON_NOTES = frozenset({"search_memory", "update_memory", "forget_memory"})
_RANK = (
    "save_memory", "recall", "search_memory", "current_time", "fetch_url", "calculate",
    "forget_memory", "update_memory", "ask_human", "remind_me", "send_file", "look_at_picture", "delegate",
)  # fmt: skip
"""Names of tools in the order in which a small window offers them; tools of servers follow."""
_MEMORY = ("save_memory", "recall")
"""Names of tools that every window offers before all others, since without them a conversation forgets."""
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
    """Tools that an agent may use, as names and globs with case; `deny` takes precedence over `allow`."""

    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    servers: tuple[str, ...] | None = None
    """Names of MCP servers whose tools are allowed; None allows all, also later ones."""
    provider: tuple[ToolSpec, ...] = ()
    """Definitions of tools that the provider runs itself, sent unchanged."""
    search_above: int = SEARCH_ABOVE
    """Number of servers' tools above which only their names are offered, to be searched for."""

    @classmethod
    def of(cls, section: object) -> AllowedTools:
        """Return the allowed tools of the section `config["tools"]`; missing and invalid parts allow all."""
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
        """Return whether a tool of this name is allowed, by names and globs."""
        return _fits(name, self.allow) and not _fits(name, self.deny)

    def has_server(self, name: str) -> bool:
        """Return whether tools of the MCP server with this name are allowed."""
        return self.servers is None or name in self.servers


def _fits(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _globs(raw: object) -> tuple[str, ...] | None:
    """Return the globs of a list or a single text; None for any other value."""
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
    """Return the tool that the provider runs itself, from its definition in the configuration.

    None if the definition is no object or lacks its type or name.
    """
    if not isinstance(raw, Mapping):
        return None
    kind, name = raw.get("type"), raw.get("name")
    if not isinstance(kind, str) or not isinstance(name, str) or not kind or not name:
        return None
    return ToolSpec(name=name, description=kind, input_schema={}, provider=dict(raw))


def without_limits(tool: ToolSpec) -> ToolSpec:
    """Return a tool whose schema lacks limits such as `maxLength`, to save tokens.

    A call that breaks a limit is refused with an explanation. A nested object with a description is reduced
    to that description.
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
    """Return the tools in their order, without those that search or change notes if the person has no
    notes.
    """
    return tools if has_notes else tuple(tool for tool in tools if tool.name not in _ON_NOTES)


@lru_cache(maxsize=256)
def pick_affordable(
    tools: tuple[ToolSpec, ...], most: int, count: Count, preferred: tuple[str, ...] = ()
) -> tuple[ToolSpec, ...]:
    """Return the tools that fit into `most` tokens, in their order; all of them if possible.

    Precedence: memory, `preferred` names in their order, other built-in tools, then tools of servers. The
    first that no longer fits ends the choice; a tool larger than all of the room is skipped.
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
    """Return the names of tools that a small window should keep: those `used`, then those that the agent
    allows by name.

    Globs in the agent's list count for nothing here.
    """
    named = AllowedTools.of(config.get("tools")).allow
    return tuple(dict.fromkeys((*used, *(name for name in named if not _GLOB.search(name)))))
