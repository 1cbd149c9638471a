"""Secrets from files: read like the variable itself, refused with the name of what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from shared.adapters.models.catalog import ModelEntry, ModelsFileBroken
from shared.adapters.models.routing import open_models
from shared.adapters.models.token_counter import VocabularyCounter
from shared.config.bots import load_bots
from shared.config.secret_files import MAX_BYTES, SecretEnvironment
from shared.config.settings import (
    BadSettings,
    Settings,
    find_setting_sources,
    find_unknown_names,
    is_secret,
    list_secret_file_names,
    list_setting_names,
    load_environment,
    load_settings,
)
from shared.config.stored import find_locked, load_with_stored
from shared.core.tools.mcp import servers_in
from shared.diagnostics.local_checks import check_settings
from shared.supervision.process_secrets import select_environment

TOKEN = "123456789:" + "x" * 35
SECRET = "a-secret-that-nobody-may-see"
WriteSecret = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> WriteSecret:
    def write_secret(content: str | bytes, name: str = "secret") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_secret


def test_every_secret_setting_can_come_from_a_file() -> None:
    secrets = {field for field in Settings.model_fields if is_secret(field)}
    assert set(list_secret_file_names().values()) == secrets
    assert not set(list_secret_file_names()) & set(list_setting_names().values())


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_secret_is_read_without_its_line_end(
    monkeypatch: pytest.MonkeyPatch, write: WriteSecret, end: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY_FILE", str(write(SECRET + end)))
    key = load_settings().anthropic_api_key
    assert key is not None
    assert key.get_secret_value() == SECRET


def test_value_from_a_file_is_checked_like_any_other(
    monkeypatch: pytest.MonkeyPatch, write: WriteSecret
) -> None:
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN_FILE", str(write(SECRET)))
    with pytest.raises(BadSettings, match="TELEGRAM_BOT_TOKEN=\\(hidden\\): is not a bot's token") as refused:
        load_settings()
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "is empty"),
        ("\n", "is empty"),
        (b"\xff\xfe", "is not text in UTF-8"),
        ("x" * (MAX_BYTES + 1), "has more than 65,536 bytes"),
    ],
)
def test_unusable_file_is_refused_with_its_path(
    monkeypatch: pytest.MonkeyPatch, write: WriteSecret, content: str | bytes, reason: str
) -> None:
    path = write(content)
    monkeypatch.setenv("EVERTALK_SECRET_KEY_FILE", str(path))
    with pytest.raises(BadSettings) as refused:
        load_settings()
    assert str(refused.value) == f"EVERTALK_SECRET_KEY_FILE: {path} {reason}"


def test_missing_file_and_folder_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REDIS_URL_FILE", str(tmp_path / "nothing"))
    monkeypatch.setenv("DATABASE_URL_FILE", str(tmp_path))
    with pytest.raises(BadSettings) as refused:
        load_settings()
    assert {str(problem) for problem in refused.value.problems} == {
        f"REDIS_URL_FILE: there is no file {tmp_path / 'nothing'}",
        f"DATABASE_URL_FILE: there is no file {tmp_path}",
    }


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that not even root can read")
def test_unreadable_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERTALK_SECRET_KEY_FILE", "/proc/self/mem")
    with pytest.raises(BadSettings, match="EVERTALK_SECRET_KEY_FILE: /proc/self/mem cannot be read: "):
        load_settings()


def test_variable_and_file_together_are_refused(monkeypatch: pytest.MonkeyPatch, write: WriteSecret) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("OPENAI_API_KEY_FILE", str(write(SECRET)))
    with pytest.raises(BadSettings) as refused:
        load_settings()
    assert str(refused.value) == "OPENAI_API_KEY_FILE: is set beside OPENAI_API_KEY: leave one of them out"
    monkeypatch.setenv("OPENAI_API_KEY", "")
    assert load_settings().openai_api_key is not None, "Compose sets what it does not know to nothing"


def test_env_file_can_name_secret_files(
    monkeypatch: pytest.MonkeyPatch, write: WriteSecret, tmp_path: Path
) -> None:
    (tmp_path / "env").write_text(f"EVERTALK_METRICS_TOKEN_FILE={write(SECRET)}\n")
    monkeypatch.setenv("EVERTALK_ENV_FILE", str(tmp_path / "env"))
    token = load_settings().metrics_token
    assert token is not None
    assert token.get_secret_value() == SECRET
    assert find_setting_sources()["metrics_token"] == "file"


def test_secret_from_a_file_wins_over_the_stored_one(
    monkeypatch: pytest.MonkeyPatch, write: WriteSecret
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY_FILE", str(write(SECRET)))
    assert {"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"} <= find_locked()
    key = load_with_stored({"ANTHROPIC_API_KEY": "a-stored-one"}).anthropic_api_key
    assert key is not None
    assert key.get_secret_value() == SECRET


def test_supervised_process_is_given_the_secret_and_not_the_file(
    monkeypatch: pytest.MonkeyPatch, write: WriteSecret
) -> None:
    monkeypatch.setenv("EVERTALK_METRICS_TOKEN_FILE", str(write(SECRET)))
    monkeypatch.setenv("SHOP_TOKEN_FILE", str(write(TOKEN, "token")))
    environment = load_environment()
    web = select_environment("web", environment, tokens=["SHOP_TOKEN"])
    worker = select_environment("worker", environment, tokens=["SHOP_TOKEN"])
    assert web["EVERTALK_METRICS_TOKEN"] == SECRET
    assert not {"EVERTALK_METRICS_TOKEN", "EVERTALK_METRICS_TOKEN_FILE", "SHOP_TOKEN_FILE"} & set(worker)


def test_known_file_names_are_no_typing_errors() -> None:
    names = {"EVERTALK_SECRET_KEY_FILE": "", "EVERTALK_MODEL_FILE": ""}
    assert set(find_unknown_names(names)) == {"EVERTALK_MODEL_FILE"}


def test_bot_token_of_a_bots_file_comes_from_a_file(
    monkeypatch: pytest.MonkeyPatch, write: WriteSecret
) -> None:
    bots = write(json.dumps([{"token_env": "SHOP_TOKEN"}]), "bots.json")
    monkeypatch.setenv("EVERTALK_TELEGRAM_BOTS_FILE", str(bots))
    monkeypatch.setenv("SHOP_TOKEN_FILE", str(write(f"{TOKEN}\n")))
    (bot,) = load_bots(load_settings())
    assert bot.token.get_secret_value() == TOKEN
    monkeypatch.setenv("SHOP_TOKEN_FILE", "/nowhere")
    with pytest.raises(BadSettings, match="SHOP_TOKEN there is no file /nowhere"):
        load_bots(load_settings())


def test_header_of_a_tool_server_comes_from_a_file(write: WriteSecret) -> None:
    headers = {"Authorization": "Bearer ${TOOL_TOKEN}"}
    text = json.dumps({"mcpServers": {"tools": {"url": "https://tools.example.org", "headers": headers}}})
    (server,), problems = servers_in(text, SecretEnvironment({"TOOL_TOKEN_FILE": str(write(SECRET))}))
    assert (server.headers["Authorization"], problems) == (f"Bearer {SECRET}", ())
    servers, problems = servers_in(text, SecretEnvironment({"TOOL_TOKEN_FILE": "/nowhere"}))
    assert (servers, problems) == ((), ("tools: TOOL_TOKEN: there is no file /nowhere",))


def test_key_of_a_model_entry_that_cannot_be_read_is_named() -> None:
    entry = ModelEntry(name="shop", model="m", base_url="http://127.0.0.1:9", key_env="SHOP_KEY")
    with pytest.raises(ModelsFileBroken, match="SHOP_KEY: there is no file /nowhere"):
        open_models(
            api_key=None, base_url=None, entries=(entry,), environ={"SHOP_KEY_FILE": "/nowhere"},
            counter=VocabularyCounter(),
        )  # fmt: skip


def test_doctor_says_where_each_secret_comes_from(
    monkeypatch: pytest.MonkeyPatch, write: WriteSecret
) -> None:
    path = write("k" * 40)
    monkeypatch.setenv("EVERTALK_SECRET_KEY_FILE", str(path))
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    found = [finding.what for finding in check_settings()]
    assert f"secrets: ANTHROPIC_API_KEY from the environment, EVERTALK_SECRET_KEY from {path}" in found
    assert SECRET not in "".join(found)
