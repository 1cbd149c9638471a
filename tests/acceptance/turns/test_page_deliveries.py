"""An answer of a page is delivered when it is stored; what a version before left open is settled."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.kit.app_driver import Visit, running_app, settings_for, visit

STATES = "SELECT string_agg(state, ' ' ORDER BY turn_no) FROM deliveries"
LATER = "UPDATE deliveries SET created_at = created_at - interval '2 minutes'"


@pytest.fixture
async def guest(database_url: str, redis_url: str) -> AsyncIterator[Visit]:
    async with running_app(settings_for(database_url, redis_url)) as app:
        yield await visit(app)


class Died(Exception):
    """Where its process would be gone."""


async def test_what_was_stored_and_never_told_is_delivered(
    guest: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    await guest.ask("Hello")

    def dies(point: str) -> None:
        if point == "after_answer":
            raise Died

    monkeypatch.setattr(guest.app.sessions, "_crash_point", dies)
    await guest.ask("Are you there?")
    assert await guest.one(STATES) == "delivered delivered"
    assert await guest.one("SELECT count(*) FROM deliveries WHERE delivered_at IS NULL") == 0


async def test_what_a_version_before_stored_and_never_told_is_settled_once(guest: Visit) -> None:
    await guest.ask("Hello")
    await guest.ask("Are you there?")
    await guest.app.pool.execute(
        "UPDATE deliveries SET state = 'queued', delivered_at = NULL WHERE turn_no = 2"
    )
    assert await guest.app.stores.jobs.settle_pages() == 0, "who stored it may be telling it just now"
    await guest.app.pool.execute(LATER)
    assert await guest.app.stores.jobs.settle_pages() == 1
    assert await guest.one(STATES) == "delivered delivered"
    assert await guest.app.stores.jobs.settle_pages() == 0


async def test_a_turn_without_an_end_and_a_chat_are_left_alone(guest: Visit) -> None:
    await guest.ask("Hello")
    await guest.ask("Again")
    await guest.app.pool.execute(
        """UPDATE deliveries SET state = 'queued';
           UPDATE deliveries SET channel = 'telegram' WHERE turn_no = 1;
           UPDATE turns SET ended_at = NULL, state = 'claimed' WHERE turn_no = 2"""
    )
    await guest.app.pool.execute(LATER)
    assert await guest.app.stores.jobs.settle_pages() == 0
