"""Telegram's rows: the inbox takes each update once, a place has one session, a part is never sent twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeAlias

import asyncpg
import pytest

from shared.adapters.postgres.dashboard.job_queries import DeliveryQuery, JobInsights
from shared.adapters.postgres.db.leases import PostgresLeases
from shared.adapters.postgres.db.workers import PostgresWorkers
from shared.adapters.postgres.telegram.access import PostgresTelegramAccess
from shared.adapters.postgres.telegram.chats import ChatRow, PostgresTelegramChats
from shared.adapters.postgres.telegram.deliveries import PostgresDeliveries
from shared.adapters.postgres.telegram.inbox import PostgresTelegramInbox
from shared.adapters.postgres.telegram.receipts import CustomerReceipt, TelegramReceipt
from shared.adapters.postgres.telegram.secretary import BusinessLink, CustomerDraft, PostgresSecretary
from shared.adapters.postgres.turns.turns import PostgresTurns
from shared.core.ops.job_views import JobMatch
from shared.core.session.turns import Inbound
from shared.core.values.errors import LeaseLost, UnknownSession

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
BOT = 7_000_000_001
ADA = 4_503_599_627_370_495
"""The largest id that Telegram promises: 52 bits."""


@pytest.fixture(autouse=True)
async def enrolled_bot(pool: Pool) -> None:
    await PostgresTelegramChats(pool).enrol(
        BOT, username="ever_bot", agent="default", audience="personal", access="pairing", mode="polling"
    )


def update(number: int, text: str = "Hello") -> dict[str, object]:
    return {"update_id": number, "message": {"text": text}}


async def place(pool: Pool, *, chat: int = ADA, thread: int = 0, title: str = "Ada") -> ChatRow:
    kind = "person" if chat > 0 else "group"
    return await PostgresTelegramChats(pool).open(
        BOT,
        chat_id=chat,
        thread_id=thread,
        kind=kind,  # type: ignore[arg-type]
        title=title,
    )


async def test_an_update_is_stored_once_however_often_it_comes(pool: Pool) -> None:
    inbox = PostgresTelegramInbox(pool)
    assert await inbox.store(BOT, [update(5), update(6)]) == 2
    stored = await asyncio.gather(*(inbox.store(BOT, [update(6), update(7)]) for _ in range(5)))
    assert sum(stored) == 1
    assert [row.update_id for row in await inbox.list_waiting(BOT)] == [5, 6, 7]
    assert [row.update_id for row in await inbox.list_waiting(BOT, limit=1, known={5, 6})] == [7]
    assert await inbox.mark_handled(BOT, [5, 7]) == 2
    assert await inbox.mark_handled(BOT, [5, 7]) == 0
    assert [row.update_id for row in await inbox.list_waiting(BOT)] == [6]
    assert await inbox.load_next_offset(BOT) == 8


def message(row: ChatRow, *numbers: int) -> Inbound:
    """As the lanes of a holder of the bot hand it on: these updates are one message."""
    receipt = TelegramReceipt(bot_id=BOT, update_ids=numbers, chat_id=row.chat_id, message_ids=numbers)
    return Inbound(
        session_id=row.session_id, address_id=row.address_id, text=" ".join(f"part{one}" for one in numbers),
        dedupe_key=f"tg:{BOT}:{numbers[0]}", receipt=receipt,
    )  # fmt: skip


async def accepted(pool: Pool, inbound: Inbound) -> bool | None:
    """Whether it was stored now (True) or before (False); None: another holder has taken some of it."""
    try:
        return not (await PostgresTurns(pool).accept(inbound, channel="telegram", tokens=3)).repeated
    except LeaseLost:
        return None


async def said(pool: Pool, row: ChatRow) -> list[str]:
    found = await pool.fetch(
        "SELECT blocks->0->>'text' AS text FROM entries WHERE session_id = $1 ORDER BY seq", row.session_id
    )
    return [entry["text"] for entry in found]


async def test_what_a_promoted_standby_does_not_know_waits_again(pool: Pool) -> None:
    inbox = PostgresTelegramInbox(pool)
    await inbox.store(BOT, [update(5), update(6), update(7)])
    await inbox.mark_handled(BOT, [5, 7])
    forgotten = "UPDATE telegram_updates SET body = jsonb_build_object('update_id', update_id)"
    await pool.execute(f"{forgotten} WHERE update_id = 7")
    await pool.execute("DELETE FROM telegram_updates WHERE update_id = 6")
    assert await inbox.store_again() == 1
    assert [one.update_id for one in await inbox.list_waiting(BOT)] == [6]
    assert await inbox.store_again() == 0
    body = await pool.fetchval("SELECT body FROM telegram_updates WHERE update_id = 7")
    assert body == {"update_id": 7}, "what was forgotten does not come back"


async def test_two_holders_that_group_updates_otherwise_store_each_once(pool: Pool) -> None:
    inbox, row = PostgresTelegramInbox(pool), await place(pool)
    await inbox.store(BOT, [update(number) for number in (1, 2, 3)])
    assert await accepted(pool, message(row, 1)) is True
    assert await accepted(pool, message(row, 1, 2)) is None
    assert [left.update_id for left in await inbox.list_waiting(BOT)] == [2, 3], "nothing of it is lost"
    assert await accepted(pool, message(row, 2, 3)) is True
    for late in ((2,), (3,), (1, 2, 3), (3, 2)):
        assert await accepted(pool, message(row, *late)) in (None, False)
    assert await accepted(pool, message(row, 2, 3)) is False, "the same message, come again"
    assert await said(pool, row) == ["part1", "part2 part3"]
    assert await inbox.list_waiting(BOT) == []
    with pytest.raises(UnknownSession):
        await inbox.store(BOT, [update(4)])
        await PostgresTurns(pool).accept(
            replace(message(row, 4), session_id=999_999), channel="telegram", tokens=3
        )


async def test_two_holders_at_the_same_moment_store_each_update_once(pool: Pool) -> None:
    inbox, row = PostgresTelegramInbox(pool), await place(pool)
    groupings = (((1, 2, 3),), ((1,), (2,), (3,)), ((1, 2), (3,)), ((1,), (2, 3)))
    for base in range(0, 400, 10):
        await inbox.store(BOT, [update(base + number) for number in (1, 2, 3)])
        asked = [tuple(base + one for one in group) for grouping in groupings for group in grouping]
        await asyncio.gather(*(accepted(pool, message(row, *group)) for group in asked))
        for left in await inbox.list_waiting(BOT):
            assert await accepted(pool, message(row, left.update_id)) is True
    words = " ".join(await said(pool, row)).split()
    assert len(words) == len(set(words)) == 120


async def test_who_waited_for_a_row_sees_that_it_was_taken(pool: Pool) -> None:
    """The statement of the second has begun before the first has committed."""
    inbox, row = PostgresTelegramInbox(pool), await place(pool)
    await inbox.store(BOT, [update(1), update(2)])
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("UPDATE telegram_updates SET handled_at = now() WHERE update_id = 1")
        late = asyncio.create_task(accepted(pool, message(row, 1, 2)))
        async with asyncio.timeout(30):
            while not await pool.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                await asyncio.sleep(0.01)
        await transaction.commit()
    assert await late is None
    assert await said(pool, row) == []
    assert [left.update_id for left in await inbox.list_waiting(BOT)] == [2]


async def test_what_json_in_postgres_cannot_hold_does_not_stop_the_inbox(pool: Pool) -> None:
    inbox = PostgresTelegramInbox(pool)
    await inbox.store(BOT, [update(1, "a\x00b\ud800c")])
    (row,) = await inbox.list_waiting(BOT)
    assert row.body["message"]["text"] == "a\ufffdb\ufffdc"


async def test_a_place_has_one_session_and_its_topics_one_each(pool: Pool) -> None:
    same = await asyncio.gather(*(place(pool) for _ in range(4)))
    assert len({row.session_id for row in same}) == 1
    topic = await place(pool, thread=12)
    assert topic.contact_id == same[0].contact_id
    assert topic.session_id != same[0].session_id
    group = await place(pool, chat=-100, title="Family")
    assert group.contact_id != topic.contact_id
    kind = await pool.fetchval("SELECT kind FROM contacts WHERE id = $1", group.contact_id)
    assert kind == "group"


async def test_a_place_takes_the_name_its_chat_has_now(pool: Pool) -> None:
    before = await place(pool, title="Ada")
    await place(pool, title="Ada Lovelace")
    assert (await place(pool, title="")).title == "Ada Lovelace"
    assert (await place(pool, title="Ada Lovelace")).session_id == before.session_id


@pytest.mark.control("S31")
async def test_unapproved_telegram_chat_is_capped_like_a_visitor(pool: Pool) -> None:
    known = await place(pool)
    await PostgresTelegramChats(pool).enrol(
        BOT, username="ever_bot", agent="default", audience="public", access="open", mode="polling"
    )
    stranger = await place(pool, chat=77, title="Eve")
    anonymous = "SELECT anonymous FROM contacts WHERE id = $1"
    assert await pool.fetchval(anonymous, stranger.contact_id)
    assert not await pool.fetchval(anonymous, known.contact_id)


async def test_a_group_that_became_a_supergroup_keeps_its_session(pool: Pool) -> None:
    places = PostgresTelegramChats(pool)
    before = await place(pool, chat=-5, title="Family")
    await PostgresTelegramAccess(pool).decide(BOT, -5, allowed=True, by="admin")
    await places.migrate(BOT, old_chat=-5, new_chat=-1005)
    await places.migrate(BOT, old_chat=-5, new_chat=-1005)
    after = await place(pool, chat=-1005, title="Family")
    assert after.session_id == before.session_id
    allowed = await PostgresTelegramAccess(pool).find(BOT, -1005)
    assert allowed is not None
    assert allowed.state == "allowed"


async def test_blocked_chat_is_unreachable_until_its_next_message(pool: Pool) -> None:
    places = PostgresTelegramChats(pool)
    row = await place(pool)
    await places.set_reachable(BOT, ADA, reachable=False)
    blocked = await places.find_chat(row.address_id)
    assert blocked is not None
    assert blocked.unreachable
    await places.set_reachable(BOT, ADA, reachable=True)
    assert not (await places.list_threads(BOT, ADA))[0].unreachable
    assert await places.change_settings(row.address_id, {"drafts": True}) == {"drafts": True}
    assert await places.change_settings(row.address_id, {"drafts": None}) == {}


async def test_one_process_holds_a_lease_until_it_ends(pool: Pool) -> None:
    workers, leases = PostgresWorkers(pool), PostgresLeases(pool)
    one, two = await workers.register("bot"), await workers.register("bot")
    assert await leases.take("telegram:7", worker_id=one) == 1
    assert await leases.take("telegram:7", worker_id=two) is None
    assert await leases.take("telegram:7", worker_id=one) == 1
    await workers.stop(one)
    assert await leases.take("telegram:7", worker_id=two) == 2
    await leases.release("telegram:7", worker_id=two)
    three = await workers.register("bot")
    assert await leases.take("telegram:7", worker_id=three) == 3


async def test_a_stranger_gets_one_code_and_an_operator_decides(pool: Pool) -> None:
    access = PostgresTelegramAccess(pool)
    first = await access.request_access(BOT, ADA, name="Ada", username="ada")
    again = await access.request_access(BOT, ADA, name="Ada L.", username="ada")
    assert first is not None
    assert again is not None
    assert (first.state, first.code, again.code) == ("pending", again.code, first.code)
    assert first.code is not None
    assert await access.decide_by_code("WRONG234", allowed=True, by="admin") is None
    decided = await access.decide_by_code(first.code.lower(), allowed=True, by="admin")
    assert decided is not None
    assert (decided.state, decided.code) == ("allowed", None)
    assert await access.decide_by_code(first.code, allowed=False, by="admin") is None
    assert [row.chat_id for row in await access.list_all(state="allowed")] == [ADA]


@pytest.mark.control("S31")
async def test_strangers_cannot_fill_the_list(pool: Pool) -> None:
    access = PostgresTelegramAccess(pool)
    rows = [await access.request_access(BOT, 1000 + number, name="x", username="") for number in range(52)]
    assert sum(row is None for row in rows) == 2


async def test_strangers_are_counted_up_to_one_of_them(pool: Pool) -> None:
    """However many come at the same time, each knows how many were before."""
    access = PostgresTelegramAccess(pool)
    for chat in (11, 12, 13):
        await access.request_access(BOT, chat, name="x", username="")
        await access.mark_code_sent(BOT, chat)
    await access.request_access(BOT, 14, name="x", username="")
    assert [await access.count_waiting(BOT, up_to=chat) for chat in (11, 12, 13, 14)] == [1, 2, 3, 3]
    await access.decide(BOT, 11, allowed=True, by="admin")
    assert await access.count_waiting(BOT, up_to=13) == 2


async def test_an_owner_link_works_once(pool: Pool) -> None:
    access = PostgresTelegramAccess(pool)
    code = await access.issue_owner_code(BOT, by="test")
    won = await asyncio.gather(*(access.become_owner(BOT, chat, code=code, name="A") for chat in (ADA, 5, 6)))
    assert sum(won) == 1
    assert len(await access.list_owners(BOT)) == 1
    assert not await access.become_owner(BOT, 9, code="nonsense", name="B")


async def answered_turn(pool: Pool, row: ChatRow) -> tuple[int, int]:
    """A turn in the state in which an answer leaves it."""
    await pool.execute(
        """WITH t AS (
             INSERT INTO turns (session_id, turn_no, state, channel, address_id, ended_at)
             VALUES ($1, 1, 'answered', 'telegram', $2, now())
           ), e AS (
             INSERT INTO entries (session_id, seq, role, author, blocks, tokens)
             VALUES ($1, 1, 'assistant', 'assistant', '[{"type": "text", "text": "So be it."}]', 3)
           )
           UPDATE sessions SET next_seq = 2, next_turn = 2, answered_turn = 1 WHERE id = $1""",
        row.session_id,
        row.address_id,
    )
    await pool.execute(
        "INSERT INTO turn_entries (session_id, seq, turn_no, step) VALUES ($1, 1, 1, 1)", row.session_id
    )
    return row.session_id, 1


async def test_a_part_is_begun_once_and_found_until_it_is_delivered(pool: Pool) -> None:
    deliveries = PostgresDeliveries(pool)
    row = await place(pool)
    turn = await answered_turn(pool, row)
    await deliveries.plan(*turn, address_id=row.address_id, count=2)
    assert await deliveries.list_unfinished([BOT]) == [turn]
    ended = await deliveries.load_ended_turn(*turn)
    assert ended is not None
    assert (ended.text, [part.state for part in ended.parts]) == ("So be it.", ["queued", "queued"])
    begun = await asyncio.gather(*(deliveries.begin(*turn, 0) for _ in range(4)))
    assert sum(begun) == 1
    await deliveries.mark_not_sent(*turn, 0, error="429")
    assert await deliveries.begin(*turn, 0)
    await deliveries.mark_delivered(*turn, 0, remote_id=71)
    assert await deliveries.begin(*turn, 1)
    assert await deliveries.recover_interrupted([BOT]) == 1
    assert await deliveries.list_unfinished([BOT]) == []
    assert [(part.state, part.remote_id) for part in await deliveries.list_parts(*turn)] == [
        ("delivered", 71),
        ("uncertain", None),
    ]
    told = await PostgresTelegramChats(pool).find_message(BOT, ADA, 71)
    assert told is not None
    assert (told.session_id, told.turn, told.part, told.seq) == (*turn, 0, None)


async def test_operators_see_the_bot_and_what_may_not_have_arrived(pool: Pool) -> None:
    deliveries, insights = PostgresDeliveries(pool), JobInsights(pool)
    turn = await answered_turn(pool, row := await place(pool))
    await deliveries.plan(*turn, address_id=row.address_id, count=1)
    await deliveries.give_up(*turn, 0, state="uncertain", error="connection lost")
    await PostgresTelegramInbox(pool).store(BOT, [update(3)])
    await PostgresTelegramChats(pool).record_problem(BOT, "Another program polls this bot.")
    (bot,) = (await insights.load_jobs(JobMatch()))["bots"]
    (part,) = (await insights.load_deliveries(DeliveryQuery()))["deliveries"]
    assert (bot["id"], bot["waiting"], bot["served_by"]) == (BOT, 1, None)
    assert bot["problem"] == "Another program polls this bot."
    assert (part["turn"], part["part"], part["error"]) == (1, 0, "connection lost")


async def test_the_bubble_of_a_turn_that_was_taken_away_is_refused(pool: Pool) -> None:
    deliveries = PostgresDeliveries(pool)
    row = await place(pool)
    await pool.execute(
        """INSERT INTO turns (session_id, turn_no, state, channel, address_id)
           VALUES ($1, 1, 'claimed', 'telegram', $2)""",
        row.session_id, row.address_id,
    )  # fmt: skip
    await pool.execute("UPDATE sessions SET next_turn = 2, turn_epoch = 4 WHERE id = $1", row.session_id)
    shown = {"address_id": row.address_id, "remote_id": 90}
    assert await deliveries.record_bubble(row.session_id, 1, 0, epoch=4, **shown)
    assert not await deliveries.record_bubble(row.session_id, 1, 0, epoch=3, **shown)
    assert await deliveries.load_ended_turn(row.session_id, 1) is None
    assert await deliveries.list_unfinished([BOT]) == []
    await deliveries.plan(row.session_id, 1, address_id=row.address_id, count=3)
    await deliveries.drop_surplus(row.session_id, 1, count=1)
    assert [part.remote_id for part in await deliveries.list_parts(row.session_id, 1)] == [90]
    await deliveries.drop_surplus(row.session_id, 1, count=0)
    assert await deliveries.list_parts(row.session_id, 1) == ()


async def test_rehearsal_prepares_statements_of_receipts_and_stores_nothing(pool: Pool) -> None:
    inbox = PostgresTelegramInbox(pool)

    await inbox.rehearse()

    async with pool.acquire() as connection:
        prepared = await connection.fetch("SELECT statement FROM pg_prepared_statements")
    written = "INSERT INTO telegram_messages"
    assert any(written in row["statement"] for row in prepared)
    assert await pool.fetchval("SELECT count(*) FROM telegram_messages") == 0


async def test_customer_message_is_stored_with_its_receipt_or_not_at_all(pool: Pool) -> None:
    owner, customer = 71, 72
    chat = await PostgresSecretary(pool).open_chat(BOT, owner_id=owner, chat_id=customer, name="Cara")
    receipt = CustomerReceipt(
        bot_id=BOT, owner_id=owner, chat_id=customer, message_id=5, sent_at=datetime.now(UTC)
    )  # fmt: skip
    inbound = Inbound(
        session_id=chat.session_id, address_id=chat.address_id, text="When does it leave?",
        dedupe_key="tgb:5", receipt=receipt,
    )  # fmt: skip
    without_time = replace(receipt, sent_at=None)  # type: ignore[arg-type]
    with pytest.raises(asyncpg.NotNullViolationError):
        await PostgresTurns(pool).accept(replace(inbound, receipt=without_time), channel="telegram", tokens=5)
    assert await pool.fetchval("SELECT count(*) FROM entries") == 0
    first = await PostgresTurns(pool).accept(inbound, channel="telegram", tokens=5)
    again = await PostgresTurns(pool).accept(inbound, channel="telegram", tokens=5)
    assert (again.seq, again.repeated) == (first.seq, True)
    rows = await pool.fetch("SELECT message_id, turn_no, seq, is_customers FROM secretary_messages")
    assert [tuple(row) for row in rows] == [(5, first.turn, first.seq, True)]


async def shown_draft(pool: Pool) -> CustomerDraft:
    """A draft that its owner sees, of an answer to a customer."""
    owner, customer, store = 40, 41, PostgresSecretary(pool)
    link = BusinessLink(
        bot_id=BOT, connection_id="c", owner_id=owner, owner_chat_id=owner, owner_name="Olga", language="en",
        can_reply=True, is_enabled=True, established_at=datetime.now(UTC),
    )  # fmt: skip
    assert await store.record_link(link)
    chat = await store.open_chat(BOT, owner_id=owner, chat_id=customer, name="Cara")
    question = Inbound(
        session_id=chat.session_id, address_id=chat.address_id, text="When?", dedupe_key="tgb:6"
    )
    accepted = await PostgresTurns(pool).accept(question, channel="telegram", tokens=2)
    draft_id = await pool.fetchval(
        """INSERT INTO secretary_drafts
             (session_id, turn_no, bot_id, owner_id, chat_id, state, is_automatic, change_id, expires_at)
           VALUES ($1, $2, $3, $4, $5, 'shown', false, 9, now() + interval '1 hour') RETURNING draft_id""",
        chat.session_id, accepted.turn, BOT, owner, customer,
    )  # fmt: skip
    draft = await store.find_draft(BOT, draft_id)
    assert draft is not None
    return draft


@pytest.mark.parametrize("state", ["approved", "sending", "sent"])
async def test_own_text_after_approval_of_the_draft_is_too_late(pool: Pool, state: str) -> None:
    store, draft = PostgresSecretary(pool), await shown_draft(pool)
    assert await store.approve(draft) == "approved"
    await pool.execute(
        "UPDATE secretary_drafts SET state = $1, ended_at = CASE WHEN $1 = 'sent' THEN now() END", state
    )
    assert await store.approve(draft, own_text="At one.") == "text_late"
    assert await store.approve(draft) == state
    assert await pool.fetchval("SELECT own_text FROM secretary_drafts") is None


async def test_repeated_own_text_is_approved_and_another_one_is_too_late(pool: Pool) -> None:
    store, draft = PostgresSecretary(pool), await shown_draft(pool)
    for _ in range(2):  # a killed process handles the update again
        assert await store.approve(draft, own_text="At one.") == "approved"
    assert await store.approve(draft, own_text="At two.") == "text_late"
    assert await pool.fetchval("SELECT own_text FROM secretary_drafts") == "At one."
