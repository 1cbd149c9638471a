"""Config of an agent's row: checked as a whole, every problem named with its place."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from shared.core.context.agents import (
    EMPTY,
    WINDOW_SHARE,
    AllowedTools,
    Circumstances,
    Workspace,
    layers_for,
    list_preferred_tools,
    pick_affordable,
)
from shared.core.context.memory_tools import SAVE_MEMORY
from shared.core.context.overrides import BadContextConfig, agent_policy
from shared.core.context.prompts import system_text
from shared.core.session.budget import (
    ContextBudget,
    budget_for,
    refuse_heavy_fixed,
    refuse_limit_out_of_range,
)
from shared.core.session.policy import ContextPolicy, ContradictoryPolicy
from shared.core.session.prune_rules import BadPruneRules, prune_rules
from shared.core.values.errors import EvertalkError
from shared.core.values.messages import ToolSpec, storable
from shared.core.values.tokens import estimate_by_script, estimate_tools

MOST_CHARS = 200_000
"""Most characters of an agent's whole config as JSON."""
PERSONA_CHARS = 50_000
"""Most characters of an agent's persona."""
AGENT_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
"""Pattern of the whole name of an agent or a site."""
_MOST_NAMED_TOOLS = 10
"""Names of tools in one sentence of a remark."""
_MODE = r"^[a-z0-9][a-z0-9_-]{0,19}$"

Name = Annotated[str, Field(min_length=1, max_length=200)]
Globs = Annotated[list[Name], Field(max_length=200)]
"""At most 200 names of tools, which may have `*`."""
Dollars = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
"""Dollars from 0 to a million."""


class ConfigSection(BaseModel):
    """Base of sections of an agent's config, a site's config and the models file; immutable.

    Unknown keys and values of another type raise pydantic's ValidationError; an int may stand for a float.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ProviderTool(ConfigSection):
    """Tool that the provider runs; the provider defines its other fields."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    type: Name
    name: Name


class ToolChoice(ConfigSection):
    """Section `tools` of an agent: the tools that it may use; None leaves a choice to the deployment."""

    allow: Globs | None = None
    deny: Globs | None = None
    provider: list[ProviderTool] | None = None
    servers: Annotated[list[Name], Field(max_length=100)] | None = None
    """MCP servers whose tools the agent may use; None means all of them."""
    search_above: Annotated[int, Field(ge=0, le=1_000)] | None = None
    """Number of MCP tools above which two tools that search replace them; None for the default."""


class AgentCaps(ConfigSection):
    """Section `caps` of an agent: spending limits in dollars; None leaves the deployment's."""

    person_per_day_usd: Dollars | None = None
    session_usd: Dollars | None = None


class MemoryChoice(ConfigSection):
    """Section `memory` of an agent: most tokens that recall may add to a turn; None leaves the policy's."""

    recall_tokens: Annotated[int, Field(ge=0, le=4_000)] | None = None


class AgentConfig(ConfigSection):
    """Config of an agent, as in `agents.config`; None means that the deployment's setting applies."""

    name: Annotated[str, Field(min_length=1, max_length=80)] | None = None
    """Name of the assistant."""
    persona: Annotated[str, Field(max_length=PERSONA_CHARS)] | None = None
    workspace: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    """Folder of the agent's files: a name below the data folder's `workspaces`, or an absolute path."""
    model: Name | None = None
    models: Annotated[list[Name], Field(max_length=20)] | None = None
    """Models that people may choose with `/model`."""
    modes: (
        Annotated[
            dict[Annotated[str, Field(pattern=_MODE)], Annotated[str, Field(min_length=1, max_length=2_000)]],
            Field(max_length=20),
        ]
        | None
    ) = None
    summary_model: Name | None = None
    helper_model: Name | None = None
    """Model of the helpers that the tool `delegate` runs; None means the agent's own model."""
    preset: Any = None
    """Checked with `context` by `core/context/overrides.py`."""
    context: Any = None
    pruning: Any = None
    """Checked by `core/session/prune_rules.py`."""
    audience: Literal["personal", "public"] | None = None
    tools: ToolChoice | None = None
    caps: AgentCaps | None = None
    memory: MemoryChoice | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRow:
    """Agent with its config, the version of that, and the sites and bots where it answers, for operators.

    `sessions` is the number of its conversations.
    """

    id: int
    name: str
    config: Mapping[str, Any]
    version: int
    sessions: int = 0
    sites: tuple[str, ...] = ()
    bots: tuple[str, ...] = ()
    """Bots by user name if Telegram has returned that, else by id."""


