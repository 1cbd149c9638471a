"""Presets by name: every module of this folder that has a `PRESET`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules

import shared.core.presets as folder
from shared.core.session.policy import ContextPolicy, ContradictoryPolicy


def _find_presets() -> Iterator[ContextPolicy]:
    for found in iter_modules(folder.__path__):
        name = f"{folder.__name__}.{found.name}"
        if name != __name__ and (made := getattr(import_module(name), "PRESET", None)) is not None:
            yield made


PRESETS: Mapping[str, ContextPolicy] = {made.name: made for made in _find_presets()}
"""All presets by name."""


def preset(name: str) -> ContextPolicy:
    """Return the preset of this name, such as `steady`. Raises ContradictoryPolicy if there is none."""
    if name not in PRESETS:
        raise ContradictoryPolicy(f"there is no preset {name!r}; choose one of {', '.join(sorted(PRESETS))}")
    return PRESETS[name]
