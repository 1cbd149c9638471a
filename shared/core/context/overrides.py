"""Context settings of an agent: a preset and single values, checked field by field."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Union, get_args, get_origin

from shared.core.presets.catalog import PRESETS, preset
from shared.core.session.channels import CHANNELS
from shared.core.session.policy import (
    SETTING_KINDS,
    ContextPolicy,
    ContradictoryPolicy,
    apply_values,
    fit_to_window,
    with_overrides,
)
from shared.core.values.errors import EvertalkError


class BadContextConfig(EvertalkError):
    """Context settings of an agent that are invalid; `problems` has one English sentence for each."""

    sentence = "The context settings of an agent's row are invalid; every problem is named at once."
    code = "bad_context_config"

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems), advice="\n".join(problems))
        self.problems = problems


def deployment_policy(
    name: str, *, context_window: int | None = None, given: Mapping[str, Any] | None = None
) -> ContextPolicy:
    """Return the policy of a preset in the operator's window, with the operator's settings `given`.

    `context_window` is in tokens, None for the preset's own. Raises ContradictoryPolicy for an unknown preset
    and for settings that contradict each other.
    """
    chosen = preset(name)
    inside = chosen if context_window is None else fit_to_window(chosen, context_window)
    return with_overrides(inside, **(given or {}))


def agent_policy(
    deployment: ContextPolicy,
    config: Mapping[str, Any],
    *,
    context_window: int | None = None,
    given: Mapping[str, Any] | None = None,
) -> ContextPolicy:
    """Return an agent's policy: its preset or the deployment's, then the operator's settings, then its own.

    Only `preset` and `context` of `config` are read; without both the deployment's policy is returned.
    `context_window` (tokens) and `given` apply to its preset only, as in `deployment_policy`. Raises
    BadContextConfig with all problems.
    """
    name, wanted = config.get("preset"), config.get("context")
    if name is None and not wanted:
        return deployment
    problems = [*_preset_problems(name), *_shape_problems(wanted)]
    if problems:
        raise BadContextConfig(tuple(problems))
    own = _own_values(wanted or {})
    try:
        start = deployment
        if name is not None:
            start = deployment_policy(name, context_window=context_window, given=given)
        return _apply(start, own)
    except ContradictoryPolicy as error:
        raise BadContextConfig((error.advice,)) from error


def _apply(policy: ContextPolicy, own: Mapping[str, Any]) -> ContextPolicy:
    """Return the policy with an agent's values; null removes a limit.

    A window of the agent shrinks margins that would not fit, as the operator's does.
    """
    inside = fit_to_window(policy, own["context_window"]) if "context_window" in own else policy
    return apply_values(inside, own)


_TURNS = re.compile(r"[0-9]{1,6}")


def parse_history_turns(text: str) -> tuple[tuple[str, int], ...]:
    """Return pairs of channel and turns from a text such as `telegram=50,web=200`, in the order of
    `CHANNELS`.

    An empty text gives none. Raises ValueError, with a reason for people, for an unknown channel or a number
    below 1.
    """
    found: dict[str, int] = {}
    for word in text.replace(",", " ").split():
        channel, _, turns = word.partition("=")
        if channel not in CHANNELS:
            raise ValueError(f"{channel!r} is not a channel; write telegram=50,web=200")
        if not _TURNS.fullmatch(turns) or int(turns) < 1:
            raise ValueError(f"{word!r} needs a number of turns, such as {channel}=50")
        found[channel] = int(turns)
    return tuple((channel, found[channel]) for channel in CHANNELS if channel in found)


def _preset_problems(name: object) -> Iterator[str]:
    if name is None or (isinstance(name, str) and name in PRESETS):
        return
    yield f"preset: there is no {name!r}{_meant(str(name), PRESETS)}"


def _shape_problems(wanted: object) -> Iterator[str]:
    if wanted is None:
        return
    if not isinstance(wanted, Mapping):
        yield f"context: must be an object of settings by name, not {_render_value(wanted)}"
        return
    for name, value in wanted.items():
        if name not in SETTING_KINDS:
            yield f"context.{name}: there is no such setting{_meant(str(name), SETTING_KINDS)}"
        elif (expected := _mismatch(SETTING_KINDS[name], value)) is not None:
            yield f"context.{name}: must be {expected}, not {_render_value(value)}"


def _meant(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name.lower(), known, 1)
    return f"; did you mean {near[0]}?" if near else f"; choose one of {', '.join(sorted(known))}"


def _render_value(value: object) -> str:
    return repr(value)[:60]


def _own_values(wanted: Mapping[str, Any]) -> dict[str, Any]:
    own: dict[str, Any] = {}
    for name, value in wanted.items():
        if isinstance(value, Mapping):
            value = tuple((channel, value[channel]) for channel in CHANNELS if channel in value)
        elif isinstance(value, list | tuple):
            value = tuple(value)
        own[name] = value
    return own


def _mismatch(kind: Any, value: object) -> str | None:
    """Return a description of the values that a setting accepts if `value` is not one of them;
    None if it is.
    """
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        inner = next(part for part in get_args(kind) if part is not type(None))
        told = None if value is None else _mismatch(inner, value)
        return None if told is None else f"{told} or null"
    if origin is Literal:
        return None if value in get_args(kind) else f"one of {', '.join(get_args(kind))}"
    if origin is tuple:
        return _mismatched_tuple(kind, value)
    told, fits = _PLAIN[kind]
    return None if fits(value) else told


def _mismatched_tuple(kind: Any, value: object) -> str | None:
    if get_args(kind)[0] is float:
        fits = isinstance(value, list | tuple) and all(map(_is_number, value))
        return None if fits else "a list of numbers"
    fits = isinstance(value, Mapping) and set(value) <= set(CHANNELS) and all(map(_is_whole, value.values()))
    return None if fits else 'turns by channel, such as {"telegram": 50}'


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_PLAIN: dict[Any, tuple[str, Callable[[object], bool]]] = {
    int: ("a whole number", _is_whole),
    float: ("a number", _is_number),
    bool: ("true or false", lambda value: isinstance(value, bool)),
    str: ("a text", lambda value: isinstance(value, str)),
}
