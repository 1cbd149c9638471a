"""Announcements of changed settings: a connection that cannot listen is closed, and listening is retried."""

from __future__ import annotations

from collections.abc import Callable

import asyncpg
import pytest

from shared.adapters.postgres.people import stored_settings
from shared.adapters.postgres.people.stored_settings import SettingsNews


class Connection:
    """Connection to PostgreSQL; the first LISTEN of all fails with `error`."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error
        self.is_terminated = False

    async def add_listener(self, channel: str, callback: Callable[..., object]) -> None:
        if self._error is not None:
            raise self._error
        callback(self, 1, channel, "2")

    def terminate(self) -> None:
        self.is_terminated = True

    def is_closed(self) -> bool:
        return self.is_terminated


@pytest.mark.parametrize("error", [asyncpg.ConnectionDoesNotExistError("gone"), TimeoutError()])
async def test_listening_is_retried_on_a_new_connection_after_it_failed(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Connection] = []

    async def connect(_url: str, *, timeout: float) -> Connection:
        opened.append(Connection(None if opened else error))
        return opened[-1]

    monkeypatch.setattr(stored_settings, "connect", connect)
    monkeypatch.setattr(stored_settings, "RECONNECT_SECONDS", 0)
    news = SettingsNews("postgresql://somewhere/database")
    await news.wait(0)
    await news.wait(60)
    assert [one.is_terminated for one in opened] == [True, False]
