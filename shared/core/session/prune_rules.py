"""Pruning rules by tool, from an agent's configuration and from plug-ins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

from shared.core.values.errors import EvertalkError

Rule = Literal["usual", "never", "trim", "clear"]
"""`usual` prunes like the policy with other numbers, `never` keeps results whole, `trim` never clears,
`clear` clears all old results.
"""

Pruner = Callable[[str, str, Any], str | None]
"""Plug-in function `pruner(tool_name, text, pruning)` that returns a shorter text, or None for an unknown
tool.

It must be pure. `pruning` is the policy's `PruneStrategy`; a circular import prevents naming the type.
"""

_SECTION_KEYS = frozenset({"tools", "deny"})
_NUMBERS = ("over_chars", "head_chars", "tail_chars")
_RULE_KEYS = frozenset({"match", "rule", *_NUMBERS})
_MOST_CHARS = 1_000_000


class BadPruneRules(EvertalkError):
    """Section `pruning` of an agent's configuration that cannot be used; `reason` names every mistake and its
    place.
    """

    sentence = "The agent's pruning settings cannot be used."
    code = "bad_prune_rules"

    def __init__(self, reason: str) -> None:
        super().__init__(reason, advice=f"The agent's pruning settings cannot be used: {reason}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRule:
    """Pruning rule of an agent for the tools whose names match a glob."""

    match: str
    """Glob pattern of tool names, compared without case."""
    rule: Rule = "usual"
    over_chars: int | None = None
    """Characters above which a result is trimmed, or cleared by rule `clear`; None takes the policy's number.
    """
    head_chars: int | None = None
    """Characters kept at the start of a trimmed result; None takes the policy's number."""
    tail_chars: int | None = None
    """Characters kept at the end of a trimmed result; None takes the policy's number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneRules:
    """Pruning rules of an agent, with the pruning functions of plug-ins."""

    tools: tuple[ToolRule, ...] = ()
    """Rules in order of precedence: the first whose `match` fits a tool applies."""
    deny: tuple[str, ...] = ()
    """Globs of tools whose results are never shortened, whatever `tools` says."""
    pruners: tuple[Pruner, ...] = field(default=(), repr=False)
    """Functions of plug-ins, in the order in which they are tried."""

    def of(self, tool: str) -> ToolRule | None:
        """Return the first rule that fits a tool's name, `never` for tools in `deny`; None if only the policy
        applies.
        """
        name = tool.casefold()
        for glob in self.deny:
            if fnmatchcase(name, glob.casefold()):
                return ToolRule(match=glob, rule="never")
        return next((rule for rule in self.tools if fnmatchcase(name, rule.match.casefold())), None)

    def prune(self, tool: str, text: str, pruning: object) -> str | None:
        """Return the text of the first plug-in that makes it shorter; None if none of them does."""
        for pruner in self.pruners:
            shorter = pruner(tool, text, pruning)
            if shorter is not None and len(shorter) < len(text):
                return shorter
        return None


NO_RULES = PruneRules()
"""Rules of an agent without own rules."""


def prune_rules(section: object, pruners: Sequence[Pruner] = ()) -> PruneRules:
    """Return the rules of an agent's `pruning` section, with the functions of plug-ins; None is an empty
    section.

    Raises BadPruneRules with all mistakes.
    """
    if section is None:
        return PruneRules(pruners=tuple(pruners))
    if not isinstance(section, Mapping):
        raise BadPruneRules("`pruning` must be an object with `tools` and `deny`")
    wrong = [*_unknown("pruning", section, _SECTION_KEYS)]
    deny = _globs(section.get("deny", []), wrong)
    rules = _tools(section.get("tools", []), wrong)
    if wrong:
        raise BadPruneRules("; ".join(wrong))
    return PruneRules(tools=rules, deny=deny, pruners=tuple(pruners))


def _unknown(where: str, found: Mapping[str, Any], known: frozenset[str]) -> list[str]:
    return [
        f"`{where}.{key}` is not known (known are {', '.join(sorted(known))})"
        for key in sorted(map(str, found))
        if key not in known
    ]


def _globs(raw: object, wrong: list[str]) -> tuple[str, ...]:
    if not isinstance(raw, list) or not all(isinstance(glob, str) and glob for glob in raw):
        wrong.append("`pruning.deny` must be a list of names or globs such as fetch_*")
        return ()
    return tuple(raw)


def _tools(raw: object, wrong: list[str]) -> tuple[ToolRule, ...]:
    if not isinstance(raw, list):
        wrong.append("`pruning.tools` must be a list of rules")
        return ()
    made = (_tool(f"pruning.tools[{number}]", one, wrong) for number, one in enumerate(raw))
    return tuple(rule for rule in made if rule is not None)


def _tool(where: str, raw: object, wrong: list[str]) -> ToolRule | None:
    if not isinstance(raw, Mapping):
        wrong.append(f"`{where}` must be an object with `match` and `rule`")
        return None
    before = len(wrong)
    wrong += _unknown(where, raw, _RULE_KEYS)
    match, rule = raw.get("match"), raw.get("rule", "usual")
    if not isinstance(match, str) or not match:
        wrong.append(f"`{where}.match` must be a tool's name or a glob such as fetch_*")
    if rule not in get_args(Rule):
        wrong.append(f"`{where}.rule` is {rule!r}; choose one of {', '.join(get_args(Rule))}")
    numbers = {name: _number(f"{where}.{name}", raw.get(name), wrong) for name in _NUMBERS}
    if len(wrong) > before or not isinstance(match, str):
        return None
    return ToolRule(match=match, rule=rule, **numbers)


def _number(where: str, raw: object, wrong: list[str]) -> int | None:
    if raw is None:
        return None
    if isinstance(raw, bool) or not isinstance(raw, int) or not 0 <= raw <= _MOST_CHARS:
        wrong.append(f"`{where}` is {raw!r}; it must be a whole number from 0 to {_MOST_CHARS:,}")
        return None
    return raw
