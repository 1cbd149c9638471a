"""Macros of operators: their actions, and variables in replies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from shared.core.values.errors import BadInput, EvertalkError

RUNNER = "*"
"""Assignee that stands for the operator who runs the macro."""
_VARIABLE = re.compile(r"\{\{([^{}]{0,100})\}\}")


class BadMacro(BadInput):
    """Macro without an action, or with actions that contradict each other."""

    sentence = "The macro has no action, or actions that contradict each other."
    code = "bad_macro"
    advice = "A macro needs at least one action."


class UnfilledVariable(BadInput):
    """Reply with a variable that is unknown or has no value."""

    sentence = "The reply has a variable without a value."
    code = "unfilled"
    advice = "The reply has a variable that is not filled in."


class HandoverOff(EvertalkError):
    """Action that needs handover, which is switched off by setting."""

    sentence = "Hand-over is switched off, so an operator cannot take a conversation."
    code = "handover_off"
    advice = "Hand-over is switched off: EVERTALK_HANDOVER=on allows it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Macro:
    """Actions on a conversation that operators run together under one name.

    `labels` are added, `reply` is sent and `resolve` ends the handover; empty and False do nothing. `version`
    counts changes.
    """

    name: str
    labels: tuple[str, ...]
    assignee: str
    """Login name of an operator, or `*` for the operator who runs the macro; empty assigns no one."""
    reply: str
    resolve: bool
    version: int
    changed_by: str
    changed_at: datetime


def check_macro(*, labels: tuple[str, ...], assignee: str, reply: str, resolve: bool) -> None:
    """Raise BadMacro if a macro has no action, or both resolves and assigns another operator."""
    if not (labels or assignee or reply or resolve):
        raise BadMacro
    if resolve and assignee not in ("", RUNNER):
        raise BadMacro(advice="A macro that resolves cannot assign another operator.")


def fill_variables(text: str, values: Mapping[str, str]) -> str:
    """Return `text` with each `{{name}}` replaced by its value; blanks inside the braces are ignored.

    Raises UnfilledVariable for an unknown variable or one with an empty value.
    """

    def fill(found: re.Match[str]) -> str:
        if value := values.get(found[1].strip(), ""):
            return value
        raise UnfilledVariable(found[1])

    return _VARIABLE.sub(fill, text)
