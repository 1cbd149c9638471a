"""Two persons become one and part again: exactly once, in no circle, with everything back in its place."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

import asyncpg
import pytest

from shared.adapters.postgres.db.pool import Named
from shared.adapters.postgres.operations.invariants import check_invariants
from shared.adapters.postgres.people import account_links_sql
from shared.adapters.postgres.people.account_links import PostgresAccountLinks
from shared.adapters.postgres.people.visitors import PostgresVisitors, generate_token
from shared.adapters.postgres.telegram.chats import PostgresTelegramChats
from shared.adapters.postgres.turns.turns import PostgresTurns
from shared.core.identity.people import CODE_ALPHABET, GUESSES, LinkedContacts, UnlinkedContact
from shared.core.session.turns import Accepted, Inbound
from shared.core.values.errors import SessionMoved
from tests.kit.midday import TODAY
from tests.kit.night import rest_at_night

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
BOT = 7_000


@dataclass(slots=True)
class Place:
    """One person at one place of a channel."""

    pool: Pool
    channel: str
    address_id: int
    first_session: int
    contact_id: int
    numbers: list[int] = field(default_factory=list)

    @property
    async def session_id(self) -> int:
        return int(
            await self.pool.fetchval("SELECT session_id FROM addresses WHERE id = $1", self.address_id)
        )

    @property
    async def person(self) -> int:
        sql = "SELECT coalesce(merged_into, id) FROM contacts WHERE id = $1"
        return int(await self.pool.fetchval(sql, self.contact_id))

    async def code(self) -> str:
        code = await PostgresAccountLinks(self.pool).issue_code(await self.session_id, self.address_id)
        assert len(code) == 8, code
        return code

    async def types(self, code: str) -> Any:
        return await PostgresAccountLinks(self.pool).link_account(
            await self.session_id, self.address_id, code
        )

    async def joins(self, other: Place) -> LinkedContacts:
        joined = await self.types(await other.code())
        assert isinstance(joined, LinkedContacts), joined
        return joined

    async def parts(self, link_id: int | None = None) -> Any:
        return await PostgresAccountLinks(self.pool).unlink_account(
            await self.session_id, self.address_id, link_id
        )

    async def says(self, words: str, *, session_id: int | None = None) -> Accepted:
        self.numbers.append(len(self.numbers))
        inbound = Inbound(
            session_id=session_id or await self.session_id, address_id=self.address_id, text=words,
            dedupe_key=f"{self.address_id}:{len(self.numbers)}",
        )  # fmt: skip
        return await PostgresTurns(self.pool).accept(inbound, channel=self.channel, tokens=1)

    async def notes(self, *texts: str) -> None:
        for text in texts:
            await self.pool.execute(
                """INSERT INTO notes (contact_id, scope, kind, text, session_id, hash)
                   SELECT s.contact_id, 'default', 'fact', $2, s.id, $3 FROM sessions s WHERE s.id = $1""",
                await self.session_id, text, hashlib.sha256(text.encode()).digest(),
            )  # fmt: skip

    async def remembers(self) -> list[str]:
        rows = await self.pool.fetch(
            """SELECT text FROM notes WHERE superseded_by IS NULL AND forgotten_at IS NULL
                  AND contact_id IN (SELECT contact_family(s.contact_id) FROM sessions s WHERE s.id = $1)
                ORDER BY text""",
            await self.session_id,
        )
        return [row["text"] for row in rows]


@pytest.fixture(autouse=True)
async def linked_bot(pool: Pool) -> AsyncIterator[None]:
    await PostgresTelegramChats(pool).enrol(
        BOT, username="bot", agent="default", audience="personal", access="pairing", mode="polling"
    )
    yield
    async with pool.acquire() as connection:
        assert await check_invariants(connection) == []  # type: ignore[arg-type]


async def visitor(pool: Pool) -> Place:
    row = await PostgresVisitors(pool).create(generate_token(), site="default")
    assert row is not None
    return Place(pool, "web", row.address_id, row.session_id, row.contact_id)


async def chat(pool: Pool, number: int = 42, *, thread: int = 0, group: bool = False) -> Place:
    row = await PostgresTelegramChats(pool).open(
        BOT, chat_id=number, thread_id=thread, kind="group" if group else "person", title="Ada"
    )
    return Place(pool, "telegram", row.address_id, row.session_id, row.contact_id)


async def turns_of(place: Place) -> list[int]:
    """The sessions that hold turns of this place."""
    rows = await place.pool.fetch("SELECT session_id FROM turns WHERE address_id = $1", place.address_id)
    return [row["session_id"] for row in rows]


async def answer_all(pool: Pool) -> None:
    """Every turn that waits is over, as if answered; whoever writes at the same time waits."""
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT FROM sessions ORDER BY id FOR UPDATE")
        await connection.execute(_ANSWER_ALL)


_ANSWER_ALL = """
WITH t AS (UPDATE turns SET state = 'failed', ended_at = now() WHERE ended_at IS NULL RETURNING *),
     d AS (INSERT INTO deliveries (session_id, turn_no, part, channel, address_id, state)
           SELECT session_id, turn_no, 0, channel, address_id, 'delivered' FROM t),
     s AS (UPDATE sessions s
              SET answered_turn = next_turn - 1, open_turn = NULL, troubled_at = now(),
                  next_event_seq = next_event_seq + (SELECT count(*) FROM t WHERE session_id = s.id)
            WHERE answered_turn < next_turn - 1 RETURNING id, next_event_seq)
