"""Models and bots in forms: lists of the settings, each entry with a secret that goes to one place alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.models.catalog import list_entries
from shared.bootstrap.stored_settings import build_stored_settings
from shared.config.bots import load_bots
from shared.config.fields.kinds import read_secrets
from shared.config.settings import load_settings
from shared.config.stored import load_with_stored
from tests.integration.web.dashboard.operator_calls import ask, put, rows_of
from tests.integration.web.dashboard.settings_house import pages
from tests.kit.dashboard.fixtures import Dashboard
from tests.kit.fakes.bot_api import TOKEN, USERNAME, running_bot_api
from tests.kit.fakes.messages_api import running_fake
from tests.kit.fakes.messages_api.server import BAD_KEY

__all__ = ["pages"]
MODELS, KEYS = "EVERTALK_MODELS", "EVERTALK_MODEL_KEYS"
BOTS, TOKENS = "EVERTALK_TELEGRAM_BOTS", "EVERTALK_TELEGRAM_TOKENS"
ROUTER, OTHER = "https://router.example/v1", "https://other.example/v1"
SECRET, SECOND = "sk-of-the-router", "sk-of-the-other"


def entry(name: str, base_url: str = ROUTER, **more: Any) -> dict[str, Any]:
    return {"name": name, "wire": "openai", "base_url": base_url, **more}


async def stored(pages: Dashboard, name: str, folder: Path) -> str:
    """As processes are given it."""
    settings = load_settings(data_dir=folder, secret_key="k" * 40)
    return (await build_stored_settings(pages.pool, settings).load()).values.get(name, "")


@pytest.mark.control("S37")
async def test_each_key_belongs_to_its_server_and_changes_alone(pages: Dashboard, tmp_path: Path) -> None:
    lists = json.dumps([entry("a"), entry("b", OTHER, fallback=["a"])])
    keys = json.dumps({ROUTER: SECRET, OTHER: SECOND})
    assert (await put(pages, 0, **{MODELS: lists, KEYS: keys}))[0] == 200
    assert (await put(pages, 1, **{KEYS: json.dumps({OTHER: "sk-newer"})}))[0] == 200
    assert json.loads(await stored(pages, KEYS, tmp_path)) == {ROUTER: SECRET, OTHER: "sk-newer"}
    told, rows = await rows_of(pages)
    assert rows[KEYS]["stored"].split() == [OTHER, ROUTER]
    assert rows[MODELS]["kind"] == "models"
    assert "sk-" not in str(told)
    version = told["version"]
    assert (await put(pages, version, **{KEYS: json.dumps({ROUTER: None, OTHER: None})}))[0] == 200
    assert await stored(pages, KEYS, tmp_path) == ""
    for table in ("stored_settings", "audit"):
        rows_now = await pages.pool.fetch(f"SELECT t::text AS row FROM {table} t")
        assert SECRET not in str([row["row"] for row in rows_now])


async def test_what_the_list_says_is_what_processes_work_with() -> None:
    values = {
        MODELS: json.dumps([entry("a", window=9_000), entry("b", OTHER)]),
        KEYS: json.dumps({ROUTER: SECRET}),
        BOTS: json.dumps([{"token_env": TOKEN.partition(":")[0], "agent": "shop", "access": "open"}]),
        TOKENS: json.dumps({TOKEN.partition(":")[0]: TOKEN}),
    }
    settings = load_with_stored(values)
    first, second = list_entries(settings)
    assert (first.name, first.window, first.key_env) == ("a", 9_000, ROUTER)
    assert (second.name, second.key_env) == ("b", None)
    assert read_secrets(settings.model_keys) == {ROUTER: SECRET}
    (bot,) = load_bots(settings, {})
    assert (bot.agent, bot.access, bot.token.get_secret_value()) == ("shop", "open", TOKEN)


@pytest.mark.parametrize(
    ("changes", "name", "reason"),
    [
        ({MODELS: "{"}, MODELS, "is not JSON"),
        ({MODELS: '{"name": "a"}'}, MODELS, "a JSON list of objects"),
        ({MODELS: json.dumps([entry("a", window=-1)])}, MODELS, "model 1 (a): window: must be at least 1"),
        ({MODELS: json.dumps([entry("a"), entry("a")])}, MODELS, "'a' is named twice"),
        ({MODELS: json.dumps([entry("a", key_env="EVERTALK_SECRET_KEY")])}, MODELS, "cannot have key_env"),
        ({KEYS: "[]"}, KEYS, "a JSON object"),
        ({KEYS: json.dumps({ROUTER: 7})}, KEYS, "names and texts"),
        ({BOTS: json.dumps([{"token_env": "1"}])}, BOTS, "entry 1: token_env: 1 has no token in"),
        ({BOTS: json.dumps([{"token_env": "1"}]), TOKENS: json.dumps({"1": "x"})}, BOTS, "not a bot's token"),
    ],
)
async def test_invalid_list_entry_is_reported_by_its_number(
    pages: Dashboard, changes: dict[str, str], name: str, reason: str
) -> None:
    """No variable of the environment goes to an address that is typed here."""
    status, told = await put(pages, 0, **changes)
    assert status == 422, told
    (problem,) = told["details"]["problems"]
    assert problem["name"] == name
    assert reason in problem["reason"]
    assert await pages.pool.fetchval("SELECT count(*) FROM stored_settings") == 0


async def test_server_is_asked_for_its_models_with_the_typed_key(pages: Dashboard) -> None:
    async with running_fake(wire="openai") as fake:
        url = f"{fake.base_url}/v1"
        for key, models, message in (
            ("good-key", True, ""),
            (BAD_KEY, False, "The server knows no such key."),
        ):
            _, told = await ask(pages, "POST", "/settings/models", json={"base_url": url, "key": key})
            assert (bool(told["servers"]), told["message"]) == (models, message)
    _, told = await ask(pages, "POST", "/settings/models", json={"base_url": url})
    assert (told["servers"], "cannot be reached" in told["message"]) == ([], True)
    assert (await ask(pages, "POST", "/settings/models", role="operator", json={}))[0] == 403


async def test_one_model_of_the_list_is_tried_before_it_is_stored(pages: Dashboard) -> None:
    async with running_fake(wire="openai") as fake:
        changes = {
            MODELS: json.dumps([entry("mine", fake.base_url, model="claude-haiku-5-5")]),
            KEYS: json.dumps({fake.base_url: "good-key"}),
        }
        wanted = {"what": "model", "name": "mine", "changes": changes}
        _, told = await ask(pages, "POST", "/settings/test", json=wanted)
        assert told["ok"], told
        assert told["message"].startswith("It works: mine answered")
        wanted["changes"] = {**changes, KEYS: json.dumps({fake.base_url: BAD_KEY})}
        _, told = await ask(pages, "POST", "/settings/test", json=wanted)
        assert (told["ok"], BAD_KEY in str(told)) == (False, False)


async def test_one_bot_of_the_list_is_shown_to_telegram(
    pages: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_bot_api() as api:
        monkeypatch.setenv("EVERTALK_TELEGRAM_API_URL", api.base_url)
        id_ = TOKEN.partition(":")[0]
        changes = {BOTS: json.dumps([{"token_env": id_}]), TOKENS: json.dumps({id_: TOKEN})}
        wanted = {"what": "telegram", "name": id_, "changes": changes}
        _, told = await ask(pages, "POST", "/settings/test", json=wanted)
        assert told["message"] == f"It works: the bot is @{USERNAME}."
        _, told = await ask(pages, "POST", "/settings/test", json={"what": "telegram", "name": "9"})
        assert told["message"] == "There is no token to test."
