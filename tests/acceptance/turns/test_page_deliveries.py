"""An answer of a page is delivered with its event; what a version before left open is settled."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.app_driver import Visit

ANSWERS = """
SELECT count(*) FROM events v JOIN entries e USING (session_id, seq)
 WHERE v.kind = 'msg' AND e.author = 'assistant'
"""
STATES = "SELECT string_agg(state, ' ' ORDER BY turn_no) FROM deliveries"
BEFORE = """
INSERT INTO deliveries (session_id, turn_no, part, channel, address_id, state, delivered_at)
SELECT session_id, turn_no, 0, channel, address_id, CASE turn_no WHEN 1 THEN 'delivered' ELSE 'queued' END,
       CASE turn_no WHEN 1 THEN ended_at END FROM turns
"""
"""Rows of a version before, of which the first turn was told."""
LATER = "UPDATE deliveries SET created_at = created_at - interval '2 minutes'"


@pytest.fixture
def model_options() -> dict[str, Any]:
    """Let the built-in demo answer."""
    return {}


class Died(Exception):
    """Where its process would be gone."""


async def test_stored_answer_without_announcement_is_shown_on_next_visit(
    guest: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    await guest.ask("Hello")

    def dies(point: str) -> None:
        if point == "after_answer":
            raise Died

    monkeypatch.setattr(guest.app.sessions, "_crash_point", dies)
    await guest.ask("Are you there?")
    assert await guest.one("SELECT count(*) FROM deliveries") == 0
    assert await guest.one(ANSWERS) == 2


async def test_unannounced_deliveries_of_former_version_are_settled_once(guest: Visit) -> None:
    await guest.ask("Hello")
    await guest.ask("Are you there?")
    await guest.app.pool.execute(BEFORE)
    assert await guest.app.stores.jobs.settle_pages() == 0, "who stored it may be telling it just now"
    await guest.app.pool.execute(LATER)
    assert await guest.app.stores.jobs.settle_pages() == 1
    assert await guest.one(STATES) == "delivered delivered"
    assert await guest.app.stores.jobs.settle_pages() == 0


@pytest.mark.parametrize("rows_by_hand", [True], ids=["by_hand"])
async def test_a_turn_without_an_end_and_a_chat_are_left_alone(guest: Visit) -> None:
    await guest.ask("Hello")
    await guest.ask("Again")
    await guest.app.pool.execute(
        f"""{BEFORE};
           UPDATE deliveries SET state = 'queued';
           UPDATE deliveries SET channel = 'telegram' WHERE turn_no = 1;
           UPDATE turns SET ended_at = NULL, state = 'claimed' WHERE turn_no = 2"""
    )
    await guest.app.pool.execute(LATER)
    assert await guest.app.stores.jobs.settle_pages() == 0
