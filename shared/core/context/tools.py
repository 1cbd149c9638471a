"""Which tools an agent may use, by what its configuration says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from shared.core.values.model import ToolSpec
from shared.core.values.tokens import Count, estimate_tools

PROVIDER_TOOLS_AT_MOST = 16
SEARCH_ABOVE = 20
WINDOW_SHARE = 0.2
"""Of a model's window, for descriptions of tools: in a small one the conversation comes first."""
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
"""What a small window is offered first; tools of others come behind these."""


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
    """Names and globs; what is denied is denied, whatever else allows it."""

    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    servers: tuple[str, ...] | None = None
    """Names of MCP servers; None for all, also later ones."""
    provider: tuple[ToolSpec, ...] = ()
    """Tools that the provider runs itself, passed on as they are."""
    search_above: int = SEARCH_ABOVE
    """Of more tools of servers than this only the names are told, until they are searched for."""

    @classmethod
    def of(cls, section: object) -> AllowedTools:
        """From `config["tools"]`; what cannot be understood is as if it were not there."""
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
    """None where nothing is said; a single name may stand without its list."""
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
    """As a model reads it in every request: what a call must fit besides, it is told when one does not.

    An object inside that is described in words is shown by these words.
    """
    return replace(tool, input_schema=_unlimited(tool.input_schema))


def _unlimited(schema: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in schema.items() if name not in _LIMITS}
    if "enum" in kept:
        kept.pop("type", None)
    if fields := schema.get("properties"):
        kept["properties"] = {name: _shown_field(field) for name, field in fields.items()}
    if items := schema.get("items"):
        kept["items"] = _unlimited(items)
    return kept


def _shown_field(schema: Mapping[str, Any]) -> dict[str, Any]:
    if schema.get("type") == "object" and "description" in schema:
        return {"type": "object", "description": schema["description"]}
    return _unlimited(schema)


def useful_tools(tools: tuple[ToolSpec, ...], *, has_notes: bool) -> tuple[ToolSpec, ...]:
    """Without those that work on notes where there are none: the list stands before all else in a request."""
    return tools if has_notes else tuple(tool for tool in tools if tool.name not in _ON_NOTES)


@lru_cache(maxsize=256)
def affordable(tools: tuple[ToolSpec, ...], most: int, count: Count) -> tuple[ToolSpec, ...]:
    """All of them when they take at most so many tokens, else those that come first; the order stays."""
    if estimate_tools(tools, count) <= most:
        return tools
    kept: list[ToolSpec] = []
    for tool in sorted(tools, key=_rank):
        if estimate_tools((*kept, tool), count) > most:
            break
        kept.append(tool)
    return tuple(tool for tool in tools if tool in kept)


def _rank(tool: ToolSpec) -> tuple[int, str]:
    place = _RANK.index(tool.name) if tool.name in _RANK else len(_RANK)
    return place, tool.name
