"""What a person wants forgotten is nowhere afterwards, whatever runs, and nobody else loses a word."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from shared.adapters.postgres.operations.invariants import check_invariants
from shared.adapters.postgres.people.account_links import PostgresAccountLinks
from shared.core.identity.people import LinkedContacts
from shared.services.commands.command_service import CommandResult
from tests.kit.app_driver import Visit, visit
from tests.kit.canaries import dumped

FILLER = "We walked along the river and talked of this and that. " * 40
CANARY = "zwitschernder-Kanarienvogel-8813"
OTHERS = "anderer-Vogel-4242"


@pytest.fixture
def model_options() -> dict[str, Any]:
    """Let the built-in demo answer."""
    return {}


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"context_window": 9_000, "max_output": 1_000, "keep_turns": 2}


async def run(guest: Visit, name: str, args: str = "", **more: Any) -> CommandResult:
    return await guest.app.commands.run(
        session_id=guest.session_id, address_id=guest.address_id, name=name, args=args, **more
    )


async def forget_everything(guest: Visit, **more: Any) -> CommandResult:
    await run(guest, "forget", "everything", **more)
    return await run(guest, "forget", "everything yes", **more)


async def talked(guest: Visit, canary: str = CANARY) -> None:
    await guest.ask(f"Please remember that my dog {canary} is allergic to chicken.")
    for number in range(12):
        await guest.ask(f"Number {number} of {canary}. {FILLER}")
        await guest.run_due_jobs()
    await run(guest, "pin")
    await run(guest, "pins")
    await guest.app.pool.execute(
        "UPDATE sessions SET goal = $2 WHERE id = $1", guest.session_id, f"Praise {canary}"
    )


async def promises_hold(guest: Visit) -> None:
    connection = await asyncpg.connect(guest.app.settings.database_url.get_secret_value())  # type: ignore[union-attr]
    try:
        assert await check_invariants(connection) == []
    finally:
        await connection.close()


async def everything_of(guest: Visit) -> str:
    return await dumped(guest.app.settings)


@pytest.mark.control("S25")
async def test_a_yes_without_a_question_forgets_nothing(guest: Visit) -> None:
    await guest.ask("Hello")
    said = await run(guest, "forget", "everything yes")
    assert not said.success
    assert "Nothing was forgotten" in said.result
    assert not (await run(guest, "forget", "the milk")).success
    assert (await run(guest, "forget", "everything now")).result.startswith("Send `/forget everything`")
    await run(guest, "forget", "everything")
    await guest.app.pool.execute("UPDATE erasure_wishes SET asked_at = now() - interval '11 minutes'")
    assert not (await run(guest, "forget", "everything yes")).success
    assert await guest.one("SELECT count(*) FROM erasures") == 0


@pytest.mark.control("S40")
async def test_what_would_go_is_counted_and_then_gone_from_every_table(guest: Visit) -> None:
    other = await visit(guest.app)
    await talked(other, OTHERS)
    await talked(guest)
    before = await everything_of(guest)
    assert before.count(CANARY) > 10
    shown = await run(guest, "forget", "everything")
    assert "messages" in shown.result
    assert "summar" in shown.result
    assert "memor" in shown.result
    told = await run(guest, "forget", "everything yes")
    assert told.success, told.result
    assert "**Forgotten**" in told.result
    after = await everything_of(guest)
    assert CANARY not in after, around(after, CANARY)
    assert after.count(OTHERS) >= before.count(OTHERS)
    await promises_hold(guest)
    work = await guest.one("SELECT row_to_json(e)::text FROM erasures e")
    assert '"work":null' in work
    assert '"state":"done"' in work


def around(text: str, needle: str) -> str:
    place = text.index(needle)
    start = text.rfind("\n== ", 0, place)
    return text[start : start + 40] + " … " + text[max(0, place - 150) : place + 150]


async def test_the_conversation_goes_on_as_a_new_one(guest: Visit) -> None:
    await talked(guest)
    seq = await guest.one("SELECT max(seq) FROM entries WHERE session_id = $1", guest.session_id)
    head = (await guest.app.stores.turns._pool.fetchval("SELECT max(event_seq) FROM events")) or 0
    await forget_everything(guest)
    said = await guest.say("Good morning, who am I?")
    assert said.seq == seq + 1
    answer = await guest.answered()
    assert CANARY not in answer
    assert not (await run(guest, "undo")).success
    events = await guest.app.pool.fetch(
        "SELECT event_seq, kind FROM events WHERE session_id = $1 ORDER BY event_seq", guest.session_id
    )
    assert [row["event_seq"] for row in events] == list(range(1, len(events) + 1))
    assert {row["kind"] for row in events if row["event_seq"] <= head} == {"erased"}
    for number in range(12):
        await guest.ask(f"Later {number}. {FILLER}")
        await guest.run_due_jobs()
    await promises_hold(guest)


@pytest.mark.control("S40")
async def test_nothing_of_another_sitting_of_the_same_person_stays(guest: Visit) -> None:
    """An archived conversation of a merged contact is theirs, too."""
    archived = await visit(guest.app)
    await talked(archived)
    people = PostgresAccountLinks(guest.app.pool)
    code = await people.issue_code(archived.session_id, archived.address_id)
    assert isinstance(code, str)
    assert isinstance(await people.link_account(guest.session_id, guest.address_id, code), LinkedContacts)
    await guest.ask("Hello again")
    await forget_everything(guest)
    assert CANARY not in await everything_of(guest)
    await promises_hold(guest)


async def test_erasure_ends_waiting_and_running_turns_without_writes(guest: Visit) -> None:
    await guest.ask("Hello")
    await guest.say(f"Please remember {CANARY}.")
    claim = await guest.app.sessions._claim(guest.session_id)
    assert claim is not None
    await guest.say(f"And {CANARY} again.")
    await forget_everything(guest)
    with pytest.raises(Exception, match="turn 2 of session"):
        await guest.app.stores.turns.keep_artifacts(claim, [])
    await guest.answered()
    assert CANARY not in await everything_of(guest)
    await guest.app.stores.turns.release_reservation(claim.reservation_id or 0)
    await promises_hold(guest)


@pytest.mark.control("S40")
async def test_a_crash_in_the_middle_is_finished_by_the_next_sweep(guest: Visit) -> None:
    await talked(guest)
    places = []

    def dies(name: str) -> None:
        places.append(name)
        if len(places) == 4:
            raise RuntimeError("power cut")

    forgetting = guest.app.erasure
    object.__setattr__(forgetting, "_crash_point", dies)
    await run(guest, "forget", "everything")
    with pytest.raises(RuntimeError):
        await forgetting.erase_everything(guest.session_id, "person")
    assert CANARY in await everything_of(guest)
    assert await guest.one("SELECT state FROM erasures") == "running"
    await guest.ask("Do you still know me?")
    places.clear()
    object.__setattr__(forgetting, "_crash_point", lambda _: None)
    assert await forgetting.finish_pending() == 1
    assert CANARY not in await everything_of(guest)
    await promises_hold(guest)
    assert await forgetting.finish_pending() == 0


@pytest.mark.control("S40")
async def test_forgetting_twice_and_by_two_at_once_is_forgetting_once(guest: Visit) -> None:
    await talked(guest)
    forgetting = guest.app.erasure
    await asyncio.gather(*(forgetting.erase_everything(guest.session_id, "person") for _ in range(3)))
    assert CANARY not in await everything_of(guest)
    assert await guest.one("SELECT count(*) FROM erasures WHERE state = 'done'") == 3
    await promises_hold(guest)
