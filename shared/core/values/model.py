"""What a model call is made of besides messages: tools, system parts, usage and prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as the model sees it; `input_schema` is JSON schema, an object."""

    name: str
    description: str
    input_schema: Mapping[str, Any] = field(hash=False)
    provider: Mapping[str, Any] | None = field(default=None, hash=False)
    """A tool that the provider runs itself: its whole definition, passed on as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemPart:
    text: str
    cache: bool = False
    """True marks the end of a part that does not change between calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the provider counted them; all zero with `known=False` when it did not say."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_hour_tokens: int = 0
    """Of those written, the ones that the provider keeps for an hour; they cost more."""
    known: bool = True

    @property
    def context_tokens(self) -> int:
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Dollars per million tokens on a date; None is unknown and never 0."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    dated: str
    """When this was read, as `2026-11` or `2026-11-21`; empty where nobody said."""
    starts: str = ""
    """The day from which on it holds, `2026-11-21`; empty is always."""
    above: int | None = None
    """A prompt of more tokens than this costs more, all of it and its answer."""
    above_factor: float = 1.0
    """How many times as much."""
