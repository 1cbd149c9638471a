"""A message of an idle conversation is stored and its turn taken in one commit; of any other, as ever."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from shared.adapters.postgres.turns.attachments import PostgresAttachments
from shared.adapters.postgres.turns.pins import PostgresPins
from shared.core.session.turns import Claim
from shared.core.values.errors import SessionMoved, StorageUnavailable
from shared.core.values.messages import Image, Text
from shared.services.turns.agent_loop import ClaimPrices
from tests.acceptance.turns.begun_turns import begin, begun_claim
from tests.acceptance.turns.pictures import PICTURE
from tests.kit.app_driver import Visit
from tests.kit.rival_compactors import rivals_of

pytestmark = pytest.mark.usefixtures("first_answer")

TURN = """SELECT t.state, t.attempt, s.leased_by IS NOT NULL AS leased, t.claimed_at = t.opened_at AS at_once
  FROM turns t JOIN sessions s ON s.id = t.session_id ORDER BY t.turn_no DESC LIMIT 1"""


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"cap_total_per_day_usd": "5"}


async def turn(guest: Visit) -> tuple[Any, ...]:
    row = await guest.app.pool.fetchrow(TURN)
    assert row is not None
    return tuple(row)


async def test_it_is_stored_and_taken_at_once_and_answered_once(guest: Visit) -> None:
    accepted = await begin(guest, "What is my cat called?")
    assert await turn(guest) == ("claimed", 1, True, True)
    assert await guest.answered()
    assert await turn(guest) == ("answered", 1, False, True)
    assert (accepted.repeated, accepted.turn) == (False, 2)
    assert await guest.one("SELECT count(*) FROM entries WHERE author = 'assistant'") == 2


async def test_it_brings_along_what_a_load_would_have_found(guest: Visit) -> None:
    rivals = await rivals_of(guest)
    for number in range(3):
        await guest.ask(f"Message {number}: the ferry leaves at 1{number}:40.")
    await PostgresPins(guest.app.pool).pin(guest.session_id, 1, most_tokens=1_000)
    await rivals.try_once()
    await guest.app.stores.jobs.end_job(rivals.job, state="done", outcome={})
    await begin(guest, "See the timetable.", more=(Text(text="9:40 Ålesund"),))  # stored as JSON
    await guest.answered()
    await guest.app.pool.execute(
        """INSERT INTO prune_decisions (session_id, seq, form, shown, turn_no)
           SELECT $1, max(seq) - 1, 'clear', '{"a": "short", "b": null}', 5 FROM entries""",
        guest.session_id,
    )
    guest.app.stores.turns._views.take(guest.session_id)  # as in a process that has not answered here
    claim = await begun_claim(guest, "And when does the last one leave?")
    loaded = await guest.app.stores.turns.load(
        guest.session_id, base_turn=claim.view.base_turn, through_turn=claim.turn
    )
    assert claim.entries == loaded
    assert claim.view.head is not None
    assert [entry.turn for entry in loaded] == [1, 3, 3, 4, 4, 5, 5, 6]
    file = next(entry for entry in loaded if entry.turn == 5)
    assert (len(file.blocks), file.pruned, file.pruned_as) == (2, "clear", {"a": "short", "b": None})
    assert len(claim.turn_times) == 6
    await guest.app.pool.execute("DELETE FROM prune_decisions")
    assert sorted(claim.turn_times, reverse=True) == list(claim.turn_times)
    await guest.answered()


async def test_pictures_are_looked_up_when_the_answer_begins(guest: Visit) -> None:
    picture = await PostgresAttachments(guest.app.pool).store(
        guest.session_id, body=PICTURE, mime="image/png"
    )
    more = (Image(attachment_id=picture, mime="image/png"),)
    await begin(guest, "Look at this.", more=more)
    claim, _ = guest.app.sessions._begun[guest.session_id]
    assert claim.entries is None
    await guest.answered()
    assert (await turn(guest))[0] == "answered"


async def test_claim_is_equal_with_and_without_its_message(guest: Visit) -> None:
    await guest.ask("My dog is called Rex.")
    begun = await begun_claim(guest, "And what else?")
    await guest.app.sessions.release_unanswered()
    again = await guest.app.sessions._claim(guest.session_id)
    assert again is not None
    differs = {
        name
        for name in Claim.__dataclass_fields__
        if name not in ("entries", "reservation_id") and getattr(begun, name) != getattr(again, name)
    }
    assert differs == {"epoch", "attempt"}
    assert (again.attempt, again.after_death, again.entries) == (2, False, None)
    await guest.app.sessions._release_claim(again)
    await guest.answered()


async def test_rest_of_a_message_joins_a_turn_that_was_claimed_with_it(guest: Visit) -> None:
    begun = await begin(guest, "The first part.")

    assert await guest.app.sessions.hold_for_rest(guest.session_id, turn=begun.turn)

    assert guest.app.sessions.list_active_sessions() == frozenset()
    assert await guest.app.stores.edits.wake(guest.session_id)
    await guest.answered()
    assert (await turn(guest))[0] == "answered"


async def test_while_an_answer_is_under_way_it_is_only_stored(guest: Visit) -> None:
    await begin(guest, "What is my cat called?")
    second = await begin(guest, "And my dog?")
    assert (second.repeated, second.turn) == (False, 3)
    assert await turn(guest) == ("open", 0, True, None)
    await guest.answered()
    assert await guest.one("SELECT count(*) FROM turns WHERE ended_at IS NULL") == 0


async def test_said_again_it_is_the_same_message(guest: Visit) -> None:
    first = await begin(guest, "What is my cat called?", cid="same")
    await guest.answered()
    again = await begin(guest, "What is my cat called?", cid="same")
    assert (again.repeated, again.seq, again.turn) == (True, first.seq, first.turn)
    assert await guest.one("SELECT count(*) FROM turns") == 2


async def test_of_two_that_come_at_the_same_moment_one_is_stored(guest: Visit) -> None:
    both = await asyncio.gather(*(begin(guest, "What is my cat called?", cid="twice") for _ in range(2)))
    assert sorted(one.repeated for one in both) == [False, True]
    await guest.answered()
    assert await guest.one("SELECT count(*) FROM turns") == 2


async def test_where_a_human_answers_or_the_place_was_left_nothing_is_taken(guest: Visit) -> None:
    await guest.app.pool.execute("UPDATE sessions SET held_after = answered_turn")
    await begin(guest, "Is anybody there?")
    assert await turn(guest) == ("open", 0, False, None)
    await guest.app.pool.execute("UPDATE sessions SET held_after = NULL")
    await guest.answered()
    await guest.app.pool.execute("UPDATE sessions SET left_by = ARRAY[$1::bigint]", guest.address_id)
    with pytest.raises(SessionMoved):
        await begin(guest, "And now?")


async def test_unanswered_claim_is_due_again_and_costs_nothing(guest: Visit) -> None:
    spent = await guest.one("SELECT spent_micro FROM spend_days WHERE scope = 'total'")
    await begin(guest, "What is my cat called?")
    assert await guest.one("SELECT reserved_micro FROM spend_days WHERE scope = 'total'") > 0
    async with asyncio.timeout(20):
        while (await turn(guest))[2]:
            await asyncio.sleep(0.05)
    assert await guest.app.stores.turns.list_unanswered("web") == [guest.session_id]
    assert await guest.one("SELECT spent_micro FROM spend_days WHERE scope = 'total'") == spent
    assert await guest.answered()
    assert await turn(guest) == ("answered", 2, False, True)
    assert await guest.one("SELECT count(*) FROM usage WHERE turn_no = 2") == 1
    assert await guest.one("SELECT reserved_micro FROM spend_days WHERE scope = 'total'") == 0
    assert await guest.one("SELECT count(*) FROM reservations WHERE state = 'held'") == 0


async def test_a_change_that_it_waited_for_is_seen_by_its_turn(guest: Visit) -> None:
    """All that comes along was read before the wait: then nothing is taken, and the turn looks anew."""
    async with guest.app.pool.acquire() as connection, connection.transaction():
        await connection.execute("UPDATE sessions SET goal = 'Find a ferry.'")
        beginning = asyncio.ensure_future(begin(guest, "What is my cat called?"))
        await guest.until_waiting()
    await beginning
    assert guest.session_id not in guest.app.sessions._begun
    assert await turn(guest) == ("open", 0, False, None)
    claim = await guest.app.sessions._claim(guest.session_id)
    assert claim is not None
    assert claim.goal == "Find a ferry."
    await guest.app.sessions._release_claim(claim)
    await guest.answered()


@pytest.mark.parametrize("trouble", [StorageUnavailable("the reply is lost"), ValueError("not to be read")])
async def test_turn_is_free_after_one_beat_when_reply_is_lost(
    guest: Visit, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    takes = guest.app.stores.turns.accept_and_claim

    async def loses(*args: Any, **kwargs: Any) -> Any:
        await takes(*args, **kwargs)
        raise trouble

    monkeypatch.setattr(guest.app.sessions._turns, "accept_and_claim", loses)
    with pytest.raises(type(trouble)):
        await begin(guest, "What is my cat called?", cid="lost")
    monkeypatch.undo()
    again = await begin(guest, "What is my cat called?", cid="lost")
    assert again.repeated
    async with asyncio.timeout(20):
        while (await turn(guest))[2]:
            await asyncio.sleep(0.05)
    assert await guest.answered()
    assert await guest.one("SELECT count(*) FROM turns") == 2


async def test_message_is_stored_when_its_turn_cannot_be_claimed(guest: Visit) -> None:
    """What the claim stumbles over is for the claim to tell: no message is lost for it."""
    too_dear = ClaimPrices(micro_per_input_token=0.0, micro_output=1e300)
    guest.app.sessions._prices = too_dear, time.monotonic()
    accepted = await begin(guest, "What is my cat called?")
    assert (accepted.repeated, await turn(guest)) == (False, ("open", 0, False, None))
    await guest.answered()


async def test_a_message_beyond_a_cap_is_stored_and_refused_in_words(guest: Visit) -> None:
    much = "UPDATE spend_days SET spent_micro = spent_micro + $1 WHERE scope = 'total'"
    await guest.app.pool.execute(much, 5_000_000)
    await begin(guest, "What is my cat called?")
    await guest.answered()
    assert (await turn(guest))[0] == "refused"
    assert await guest.one("SELECT count(*) FROM reservations WHERE state = 'held'") == 0
    await guest.app.pool.execute(much, -5_000_000)
