"""Single messages are forgotten with what was made of them; the log keeps their places."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from shared.adapters.postgres.operations.invariants import check_invariants
from shared.core.privacy.erasure import drop_sources, is_about
from shared.core.session.ledger import Ledger, LedgerItem
from tests.kit.app_driver import Visit
from tests.kit.canaries import dumped

CANARY = "Einzel-Kanarienvogel-31"
FILLER = "We walked along the river and talked of this and that. " * 40


@pytest.fixture
def model_options() -> dict[str, Any]:
    """Let the built-in demo answer."""
    return {}


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"context_window": 9_000, "max_output": 1_000, "keep_turns": 2}


async def with_the_word(guest: Visit, word: str) -> list[int]:
    rows = await guest.app.pool.fetch(
        "SELECT seq FROM entries WHERE session_id = $1 AND blocks::text LIKE $2",
        guest.session_id,
        f"%{word}%",
    )
    return [row["seq"] for row in rows]


async def promises_hold(guest: Visit) -> None:
    url = guest.app.settings.database_url
    assert url is not None
    connection = await asyncpg.connect(url.get_secret_value())
    try:
        assert await check_invariants(connection) == []
    finally:
        await connection.close()


async def test_erased_message_and_everything_derived_from_it_are_gone(guest: Visit) -> None:
    await guest.ask("Please remember that my cat is called Miso.")
    await guest.ask(f"Please remember that the door code is {CANARY}.")
    for number in range(12):
        await guest.ask(f"Number {number}: we decided to meet on 2026-05-{number + 10} in Lisbon. {FILLER}")
        await guest.run_due_jobs()
    assert await guest.one(
        "SELECT count(*) FROM compactions WHERE active AND summary_text LIKE '%' || $1 || '%'", CANARY
    )
    gone = await with_the_word(guest, CANARY)
    report = await guest.app.erasure.erase_messages(guest.session_id, gone, "person")
    assert report.counts["entries"] == len(gone)
    assert report.counts["notes"] == 1
    stored = await dumped(guest.app.settings)
    assert CANARY not in stored, stored[max(0, stored.index(CANARY) - 300) :][:400]
    assert "Miso" in stored
    assert "we decided to meet on 2026-05-1" in await guest.one(
        "SELECT summary_text FROM compactions ORDER BY id LIMIT 1"
    )
    await promises_hold(guest)
    assert CANARY not in await guest.ask("What is the door code?")
    for number in range(8):
        await guest.ask(f"Later {number}. {FILLER}")
        await guest.run_due_jobs()
    assert CANARY not in await dumped(guest.app.settings)
    await promises_hold(guest)


async def test_an_edited_message_is_all_its_forms(guest: Visit) -> None:
    first = await guest.say(f"The code is {CANARY}.")
    await guest.answered()
    await guest.ask("Thank you")
    await guest.reword(first.seq, f"No, {CANARY}-b.")
    await guest.one(
        """INSERT INTO telegram_messages (bot_id, chat_id, message_id, session_id, seq, turn_no, own_text)
           SELECT 1, 1, 1, session_id, seq, 1, $2 FROM entries WHERE session_id = $1 AND replaces_seq = 1""",
        guest.session_id,
        CANARY,
    )
    answer = (await with_the_word(guest, CANARY))[1:2]
    await guest.app.erasure.erase_messages(guest.session_id, [first.seq, *answer], "person")
    assert await with_the_word(guest, CANARY) == []
    assert await guest.one("SELECT own_text FROM telegram_messages") == ""
    await promises_hold(guest)


async def test_message_erased_during_its_turn_is_answered_again_without_it(guest: Visit) -> None:
    said = await guest.say(f"What rhymes with {CANARY}?")
    claim = await guest.app.sessions._claim(guest.session_id)
    assert claim is not None
    await guest.app.erasure.erase_messages(guest.session_id, [said.seq], "person")
    await guest.app.stores.turns.release_reservation(claim.reservation_id or 0)
    assert CANARY not in await guest.answered()
    assert CANARY not in await dumped(guest.app.settings)
    await promises_hold(guest)


def test_a_record_loses_what_cites_the_message_and_what_cites_nothing() -> None:
    items = (
        LedgerItem(id="F1", kind="fact", text="kept", sources=(3,)),
        LedgerItem(id="F2", kind="fact", text="cites both", sources=(3, 5)),
        LedgerItem(id="F3", kind="fact", text="cites nothing"),
    )
    left = drop_sources(Ledger(narrative="all of it", items=items, identifiers=("4711",)), {5})
    assert [item.text for item in left.items] == ["kept"]
    assert (left.narrative, left.identifiers) == ("", ())


def test_notes_of_a_wide_range_go_when_they_share_a_word() -> None:
    assert is_about("The dog is called Bertil.", "bertil barks")
    assert not is_about("The cat sleeps.", "bertil barks")
