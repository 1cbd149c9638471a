"""Contradictions between context settings, and the nearest values that fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from shared.core.context.agents import WINDOW_SHARE, Circumstances, layers_for
from shared.core.context.overrides import deployment_policy
from shared.core.context.prompts import system_text
from shared.core.session.budget import budget_for
from shared.core.session.policy import ContradictoryPolicy
from shared.core.values.tokens import estimate_by_script

WINDOW = "context_window"
"""Name of the setting of the context window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """Setting that has to change, with its given value and the nearest one that fits.

    Once all misfits are changed, the other settings can stay.
    """

    field: str
    given: int
    fits: int | None
    """Nearest value that fits; None if only the preset's own value, 0, does."""
    reason: str
    """Reason of the contradiction, with the policy's names of settings."""


def misfits(preset: str, numbers: Mapping[str, Any]) -> tuple[Misfit, ...]:
    """Return the fewest settings that have to change so that a conversation is possible; empty if all fit.

    `numbers` are the settings by name, `context_window` included. Raises ContradictoryPolicy for an unknown
    preset.
    """
    if contradiction(preset, numbers) is None:
        return ()
    return tuple(_nearest(preset, numbers, _find_fewest(preset, numbers)))


def contradiction(preset: str, numbers: Mapping[str, Any]) -> str | None:
    """Return why no conversation is possible with these settings, in English; None if one is possible.

    `numbers` are as in `misfits`. A fifth of the window is assumed for tools. Raises ContradictoryPolicy for
    an unknown preset.
    """
    given = {name: value for name, value in numbers.items() if name != WINDOW}
    deployment_policy(preset)
    try:
        policy = deployment_policy(preset, context_window=numbers.get(WINDOW), given=given)
        fixed = _estimate_system_text() + int(WINDOW_SHARE * policy.context_window)
        budget_for(policy, policy.context_window, policy.max_output, fixed)
    except ContradictoryPolicy as error:
        return str(error)
    return None


def _estimate_system_text() -> int:
    """Return the estimated tokens of the default agent's system text."""
    return estimate_by_script(system_text(layers_for({}, Circumstances())))


def _find_fewest(preset: str, numbers: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the smallest set of fields without which the other settings fit; the preset alone
    always fits.
    """
    plain = [name for name, value in numbers.items() if isinstance(value, int)]
    for size in range(1, len(plain) + 1):
        for left_out in combinations(plain, size):
            rest = {name: value for name, value in numbers.items() if name not in left_out}
            if contradiction(preset, rest) is None:
                return left_out
    return tuple(plain)


def _nearest(preset: str, numbers: Mapping[str, Any], wrong: tuple[str, ...]) -> Iterator[Misfit]:
    """Yield a misfit for each field of `wrong`, with the nearest value that fits.

    Each value found counts for the fields after it, so that the new values fit together.
    """
    settled = {name: value for name, value in numbers.items() if name not in wrong}
    for name in wrong:
        given, fits = numbers[name], _own_number(preset, settled, name)
        bad = given
        while abs(bad - fits) > 1:
            middle = (bad + fits) // 2
            held = contradiction(preset, {**settled, name: middle}) is None
            bad, fits = (bad, middle) if held else (middle, fits)
        reason = contradiction(preset, {**settled, name: given}) or "does not go with the others"
        settled[name] = fits
        yield Misfit(field=name, given=given, fits=fits or None, reason=reason)


def _own_number(preset: str, settled: Mapping[str, Any], name: str) -> int:
    """Return the preset's value of a setting that is not set; no limit counts as the window."""
    given = {field: value for field, value in settled.items() if field != WINDOW}
    policy = deployment_policy(preset, context_window=settled.get(WINDOW), given=given)
    own = policy.to_settings()[name]
    return policy.context_window if own is None else int(own)
