"""Signed-in people in Postgres: one place each, whatever happens at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeAlias, cast

import asyncpg
import pytest

from shared.adapters.postgres.operations.invariants import check_invariants
from shared.adapters.postgres.people.account_links import PostgresAccountLinks
from shared.adapters.postgres.people.identities import PostgresIdentities
from shared.adapters.postgres.people.visitors import PostgresVisitors, VisitorRow, generate_token
from shared.adapters.postgres.telegram.chats import PostgresTelegramChats
from shared.adapters.postgres.turns.turns import PostgresTurns
from shared.core.session.turns import Inbound
from shared.core.values.errors import SessionMoved

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
ADA = "sub:" + "a" * 64


@pytest.fixture(autouse=True)
async def identities_stay_sound(pool: Pool) -> AsyncIterator[None]:
    yield
    async with pool.acquire() as connection:
        report = await check_invariants(cast("Any", connection))
    assert [one for one in report if one.code == "I7"] == []


async def come(pool: Pool, *, former: str | None = None, place: str = ADA, name: str = "") -> VisitorRow:
    identities = PostgresIdentities(pool, people=PostgresAccountLinks(pool))
    done = await identities.identify(site="default", place=place, name=name, timezone=None, former=former)
    assert not isinstance(done, str), done
    return done[0]


async def stranger(pool: Pool, *words: str) -> tuple[str, VisitorRow]:
    """With so many messages, all answered."""
    token = generate_token()
    row = await PostgresVisitors(pool).create(token, site="default")
    assert row is not None
    for number, text in enumerate(words):
        await write(pool, row, text, f"{token}-{number}")
    await pool.execute("UPDATE turns SET state = 'answered', ended_at = now()")
    await pool.execute("UPDATE sessions SET answered_turn = next_turn - 1, open_turn = NULL")
    return token, row


async def write(pool: Pool, row: VisitorRow, text: str, cid: str) -> None:
    inbound = Inbound(
        session_id=row.session_id, address_id=row.address_id, text=text, dedupe_key=f"web:{cid}", cid=cid
    )
    await PostgresTurns(pool).accept(inbound, channel="web", tokens=1)


async def test_six_browsers_at_once_are_one_person(pool: Pool) -> None:
    rows = await asyncio.gather(*(come(pool) for _ in range(6)))
    assert len({(row.session_id, row.address_id, row.contact_id) for row in rows}) == 1
    assert await pool.fetchval("SELECT count(*) FROM sessions") == 1
    assert await pool.fetchval("SELECT count(*) FROM visitors WHERE identified") == 6


async def test_simultaneous_sign_ins_of_a_new_person_keep_all_messages(pool: Pool) -> None:
    talks = [await stranger(pool, f"Talk {number}") for number in range(4)]
    rows = await asyncio.gather(*(come(pool, former=token) for token, _ in talks))
    assert len({row.session_id for row in rows}) == 1
    kept = await PostgresAccountLinks(pool).list_archived(rows[0].session_id)
    assert len(kept) == 3
    assert not [token for token, _ in talks if await PostgresVisitors(pool).find(token) is not None]


async def test_the_place_that_was_left_takes_no_more_messages(pool: Pool) -> None:
    token, before = await stranger(pool, "Hello")
    await pool.execute("UPDATE addresses SET read_seq = 1")
    after = await come(pool, former=token)
    assert after.session_id == before.session_id
    read = "SELECT read_seq FROM addresses WHERE id = $1"
    assert await pool.fetchval(read, after.address_id) == 1, "what was read stays read"
    assert await pool.fetchval(read, before.address_id) == 0
    assert after.address_id != before.address_id
    with pytest.raises(SessionMoved):
        await write(pool, before, "Late", "late")
    await write(pool, after, "Here", "here")


async def test_a_place_left_for_another_conversation_takes_none_either(pool: Pool) -> None:
    await come(pool)
    for words in ((), ("Hello",)):
        token, before = await stranger(pool, *words)
        after = await come(pool, former=token)
        assert after.session_id != before.session_id
        with pytest.raises(SessionMoved):
            await write(pool, before, "Late", f"late-{token}")


async def test_codes_of_the_old_place_open_nothing(pool: Pool) -> None:
    token, before = await stranger(pool, "Hello")
    await pool.execute(
        """INSERT INTO one_time_codes (code_hash, purpose, contact_id, address_id, expires_at)
           VALUES ('x', 'link', $1, $2, now() + interval '1 h')""",
        before.contact_id,
        before.address_id,
    )
    identities = PostgresIdentities(pool, people=PostgresAccountLinks(pool))
    assert await identities.issue_code(before.address_id, b"h" * 32)
    after = await come(pool, former=token)
    assert await pool.fetchval("SELECT count(*) FROM one_time_codes") == 0, "what the old place gave out"
    assert await identities.recover("default", b"h" * 32) is None
    assert not await identities.issue_code(after.address_id, b"h" * 32)


async def test_a_name_is_that_of_the_newest_signature(pool: Pool) -> None:
    await come(pool, name="Ada")
    await come(pool, name="Ada L.")
    await come(pool)
    assert await pool.fetchval("SELECT display_name FROM contacts") == "Ada L."


async def test_an_unknown_site_has_no_people(pool: Pool) -> None:
    identities = PostgresIdentities(pool, people=PostgresAccountLinks(pool))
    done = await identities.identify(site="nowhere", place=ADA, name="", timezone=None, former=None)
    assert done == "no_site"


async def telegram(pool: Pool) -> tuple[int, int]:
    """Session and address of a person in a chat."""
    places = PostgresTelegramChats(pool)
    await places.enrol(
        7, username="bot", agent="default", audience="personal", access="pairing", mode="polling"
    )
    row = await places.open(7, chat_id=42, thread_id=0, kind="person", title="Grace")
    return row.session_id, row.address_id


@pytest.mark.parametrize("known_before", [False, True])
@pytest.mark.parametrize("typed_in", ["browser", "chat"])
async def test_next_person_signing_in_sees_nothing_of_a_linked_browser(
    pool: Pool, typed_in: str, known_before: bool
) -> None:
    people = PostgresAccountLinks(pool)
    before = await come(pool) if known_before else None
    token, here = await stranger(pool, "Of Grace")
    session_id, address_id = await telegram(pool)
    one, other = ((here.session_id, here.address_id), (session_id, address_id))
    asker, typer = (other, one) if typed_in == "browser" else (one, other)
    code = str(await people.issue_code(*asker))
    assert not isinstance(await people.link_account(*typer, code), str)
    kept = typer[0]
    await pool.execute(
        """INSERT INTO reminders (key, contact_id, session_id, address_id, text, due_at, tell_at)
           SELECT 'r', contact_id, session_id, id, 'Tea', now(), now() FROM addresses WHERE id = $1""",
        here.address_id,
    )
    ada = await come(pool, former=token)
    assert ada.session_id not in (kept, here.session_id, session_id)
    assert before is None or ada.session_id == before.session_id
    assert await people.list_archived(ada.session_id) == ()
    assert await people.list_links(ada.session_id) == ()
    family = "SELECT array_agg(id) FROM contact_family($1) AS f(id)"
    assert await pool.fetchval(family, ada.contact_id) == [ada.contact_id]
    assert await pool.fetchval("SELECT session_id FROM addresses WHERE id = $1", address_id) == kept
    assert await pool.fetchval("SELECT address_id FROM reminders") == address_id
    assert await PostgresVisitors(pool).find(token) is None
    with pytest.raises(SessionMoved):
        await write(pool, here, "From an old screen", "old")


async def test_conversation_merged_at_sign_in_never_gets_out_of_reach(pool: Pool) -> None:
    people = PostgresAccountLinks(pool)
    ada = await come(pool)
    token, _ = await stranger(pool, "The short one")
    again = await come(pool, former=token)
    assert again.session_id == ada.session_id
    assert await people.list_links(ada.session_id) == ()
    assert await people.unlink_account(ada.session_id, ada.address_id, None) == "not_linked"
    assert [one.messages[0].text for one in await people.list_archived(ada.session_id)] == ["The short one"]
