"""Forks of conversations: a copy of the talk up to a message, and nothing doubled beside it."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, replace
from typing import Any

import asyncpg
import pytest

from shared.adapters.postgres.operations.invariants import check_invariants
from shared.adapters.postgres.people.forks import PostgresForks
from shared.core.context.recall_query import RecallQuery
from shared.core.session.forks import Fork, fork_title
from shared.core.session.session import View
from shared.core.values.errors import CannotFork, StorageUnavailable, UnknownMessage
from shared.core.values.files import Attached
from shared.core.values.messages import Image, text_of
from tests.kit.app_driver import Visit, working
from tests.kit.sample_pictures import image

LONG = "The ferry to Bodø passes nine islands, and on each of them somebody waves. " * 20
_LOG = (
    "entry_rows",
    "turn_entries",
    "turns",
    "events",
    "compactions",
    "pins",
    "addresses",
    "artifacts",
    "flushes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """A fork, and its visitor in it."""

    told: Fork
    there: Visit


async def fork(guest: Visit, mid: int, *, key: str = "f1") -> Forked:
    told = await guest.app.stores.forks.fork(
        guest.session_id, guest.address_id, seq=mid, key=key, title=lambda title: fork_title(title, "fork")
    )
    row = await guest.app.pool.fetchrow(
        """SELECT a.id, a.session_id FROM addresses a JOIN sessions s ON s.id = a.session_id
            WHERE s.public_id = $1""",
        told.session_public_id,
    )
    assert row is not None
    return Forked(told=told, there=Visit(app=guest.app, session_id=row["session_id"], address_id=row["id"]))


async def answers(guest: Visit) -> list[int]:
    rows = await guest.app.pool.fetch(
        "SELECT seq FROM entries WHERE session_id = $1 AND author = 'assistant' ORDER BY seq",
        guest.session_id,
    )
    return [row["seq"] for row in rows]


async def view(guest: Visit) -> View:
    return (await guest.app.stores.jobs.load_state(guest.session_id)).view


def shown(view: View) -> list[tuple[Any, ...]]:
    """Return what a request is made of, without numbers of the log."""
    return [
        (one.turn, one.role, one.author, one.blocks, one.tokens, one.pinned, one.pruned)
        for one in (*view.pins, *view.entries)
    ]


async def state_of(guest: Visit) -> dict[str, str]:
    """Return a digest of all rows of a session, by table."""
    found = {}
    for table in (*_LOG, "sessions", "session_totals"):
        rows = await guest.app.pool.fetch(
            f"SELECT x::text AS row FROM {table} x WHERE {'id' if table == 'sessions' else 'session_id'} = $1"
            " ORDER BY 1",
            guest.session_id,
        )
        found[table] = hashlib.sha256("\n".join(row["row"] for row in rows).encode()).hexdigest()
    return found


async def command(guest: Visit, name: str, args: str = "") -> str:
    found = guest.app.commands.run(
        session_id=guest.session_id, address_id=guest.address_id, name=name, args=args, language=""
    )
    async with working(guest):
        return (await asyncio.wait_for(found, 60)).result


async def violations(guest: Visit) -> list[str]:
    url = guest.app.settings.database_url
    assert url is not None
    connection = await asyncpg.connect(url.get_secret_value(), timeout=60)
    try:
        return [str(one) for one in await check_invariants(connection)]
    finally:
        await connection.close(timeout=30)


async def test_fork_has_the_context_of_its_message_and_leaves_the_original(guest: Visit) -> None:
    for number in range(3):
        await guest.ask(f"Question {number}: how long is the ferry to island {number}?")
    then = await view(guest)
    for number in range(3, 6):
        await guest.ask(f"Question {number}: how long is the ferry to island {number}?")
    before = await state_of(guest)
    made = await fork(guest, (await answers(guest))[2])
    assert shown(await view(made.there)) == shown(then)
    assert (await view(made.there)).context_tokens == then.context_tokens
    assert await state_of(guest) == before
    assert made.told.title == "Question 0: how long is the ferry to island 0? (fork)"
    assert made.told.draft == ""


async def test_fork_goes_on_beside_its_original(guest: Visit) -> None:
    await guest.ask("My favourite colour is green.")
    await guest.ask("And I like boats.")
    made = await fork(guest, (await answers(guest))[0])
    await made.there.ask("What about trains?")
    await guest.ask("What about planes?")
    texts = [
        [text_of(one.blocks) for one in (await view(of)).entries if one.author == "person"]
        for of in (made.there, guest)
    ]
    assert texts == [
        ["My favourite colour is green.", "What about trains?"],
        ["My favourite colour is green.", "And I like boats.", "What about planes?"],
    ]
    assert await violations(guest) == []


async def test_own_message_is_returned_as_draft_with_the_turns_before_it(guest: Visit) -> None:
    await guest.ask("How far is Bodø?")
    await guest.ask("And how far is Tromsø?")
    made = await fork(guest, 3)
    assert made.told.draft == "And how far is Tromsø?"
    assert [one.turn for one in (await view(made.there)).entries] == [1, 1]
    first = await fork(guest, 1, key="f2")
    assert (first.told.draft, (await view(first.there)).entries) == ("How far is Bodø?", ())
    await first.there.ask("How far is Narvik?")


async def test_same_key_makes_one_fork(guest: Visit) -> None:
    await guest.ask("How far is Bodø?")
    made = await asyncio.gather(*(fork(guest, 2, key="same") for _ in range(5)))
    assert len({one.told.session_public_id for one in made}) == 1
    assert {one.told.title for one in made} == {"How far is Bodø? (fork)"}
    other = await fork(guest, 2, key="other")
    assert other.told.session_public_id != made[0].told.session_public_id
    assert await guest.one("SELECT count(*) FROM forks") == 2


async def test_fork_before_a_summary_has_the_messages_word_for_word(guest: Visit) -> None:
    for number in range(8):
        await guest.ask(f"{number}. {LONG}")
    then, newest = await view(guest), (await answers(guest))[-1]
    await command(guest, "compact", "--force")
    await guest.ask("And after the summary?")
    assert (await view(guest)).base_turn > 0
    made = await fork(guest, newest)
    assert shown(await view(made.there)) == shown(then)
    assert (await view(made.there)).base_turn == 0


async def test_fork_after_a_summary_has_that_summary(guest: Visit) -> None:
    for number in range(8):
        await guest.ask(f"{number}. {LONG}")
    await command(guest, "compact", "--force")
    await guest.ask("And after the summary?")
    then, newest = await view(guest), (await answers(guest))[-1]
    for number in range(9, 16):
        await guest.ask(f"{number}. {LONG}")
    await command(guest, "compact", "--force")
    await guest.ask("And after the second?")
    made = await fork(guest, newest)
    now = await view(made.there)
    assert shown(now) == shown(then)
    assert now.head is not None
    assert then.head is not None
    assert replace(now.head, id=0) == replace(then.head, id=0)
    assert now.base_turn == then.base_turn < (await view(guest)).base_turn
    assert (
        await guest.one("SELECT count(*) FROM compactions WHERE session_id = $1", made.there.session_id) == 1
    )
    # The summary may be undone in the fork alone.
    await command(made.there, "undo")
    assert (await view(made.there)).base_turn == 0
    assert (await view(guest)).base_turn > then.base_turn


async def test_fork_after_new_conversation_does_not_see_what_was_before(guest: Visit) -> None:
    await guest.ask("A secret of the old conversation.")
    await command(guest, "new")
    await guest.ask("How far is Bodø?")
    made = await fork(guest, (await answers(guest))[-1])
    texts = [text_of(one.blocks) for one in (await view(made.there)).entries if one.author == "person"]
    assert texts == ["How far is Bodø?"]
    old = await fork(guest, 2, key="old")
    texts = [text_of(one.blocks) for one in (await view(old.there)).entries if one.author == "person"]
    assert texts == ["A secret of the old conversation."]


async def test_edited_and_repeated_messages_are_copied_as_they_read(guest: Visit) -> None:
    await guest.ask("How far is Bodo?")
    assert await guest.reword(1, "How far is Bodø?") in ("last", "old")
    await command(guest, "retry")
    await guest.answered()
    await guest.ask("And Narvik?")
    made = await fork(guest, (await answers(guest))[-1])
    assert shown(await view(made.there)) == shown(await view(guest))
    told = await guest.app.stores.history.list_versions(
        made.there.session_id,
        next(one.seq for one in (await view(made.there)).entries if one.author == "person"),
    )
    assert told is not None


async def test_summary_of_an_edited_message_is_corrected_in_the_fork_too(guest: Visit) -> None:
    for number in range(8):
        await guest.ask(f"{number}. {LONG}")
    await command(guest, "compact", "--force")
    await guest.reword(1, f"Corrected. {LONG}")
    await guest.ask("And now?")
    made = await fork(guest, (await answers(guest))[-1])
    assert shown(await view(made.there)) == shown(await view(guest))
    assert [one.replaces for one in (await view(made.there)).pins] == [1]


async def test_files_of_copied_messages_are_the_forks_own(guest: Visit) -> None:
    picture = await guest.app.stores.attachments.store(
        guest.session_id, body=image(8, 8, "PNG"), mime="image/png", name="map.png"
    )
    row = await guest.app.pool.fetchrow("SELECT * FROM attachments WHERE id = $1", picture)
    assert row is not None
    shown_file = Attached(id=row["public_id"].hex, name="map.png", mime="image/png", size=row["size"])
    inbound = replace(
        guest.inbound("Look", more=(Image(attachment_id=picture, mime="image/png"),)), attached=(shown_file,)
    )
    await guest.app.sessions.accept(inbound)
    await guest.answered()
    made = await fork(guest, 2)
    [copied] = await guest.app.pool.fetch(
        "SELECT * FROM attachments WHERE session_id = $1", made.there.session_id
    )
    assert (copied["body"], copied["name"]) == (row["body"], "map.png")
    assert copied["id"] != picture
    [question] = [one for one in (await view(made.there)).entries if one.author == "person"]
    assert [getattr(block, "attachment_id", None) for block in question.blocks] == [None, copied["id"]]
    events = await guest.app.stores.events.list_newest(made.there.session_id)
    assert events[0].payload["attachments"][0]["id"] == copied["public_id"].hex
    # What is erased in one place is erased in the other; no bytes stay.
    await guest.app.erasure.erase_messages(guest.session_id, [1], "person")
    assert await guest.one("SELECT count(*) FROM attachments WHERE body IS NOT NULL") == 0


@pytest.mark.parametrize("first", ["original", "fork", "sibling"])
async def test_erased_message_is_gone_from_every_copy(guest: Visit, first: str) -> None:
    await guest.ask("My safe opens with quetzalcoatl.")
    await guest.ask("Thank you.")
    made = await fork(guest, 4)
    sibling = await fork(guest, 2, key="f2")
    nested = await fork(made.there, 4, key="f3")
    await nested.there.ask("Go on.")
    places = {"original": guest, "fork": nested.there, "sibling": sibling.there}
    await guest.app.erasure.erase_messages(places[first].session_id, [1], "person")
    left = "SELECT count(*) FROM entries WHERE blocks::text LIKE '%quetzalcoatl%' AND author = 'person'"
    assert await guest.one(left) == 0
    assert await guest.one("SELECT count(*) FROM events WHERE payload::text LIKE '%opens with quetzal%'") == 0
    assert await guest.one("SELECT count(*) FROM erasures WHERE scope = 'messages'") == 4


async def test_forgetting_everything_reaches_forks(guest: Visit) -> None:
    await guest.ask("My safe opens with quetzalcoatl.")
    await fork(guest, 2)
    await guest.app.erasure.erase_everything(guest.session_id, "person", patience=60)
    for table in ("entry_rows", "events", "addresses", "passages"):
        assert await guest.one(f"SELECT count(*) FROM {table} x WHERE x::text LIKE '%quetzal%'") == 0


async def test_notes_and_costs_are_not_doubled(guest: Visit) -> None:
    await guest.ask("Please remember that I like boats.")
    for number in range(7):
        await guest.ask(f"{number}. {LONG}")
    await command(guest, "compact", "--force")
    await guest.ask("And now?")
    counted = {
        table: await guest.one(f"SELECT count(*) FROM {table}") for table in ("notes", "usage", "feedback")
    }
    made = await fork(guest, (await answers(guest))[-1])
    totals = await guest.app.pool.fetchrow(
        "SELECT * FROM session_totals WHERE session_id = $1", made.there.session_id
    )
    assert totals is not None
    assert (totals["total_tokens"], totals["cost_micro"]) == (0, 0)
    for table, number in counted.items():
        assert await guest.one(f"SELECT count(*) FROM {table}") == number, table
    assert await guest.one("SELECT count(*) FROM jobs WHERE session_id = $1", made.there.session_id) == 0


async def test_pins_are_copied_and_opinions_are_not(guest: Visit) -> None:
    await guest.ask("How far is Bodø?")
    await guest.ask("And Narvik?")
    for seq in (2, 4):
        await guest.app.stores.pins.pin(guest.session_id, seq, most_tokens=1_000)
    made = await fork(guest, 2)
    assert await guest.app.stores.events.list_pinned(made.there.session_id) == ("m2",)


async def test_answer_being_written_cannot_be_forked(guest: Visit) -> None:
    await guest.ask("How far is Bodø?")
    await guest.say("And Narvik?")
    with pytest.raises(UnknownMessage):
        await fork(guest, 99)
    made = await fork(guest, 3)
    assert made.told.draft == "And Narvik?"
    await guest.say("And Tromsø?")
    await guest.app.pool.execute("UPDATE sessions SET open_turn = NULL")
    await guest.say("And Alta?")
    if await guest.one("SELECT next_turn FROM sessions WHERE id = $1", guest.session_id) > 3:
        with pytest.raises(CannotFork) as refusal:
            await fork(guest, 5, key="f2")
        assert refusal.value.code == "fork_busy"
    await guest.answered()


async def test_forks_of_one_visitor_are_bounded(guest: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    await guest.ask("How far is Bodø?")
    monkeypatch.setattr("shared.adapters.postgres.people.forks.MOST_FORKS", 2)
    for number in range(2):
        await fork(guest, 2, key=f"f{number}")
    with pytest.raises(CannotFork) as refusal:
        await fork(guest, 2, key="f3")
    assert refusal.value.code == "fork_many"
    assert await guest.one("SELECT count(*) FROM forks") == 2
    monkeypatch.setattr("shared.adapters.postgres.people.forks.MOST_COPIED_ENTRIES", 1)
    monkeypatch.setattr("shared.adapters.postgres.people.forks.MOST_FORKS", 9)
    with pytest.raises(CannotFork) as refusal:
        await fork(guest, 2, key="f4")
    assert refusal.value.code == "fork_long"
    assert await guest.one("SELECT count(*) FROM sessions") == 3


async def test_message_is_recalled_once_though_a_fork_has_it_too(guest: Visit) -> None:
    await guest.ask("The name of my boat is Quetzal.")
    for number in range(8):
        await guest.ask(f"{number}. {LONG}")
    await command(guest, "compact", "--force")
    await guest.ask("And now?")
    made = await fork(guest, (await answers(guest))[-1])
    for of in (guest, made.there):
        while await guest.app.stores.recall_index.index_session(of.session_id):
            pass
    for of in (guest, made.there):
        query = RecallQuery(session_id=of.session_id, base_turn=None, words=("quetzal",))
        found = (await guest.app.stores.recall.search(query)).found
        said = [one for one in found if one.lane == "said" and one.author == "person"]
        assert [one.owner for one in said if "Quetzal" in one.text] == [of.session_id]


async def test_fork_that_ended_halfway_left_nothing_and_is_made_again(guest: Visit) -> None:
    def ends(point: str) -> None:
        raise ConnectionAbortedError(point)

    await guest.ask("How far is Bodø?")
    sessions = await guest.one("SELECT count(*) FROM sessions")
    broken = PostgresForks(guest.app.pool, crash_point=ends)
    with pytest.raises((ConnectionAbortedError, StorageUnavailable)):
        await broken.fork(guest.session_id, guest.address_id, seq=2, key="f1", title=str)
    assert await guest.one("SELECT count(*) FROM sessions") == sessions
    assert await guest.one("SELECT count(*) FROM forks") == 0
    made = await fork(guest, 2)
    assert len((await view(made.there)).entries) == 2


async def test_answers_are_stored_while_a_fork_is_being_made(guest: Visit) -> None:
    await guest.ask("How far is Bodø?")
    async with guest.app.pool.acquire() as connection, connection.transaction():
        # What a fork holds of its source until it is stored.
        await connection.fetch("SELECT FROM sessions WHERE id = $1 FOR KEY SHARE", guest.session_id)
        async with asyncio.timeout(30):
            await guest.ask("And Narvik?")
    assert [one.turn for one in (await view(guest)).entries] == [1, 1, 2, 2]