class BadAgentConfig(EvertalkError):
    """An agent's row cannot be used as it is; every problem is named at once."""

    sentence = "An agent's row cannot be used as it is; every problem is named at once."
    code = "bad_agent_config"

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems), advice="\n".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDefaults:
    """Policy, models, tools and folders of the deployment, against which an agent's config is checked."""

    policy: ContextPolicy
    context_window: int | None = None
    operator_policy: Mapping[str, Any] = field(default_factory=dict)
    models: Collection[str] = ()
    """Names of known models, for remarks on others; empty if they are not known."""
    load_workspace: Callable[[str], Workspace] = lambda _folder: EMPTY
    tools: tuple[ToolSpec, ...] = (SAVE_MEMORY,)
    """Built-in tools, before the agent's own selection."""
    offered: tuple[ToolSpec, ...] | None = None
    """Tools that the agent selected, with those of servers; None if these are unknown."""
    servers: Collection[str] | None = None
    """Names of MCP servers; None if they are not known, so that none is refused."""
    workspaces: Path | None = None
    """Folder that a workspace must be in; None for an operator with a shell, who may name any."""
    stored_workspace: object = None
    """Workspace that is stored for the agent; it is accepted even outside `workspaces`."""


def read_config(text: str) -> Any:
    """Return the value of a config in JSON, without checking its keys.

    Raises BadAgentConfig for bad syntax, duplicate keys, NaN, or more than `MOST_CHARS` characters.
    """
    if len(text) > MOST_CHARS:
        raise BadAgentConfig([f"has {len(text):,} characters; {MOST_CHARS:,} is the most"])
    try:
        return json.loads(text, object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_number)
    except json.JSONDecodeError as error:
        raise BadAgentConfig(
            [f"line {error.lineno}, column {error.colno}: is not JSON: {error.msg.lower()}"]
        ) from error
    except RecursionError:
        raise BadAgentConfig(["is nested too deeply"]) from None


def check_config(config: object, defaults: AgentDefaults) -> tuple[str, ...]:
    """Check an agent's config; return remarks on probable mistakes, each a sentence.

    Raises BadAgentConfig with all problems, each with its place in the config.
    """
    if not isinstance(config, Mapping):
        raise BadAgentConfig([f"must be an object such as {{}}, not {_quote(config)}"])
    problems = [*find_unstorable(config), *_shape_problems(config), *_folder_problems(config, defaults)]
    problems += _pruning_problems(config)
    problems += find_unknown_servers(config, defaults.servers)
    own, numbers = _build_policy(config, defaults)
    problems += numbers
    if own is not None:
        problems += _room_problems(config, own, defaults)
    if problems:
        raise BadAgentConfig(problems)
    return tuple(_remarks(config, defaults))


def _shape_problems(config: Mapping[str, Any]) -> Iterator[str]:
    try:
        AgentConfig.model_validate(dict(config))
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            yield describe_problem(
                detail, _SECTIONS, {_MODE: "a mode's name has 1 to 20 of a-z, 0-9, _ and -"}
            )


def describe_problem(
    detail: ErrorDetails, sections: Mapping[tuple[str, ...], type[BaseModel]], patterns: Mapping[str, str]
) -> str:
    """Return a validation error of pydantic as a sentence that begins with its place.

    `sections` has the model of each section by its place, for suggestions of keys; `patterns` the sentence
    for each regular expression.
    """
    place = detail["loc"][:-1] if detail["loc"][-1:] == ("[key]",) else detail["loc"]
    where = _path(place)
    if detail["type"] == "extra_forbidden":
        return f"{where}: there is no such key{_meant(str(place[-1]), _known_keys(place[:-1], sections))}"
    if detail["type"] == "missing":
        return f"{where}: is missing"
    given = detail["input"]
    allowed = _ALLOWED.get(detail["type"])
    context = detail.get("ctx", {})
    told = allowed.format(**context) if allowed else detail["msg"].lower()
    if detail["type"] == "literal_error":
        near = _near(str(given), re.findall(r"'([^']*)'", str(context["expected"])))
        return f"{where}: must be {context['expected']}, not {_quote(given)}{near}"
    if detail["type"] == "string_pattern_mismatch":
        return f"{where}: {patterns[context['pattern']]}"
    if detail["type"] == "value_error":
        return f"{where}: {context['error']}"
    if detail["type"] in ("string_too_long", "too_long"):
        return f"{where}: {told}; this has {len(given):,}"
    return f"{where}: {told}, not {_quote(given)}"


