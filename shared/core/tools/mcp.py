"""Servers of the Model Context Protocol: their definition in the operator's file, and their tools in our
form.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shared.core.values.messages import ToolSpec

NAME_CHARS = 64
"""Most characters of a tool's name that all providers accept."""
DESCRIPTION_CHARS = 1_024
"""Characters of a tool's description that the model reads; the rest is cut."""
SCHEMA_CHARS = 16_000
"""Most characters of a tool's input schema as JSON; a tool with more is left out."""
TOOLS_PER_SERVER = 64
"""Most tools of one server that models are offered."""
_SERVER_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]+")
_FIELD = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_COMBINED = ("oneOf", "anyOf", "allOf")
_LOCAL = "#/$defs/"


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """Definition of an MCP server: a program to start or an address; exactly one of `command` and `url` is
    set.

    `cwd` is the working folder of the program, None for that of Evertalk.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the whole definition, secrets included, in hexadecimal digits; it reveals none of it."""
        whole = [self.name, self.command, self.args, dict(self.env), self.cwd, self.url, dict(self.headers)]
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTool:
    """Tool as its MCP server describes it; all texts come from outside and are not checked yet."""

    name: str
    description: str
    schema: Any
    idempotent: bool = False
    annotations: Mapping[str, Any] = field(default_factory=dict)
    """Annotations by the server, such as `readOnlyHint`."""

    @property
    def read_only(self) -> bool:
        """True if the server declares the tool as read-only."""
        return self.annotations.get("readOnlyHint") is True


@dataclass(frozen=True, slots=True, kw_only=True)
class BorrowedTool:
    """Tool of an MCP server that models are offered; `spec` has the name that models see."""

    server: str
    name: str
    """Name of the tool at its server."""
    spec: ToolSpec
    idempotent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutTool:
    """Tool of an MCP server that is not offered to models, with the reason in English."""

    server: str
    name: str
    reason: str


def servers_in(text: str, environment: Mapping[str, str]) -> tuple[tuple[McpServer, ...], tuple[str, ...]]:
    """Return the usable servers in the text of an `mcp.json`, sorted by name, and the problems of the others.

    `environment` has the variables that `${NAME}` in the file refers to. Problems are English sentences, one
    for each unusable server, or a single one if the whole text is unusable. Never raises.
    """
    try:
        section = _section(text)
    except _Unusable as error:
        return (), (str(error),)
    found: list[McpServer] = []
    problems: list[str] = []
    for name in sorted(section):
        try:
            found.append(_server(name, section[name], environment))
        except _Unusable as error:
            problems.append(f"{str(name)[:40]}: {error}")
    return tuple(found), tuple(problems)


def server_names(text: str) -> frozenset[str]:
    """Return the names of all servers in the text of an `mcp.json`, unusable ones included.

    Empty if the text cannot be read. Never raises.
    """
    try:
        return frozenset(map(str, _section(text)))
    except _Unusable:
        return frozenset()


class _Unusable(ValueError):
    pass


def _section(text: str) -> Mapping[str, Any]:
    try:
        whole = json.loads(text)
    except ValueError as error:
        raise _Unusable(f"it is no JSON: {error}") from error
    section = whole.get("mcpServers") if isinstance(whole, Mapping) else None
    if not isinstance(section, Mapping):
        raise _Unusable('it has no object called "mcpServers"')
    return section


def _server(name: str, raw: Any, environment: Mapping[str, str]) -> McpServer:
    if not _SERVER_NAME.fullmatch(name):
        raise _Unusable("a name has at most 32 letters, digits, _ and -")
    if not isinstance(raw, Mapping):
        raise _Unusable("it is no object")
    command, url = raw.get("command"), raw.get("url")
    if isinstance(command, str) == isinstance(url, str):
        raise _Unusable('it needs either "command" or "url"')
    if isinstance(url, str):
        address = _fill(url, environment)
        if not address.startswith(("http://", "https://")):
            raise _Unusable('"url" begins with http:// or https://')
        return McpServer(name=name, url=address, headers=_words(raw, "headers", environment))
    args = raw.get("args", [])
    if not isinstance(args, list) or not all(isinstance(one, str) for one in args):
        raise _Unusable('"args" is no list of texts')
    cwd = raw.get("cwd")
    if cwd is not None and not isinstance(cwd, str):
        raise _Unusable('"cwd" is no text')
    return McpServer(
        name=name,
        command=_fill(str(command), environment),
        args=tuple(_fill(one, environment) for one in args),
        env=_words(raw, "env", environment),
        cwd=None if cwd is None else _fill(cwd, environment),
    )


def _words(raw: Mapping[str, Any], key: str, environment: Mapping[str, str]) -> dict[str, str]:
    given = raw.get(key) or {}
    if not isinstance(given, Mapping) or not all(isinstance(value, str) for value in given.values()):
        raise _Unusable(f'"{key}" is no object of texts')
    return {str(name): _fill(value, environment) for name, value in given.items()}


