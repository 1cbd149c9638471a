"""Prices by model and day: the table of the costs page and of savings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any
from urllib.parse import urlsplit

from shared.adapters.models.catalog import MAKER, OPENAI_HOST, ModelEntry, find_known_card, list_entries
from shared.adapters.models.offline import OFFLINE_MODEL
from shared.adapters.models.openai_provider import OPENAI_URL
from shared.adapters.models.provider import ANTHROPIC_URL
from shared.config.settings import Settings
from shared.core.values.money import Prices, are_old, price_on


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """`entries` are the operator's own models. At servers other than `usual` and the providers' own anything
    may answer to a known name, so the table's prices are not believed there."""

    entries: Mapping[str, ModelEntry]
    usual: frozenset[str]
    openai_host: str = OPENAI_HOST
    """Host for models of the other API."""

    def list_prices(self, model: str) -> tuple[Prices, ...]:
        """Return every price of a model, each from its day on; none if unknown."""
        entry = self.entries.get(model)
        if entry is not None and entry.prices is not None:
            return (entry.prices, *entry.later_prices)
        row = find_known_card(model) or find_known_card(model, self.openai_host)
        if entry is not None:
            usual = MAKER if entry.wire == "messages" else self.openai_host
            foreign = entry.base_url is not None and entry.base_url not in self.usual
            row = find_known_card(entry.wire_name, find_host(entry.base_url) if foreign else usual)
        return (row.prices,) if row is not None and row.prices is not None else ()

    def find_prices(self, model: str, day: date) -> Prices | None:
        return price_on(day, self.list_prices(model))

    def rows(self, models: Sequence[str], today: date) -> list[dict[str, Any]]:
        """For these models and those that are configured; one without a price says so by nulls."""
        rows = []
        for model in sorted({*models, *self.entries}):
            prices = self.list_prices(model)
            own = (entry := self.entries.get(model)) is not None and entry.prices is not None
            source = "models file" if own else "price list" if prices else None
            rows += [_row(model, price, source, today, prices) for price in prices or (None,)]
        return rows


def load_price_list(settings: Settings) -> PriceList:
    """Reads the models file. Raises ModelsFileBroken."""
    entries = list_entries(settings)
    usual = {ANTHROPIC_URL, (settings.anthropic_base_url or ANTHROPIC_URL).rstrip("/")}
    return PriceList(
        entries={entry.name: entry for entry in entries},
        usual=frozenset(usual),
        openai_host=find_host(settings.openai_base_url or OPENAI_URL),
    )


def list_unpriced(settings: Settings) -> tuple[str, ...]:
    """Return the configured models whose price is unknown. Raises ModelsFileBroken."""
    prices = load_price_list(settings)
    chosen = (settings.model, settings.summary_model, *settings.fallback_models)
    names = {*prices.entries, *chosen} - {"", OFFLINE_MODEL}
    return tuple(sorted(name for name in names if not prices.list_prices(name)))


def find_host(address: str | None) -> str:
    return urlsplit(address or "").hostname or ""


def _row(
    model: str, price: Prices | None, source: str | None, today: date, prices: Sequence[Prices]
) -> dict[str, Any]:
    if price is None:
        names = ("input", "output", "cache_read", "cache_write", "dated", "starts", "above")
        return {"model": model, "source": None, "current": False, "old": False, **dict.fromkeys(names)}
    told = asdict(price)
    return {
        "model": model,
        "source": source,
        "current": price == price_on(today, prices),
        "old": are_old(price, today),
        **told,
        "dated": price.dated or None,
        "starts": price.starts or None,
    }
