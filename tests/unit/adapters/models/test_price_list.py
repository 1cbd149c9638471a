"""Whose price holds: the operator's, the table's at a provider's own address, or nobody's."""

from __future__ import annotations

import json
from typing import Any

from shared.adapters.models.price_list import PriceList, load_price_list
from shared.config.settings import load_settings


def listed(*entries: dict[str, Any], **settings: Any) -> PriceList:
    return load_price_list(load_settings(models=json.dumps(entries), **settings))


def test_known_models_have_the_tables_price_where_their_provider_serves_them() -> None:
    groq = {
        "name": "oss",
        "model": "openai/gpt-oss-20b",
        "wire": "openai",
        "base_url": "https://api.groq.com/openai/v1",
    }
    router = {"name": "far", "model": "gpt-6-luna", "wire": "openai", "base_url": "https://router.example/v1"}
    own = {"name": "own", "model": "gpt-6-luna", "wire": "openai", "prices": {"input": 3, "output": 4}}
    found = listed(groq, router, own, {"name": "near", "model": "gpt-6-luna", "wire": "openai"})
    prices = {
        name: [price.input for price in found.list_prices(name)] for name in ("oss", "far", "own", "near")
    }
    assert prices == {"oss": [0.075], "far": [], "own": [3.0], "near": [0.1]}
    assert [price.input for price in found.list_prices("gpt-6-luna")] == [0.1]
    assert [price.input for price in found.list_prices("claude-haiku-5-5")] == [0.1]


def test_where_another_server_stands_in_for_openai_its_names_prove_nothing() -> None:
    found = listed(openai_base_url="http://127.0.0.1:1234/v1")
    assert found.list_prices("gpt-6-luna") == ()
    assert found.list_prices("claude-haiku-5-5") != ()
