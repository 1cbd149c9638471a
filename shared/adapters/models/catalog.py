"""What is known of each model before anyone asks its provider: windows, prices, abilities.

The table repeats the provider's public price list as read in November 2026 (and the model list of its SDK
2.11). Haiku 5.5 costs five times as much for prompts above 100,000 tokens. Cache writes are those of the
five-minute cache, 1.25 × input. What is not listed is None, never 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from shared.config.agents import ConfigSection, describe_problem
from shared.core.values.money import price_on
from shared.ports import ModelCard, Prices

Capability = Literal["cache", "tools", "thinking", "count_tokens", "json", "images"]
UNKNOWN_WINDOW = 8_192
UNKNOWN_MAX_OUTPUT = 4_096
ALL_CAPABILITIES = frozenset(get_args(Capability))
Wire = Literal["messages", "openai"]
MODEST_CAPABILITIES: Mapping[Wire, frozenset[str]] = {
    "messages": frozenset({"tools"}),
    "openai": frozenset({"tools", "json"}),
}
"""What a server of that API can do at least, as far as we know; what it refuses is not asked again."""
CACHE_WRITE_FACTOR = 1.25
MOST_FALLBACKS = 4
"""Of one model: each that fails is waited for."""

_DATED = "2026-11"
_OLDER_TOKENS = 1.10
_NEWER_TOKENS = 1.43
"""Opus 4.7 and later count about 1.3 times as many tokens as the bundled vocabulary's generation."""
_SNAPSHOT = re.compile(r"-20\d{6}$")
_ADDRESS, _ADDRESS_IN_WORDS = r"^https?://", "must begin with http:// or https://"
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ModelsFileBroken(ValueError):
    """The models file cannot be used; the text says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """A model that an operator has configured; None means "as the table or the provider says"."""

    name: str
    """How Evertalk calls it."""
    model: str = ""
    """How its provider calls it; empty means the same."""
    wire: Wire = "messages"
    """Which API its server speaks: Anthropic's Messages or OpenAI's Chat Completions."""
    base_url: str | None = None
    key_env: str | None = None
    """The environment variable that holds its key. A foreign base URL never gets the usual key."""
    prices: Prices | None = None
    later_prices: tuple[Prices, ...] = ()
    """Each from its day on; what a call has cost was stored when it was made and stays."""
    window: int | None = None
    max_output: int | None = None
    capabilities: frozenset[str] | None = None
    token_factor: float | None = None
    fallbacks: tuple[str, ...] = ()
    """Names of the models that answer, in this order, while this one cannot."""

    @property
    def wire_name(self) -> str:
        return self.model or self.name


def _as_list(raw: object) -> object:
    """One price, or several, each with the day from which on it holds; one name, or several."""
    return [raw] if isinstance(raw, dict | str) else raw


def _prices(
    input_: float, output: float, cache_read: float, above: int | None = None, factor: float = 1.0
) -> Prices:
    return Prices(
        input=input_, output=output, cache_read=cache_read, cache_write=round(input_ * CACHE_WRITE_FACTOR, 6),
        dated=_DATED, above=above, above_factor=factor,
    )  # fmt: skip


_ROWS: tuple[tuple[str, int, int, Any, float], ...] = (
    # name, window, longest output, (input, output, cache read) in dollars per million, token factor;
    # behind them the tokens of a prompt from which on all of a call costs so many times as much
    ("claude-fable-5-1", 1_000_000, 128_000, (10.0, 50.0, 0.25), _NEWER_TOKENS),
    ("claude-fable-5", 1_000_000, 128_000, (10.0, 50.0, 1.0), _NEWER_TOKENS),
    ("claude-opus-5-5", 1_000_000, 128_000, (4.0, 20.0, 0.20), _NEWER_TOKENS),
    ("claude-opus-5", 1_000_000, 128_000, (5.0, 25.0, 0.50), _NEWER_TOKENS),
    ("claude-opus-4-8", 1_000_000, 128_000, (5.0, 25.0, 0.50), _NEWER_TOKENS),
    ("claude-opus-4-7", 1_000_000, 128_000, (5.0, 25.0, 0.50), _NEWER_TOKENS),
    ("claude-opus-4-6", 1_000_000, 128_000, (5.0, 25.0, 0.50), _OLDER_TOKENS),
    ("claude-sonnet-5-5", 1_000_000, 128_000, (2.0, 10.0, 0.10), _NEWER_TOKENS),
    ("claude-sonnet-5", 1_000_000, 128_000, (2.0, 10.0, 0.20), _NEWER_TOKENS),
    ("claude-sonnet-4-6", 1_000_000, 64_000, (3.0, 15.0, 0.30), _OLDER_TOKENS),
    ("claude-haiku-5-5", 1_000_000, 128_000, (0.10, 0.50, 0.01, 100_000, 5.0), _NEWER_TOKENS),
    ("claude-haiku-4-5", 200_000, 64_000, (1.0, 5.0, 0.10), _OLDER_TOKENS),
)
TABLE: Mapping[str, ModelCard] = {
    name: ModelCard(
        name=name, window=window, max_output=output, window_known=True, prices=_prices(*dollars),
        capabilities=ALL_CAPABILITIES, token_factor=factor,
    )
    for name, window, output, dollars, factor in _ROWS
}  # fmt: skip


def known_card(name: str) -> ModelCard | None:
    """The table's row, under the asked name; a dated snapshot counts as its model."""
    row = TABLE.get(name) or TABLE.get(_SNAPSHOT.sub("", name))
    return None if row is None else replace(row, name=name)


