"""Settings that operators change in the browser: checked, sealed, audited, nobody overwritten; and tried."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest
from aiohttp import web

from shared.adapters.postgres.people.stored_settings import PostgresStoredSettings
from shared.bootstrap.stored_settings import build_stored_settings
from shared.config.settings import list_setting_names, load_settings
from shared.config.stored import STORABLE
from tests.integration.web.dashboard.operator_calls import ask, put, rows_of
from tests.integration.web.dashboard.settings_house import pages
from tests.kit.dashboard.fixtures import Dashboard, RunCommands
from tests.kit.dashboard.people_seed import a_bot
from tests.kit.dashboard.serve import served
from tests.kit.fakes.bot_api import TOKEN, USERNAME, running_bot_api
from tests.kit.fakes.embeddings.harness import RunningEmbeddings
from tests.kit.fakes.messages_api import running_fake
from tests.kit.fakes.messages_api.server import BAD_KEY
from tests.kit.fakes.rerank.harness import RunningReranker
from tests.kit.fakes.speech.harness import RunningSpeech
from tests.kit.fakes.transcriptions.harness import RunningTranscriptions

__all__ = ["pages"]


KEY = "sk-typed-in-a-form"
CAP = "EVERTALK_CAP_TOTAL_PER_DAY_USD"


async def test_settings_page_asks_for_unknown_prices(
    pool: asyncpg.Pool[asyncpg.Record], database_url: str, tmp_path: Path
) -> None:
    models = [{"name": "house", "base_url": "http://127.0.0.1:9", "wire": "openai"}]
    settings = load_settings(data_dir=tmp_path, secret_key="k" * 40, models=json.dumps(models))
    async with (
        served(web.Application(), pool=pool, settings=settings, commands=RunCommands()) as url,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as http,
    ):
        pages = Dashboard(url=url, database_url=database_url, pool=pool, http=http, commands=RunCommands())
        told, _ = await rows_of(pages)
    assert (told["unpriced"], told["token_cap"]) == (["house"], 500_000)


async def test_settings_form_describes_input_kinds_and_sources(pages: Dashboard) -> None:
    assert (await put(pages, 0, **{CAP: " 2.50 "}))[0] == 200
    told, rows = await rows_of(pages)
    assert (told["version"], told["pending"], told["problems"]) == (1, [CAP], [])
    assert told["unpriced"] == []
    cap = rows[CAP]
    assert (cap["stored"], cap["from"], cap["changed_by"], cap["kind"]) == (
        "2.50",
        "stored",
        "admin",
        "number",
    )
    preset = rows["EVERTALK_PRESET"]
    assert (preset["editable"], preset["from"], preset["value"]) == (False, "environment", "pantheon")
    assert (preset["kind"], "steady" in preset["choices"]) == ("choice", True)
    names = list_setting_names()
    assert {name for name, one in rows.items() if "kind" in one} == {names[field] for field in STORABLE}
    kinds = {rows[names[field]]["kind"]: field for field in STORABLE}
    assert kinds.keys() == {"secret", "switch", "choice", "number", "text", "models", "bots"}
    assert rows["EVERTALK_HANDOVER"]["choices"] == ["off", "on"]
    assert rows["EVERTALK_RETENTION_DAYS"]["kind"] == rows["EVERTALK_HANDOVER_MINUTES"]["kind"] == "number"
    assert rows["EVERTALK_TELEGRAM_ALLOWED"]["kind"] == "text"


@pytest.mark.control("S37")
async def test_stored_secret_is_never_returned(pages: Dashboard) -> None:
    status, saved = await put(pages, 0, ANTHROPIC_API_KEY=KEY)
    assert (status, KEY in str(saved)) == (200, False)
    told, rows = await rows_of(pages)
    assert (rows["ANTHROPIC_API_KEY"]["stored"], KEY in str(told)) == ("set", False)
    assert (rows["ANTHROPIC_API_KEY"]["value"], rows["ANTHROPIC_API_KEY"]["from"]) == ("set", "stored")
    status, refused = await put(pages, 0, ANTHROPIC_API_KEY=KEY + "-2", EVERTALK_MODEL="mine")
    assert (status, KEY in str(refused)) == (409, False)
    audit = await pages.pool.fetch("SELECT actor, action, detail FROM audit WHERE object = 'settings'")
    assert [(row["actor"], row["detail"]["names"]) for row in audit] == [("admin", ["ANTHROPIC_API_KEY"])]
    for table in ("stored_settings", "audit"):
        rows_now = await pages.pool.fetch(f"SELECT t::text AS row FROM {table} t")
        assert not any(KEY in row["row"] or KEY.encode().hex() in row["row"] for row in rows_now)
    assert (await put(pages, 1, ANTHROPIC_API_KEY=None))[0] == 200
    key = (await rows_of(pages))[1]["ANTHROPIC_API_KEY"]
    assert (key["stored"], key["value"], key["from"]) == (None, "not set", "default")


async def seal_with_another_key(pages: Dashboard, **secrets: str) -> None:
    store = build_stored_settings(pages.pool, load_settings(secret_key="l" * 40))
    seen = await store.load_version()
    assert await store.change(secrets, seen=seen, by="anna") == seen + 1


async def test_secret_that_cannot_be_decrypted_is_reported_and_replaced(pages: Dashboard) -> None:
    number = TOKEN.partition(":")[0]
    bots, tokens = json.dumps([{"token_env": number}]), json.dumps({number: TOKEN})
    both = {"EVERTALK_TELEGRAM_BOTS": bots, "EVERTALK_TELEGRAM_TOKENS": tokens}
    assert (await put(pages, 0, **both))[0] == 200
    secrets = {"OPENAI_API_KEY": KEY, "EVERTALK_TELEGRAM_TOKENS": tokens}
    await seal_with_another_key(pages, ANTHROPIC_API_KEY=KEY, **secrets)
    told, rows = await rows_of(pages)
    assert [one["name"] for one in told["problems"]] == [
        "ANTHROPIC_API_KEY", "EVERTALK_TELEGRAM_TOKENS", "OPENAI_API_KEY",
    ]  # fmt: skip
    assert all("EVERTALK_SECRET_KEY is not the one" in one["reason"] for one in told["problems"])
    key = rows["ANTHROPIC_API_KEY"]
    assert (key["stored"], key["value"], key["from"]) == ("set", "set", "stored")
    assert (await put(pages, 2, **{CAP: "2"}))[0] == 200
    status, told = await put(pages, 3, OPENAI_BASE_URL="https://elsewhere.example")
    assert (status, told["details"]["problems"][0]["name"]) == (422, "OPENAI_API_KEY")
    assert (await put(pages, 3, ANTHROPIC_API_KEY=f"{KEY}-2", OPENAI_API_KEY=None))[0] == 200
    status, told = await put(pages, 4, EVERTALK_TELEGRAM_TOKENS=tokens)
    assert (status, told["problems"]) == (200, [])


async def test_second_of_two_operators_learns_who_changed_what(pages: Dashboard) -> None:
    assert (await put(pages, 0, **{CAP: "2", "EVERTALK_MODEL": "hers"}))[0] == 200
    status, told = await put(pages, 0, **{CAP: "3"})
    assert (status, told["code"], told["details"]["theirs"]["version"]) == (409, "stale", 1)
    changed = [(one["name"], one["value"], one["by"]) for one in told["details"]["changed"]]
    assert changed == [(CAP, "2", "admin"), ("EVERTALK_MODEL", "hers", "admin")]
    assert (await rows_of(pages))[1][CAP]["stored"] == "2"
    assert (await put(pages, 1, **{CAP: "3"}))[0] == 200
    assert (await ask(pages, "PUT", "/settings", json={"changes": {CAP: "4"}}))[0] == 428


async def test_loser_of_a_race_between_read_and_store_is_refused(
    pages: Dashboard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Both have seen the newest version when they come; the table lets one of them change it."""
    assert (await ask(pages, "GET", "/settings"))[0] == 200
    both = asyncio.Barrier(2)
    load = PostgresStoredSettings.load_readable

    async def together(self: PostgresStoredSettings) -> Any:
        found = await load(self)
        if not both.broken and found.version == 0:
            await both.wait()
        return found

    monkeypatch.setattr(PostgresStoredSettings, "load_readable", together)
    done = await asyncio.gather(put(pages, 0, **{CAP: "2"}), put(pages, 0, EVERTALK_MODEL="b"))
    assert sorted(status for status, _ in done) == [200, 409]
    monkeypatch.undo()
    store = build_stored_settings(pages.pool, load_settings(data_dir=tmp_path, secret_key="k" * 40))
    assert len((await store.load()).values) == 1


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("EVERTALK_PRESET", "steady", "is set by the environment"),
        ("EVERTALK_SOFT_BUDGET", "many", "valid integer"),
        ("EVERTALK_ALERT_WEBHOOK_URL", "http://elsewhere.example", "must begin with https://"),
        ("EVERTALK_HTTP_PORT", "81", "cannot be stored"),
        ("TELEGRAM_BOT_TOKEN", "abc", "is not a bot's token"),
    ],
)
async def test_invalid_setting_is_reported_next_to_its_name(
    pages: Dashboard, name: str, text: str, reason: str
) -> None:
    status, told = await put(pages, 0, **{name: text, CAP: "2"})
    assert (status, told["code"]) == (422, "bad_settings")
    [problem] = told["details"]["problems"]
    assert (problem["name"], reason in problem["reason"]) == (name, True)
    assert (await rows_of(pages))[0]["version"] == 0


