"""The script of a fake's misbehaviour: which request gets which fault, and how often."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

Json = dict[str, Any]
Asked = TypeVar("Asked")
Kinds = Mapping[str, type | tuple[type, ...]]


class BadScript(ValueError):
    """A rule that no request could match, or an action that this fake does not know."""


@dataclass(slots=True, kw_only=True)
class Rule:
    match: Json
    action: Json
    times: int = 1
    seen: int = field(default=0, init=False)
    used: int = field(default=0, init=False)

    def take(self) -> bool:
        self.seen += 1
        due = self.match.get("nth") in (None, self.seen)
        if not due or self.used == self.times:
            return False
        self.used += 1
        return True

    def as_json(self) -> Json:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Words(Generic[Asked]):
    """The vocabulary of a script's rules, and the function that matches a request with a rule."""

    matches: frozenset[str]
    actions: Kinds
    meets: Callable[[Json, Asked], bool]
    objection: Callable[[Json, Json], str]
    """Returns why a match and an action are wrong although all their names are known.

    "" if they are right.
    """

    def rule(self, said: Any) -> Rule:
        if not isinstance(said, dict) or set(said) - {"match", "times", "action"} or "action" not in said:
            raise BadScript(f"a rule has match, times and action: {said!r}")
        match, action, times = said.get("match", {}), said["action"], said.get("times", 1)
        if type(times) is not int:
            raise BadScript(f"times is a number: {times!r}")
        if unknown := (set(match) - self.matches) | (set(action) - set(self.actions)):
            raise BadScript(f"unknown in a rule: {', '.join(sorted(unknown))}")
        for name, value in action.items():
            kind = self.actions[name]
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                raise BadScript(f"{name} cannot be {value!r}")
        if objection := self.objection(match, action):
            raise BadScript(objection)
        return Rule(match=match, action=action, times=times)


class Script(Generic[Asked]):
    def __init__(self, words: Words[Asked]) -> None:
        self._words = words
        self.rules: list[Rule] = []

    def set(self, rules: object) -> None:
        self.rules = []
        self.extend(rules)

    def extend(self, rules: object) -> None:
        if not isinstance(rules, list):
            raise BadScript("a script is a list of rules")
        self.rules += [self._words.rule(rule) for rule in rules]

    def action_for(self, asked: Asked) -> Json:
        """Return the action for this request.

        Every matching rule counts the request; the first rule that is due decides, and its use is counted.
        """
        action: Json | None = None
        for rule in self.rules:
            if not self._words.meets(rule.match, asked):
                continue
            if action is None:
                action = rule.action if rule.take() else None
            else:
                rule.seen += 1
        return action or {}
