"""Prices by model and day, for the costs page and for computing savings."""

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
    """Prices of the operator's models and of known ones.

    `entries` are the operator's models. The table's prices apply at the addresses in `usual` and at
    providers' own hosts only, since another server may serve anything under a known name.
    """

    entries: Mapping[str, ModelEntry]
    usual: frozenset[str]
    openai_host: str = OPENAI_HOST
    """Host whose prices apply to models of OpenAI's APIs."""

    def list_prices(self, model: str) -> tuple[Prices, ...]:
        """Return all prices of a model in the order of their first days; empty if unknown."""
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
        """Return the newest prices in force on `day`, or the first ones if all begin later.

        Returns None if the model's prices are unknown.
        """
        return price_on(day, self.list_prices(model))

    def rows(self, models: Sequence[str], today: date) -> list[dict[str, Any]]:
        """Return the rows of the table for these models and the configured ones.

        Prices are None if unknown.
        """
        rows = []
        for model in sorted({*models, *self.entries}):
            prices = self.list_prices(model)
            own = (entry := self.entries.get(model)) is not None and entry.prices is not None
            source = "models file" if own else "price list" if prices else None
            rows += [_row(model, price, source, today, prices) for price in prices or (None,)]
        return rows


def load_price_list(settings: Settings) -> PriceList:
    """Read the models file and return its price list. Raises ModelsFileBroken."""
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
    """Return the host name of a URL, in lower case and without port; "" for None or without `//`.

    The address must be a valid URL, as those of the settings and of the models file are.
    """
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