async def test_hook_of_summaries_is_stored_with_its_secret(pages: Dashboard) -> None:
    url, secret = "EVERTALK_COMPACTION_HOOK_URL", "EVERTALK_COMPACTION_HOOK_SECRET"
    status, told = await put(pages, 0, **{url: "https://hook.example/x"})
    assert (status, [one["name"] for one in told["details"]["problems"]]) == (422, [secret])
    both = {url: "https://hook.example/x", secret: "s" * 32}
    assert (await put(pages, 0, **both))[0] == 200
    assert (await put(pages, 1, **{url: "https://hook.example/y"}))[0] == 200, "the secret is stored"
    assert (await put(pages, 2, **{CAP: "2"}))[0] == 200
    assert (await put(pages, 3, **{url: "https://10.0.0.1:80/", secret: "short"}))[0] == 422


async def test_only_admins_change_or_try_settings(pages: Dashboard) -> None:
    for role in ("viewer", "operator"):
        assert (await put(pages, 0, role, **{CAP: "2"}))[0] == 403
        assert (await ask(pages, "POST", "/settings/test", role=role, json={"what": "model"}))[0] == 403
    assert (await put(pages, 0))[0] == 400
    assert (await put(pages, 0, **{CAP: "two\nlines"}))[0] == 422


async def tried(pages: Dashboard, what: str, **changes: str) -> Any:
    status, told = await ask(pages, "POST", "/settings/test", json={"what": what, "changes": changes})
    assert status == 200
    return told


