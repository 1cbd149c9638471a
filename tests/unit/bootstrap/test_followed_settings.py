"""A change of stored settings is noticed whatever fails on the way, and an ending process stays ending."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from shared.bootstrap import process
from shared.bootstrap.followed_settings import FollowedSettings, SettingsFollower
from shared.bootstrap.process import Ending
from shared.config.settings import load_settings
from shared.config.stored import StoredSetting, StoredSettings
from shared.core.values.errors import StorageUnavailable
from shared.supervision.listening_sockets import (
    LISTENING_NAME,
    keep_listening_sockets,
    take_listening_sockets,
)


def stored(version: int, **values: str) -> StoredSettings:
    rows = tuple(
        StoredSetting(name=name, text=text, version=version, changed_by="ada", changed_at=datetime.now(UTC))
        for name, text in values.items()
    )
    return StoredSettings(version=version, rows=rows)


class ScriptedStore:
    """A store that returns or raises the next of its results."""

    def __init__(self, results: Sequence[StoredSettings | Exception]) -> None:
        self._results = list(results)
        self.asked: list[frozenset[str] | None] = []

    async def load_version(self) -> int:
        return 1

    async def load(self, names: frozenset[str] | None = None) -> StoredSettings:
        self.asked.append(names)
        result = self._results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


def follower(store: ScriptedStore) -> SettingsFollower:
    followed = FollowedSettings(settings=load_settings(), version=0)
    return SettingsFollower(store, followed, role="worker", look_seconds=0)


async def test_change_is_noticed_after_the_database_was_away_between_two_reads() -> None:
    store = ScriptedStore([StorageUnavailable("away"), stored(1, EVERTALK_MODEL="one")])
    assert (await follower(store).wait_for_change()).names == ("EVERTALK_MODEL",)
    assert len(store.asked) == 2


async def test_follower_asks_for_no_secret_of_another_process() -> None:
    store = ScriptedStore([stored(1, EVERTALK_MODEL="one")])
    await follower(store).wait_for_change()
    (names,) = store.asked
    assert names is not None
    assert "ANTHROPIC_API_KEY" in names
    assert not {"TELEGRAM_BOT_TOKEN", "EVERTALK_ALERT_SMTP_URL", "EVERTALK_SPEECH_KEY"} & names


def test_stopped_process_does_not_renew_itself() -> None:
    ending = Ending()
    ending.renew()
    assert (ending.is_set(), ending.renews) == (True, True)
    ending.end()
    assert not ending.renews
    ending.renew()
    assert not ending.renews


def test_process_that_cannot_replace_itself_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(program: str, arguments: Sequence[str]) -> None:
        raise OSError("no memory")

    monkeypatch.setattr(os, "execv", refuse)
    process._begin_again()
    assert process.EXIT_SETTINGS_CHANGED not in (
        0, process.EXIT_BAD_SETTINGS, process.EXIT_CANNOT_START, process.EXIT_REPLACED,
    )  # fmt: skip


def test_successor_takes_listening_sockets_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LISTENING_NAME, raising=False)
    with socket.socket() as listening, socket.socket() as other:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        keep_listening_sockets([listening.fileno(), other.fileno()])
        os.environ[LISTENING_NAME] += " 99999 words"
        (taken,) = take_listening_sockets()
        with taken:
            assert taken.getsockname() == listening.getsockname()
            assert not os.get_inheritable(taken.fileno())
    assert LISTENING_NAME not in os.environ
