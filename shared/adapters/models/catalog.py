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
from typing import Any

from shared.core.values.money import price_on
from shared.ports import ModelCard, Prices

UNKNOWN_WINDOW = 8_192
UNKNOWN_MAX_OUTPUT = 4_096
ALL_CAPABILITIES = frozenset({"cache", "tools", "thinking", "count_tokens", "json", "images"})
MODEST_CAPABILITIES = frozenset({"tools"})
"""What a server that speaks the Messages API can do at least, as far as we know."""
CACHE_WRITE_FACTOR = 1.25

_DATED = "2026-11"
_OLDER_TOKENS = 1.10
_NEWER_TOKENS = 1.43
"""Opus 4.7 and later count about 1.3 times as many tokens as the bundled vocabulary's generation."""
_SNAPSHOT = re.compile(r"-20\d{6}$")
_ENTRY_FIELDS = frozenset(
    {"name", "model", "base_url", "key_env", "prices", "window", "max_output", "capabilities"}
    | {"token_factor", "fallback"}
)
_PRICE_WORDS = frozenset({"dated", "from"})
_PRICE_FIELDS = _PRICE_WORDS | {"input", "output", "cache_read", "cache_write", "above", "above_factor"}


class ModelsFileBroken(ValueError):
    """The models file cannot be used; the text says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """A model that an operator has configured; None means "as the table or the provider says"."""

    name: str
    """How Evertalk calls it."""
    model: str = ""
    """How its provider calls it; empty means the same."""
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
    fallback: str | None = None
    """The name of the entry that answers when this one stays overloaded."""

    @property
    def wire_name(self) -> str:
        return self.model or self.name


def _known(
    name: str,
    *,
    window: int,
    max_output: int,
    dollars: tuple[float, float, float],
    token_factor: float,
) -> ModelCard:
    prices = _prices(*dollars)
    if name in _DEARER_ABOVE:
        above, factor = _DEARER_ABOVE[name]
        prices = replace(prices, above=above, above_factor=factor)
    return ModelCard(
        name=name,
        window=window,
        max_output=max_output,
        window_known=True,
        prices=prices,
        capabilities=ALL_CAPABILITIES,
        token_factor=token_factor,
    )


def _prices(input_: float, output: float, cache_read: float) -> Prices:
    cache_write = round(input_ * CACHE_WRITE_FACTOR, 6)
    return Prices(input=input_, output=output, cache_read=cache_read, cache_write=cache_write, dated=_DATED)


_ROWS = (
    # name, window, longest output, (input, output, cache read) in dollars per million, token factor
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
    ("claude-haiku-5-5", 1_000_000, 128_000, (0.10, 0.50, 0.01), _NEWER_TOKENS),
    ("claude-haiku-4-5", 200_000, 64_000, (1.0, 5.0, 0.10), _OLDER_TOKENS),
)
_DEARER_ABOVE: Mapping[str, tuple[int, float]] = {"claude-haiku-5-5": (100_000, 5.0)}
"""Tokens of a prompt from which on all of the call costs so many times as much."""
TABLE: Mapping[str, ModelCard] = {
    name: _known(name, window=window, max_output=output, dollars=dollars, token_factor=factor)
    for name, window, output, dollars, factor in _ROWS
}


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
    usual = ALL_CAPABILITIES if row and not foreign else MODEST_CAPABILITIES
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
        if entry.fallback == entry.name:
            raise ModelsFileBroken(f"{path}: {entry.name!r} cannot be its own fallback")


def _entry(raw: Any, at: str) -> ModelEntry:
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str) or not raw["name"]:
        raise ModelsFileBroken(f"{at}: needs a name")
    at = f"{at} ({raw['name']})"
    _refuse_strangers(raw, _ENTRY_FIELDS, at)
    for field in ("model", "base_url", "key_env", "fallback"):
        if not isinstance(raw.get(field, ""), str | None):
            raise ModelsFileBroken(f"{at}: {field} must be a text")
    for field in ("window", "max_output"):
        if raw.get(field) is not None and (type(raw[field]) is not int or raw[field] <= 0):
            raise ModelsFileBroken(f"{at}: {field} must be a whole number above 0")
    prices = _entry_price_list(raw.get("prices"), at)
    base_url = raw.get("base_url") or None
    if base_url is not None and not base_url.startswith(("http://", "https://")):
        raise ModelsFileBroken(f"{at}: base_url must begin with http:// or https://")
    return ModelEntry(
        name=raw["name"],
        model=raw.get("model") or "",
        base_url=base_url.rstrip("/") if base_url else None,
        key_env=raw.get("key_env") or None,
        prices=prices[0] if prices else None,
        later_prices=prices[1:],
        window=raw.get("window"),
        max_output=raw.get("max_output"),
        capabilities=_entry_capabilities(raw.get("capabilities"), at),
        token_factor=_number(raw.get("token_factor"), f"{at}: token_factor"),
        fallback=raw.get("fallback") or None,
    )


def _entry_capabilities(raw: Any, at: str) -> frozenset[str] | None:
    if raw is None:
        return None
    if not isinstance(raw, list) or not all(isinstance(word, str) for word in raw):
        raise ModelsFileBroken(f"{at}: capabilities must be a list of words")
    _refuse_strangers(raw, ALL_CAPABILITIES, f"{at}: capabilities")
    return frozenset(raw)


def _entry_price_list(raw: Any, at: str) -> tuple[Prices, ...]:
    """One price, or several, each with the day from which on it holds."""
    if raw is None:
        return ()
    found = tuple(_entry_prices(one, at) for one in (raw if isinstance(raw, list) else [raw]))
    days = [price.starts for price in found]
    if not found or days != sorted(set(days)):
        raise ModelsFileBroken(f"{at}: prices must stand in the order of their days (`from`)")
    return found


def _entry_prices(raw: Any, at: str) -> Prices:
    """Without prices for the cache the dearest are assumed, so that a spending cap errs on the safe side."""
    if not isinstance(raw, dict) or not {"input", "output"} <= set(raw):
        raise ModelsFileBroken(f"{at}: prices need input and output, in dollars per million tokens")
    _refuse_strangers(raw, _PRICE_FIELDS, f"{at}: prices")
    given = {name: _number(raw.get(name), f"{at}: prices.{name}") for name in _PRICE_FIELDS - _PRICE_WORDS}
    starts = _day(raw.get("from"), f"{at}: prices.from")
    input_, output = given["input"], given["output"]
    if input_ is None or output is None:
        raise ModelsFileBroken(f"{at}: prices need input and output, in dollars per million tokens")
    read, write = given["cache_read"], given["cache_write"]
    return Prices(
        input=input_,
        output=output,
        cache_read=input_ if read is None else read,
        cache_write=input_ * CACHE_WRITE_FACTOR if write is None else write,
        dated=str(raw.get("dated", "")) or starts,
        starts=starts,
        above=None if given["above"] is None else int(given["above"]),
        above_factor=1.0 if given["above_factor"] is None else given["above_factor"],
    )


def _day(raw: Any, what: str) -> str:
    if raw is None:
        return ""
    try:
        return date.fromisoformat(raw).isoformat()
    except (TypeError, ValueError) as error:
        raise ModelsFileBroken(f"{what} must be a day such as 2026-11-21") from error


def _number(raw: Any, what: str) -> float | None:
    if raw is None:
        return None
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not 0 <= raw < float("inf"):
        raise ModelsFileBroken(f"{what} must be a number, 0 or more")
    return float(raw)


def _refuse_strangers(given: Any, known: frozenset[str], at: str) -> None:
    strangers = sorted(set(given) - known)
    if strangers:
        raise ModelsFileBroken(f"{at}: unknown: {', '.join(map(str, strangers))}")
