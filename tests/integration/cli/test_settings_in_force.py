"""Verbs of the command line work with the settings that are stored, as the running processes do."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shared.bootstrap.stored_settings import load_in_force, open_stored_settings
from shared.config.settings import load_settings
from shared.core.values.errors import EvertalkError
from shared.diagnostics.doctor import _load_in_force
from tests.kit.fakes.bot_api import TOKEN

ROOT = Path(__file__).resolve().parents[3]
KEY = "k" * 48


async def store(database_url: str, key: str = KEY, **changes: str) -> None:
    async with open_stored_settings(database_url, load_settings(secret_key=key)) as stored:
        assert await stored.change(changes, seen=await stored.load_version(), by="ada")


async def run(database_url: str, redis_url: str, data: Path, *arguments: str) -> tuple[int, str]:
    given = {
        **os.environ, "DATABASE_URL": database_url, "REDIS_URL": redis_url, "EVERTALK_SECRET_KEY": KEY,
        "EVERTALK_DATA_DIR": str(data),
    }  # fmt: skip
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-m", "shared", *arguments], cwd=ROOT, env=given,
        capture_output=True, text=True, timeout=150,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


async def test_stored_token_is_the_bot_of_pairing_owner(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    await store(database_url, TELEGRAM_BOT_TOKEN=TOKEN)
    code, words = await run(database_url, redis_url, tmp_path, "pairing", "owner")
    assert (code, "has not reached Telegram yet" in words) == (1, True), words


async def test_stored_alert_targets_are_those_of_alert_test(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    await store(database_url, EVERTALK_ALERT_TELEGRAM_CHATS="4711")
    code, words = await run(database_url, redis_url, tmp_path, "alert", "test")
    assert (code, "Evertalk does not run" in words) == (1, True), words


async def test_stored_settings_join_those_of_the_environment(database_url: str, tmp_path: Path) -> None:
    given = load_settings(database_url=database_url, secret_key=KEY, data_dir=tmp_path)
    assert await load_in_force(database_url, given) is given
    await store(database_url, EVERTALK_MODEL="one")
    found = await load_in_force(database_url, given)
    assert (found.model, found.data_dir, found.database_url) == ("one", tmp_path, given.database_url)


async def test_doctor_names_secrets_of_the_database(database_url: str, tmp_path: Path) -> None:
    given = load_settings(database_url=database_url, secret_key=KEY, data_dir=tmp_path)
    await store(database_url, TELEGRAM_BOT_TOKEN=TOKEN, EVERTALK_MODEL="one")
    settings, findings = await _load_in_force(given, database_url)
    assert settings.telegram_bot_token is not None
    assert [str(one) for one in findings] == ["ok    secrets: TELEGRAM_BOT_TOKEN from the database"]


async def test_doctor_reports_stored_secrets_of_another_key(database_url: str, tmp_path: Path) -> None:
    given = load_settings(database_url=database_url, secret_key=KEY, data_dir=tmp_path)
    await store(database_url, key="another" * 8, TELEGRAM_BOT_TOKEN=TOKEN)
    settings, (finding,) = await _load_in_force(given, database_url)
    assert settings is given
    assert finding.level == "fail"
    assert "EVERTALK_SECRET_KEY is not the one" in finding.advice
    with pytest.raises(EvertalkError):
        await load_in_force(database_url, given)
