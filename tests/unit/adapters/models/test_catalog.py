"""What is known of models, and the file in which an operator names more."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.models import ModelEntry, ModelsFileBroken, read_entries
from shared.adapters.models.catalog import (
    ALL_CAPABILITIES,
    HOSTS,
    OPENAI_HOST,
    TABLE,
    UNKNOWN_WINDOW,
    build_card,
    find_known_card,
)
from shared.ports import Prices


def test_the_default_models_are_known_with_window_and_prices() -> None:
    sonnet, haiku = find_known_card("claude-sonnet-5-5"), find_known_card("claude-haiku-5-5")
    assert sonnet is not None
    assert haiku is not None
    assert (sonnet.window, sonnet.max_output, sonnet.token_factor) == (1_000_000, 128_000, 1.43)
    assert sonnet.prices == Prices(input=2.0, output=10.0, cache_read=0.10, cache_write=2.5, dated="2026-11")
    assert haiku.prices is not None
    assert (haiku.prices.input, haiku.prices.output) == (0.10, 0.50)


def test_a_dated_snapshot_is_its_model() -> None:
    card = find_known_card("claude-haiku-4-5-20251001")
    assert card is not None
    assert (card.name, card.window, card.token_factor) == ("claude-haiku-4-5-20251001", 200_000, 1.10)


def test_every_catalog_row_has_a_date_and_cache_write_price() -> None:
    for card in TABLE.values():
        assert card.prices is not None
        assert card.prices.dated
        assert card.prices.cache_write == pytest.approx(card.prices.input * 1.25)
        assert 0 < card.prices.cache_read < card.prices.input


def test_an_unknown_model_has_a_small_flagged_window_and_no_price() -> None:
    card = build_card(ModelEntry(name="somebody-elses-model"))
    assert (card.window, card.window_known, card.prices) == (UNKNOWN_WINDOW, False, None)


def test_the_operator_outweighs_the_provider_who_outweighs_the_table() -> None:
    told = build_card(ModelEntry(name="claude-haiku-4-5"), window=500_000, max_output=32_000)
    assert (told.window, told.max_output) == (500_000, 32_000)
    said = build_card(ModelEntry(name="claude-haiku-4-5", window=16_000), window=500_000)
    assert (said.window, said.window_known) == (16_000, True)


def test_a_foreign_server_does_not_inherit_prices_by_a_well_known_name() -> None:
    card = build_card(ModelEntry(name="claude-sonnet-5-5", base_url="http://gateway"), foreign=True)
    assert card.prices is None
    assert card.capabilities == {"tools"}


def write(folder: Path, content: Any) -> Path:
    path = folder / "models.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_models_file_is_read_with_all_its_fields(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        [
            {
                "name": "local",
                "model": "qwen3:8b",
                "base_url": "http://127.0.0.1:11434/",
                "key_env": "LOCAL_KEY",
                "prices": {"input": 0, "output": 0, "cache_read": 0, "cache_write": 0, "dated": "2026-11-21"},
                "window": 32768,
                "max_output": 4096,
                "capabilities": ["tools", "json"],
                "fallback": "other",
            },
            {"name": "other"},
        ],
    )
    local, other = read_entries(path)
    assert (local.wire_name, local.base_url, local.key_env) == (
        "qwen3:8b",
        "http://127.0.0.1:11434",
        "LOCAL_KEY",
    )
    assert local.capabilities == frozenset({"tools", "json"})
    assert local.prices is not None
    assert local.prices.input == 0.0
    assert (other.wire_name, other.prices, other.window) == ("other", None, None)


@pytest.mark.parametrize(
    ("given", "can"),
    [
        ({"wire": "openai", "json": False}, {"tools"}),
        ({"wire": "openai", "tools": False, "json": False}, set()),
        ({"wire": "messages", "json": True}, {"tools", "json"}),
        ({"wire": "responses", "tools": None}, {"tools", "json"}),
        ({"capabilities": ["images", "tools"], "tools": False}, {"images"}),
    ],
)
def test_an_entry_says_of_tools_and_json_whether_its_model_can(
    tmp_path: Path, given: dict[str, Any], can: set[str]
) -> None:
    (entry,) = read_entries(write(tmp_path, [{"name": "m", **given}]))
    assert build_card(entry).capabilities == can


def test_missing_cache_prices_are_taken_at_their_dearest(tmp_path: Path) -> None:
    (entry,) = read_entries(write(tmp_path, [{"name": "m", "prices": {"input": 4, "output": 8}}]))
    assert entry.prices is not None
    assert (entry.prices.cache_read, entry.prices.cache_write) == (4.0, 5.0)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{not json", "models.json"),
        ({"a": 1}, "expected a list"),
        ([{"model": "x"}], "name: is missing"),
        ([{"name": "a"}, {"name": "a"}], "named twice"),
        ([{"name": "a", "fallback": "a"}], "its own fallback"),
        ([{"name": "a", "windw": 5}], "windw: there is no such key; did you mean window"),
        ([{"name": "a", "window": 0}], "window: must be at least 1"),
        ([{"name": "a", "window": True}], "window: must be a whole number"),
        ([{"name": "a", "base_url": "ftp://x"}], "base_url: must begin with"),
        ([{"name": "a", "base_url": "http://[::1"}], "base_url: is not a valid URL"),
        ([{"name": "a", "base_url": "http://host:99999/v1"}], "base_url: is not a valid URL"),
        ([{"name": "a", "base_url": "https:///v1"}], "base_url: has no host name"),
        ([{"name": "a", "key_env": 5}], "key_env: must be a text"),
        ([{"name": "a", "capabilities": ["fly"]}], 'not "fly"'),
        ([{"name": "a", "capabilities": "tools"}], "capabilities"),
        ([{"name": "a", "json": "no"}], "json: must be true or false"),
        ([{"name": "a", "prices": {"input": 1}}], "output: is missing"),
        ([{"name": "a", "prices": {"input": -1, "output": 1}}], "input: must be at least 0"),
        ([{"name": "a", "prices": {"input": None, "output": 1}}], "input: must be a number"),
    ],
)
def test_a_broken_models_file_is_refused_with_place_and_reason(
    tmp_path: Path, content: Any, words: str
) -> None:
    with pytest.raises(ModelsFileBroken, match=words):
        read_entries(write(tmp_path, content))


def test_a_missing_models_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelsFileBroken):
        read_entries(tmp_path / "nowhere.json")


def test_prices_may_change_on_a_day(tmp_path: Path) -> None:
    prices = [{"input": 1, "output": 2}, {"input": 3, "output": 4, "from": "2027-01-01", "above": 9}]
    (entry,) = read_entries(write(tmp_path, [{"name": "m", "prices": prices}]))
    before, after = (build_card(entry, today=date(year, 1, 1)).prices for year in (2026, 2027))
    assert before is not None
    assert after is not None
    assert (before.input, after.input, after.above, after.dated) == (1.0, 3.0, 9, "2027-01-01")


def test_prices_in_disorder_are_refused(tmp_path: Path) -> None:
    price = {"input": 1, "output": 2}
    for prices in ([price, price], [], [{**price, "from": "2027-01-01"}, price], [{**price, "from": "soon"}]):
        with pytest.raises(ModelsFileBroken, match="prices"):
            read_entries(write(tmp_path, [{"name": "m", "prices": prices}]))


def test_the_dearer_band_of_long_prompts_is_in_the_table() -> None:
    haiku = find_known_card("claude-haiku-5-5")
    assert haiku is not None
    assert haiku.prices is not None
    assert (haiku.prices.above, haiku.prices.above_factor) == (100_000, 5.0)


def test_each_catalog_row_is_complete_and_names_one_provider() -> None:
    names = [name for rows in HOSTS.values() for name in rows]
    assert len(names) == len(set(names)) >= 60
    for card in (card for rows in HOSTS.values() for card in rows.values()):
        assert card.prices is not None
        assert 0 < card.prices.cache_read <= card.prices.input <= card.prices.cache_write
        assert card.prices.input <= card.prices.output
        assert 8_192 <= card.max_output <= card.window
        assert card.capabilities <= ALL_CAPABILITIES
        assert "tools" in card.capabilities
        assert (card.prices.above is None) == (card.prices.above_factor == 1.0)


def test_the_table_is_believed_at_the_providers_own_address() -> None:
    entry = ModelEntry(name="fast", model="gpt-6-luna", wire="openai")
    card = build_card(entry, foreign=True, host=OPENAI_HOST)
    assert (card.name, card.window, card.window_known) == ("fast", 922_000, True)
    assert card.prices is not None
    assert "images" in card.capabilities
    elsewhere = build_card(entry, foreign=True, host="router.example")
    assert (elsewhere.window_known, elsewhere.prices) == (False, None)
    unknown = build_card(ModelEntry(name="gpt-9", wire="openai"), foreign=True, host=OPENAI_HOST)
    assert (unknown.window, unknown.prices) == (8_192, None)
    assert unknown.capabilities == {"tools", "json"}