async def test_a_key_is_tried_with_a_tiny_request_before_it_is_stored(pages: Dashboard) -> None:
    assert (await tried(pages, "model"))["message"] == "No model is set: the built-in demo answers."
    async with running_fake() as provider:
        typed = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": provider.base_url}
        told = await tried(pages, "model", **typed)
        assert (told["ok"], "claude-sonnet" in told["message"], "claude-haiku" in told["message"]) == (
            True, True, True,
        )  # fmt: skip
        told = await tried(pages, "model", **typed | {"ANTHROPIC_API_KEY": BAD_KEY})
        assert (told["ok"], told["message"]) == (False, "The provider refuses the key or the account.")
        assert BAD_KEY not in str(told)
        told = await tried(pages, "model", **typed, EVERTALK_MODEL="no-such-model")
        assert not told["ok"]
    assert (await rows_of(pages))[0]["version"] == 0
    told = await tried(pages, "model", **typed)
    assert (told["ok"], told["message"]) == (False, "The model did not answer.")


async def test_who_transcribes_is_tried_with_a_second_of_silence(pages: Dashboard) -> None:
    assert (await tried(pages, "voice"))["message"] == "There is no address to test."
    async with RunningTranscriptions() as service:
        typed = service.settings
        told = await tried(pages, "voice", **typed)
        assert (told["ok"], told["message"].startswith("It works: whisper-1 answered in ")) == (True, True)
        told = await tried(pages, "voice", **typed | {"EVERTALK_TRANSCRIBE_KEY": BAD_KEY})
        assert (told["ok"], told["message"]) == (False, "The provider refuses the key or the account.")
        assert BAD_KEY not in str(told)
        assert (await put(pages, 0, **typed))[0] == 200
    told = await tried(pages, "voice")
    assert (told["ok"], told["message"]) == (False, "The model did not answer.")
    body = {"what": "voice", "changes": {"EVERTALK_TRANSCRIBE_URL": "http://127.0.0.1:9"}}
    status, told = await ask(pages, "POST", "/settings/test", json=body)
    assert (status, told["details"]["problems"][0]["name"]) == (422, "EVERTALK_TRANSCRIBE_KEY")