def card_of(
    entry: ModelEntry,
    *,
    window: int | None = None,
    max_output: int | None = None,
    foreign: bool = False,
    today: date | None = None,
) -> ModelCard:
    """What the operator said, else what the provider said (`window`, `max_output`), else the table.

    A foreign server may serve anything under a known name, so the table's prices are not believed there.
    """
    row = known_card(entry.wire_name)
    told = entry.window or window or (row.window if row else None)
    given = (entry.prices, *entry.later_prices) if entry.prices else ()
    prices = price_on(today or datetime.now(UTC).date(), given)
    prices = prices or (row.prices if row and not foreign else None)
    usual = ALL_CAPABILITIES if row and not foreign else MODEST_CAPABILITIES[entry.wire]
    longest = entry.max_output or max_output or (row.max_output if row else UNKNOWN_MAX_OUTPUT)
    return ModelCard(
        name=entry.name,
        window=told or UNKNOWN_WINDOW,
        max_output=longest,
        window_known=told is not None,
        prices=prices,
        capabilities=usual if entry.capabilities is None else entry.capabilities,
        token_factor=entry.token_factor or (row.token_factor if row else _OLDER_TOKENS),
    )


def read_entries(path: Path) -> tuple[ModelEntry, ...]:
    """The operator's models: a JSON list of objects with the fields of `ModelEntry`."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelsFileBroken(f"{path}: {error}") from error
    if isinstance(raw, dict) and set(raw) == {"models"}:
        raw = raw["models"]
    if not isinstance(raw, list):
        raise ModelsFileBroken(f"{path}: expected a list of models")
    entries = tuple(_entry(item, f"{path}: model {number}") for number, item in enumerate(raw, start=1))
    _check_names(entries, path)
    return entries


def _check_names(entries: tuple[ModelEntry, ...], path: Path) -> None:
    names = [entry.name for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise ModelsFileBroken(f"{path}: {name!r} is named twice")
    for entry in entries:
        if entry.name in entry.fallbacks:
            raise ModelsFileBroken(f"{path}: {entry.name!r} cannot be its own fallback")


class PriceForm(ConfigSection):
    """In dollars per million tokens. Without prices for the cache the dearest are assumed, so that a spending
    cap errs on the safe side."""

    input: Amount
    output: Amount
    cache_read: Amount | None = None
    cache_write: Amount | None = None
    dated: str = ""
    starts: date | None = Field(default=None, alias="from", strict=False)
    above: Amount | None = None
    above_factor: Amount | None = None

    def to_prices(self) -> Prices:
        starts = self.starts.isoformat() if self.starts else ""
        return Prices(
            input=self.input, output=self.output, dated=self.dated or starts, starts=starts,
            cache_read=self.input if self.cache_read is None else self.cache_read,
            cache_write=self.input * CACHE_WRITE_FACTOR if self.cache_write is None else self.cache_write,
            above=None if self.above is None else int(self.above),
            above_factor=1.0 if self.above_factor is None else self.above_factor,
        )  # fmt: skip


class ModelForm(ConfigSection):
    """An entry as it stands in the file; null is left out."""

    name: Annotated[str, Field(min_length=1)]
    model: str | None = None
    wire: Wire = "messages"
    base_url: Annotated[str, Field(pattern=_ADDRESS)] | None = None
    key_env: str | None = None
    prices: Annotated[list[PriceForm], BeforeValidator(_as_list)] | None = None
    window: Annotated[int, Field(ge=1)] | None = None
    max_output: Annotated[int, Field(ge=1)] | None = None
    capabilities: Annotated[frozenset[Capability], Field(strict=False)] | None = None
    token_factor: Amount | None = None
    fallback: Annotated[list[str], BeforeValidator(_as_list), Field(max_length=MOST_FALLBACKS)] | None = None


def _entry(raw: Any, at: str) -> ModelEntry:
    at = f"{at} ({raw['name']})" if isinstance(raw, dict) and raw.get("name") else at
    try:
        form = ModelForm.model_validate(raw)
    except ValidationError as error:
        problem = describe_problem(error.errors(include_url=False)[0], _FORMS, {_ADDRESS: _ADDRESS_IN_WORDS})
        raise ModelsFileBroken(f"{at}: {problem.removeprefix(': ')}") from error
    prices = None if form.prices is None else [price.to_prices() for price in form.prices]
    days = [price.starts for price in prices or ()]
    if prices == [] or days != sorted(set(days)):
        raise ModelsFileBroken(f"{at}: prices must stand in the order of their days (`from`)")
    return ModelEntry(
        name=form.name, model=form.model or "", wire=form.wire,
        base_url=(form.base_url or "").rstrip("/") or None, key_env=form.key_env or None, window=form.window,
        prices=prices[0] if prices else None, later_prices=tuple(prices or ())[1:],
        max_output=form.max_output, capabilities=form.capabilities,
        token_factor=form.token_factor, fallbacks=tuple(filter(None, form.fallback or ())),
    )  # fmt: skip


_FORMS: dict[tuple[str, ...], type[BaseModel]] = {(): ModelForm, ("prices", "0"): PriceForm}