_ALLOWED = {
    "string_type": "must be a text",
    "string_too_short": "must not be empty",
    "string_too_long": "may have {max_length} characters at most",
    "too_long": "may have {max_length} entries at most",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a number",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than_equal": "must be at most {le:g}",
}
_SECTIONS: dict[tuple[str, ...], type[BaseModel]] = {
    (): AgentConfig,
    ("tools",): ToolChoice,
    ("caps",): AgentCaps,
    ("memory",): MemoryChoice,
}


def _known_keys(
    place: Sequence[int | str], sections: Mapping[tuple[str, ...], type[BaseModel]]
) -> Collection[str]:
    section = sections.get(tuple(map(str, place)))
    return tuple(field.alias or name for name, field in section.model_fields.items()) if section else ()


def _path(place: Sequence[int | str]) -> str:
    told = ""
    for step in place:
        told += f"[{step}]" if isinstance(step, int) else f".{step}" if told else str(step)
    return told


def _meant(name: str, known: Collection[str]) -> str:
    return _near(name, known) or f"; choose one of {', '.join(sorted(known))}"


def _near(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name.lower(), known, 1)
    return f"; did you mean {near[0]}?" if near else ""


def _quote(value: object) -> str:
    told = json.dumps(value, ensure_ascii=False, default=repr)
    return told if len(told) <= 60 else told[:59] + "…"


def find_unstorable(value: object, place: tuple[int | str, ...] = ()) -> Iterator[str]:
    """Yield a problem, with its place, for each text with characters that the database cannot store."""
    if isinstance(value, str):
        if storable(value) != value:
            yield f"{_path(place)}: holds characters that cannot be stored"
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from find_unstorable(str(key), place)
            yield from find_unstorable(inner, (*place, str(key)))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from find_unstorable(inner, (*place, number))


def _folder_problems(config: Mapping[str, Any], defaults: AgentDefaults) -> Iterator[str]:
    folder = config.get("workspace")
    if not isinstance(folder, str) or not folder:
        return
    path = PurePath(folder)
    if not path.is_absolute() and ".." in path.parts:
        yield f"workspace: must be a name below workspaces, or an absolute path, not {_quote(folder)}"
    elif path == PurePath(path.anchor) or folder.strip() in (".", "~"):
        yield f"workspace: must be a folder of its own, not {_quote(folder)}"
    elif (
        defaults.workspaces is not None
        and folder != defaults.stored_workspace
        and not _is_below(folder, defaults.workspaces)
    ):
        yield (
            f"workspace: must be a name below workspaces, not {_quote(folder)}; a folder elsewhere is set "
            "in a shell, with ./evertalk agent edit NAME"
        )


def _is_below(folder: str, root: Path) -> bool:
    """Return whether a folder, relative to `root` or absolute, is `root` or below it.

    Symbolic links are not resolved, since only a person with a shell can make them. False if the path is
    invalid.
    """
    try:
        whole = os.path.normpath(root / Path(folder).expanduser())
    except (RuntimeError, ValueError):
        return False
    return Path(whole).is_relative_to(os.path.normpath(root))


def _pruning_problems(config: Mapping[str, Any]) -> Iterator[str]:
    try:
        prune_rules(config.get("pruning"))
    except BadPruneRules as error:
        yield from (part.replace("`", "") for part in str(error).split("; "))


def find_unknown_servers(config: Mapping[str, Any], known: Collection[str] | None) -> Iterator[str]:
    """Yield a problem for each MCP server in a config that is not in `known`; none if `known` is None."""
    if known is None:
        return
    for number, name in enumerate(AllowedTools.of(config.get("tools")).servers or ()):
        if name not in known:
            meant = _near(name, known) or ", so add it under MCP servers or take it out of this list"
            yield f"tools.servers[{number}]: there is no server {_quote(name)}{meant}"


def _build_policy(
    config: Mapping[str, Any], defaults: AgentDefaults
) -> tuple[ContextPolicy | None, tuple[str, ...]]:
    try:
        own = agent_policy(
            defaults.policy, config, context_window=defaults.context_window, given=defaults.operator_policy
        )
    except BadContextConfig as error:
        return None, tuple(map(_with_place, error.problems))
    return own, ()


def _with_place(problem: str) -> str:
    return problem if problem.startswith(("preset:", "context")) else f"context: {problem}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveConfig:
    """Policy, token budget, tools and system prompt that result from an agent's config and the defaults."""

    policy: ContextPolicy
    inherited: ContextPolicy
    """Policy without the agent's own numbers."""
    budget: ContextBudget
    """Token budget for the window of the policy; a model with a smaller window has less."""
    tools: tuple[str, ...]
    prompt: str
    """The whole system prompt, as the first turn of a known person reads it."""
    prompt_tokens: int