@pytest.mark.parametrize("kind", [RunningReranker, RunningEmbeddings])
async def test_who_orders_what_is_recalled_is_tried_with_passages(
    kind: type[RunningReranker | RunningEmbeddings], pages: Dashboard
) -> None:
    assert (await tried(pages, "recall"))["message"] == "There is no address to test."
    async with kind() as server:
        address, key, _ = (f"EVERTALK_{name.upper()}" for name in server.settings)
        typed = {f"EVERTALK_{name.upper()}": text for name, text in server.settings.items()}
        told, tries = await tried(pages, "recall", **typed), 1
        while told["message"].startswith("It answered after ") and tries < 5:
            # A machine that is busy with something else is late now and then.
            told, tries = await tried(pages, "recall", **typed), tries + 1
        assert (told["ok"], told["message"].startswith("It works: 127.0.0.1 answered in ")) == (True, True)
        await server.next({"latency": 0.5})
        told = await tried(pages, "recall", **typed)
        assert (told["ok"], told["message"].startswith("It answered after ")) == (False, True)
        told = await tried(pages, "recall", **typed | {key: BAD_KEY})
        assert (told["ok"], told["reason"]) == (False, "status 401")
        assert (await put(pages, 0, **typed))[0] == 200
    assert (await tried(pages, "recall"))["message"] == "The model did not answer."
    body = {"what": "recall", "changes": {address: "http://127.0.0.1:9"}}
    status, told = await ask(pages, "POST", "/settings/test", json=body)
    assert (status, told["details"]["problems"][0]["name"]) == (422, key)


async def test_both_servers_of_recall_are_tried(pages: Dashboard) -> None:
    async with RunningReranker() as reranker, RunningEmbeddings() as embedder:
        both = reranker.settings | embedder.settings
        typed = {f"EVERTALK_{name.upper()}": text for name, text in both.items()}
        assert (await tried(pages, "recall", **typed))["ok"] is True
        assert (len(await reranker.requests()), len(await embedder.requests())) == (1, 1)
        await reranker.next({"status": 500})
        assert (await tried(pages, "recall", **typed))["reason"] == "status 500"
        await embedder.next({"status": 500})
        assert (await tried(pages, "recall", **typed))["reason"] == "status 500"


async def test_who_speaks_is_tried_with_a_word(pages: Dashboard) -> None:
    async with RunningSpeech() as service:
        told = await tried(pages, "speech", **service.settings)
        assert told["message"].startswith("It works: gpt-4o-mini-tts answered in ")
        told = await tried(pages, "speech", **service.settings | {"EVERTALK_SPEECH_KEY": BAD_KEY})
        assert (told["ok"], told["message"]) == (False, "The provider refuses the key or the account.")
        assert [one["input"] for one in await service.requests()] == ["Hello.", "Hello."]
    assert (await tried(pages, "speech"))["message"] == "There is no address to test."


async def test_a_stored_key_is_not_sent_to_another_address_by_a_test(pages: Dashboard) -> None:
    assert (await put(pages, 0, ANTHROPIC_API_KEY=KEY))[0] == 200
    body = {"what": "model", "changes": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}}
    status, told = await ask(pages, "POST", "/settings/test", json=body)
    assert (status, told["details"]["problems"][0]["name"]) == (422, "ANTHROPIC_API_KEY")


async def test_a_token_is_shown_to_telegram(pages: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await tried(pages, "telegram"))["message"] == "There is no token to test."
    async with running_bot_api() as telegram:
        monkeypatch.setenv("EVERTALK_TELEGRAM_API_URL", telegram.base_url)
        told = await tried(pages, "telegram", TELEGRAM_BOT_TOKEN=TOKEN)
        assert (told["ok"], f"@{USERNAME}" in told["message"]) == (True, True)
        told = await tried(pages, "telegram", TELEGRAM_BOT_TOKEN="1234567890:" + "B" * 35)
        assert (told["ok"], told["message"]) == (False, "Telegram does not know a bot with this token.")
    told = await tried(pages, "telegram", TELEGRAM_BOT_TOKEN=TOKEN)
    assert (told["ok"], told["message"], TOKEN in str(told)) == (False, "Telegram did not answer.", False)
    audit = await pages.pool.fetch("SELECT detail FROM audit WHERE action = 'settings.tested'")
    assert [row["detail"]["what"] for row in audit] == ["telegram"] * 4


async def test_the_checklist_knows_a_stored_token_before_any_process_does(pages: Dashboard) -> None:
    async def state_of_telegram() -> str:
        _, told = await ask(pages, "GET", "/checklist")
        found: str = next(one["state"] for one in told["steps"] if one["name"] == "telegram")
        return found

    assert await state_of_telegram() == "todo"
    async with pages.pool.acquire() as connection:
        await a_bot(connection)
    assert await state_of_telegram() == "todo"
    assert (await put(pages, 0, TELEGRAM_BOT_TOKEN=TOKEN))[0] == 200
    assert await state_of_telegram() == "broken"
    assert (await put(pages, 1, TELEGRAM_BOT_TOKEN=None))[0] == 200
    assert await state_of_telegram() == "todo"
    assert (await ask(pages, "GET", "/checklist", role="operator"))[0] == 403