def _fill(text: str, environment: Mapping[str, str]) -> str:
    """Return the text with each `${NAME}` replaced by the environment variable.

    Raises `_Unusable` if it is missing.
    """

    def value(found: re.Match[str]) -> str:
        try:
            return environment[found[1]]
        except KeyError:
            raise _Unusable(f"the environment has no {found[1]}") from None
        except ValueError as error:
            raise _Unusable(f"{found[1]}: {error}") from None

    return _VARIABLE.sub(value, text)


def borrow_tools(
    server: str, offered: Sequence[OfferedTool]
) -> tuple[tuple[BorrowedTool, ...], tuple[LeftOutTool, ...]]:
    """Return the offered tools that providers accept, in our form, and the others with the reason.

    Accepted tools are at most 64, the first by their own name; they are sorted by the name that models see,
    such as `mcp_server_tool`. Never raises.
    """
    taken: dict[str, BorrowedTool] = {}
    left_out: list[LeftOutTool] = []
    for tool in sorted(offered, key=lambda tool: tool.name):
        if len(taken) >= TOOLS_PER_SERVER:
            left_out.append(_leave_out(server, tool, f"a server may offer {TOOLS_PER_SERVER} tools"))
            continue
        try:
            schema = usable_schema(tool.schema)
        except _Unusable as error:
            left_out.append(_leave_out(server, tool, str(error)))
            continue
        name = _our_name(server, tool.name, taken)
        spec = ToolSpec(name=name, description=_describe(tool, server), input_schema=schema)
        taken[name] = BorrowedTool(server=server, name=tool.name, spec=spec, idempotent=tool.idempotent)
    return tuple(taken[name] for name in sorted(taken)), tuple(left_out)


def resolve_collisions(tools: Sequence[BorrowedTool]) -> tuple[BorrowedTool, ...]:
    """Return all tools sorted by name, renamed where tools of two servers have the same name.

    For example, tool `c` of server `a_b` and tool `b_c` of server `a` would both be `mcp_a_b_c`; the second
    gets a hash as suffix.
    """
    by_name: dict[str, BorrowedTool] = {}
    for tool in sorted(tools, key=lambda tool: (tool.server, tool.name)):
        name = tool.spec.name
        if name in by_name:
            name = _mark_name(name, f"{tool.server}\n{tool.name}")
        by_name[name] = replace(tool, spec=replace(tool.spec, name=name))
    return tuple(by_name[name] for name in sorted(by_name))


def _our_name(server: str, tool: str, taken: Mapping[str, object]) -> str:
    name = _ILLEGAL.sub("_", f"mcp_{server}_{tool}")
    if len(name) > NAME_CHARS or name in taken:
        return _mark_name(name, f"{server}\n{tool}")
    return name


def _mark_name(name: str, whole: str) -> str:
    """Return a name cut and ended with a hash of `whole`, so that names with the same beginning differ."""
    mark = hashlib.sha256(whole.encode(errors="replace")).hexdigest()[:6]
    return f"{name[: NAME_CHARS - 7]}_{mark}"


def _describe(tool: OfferedTool, server: str) -> str:
    text = _CONTROLS.sub(" ", tool.description).replace("<", "‹").strip()
    cut = text if len(text) <= DESCRIPTION_CHARS else f"{text[:DESCRIPTION_CHARS]}…"
    return cut or f"{_CONTROLS.sub(' ', tool.name)[:80]} of the server {server}."


def _leave_out(server: str, tool: OfferedTool, reason: str) -> LeftOutTool:
    return LeftOutTool(server=server, name=_CONTROLS.sub("?", tool.name)[:80], reason=reason)


def usable_schema(raw: Any) -> dict[str, Any]:
    """Return an input schema as providers accept it: an object without `oneOf`, `anyOf` or `allOf` at the
    top.

    Raises ValueError for a schema that cannot be converted, or has more than 16,000 characters.
    """
    if not isinstance(raw, Mapping):
        raise _Unusable("its schema is no object")
    schema = _resolve(dict(raw))
    schema.pop("$schema", None)
    if any(key in schema for key in _COMBINED):
        if not schema.get("properties"):
            raise _Unusable("its schema is a choice between several (oneOf, anyOf or allOf at the top)")
        # The server itself checks the parts that are left out here.
        schema = {key: value for key, value in schema.items() if key not in _COMBINED}
    if schema.setdefault("type", "object") != "object":
        raise _Unusable("its arguments are no object")
    properties = schema.setdefault("properties", {})
    if not isinstance(properties, Mapping):
        raise _Unusable("its schema is broken: properties is no object")
    for name in properties:
        if not _FIELD.fullmatch(str(name)):
            raise _Unusable(f"providers do not take a field called {str(name)[:40]!r}")
    if len(json.dumps(schema, default=str)) > SCHEMA_CHARS:
        raise _Unusable(f"its schema has more than {SCHEMA_CHARS:,} characters")
    return schema


def _resolve(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema, or the local definition that its `$ref` names.

    Raises `_Unusable` for other references.
    """
    pointer = schema.get("$ref")
    if not isinstance(pointer, str):
        return schema
    definitions = schema.get("$defs") or {}
    meant = definitions.get(pointer.removeprefix(_LOCAL)) if pointer.startswith(_LOCAL) else None
    if not isinstance(meant, Mapping) or "$ref" in meant:
        raise _Unusable("its schema points elsewhere")
    return {**meant, "$defs": definitions}