def resolve_effective_config(config: Mapping[str, Any], defaults: AgentDefaults) -> EffectiveConfig:
    """Return the policy, token budget, tools and system prompt of an agent. Raises BadAgentConfig."""
    check_config(config, defaults)
    own, _ = _build_policy(config, defaults)
    inherited, _ = _build_policy({**config, "context": None}, defaults)
    assert own is not None, "it was checked"
    prompt, offered = _prompt(config, defaults), _list_offered(config, own, defaults)
    budget = budget_for(own, own.context_window, own.max_output, _count_fixed(prompt, offered))
    return EffectiveConfig(
        policy=own, inherited=inherited or own, budget=budget, tools=tuple(tool.name for tool in offered),
        prompt=prompt, prompt_tokens=estimate_by_script(prompt),
    )  # fmt: skip


def _room_problems(config: Mapping[str, Any], own: ContextPolicy, defaults: AgentDefaults) -> Iterator[str]:
    """Yield a problem, with its numbers, if system prompt and tools leave too little of the limit."""
    fixed = _count_fixed(_prompt(config, defaults), _list_offered(config, own, defaults))
    try:
        budget = budget_for(own, own.context_window, own.max_output, fixed)
        refuse_limit_out_of_range(own, budget)
        refuse_heavy_fixed(own, budget)
    except ContradictoryPolicy as error:
        yield f"context: {error}"


def _prompt(config: Mapping[str, Any], defaults: AgentDefaults) -> str:
    folder = config.get("workspace")
    files = defaults.load_workspace(folder) if isinstance(folder, str) else EMPTY
    return system_text(layers_for(config, Circumstances(workspace=files, private=True, turn=1)))


def _list_wanted(config: Mapping[str, Any], defaults: AgentDefaults) -> tuple[ToolSpec, ...]:
    """Return the tools that an agent may use."""
    allowed = AllowedTools.of(config.get("tools"))
    built_in = (*(tool for tool in defaults.tools if allowed.has(tool.name)), *allowed.provider)
    return built_in if defaults.offered is None else defaults.offered


def _list_offered(
    config: Mapping[str, Any], own: ContextPolicy, defaults: AgentDefaults
) -> tuple[ToolSpec, ...]:
    """Return the tools that a window of this size is offered."""
    room = int(WINDOW_SHARE * own.context_window)
    preferred = list_preferred_tools(config)
    return pick_affordable(_list_wanted(config, defaults), room, estimate_by_script, preferred)


def _tool_remarks(config: Mapping[str, Any], own: ContextPolicy, defaults: AgentDefaults) -> Iterator[str]:
    """Yield a sentence about tools for which the window has no room."""
    wanted, offered = _list_wanted(config, defaults), _list_offered(config, own, defaults)
    left_out = [tool.name for tool in wanted if tool not in offered]
    if left_out:
        names = ", ".join(left_out[:_MOST_NAMED_TOOLS])
        more = f" and {len(left_out) - _MOST_NAMED_TOOLS} more" if len(left_out) > _MOST_NAMED_TOOLS else ""
        yield (
            f"tools: {len(left_out)} of {len(wanted)} do not fit a fifth of the window of "
            f"{own.context_window:,} tokens and are not offered: {names}{more}; name those that matter in "
            "tools.allow, or deny others"
        )


def _count_fixed(prompt: str, offered: tuple[ToolSpec, ...]) -> int:
    return estimate_by_script(prompt) + estimate_tools(offered, estimate_by_script)


def _remarks(config: Mapping[str, Any], defaults: AgentDefaults) -> Iterator[str]:
    named = [("model", config.get("model")), ("summary_model", config.get("summary_model"))]
    named.append(("helper_model", config.get("helper_model")))
    named += [(f"models[{number}]", name) for number, name in enumerate(config.get("models") or ())]
    for where, name in named:
        if name and defaults.models and name not in defaults.models:
            yield f"{where}: nothing is known of a model {_quote(name)}{_near(str(name), defaults.models)}"
    if not AllowedTools.of(config.get("tools")).has(SAVE_MEMORY.name):
        yield "tools: without save_memory nothing new is remembered about people"
    own, _ = _build_policy(config, defaults)
    if own is not None:
        yield from _tool_remarks(config, own, defaults)
    if folder := config.get("workspace"):
        yield from (f"workspace: {problem}" for problem in defaults.load_workspace(str(folder)).problems)


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise BadAgentConfig([f"{key}: stands twice in the same object"])
        found[key] = value
    return found


def _refuse_number(word: str) -> Any:
    raise BadAgentConfig([f"{word} is no number that JSON knows"])