INSERT INTO events (session_id, event_seq, kind, turn_no, payload)
SELECT t.session_id, s.next_event_seq - row_number() OVER (PARTITION BY t.session_id ORDER BY t.turn_no DESC),
       'msg', t.turn_no, '{"text": "No.", "error": "x"}'::jsonb
  FROM t JOIN s ON s.id = t.session_id
"""


# Codes.


async def test_a_code_is_easy_to_type_and_stored_as_a_hash_only(pool: Pool) -> None:
    code = await (await visitor(pool)).code()
    assert set(code) <= set(CODE_ALPHABET)
    stored = await pool.fetchval("SELECT c::text FROM one_time_codes c")
    assert code not in stored


async def test_link_code_lives_ten_minutes_with_three_per_hour(pool: Pool) -> None:
    page = await visitor(pool)
    for _ in range(3):
        await page.code()
    left = await pool.fetchval("SELECT max(expires_at) - now() FROM one_time_codes")
    assert left <= timedelta(minutes=10)
    people = PostgresAccountLinks(pool)
    assert await people.issue_code(await page.session_id, page.address_id) == "too_many_codes"
    await pool.execute("UPDATE one_time_codes SET created_at = now() - interval '61 minutes'")
    await page.code()


async def test_a_code_is_read_however_it_is_typed(pool: Pool) -> None:
    page, phone = await visitor(pool), await chat(pool)
    code = await page.code()
    assert isinstance(await phone.types(f" {code[:4].lower()} – {code[4:]}\n".strip()), LinkedContacts)


@pytest.mark.control("S50")
async def test_unknown_used_lapsed_and_broken_codes_are_answered_alike(pool: Pool) -> None:
    page, phone, third = await visitor(pool), await chat(pool), await chat(pool, 43)
    lapsed = await page.code()
    await pool.execute("UPDATE one_time_codes SET expires_at = now() - interval '1 second'")
    used = await page.code()
    assert isinstance(await phone.types(used), LinkedContacts)
    for words in (lapsed, used, "ABCD2345", "x" * 9_000):
        assert await third.types(words) == "no_code"
    assert await pool.fetchval("SELECT count(*) FROM link_guesses") == 4


@pytest.mark.control("S10")
async def test_five_wrong_codes_block_right_ones_for_ten_minutes(pool: Pool) -> None:
    page, phone = await visitor(pool), await chat(pool)
    code = await page.code()
    for _ in range(GUESSES):
        assert await phone.types("ABCD2345") == "no_code"
    assert await phone.types(code) == "no_code"
    await pool.execute("UPDATE link_guesses SET at = now() - interval '11 minutes'")
    assert isinstance(await phone.types(code), LinkedContacts)


async def test_guesses_count_for_the_person_wherever_they_are_typed(pool: Pool) -> None:
    one, other = await chat(pool), await chat(pool, thread=9)
    for place in (one, other, one, other, one):
        assert await place.types("ABCD2345") == "no_code"
    code = await (await visitor(pool)).code()
    assert await other.types(code) == "no_code"


async def test_many_guessers_together_are_stopped_too(pool: Pool) -> None:
    page = await visitor(pool)
    await pool.execute(
        "INSERT INTO link_guesses (session_id, contact_id) SELECT $1, $2 FROM generate_series(1, 200)",
        page.first_session, page.contact_id,
    )  # fmt: skip
    phone = await chat(pool)
    assert await phone.types(await page.code()) == "no_code"


async def test_twenty_guesses_at_once_are_five(pool: Pool) -> None:
    phone = await chat(pool)
    told = await asyncio.gather(*(phone.types("ABCD2345") for _ in range(20)))
    assert set(told) == {"no_code"}
    assert await pool.fetchval("SELECT count(*) FROM link_guesses") == GUESSES


async def test_ones_own_code_joins_nothing_and_stays_good(pool: Pool) -> None:
    page, phone = await visitor(pool), await chat(pool)
    code = await page.code()
    assert await page.types(code) == "own_code"
    assert isinstance(await phone.types(code), LinkedContacts)


# Joining.


async def test_linking_keeps_the_typing_session_and_archives_the_other(pool: Pool) -> None:
    page, phone = await visitor(pool), await chat(pool)
    joined = await phone.joins(page)
    assert (joined.session_id, joined.archived_session_id) == (phone.first_session, page.first_session)
    assert await page.session_id == await phone.session_id == phone.first_session
    assert await page.person == await phone.person == phone.contact_id
    rows = await pool.fetch("SELECT id FROM sessions WHERE archived_at IS NOT NULL")
    assert [row["id"] for row in rows] == [page.first_session]


async def test_a_token_opens_the_session_that_goes_on(pool: Pool) -> None:
    token = generate_token()
    row = await PostgresVisitors(pool).create(token, site="default")
    assert row is not None
    phone = await chat(pool)
    await phone.joins(Place(pool, "web", row.address_id, row.session_id, row.contact_id))
    found = await PostgresVisitors(pool).find(token)
    assert found is not None
    assert found.session_id == phone.first_session


async def test_a_code_typed_twice_did_its_work_once(pool: Pool) -> None:
    page, phone = await visitor(pool), await chat(pool)
    code = await page.code()
    first, second = await phone.types(code), await phone.types(code)
    assert (first.again, second.again) == (False, True)
    assert await pool.fetchval("SELECT count(*) FROM contact_links") == 1


async def test_groups_and_public_places_are_never_joined(pool: Pool) -> None:
    page, group = await visitor(pool), await chat(pool, -100, group=True)
    people = PostgresAccountLinks(pool)
    assert await people.issue_code(await group.session_id, group.address_id) == "group"
    assert await group.types(await page.code()) == "group"
    code, phone = await page.code(), await chat(pool)
    await pool.execute("UPDATE sites SET audience = 'public'")
    assert await phone.types(code) == "no_code"
    assert await people.issue_code(await page.session_id, page.address_id) == "not_here"
    assert await page.person != await phone.person


@pytest.mark.parametrize("who", ["page", "phone"])
async def test_nothing_is_joined_while_a_turn_waits_and_the_code_stays_good(pool: Pool, who: str) -> None:
    page, phone = await visitor(pool), await chat(pool)
    code = await page.code()
    await (page if who == "page" else phone).says("Wait for me")
    assert await phone.types(code) == "busy"
    await answer_all(pool)
    assert isinstance(await phone.types(code), LinkedContacts)


async def test_an_archived_session_accepts_nothing(pool: Pool) -> None:
    page, phone = await visitor(pool), await chat(pool)
    await phone.joins(page)
    with pytest.raises(SessionMoved):
        await page.says("Too late", session_id=page.first_session)
    await page.says("Here")
    await answer_all(pool)


async def test_message_during_linking_is_stored_once_in_the_resulting_session(
    pool: Pool,
) -> None:
    """Whoever wins: the message holds the link up, or the link sends the message on."""
    told = set()
    for number in range(12):
        page, phone = await visitor(pool), await chat(pool, 100 + number)
        code = await page.code()

        async def says(page: Place = page) -> str:
            try:
                await page.says("Hello", session_id=page.first_session)
            except SessionMoved:
                await page.says("Hello")
            return "said"

        outcome, _ = await asyncio.gather(phone.types(code), says())
        told.add(type(outcome).__name__)
        at = page.first_session if outcome == "busy" else phone.first_session
        assert await turns_of(page) == [at]
        await answer_all(pool)
    assert told <= {"LinkedContacts", "str"}


async def test_of_two_who_type_the_same_code_one_joins(pool: Pool) -> None:
    for number in range(6):
        page, one, two = await visitor(pool), await chat(pool, 200 + number), await visitor(pool)
        code = await page.code()
        told = await asyncio.gather(one.types(code), two.types(code))
        assert sorted(type(outcome).__name__ for outcome in told) == ["LinkedContacts", "str"]
        assert "no_code" in told
        winner = one if isinstance(told[0], LinkedContacts) else two
        assert await page.person == winner.contact_id


async def test_two_links_that_cross_are_one(pool: Pool) -> None:
    for number in range(6):
        page, phone = await visitor(pool), await chat(pool, 300 + number)
        of_page, of_phone = await page.code(), await phone.code()
        told = await asyncio.gather(phone.types(of_page), page.types(of_phone))
        joined = [outcome for outcome in told if isinstance(outcome, LinkedContacts) and not outcome.again]
        assert len(joined) == 1
        assert "no_code" not in told
        assert await page.session_id == await phone.session_id == joined[0].session_id


async def test_three_channels_are_one_person_and_flat(pool: Pool) -> None:
    page, phone, other = await visitor(pool), await chat(pool), await visitor(pool)
    await phone.joins(page)
    await other.joins(phone)
    assert {await one.person for one in (page, phone, other)} == {other.contact_id}
    assert {await one.session_id for one in (page, phone, other)} == {other.first_session}
    assert await pool.fetchval("SELECT count(*) FROM contacts WHERE merged_into = $1", other.contact_id) == 2


async def test_a_topic_begun_later_belongs_to_the_one_person(pool: Pool) -> None:
    page, phone = await visitor(pool), await chat(pool)
    await page.joins(phone)
    topic = await chat(pool, thread=5)
    contact = await pool.fetchval("SELECT contact_id FROM sessions WHERE id = $1", topic.first_session)
    assert contact == page.contact_id


async def test_other_conversations_of_the_joined_one_share_the_one_memory(pool: Pool) -> None:
    page, phone, topic = await visitor(pool), await chat(pool), await chat(pool, thread=5)
    await page.notes("Likes tea")
    await page.joins(phone)
    assert await topic.remembers() == ["Likes tea"]
    assert await topic.session_id == topic.first_session
    await page.parts()
    assert await topic.remembers() == []


async def test_what_both_remember_counts_once_and_what_the_winner_forgot_stays_forgotten(pool: Pool) -> None:
    page, phone = await visitor(pool), await chat(pool)
    await page.notes("Likes tea", "Lives in Bodø", "Was ill")
    await phone.notes("Likes tea", "Has a boat", "Was ill")
    await pool.execute(
        """UPDATE notes SET forgotten_at = now(), text = '', subject = '', event_date = NULL
            WHERE text = 'Was ill' AND contact_id = $1""",
        phone.contact_id,
    )
    joined = await phone.joins(page)
    assert joined.notes_merged == 2
    assert await page.remembers() == ["Has a boat", "Likes tea", "Lives in Bodø"]


async def test_a_link_that_fails_at_its_last_step_changes_nothing(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, phone = await visitor(pool), await chat(pool)
    await page.notes("Likes tea")
    code = await page.code()
    with monkeypatch.context() as broken:
        broken.setattr(account_links_sql, "CARRY_SPENDING", Named("SELECT 1 / (0 * :link_id::bigint)"))
        with pytest.raises(asyncpg.DivisionByZeroError):
            await phone.types(code)
    assert await page.session_id == page.first_session
    assert await page.person == page.contact_id
    assert await pool.fetchval("SELECT count(*) FROM contact_links") == 0
    assert isinstance(await phone.types(code), LinkedContacts)


# Money.


async def test_what_both_spent_today_counts_for_the_one_and_only_once(pool: Pool) -> None:
    page, phone = await visitor(pool), await chat(pool)
    for place, micro in ((page, 300), (phone, 500)):
        scope = f"contact:{place.contact_id}"
        await pool.execute(
            f"""INSERT INTO reservations (session_id, contact_id, day, amount_micro, settled_micro, state,
                                         scopes, ended_at)
               VALUES ($1, $2, {TODAY}, $3, $3, 'settled',
                       ARRAY[$4], now())""",
            place.first_session, place.contact_id, micro, scope,
        )  # fmt: skip
        await pool.execute(
            f"""INSERT INTO spend_days (scope, day, spent_micro)
               VALUES ($1, {TODAY}, $2)""",
            scope, micro,
        )  # fmt: skip
    spent = "SELECT spent_micro FROM spend_days WHERE scope = 'contact:' || $1::text"
    await phone.joins(page)
    assert await pool.fetchval(spent, str(phone.contact_id)) == 800
    await page.parts()
    await phone.joins(page)
    assert await pool.fetchval(spent, str(phone.contact_id)) == 800
    assert await pool.fetchval(spent, str(page.contact_id)) == 300


# Parting.


async def test_parting_brings_everything_back_to_its_place(pool: Pool) -> None:
    page, phone = await visitor(pool), await chat(pool)
    await page.notes("Likes tea", "Lives in Bodø")
    await phone.notes("Likes tea", "Has a boat")
    await phone.joins(page)
    await page.says("While we are one")
    await answer_all(pool)
    await page.notes("Learnt while one")
    parted = await page.parts()
    assert isinstance(parted, UnlinkedContact)
    assert (parted.back_session_id, parted.addresses, parted.is_caller) == (
        page.first_session, (page.address_id,), True,
    )  # fmt: skip
    assert await page.session_id == page.first_session
    assert await phone.session_id == phone.first_session
    assert await page.person == page.contact_id
    assert await page.remembers() == ["Likes tea", "Lives in Bodø"]
    assert await phone.remembers() == ["Has a boat", "Learnt while one", "Likes tea"]


async def test_a_screen_that_has_not_heard_of_the_parting_may_not_write(pool: Pool) -> None:
    page, phone = await visitor(pool), await chat(pool)
    await phone.joins(page)
    await phone.parts()
    with pytest.raises(SessionMoved):
        await page.says("Private", session_id=phone.first_session)
    await phone.joins(page)
    await page.says("One again")
    await answer_all(pool)


async def test_a_message_that_comes_while_they_part_goes_to_one_place(pool: Pool) -> None:
    for number in range(12):
        page, phone = await visitor(pool), await chat(pool, 400 + number)
        await phone.joins(page)

        async def says(page: Place = page, phone: Place = phone) -> None:
            try:
                await page.says("Hello", session_id=phone.first_session)
            except SessionMoved:
                await page.says("Hello")

        outcome, _ = await asyncio.gather(phone.parts(), says())
        at = phone.first_session if outcome == "busy" else page.first_session
        assert await turns_of(page) == [at]
        await answer_all(pool)


async def test_unlinking_is_refused_while_an_answer_is_due(pool: Pool) -> None:
    page, phone = await visitor(pool), await chat(pool)
    await phone.joins(page)
    await page.says("Wait")
    assert await phone.parts() == "busy"
    await answer_all(pool)
    assert isinstance(await phone.parts(), UnlinkedContact)


async def test_unlinked_address_has_nothing_to_unlink(pool: Pool) -> None:
    assert await (await visitor(pool)).parts() == "not_linked"


@pytest.mark.parametrize("first", [0, 1])
async def test_three_who_are_one_part_in_any_order(pool: Pool, first: int) -> None:
    page, phone, other = await visitor(pool), await chat(pool), await visitor(pool)
    for place in (page, phone, other):
        await place.notes("Likes tea", f"From {place.channel} {place.contact_id}")
    await phone.joins(page)
    await other.joins(phone)
    people = PostgresAccountLinks(pool)
    links = await people.list_links(await other.session_id)
    assert await other.parts() == "which"
    assert isinstance(await other.parts(links[first].id), UnlinkedContact)
    if first == 1:
        assert await page.session_id == await phone.session_id == phone.first_session
        assert await page.person == phone.contact_id
    else:
        assert await page.session_id == page.first_session
        assert await phone.session_id == other.first_session
    remaining = phone if first == 1 else other
    assert isinstance(await remaining.parts(), UnlinkedContact)
    for place in (page, phone, other):
        assert await place.session_id == place.first_session
        assert await place.person == place.contact_id
        assert await place.remembers() == [f"From {place.channel} {place.contact_id}", "Likes tea"]


async def test_the_archived_conversation_can_be_read_from_either_side(pool: Pool) -> None:
    page, phone, stranger = await visitor(pool), await chat(pool), await visitor(pool)
    await page.says("What I said before")
    await answer_all(pool)
    await phone.joins(page)
    people = PostgresAccountLinks(pool)
    found = await people.list_archived(await page.session_id)
    assert [one.text for session in found for one in session.messages] == ["What I said before"]
    assert found[0].channel == "web"
    assert await people.list_archived(await stranger.session_id) == ()


# Turns of several places.


async def test_a_turn_collects_messages_of_one_place_only(pool: Pool) -> None:
    page, phone = await visitor(pool), await chat(pool)
    await phone.joins(page)
    turns = [(await place.says("…")).turn for place in (phone, phone, page, page, phone)]
    assert turns == [1, 1, 2, 2, 3]
    rows = await pool.fetch("SELECT channel FROM turns ORDER BY turn_no")
    assert [row["channel"] for row in rows] == ["telegram", "web", "telegram"]
    await answer_all(pool)


async def test_messages_of_two_places_at_once_never_share_a_turn(pool: Pool) -> None:
    page, phone = await visitor(pool), await chat(pool)
    await phone.joins(page)
    for _ in range(8):
        one, other = await asyncio.gather(page.says("a"), phone.says("b"))
        assert one.turn != other.turn
    await answer_all(pool)


# Everything at once.


@pytest.mark.parametrize("seed", rest_at_night([1, 2, 3], by_day=[1]))
async def test_whatever_people_do_at_once_everybody_has_one_place(pool: Pool, seed: int) -> None:
    chance = random.Random(seed)
    places = [await visitor(pool) for _ in range(3)] + [await chat(pool, 500 + n) for n in range(3)]
    for place in places:
        await place.notes("Likes tea", f"Own {place.contact_id}")
    codes: list[str] = []

    async def act(place: Place) -> None:
        people = PostgresAccountLinks(pool)
        for _ in range(6):
            match chance.choice(("code", "type", "type", "part", "say")):
                case "code":
                    code = await people.issue_code(await place.session_id, place.address_id)
                    codes.append(code)
                case "type" if codes:
                    await place.types(chance.choice(codes))
                case "part":
                    links = await people.list_links(await place.session_id)
                    await place.parts(chance.choice(links).id if links else None)
                case "say":
                    try:
                        await place.says("Hello")
                    except SessionMoved:
                        continue
                    await answer_all(pool)
                case _:
                    pass

    await asyncio.gather(*map(act, places))
    await answer_all(pool)
    for place in places:
        contact = await pool.fetchval("SELECT contact_id FROM sessions WHERE id = $1", await place.session_id)
        assert contact == await place.person
