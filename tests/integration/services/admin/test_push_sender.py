"""Who has no page open is notified by a strict push service: once, and of what concerns them."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import asyncpg
import pytest

from shared.adapters.alerts.web_push import WebPush
from shared.adapters.encryption import Encryption
from shared.adapters.postgres.db.pool import open_pool
from shared.adapters.postgres.handover.handovers import PostgresHandovers
from shared.adapters.postgres.handover.push import BROWSERS_AT_MOST, MOST_FAILURES, PostgresPush
from shared.adapters.postgres.operations.invariants import check_invariants
from shared.adapters.postgres.people.operator_admin import OperatorAdmin
from shared.adapters.postgres.people.operator_auth import Operators, hash_secret
from shared.adapters.postgres.people.visitors import PostgresVisitors, VisitorRow, generate_token, hash_token
from shared.adapters.postgres.privacy.erasure import PostgresErasure
from shared.adapters.postgres.privacy.export import PostgresExport
from shared.adapters.postgres.turns.turns import PostgresTurns
from shared.core.identity.handover import Assignment, NewHandover, Snooze
from shared.core.identity.push import PushTarget, parse_target
from shared.core.ops.alerts import AlertRefused
from shared.core.session.turns import Inbound
from shared.core.values.messages import Text
from shared.services.admin.push_sender import Present, PushSender
from tests.kit.fakes.push.browser import Browser
from tests.kit.fakes.push.harness import RunningPush

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
NOBODY = Present()


@dataclass(kw_only=True)
class House:
    """An operator with a login, a visitor, and what notifies them."""

    pool: Pool
    service: RunningPush
    sender: PushSender
    store: PostgresPush
    key: str
    operator_id: int
    login: str
    token: str
    visitor: VisitorRow
    away: list[str | None]

    async def browser(self, name: str, language: str = "en") -> PushTarget:
        given = await self.service.subscribe(name, self.key)
        return parse_target(**given, language=language, services=(self.service.origin,))

    async def operators_browser(self, name: str = "desk", language: str = "en") -> PushTarget:
        target = await self.browser(name, language)
        await self.store.subscribe_operator(
            target, operator_id=self.operator_id, login_hash=hash_secret(self.login)
        )
        return target

    async def visitors_browser(self, name: str = "phone", language: str = "en") -> PushTarget:
        target = await self.browser(name, language)
        await self.store.subscribe_visitor(target, visitor_hash=hash_token(self.token))
        return target

    async def ask_for_human(self) -> None:
        await PostgresHandovers(self.pool).request_handover(
            NewHandover(
                session_id=self.visitor.session_id, address_id=self.visitor.address_id, asked_by="person"
            )
        )

    async def take(self) -> None:
        await PostgresHandovers(self.pool).take_over(
            self.visitor.session_id, operator_id=self.operator_id, name="anna"
        )

    async def say(self, text: str, cid: str) -> None:
        inbound = Inbound(
            address_id=self.visitor.address_id, session_id=self.visitor.session_id, text=text,
            dedupe_key=f"web:{cid}", cid=cid,
        )  # fmt: skip
        await PostgresTurns(self.pool).accept(inbound, channel="web", tokens=1)

    async def reply(self, text: str, cid: str) -> None:
        await PostgresHandovers(self.pool).record_reply(
            self.visitor.session_id,
            operator_id=self.operator_id,
            cid=cid,
            blocks=(Text(text=text),),
            tokens=1,
        )

    async def told(self, present: Present = NOBODY) -> list[dict[str, Any]]:
        """One round, and all that the push service took of it."""
        await self.sender.look(present)
        await self.sender.settle()
        return await self.service.requests()

    async def count(self) -> int:
        number: int = await self.pool.fetchval("SELECT count(*) FROM push_subscriptions")
        return number


@pytest.fixture
async def sending(database_url: str) -> AsyncIterator[House]:
    pool = await open_pool(database_url, size=4)
    async with RunningPush() as service:
        operators, token = Operators(pool), generate_token()
        operator_id: int = await pool.fetchval(
            "INSERT INTO operators (name, role, display_name) VALUES ($1, $2, $3) RETURNING id",
            "anna",
            "operator",
            "Anna",
        )
        login = await operators.begin(operator_id, how="password", source="127.0.0.1")
        visitor = await PostgresVisitors(pool).create(token, site="default")
        assert login is not None
        assert visitor is not None
        store, away = PostgresPush(pool, patience_seconds=0), list[str | None]([None])
        channel = channel_of(store, service)
        yield House(
            pool=pool, service=service, store=store, key=await channel.public_key(), operator_id=operator_id,
            login=login, token=token, visitor=visitor, away=away,
            sender=PushSender(store, channel, away=lambda: away[-1], try_again_seconds=0.01),
        )  # fmt: skip
        await operators.close()
        await pool.close()
    connection = await asyncpg.connect(database_url, timeout=60)
    try:
        assert await check_invariants(connection) == []
    finally:
        await connection.close(timeout=30)


def channel_of(store: PostgresPush, service: RunningPush, **more: Any) -> WebPush:
    encryption, services = Encryption(b"s" * 32), (service.origin,)
    return WebPush(
        store, encryption=lambda: encryption, subject="mailto:ada@example.org", services=services, **more
    )


async def test_an_operator_with_no_page_hears_once_who_waits_and_who_wrote(sending: House) -> None:
    await sending.operators_browser(language="de")
    await sending.pool.execute(
        "UPDATE contacts SET display_name = 'Ada' WHERE id = $1", sending.visitor.contact_id
    )
    assert await sending.told() == []
    await sending.ask_for_human()
    (waits,) = await sending.told()
    session = str(sending.visitor.session_public_id)
    assert waits == {
        "browser": "desk", "status": 201, "ttl": 3600, "urgency": "high", "topic": session.replace("-", ""),
        "sub": "mailto:ada@example.org",
        "message": {
            "title": "Evertalk", "body": "Ada wartet auf einen Menschen.", "tag": session,
            "url": f"dashboard/inbox?at={session}",
        },
    }  # fmt: skip
    assert await sending.told() == [], "told once"
    await sending.take()
    assert await sending.told() == []
    await sending.say("Hello? My secret is 4711.", "c1")
    (wrote,) = await sending.told()
    assert wrote["message"]["body"] == "Ada hat geschrieben."
    assert "4711" not in str(wrote), "who, never what"
    await sending.reply("Here I am.", "r1")
    assert await sending.told() == []
    assert await sending.pool.fetchval("SELECT succeeded_at IS NOT NULL FROM push_subscriptions")


async def test_a_visitor_with_no_page_hears_of_an_operators_answer(sending: House) -> None:
    await sending.visitors_browser(language="de-AT")
    await sending.ask_for_human()
    await sending.take()
    await sending.say("Hello?", "c1")
    await sending.reply("First.", "r1")
    await sending.reply("Second.", "r2")
    (answer,) = await sending.told()
    assert answer["message"] == {
        "title": "Evertalk", "body": "Anna hat geantwortet.", "tag": str(sending.visitor.session_public_id),
        "url": "chat?site=default",
    }  # fmt: skip
    assert (answer["ttl"], answer["urgency"]) == (86_400, "normal")
    assert await sending.told() == []


async def test_a_visitor_hears_of_all_their_conversations_and_of_no_other_channel(sending: House) -> None:
    await sending.visitors_browser()
    other = await PostgresVisitors(sending.pool).begin_conversation(sending.visitor.address_id)
    row = await sending.pool.fetchrow(
        """SELECT a.id, a.session_id FROM addresses a JOIN sessions s ON s.id = a.session_id
            WHERE s.public_id = $1""",
        other,
    )
    assert row is not None
    mine, sending.visitor = sending.visitor, replace(sending.visitor, address_id=row[0], session_id=row[1])
    await sending.take()
    await sending.reply("In the other one.", "r1")
    (told,) = await sending.told()
    assert told["message"]["tag"] == str(other)
    elsewhere = await sending.pool.fetchval(
        """INSERT INTO addresses (channel, account, chat, contact_id, session_id)
           VALUES ('telegram', '7', '1', $1, $2) RETURNING id""",
        mine.contact_id,
        mine.session_id,
    )
    sending.visitor = replace(mine, address_id=elsewhere)
    await sending.say("Hello from Telegram", "c1")
    await sending.take()
    await sending.reply("There.", "r2")
    assert await sending.told() == []


async def test_person_with_an_open_page_gets_no_push(sending: House) -> None:
    await sending.operators_browser()
    await sending.visitors_browser()
    await sending.ask_for_human()
    dashboard = Present(operators=(sending.operator_id,))
    assert await sending.told(dashboard) == []
    await sending.take()
    await sending.reply("Here I am.", "r1")
    assert await sending.told(Present(addresses=(sending.visitor.address_id,))) == []
    assert await sending.told() == [], "what was seen there is not told later"
    await sending.say("Are you there?", "c1")
    assert [
        one["browser"] for one in await sending.told(Present(addresses=(sending.visitor.address_id,)))
    ] == ["desk"]


async def test_words_wait_until_every_process_could_say_who_is_here(sending: House) -> None:
    await sending.operators_browser()
    await sending.ask_for_human()
    patient = PostgresPush(sending.pool)
    assert await patient.claim(operators=(), addresses=(), at_work=True) == []
    assert len(await sending.store.claim(operators=(), addresses=(), at_work=True)) == 1


async def test_other_operators_get_no_push_of_a_taken_conversation(sending: House) -> None:
    await sending.operators_browser()
    await sending.pool.execute("INSERT INTO operators (name, role) VALUES ('ben', 'operator')")
    await sending.ask_for_human()
    await sending.take()
    dashboard = PostgresHandovers(sending.pool)
    await dashboard.change(
        sending.visitor.session_id, Assignment(operator="ben"), version=1, operator_id=sending.operator_id
    )
    await sending.say("Hello?", "c1")
    assert await sending.told() == []


async def test_snoozed_conversation_sends_a_push_when_its_person_writes(sending: House) -> None:
    await sending.operators_browser()
    await sending.ask_for_human()
    until = await sending.pool.fetchval("SELECT now() + interval '1 hour'")
    dashboard, session = PostgresHandovers(sending.pool), sending.visitor.session_id
    await dashboard.change(session, Snooze(until=until), version=0, operator_id=sending.operator_id)
    assert await sending.told() == []
    await sending.say("Hello?", "c1")
    assert len(await sending.told()) == 1


async def test_operators_get_push_in_the_morning_outside_working_hours(sending: House) -> None:
    await sending.operators_browser()
    await sending.visitors_browser()
    await sending.ask_for_human()
    sending.away.append("Until nine.")
    assert await sending.told() == []
    sending.away.append(None)
    assert len(await sending.told()) == 1


async def test_viewers_and_locked_operators_get_no_push(sending: House) -> None:
    await sending.operators_browser()
    await sending.ask_for_human()
    await sending.pool.execute("UPDATE operators SET role = 'viewer'")
    assert await sending.told() == []
    await sending.pool.execute("UPDATE operator_sessions SET expires_at = now() - interval '1 minute'")
    public_id = await sending.pool.fetchval("SELECT public_id FROM operators")
    await OperatorAdmin(sending.pool).change(public_id, by="admin", locked=True)
    assert await sending.count() == 0


@pytest.mark.parametrize("status", [404, 410])
async def test_a_browser_that_is_gone_is_forgotten(sending: House, status: int) -> None:
    await sending.operators_browser()
    await sending.service.next({"status": status})
    await sending.ask_for_human()
    assert [one["status"] for one in await sending.told()] == [status]
    assert await sending.count() == 0


async def test_busy_push_service_is_retried_and_a_refusal_counts(sending: House) -> None:
    await sending.operators_browser()
    await sending.service.next({"status": 429, "retry_after": 1}, {"status": 500})
    await sending.ask_for_human()
    began = asyncio.get_running_loop().time()
    assert [one["status"] for one in await sending.told()] == [429, 500, 201]
    assert asyncio.get_running_loop().time() - began >= 1, "as long as it asked for"
    await sending.service.next(*[{"status": 503}] * 3)
    await sending.say("Hello?", "c1")
    assert [one["status"] for one in await sending.told()] == [503] * 3, "and then no more"
    assert await sending.pool.fetchval("SELECT failures FROM push_subscriptions") == 0
    await sending.service.next({"status": 413})
    await sending.say("Hello?", "c2")
    assert [one["status"] for one in await sending.told()] == [413]
    assert await sending.pool.fetchval("SELECT failures FROM push_subscriptions") == 1


async def test_a_browser_that_fails_again_and_again_is_forgotten(sending: House) -> None:
    await sending.operators_browser()
    target_id = await sending.pool.fetchval("SELECT id FROM push_subscriptions")
    for _ in range(MOST_FAILURES - 1):
        await sending.store.record_outcome(target_id, delivered=False)
    await sending.store.record_outcome(target_id, delivered=True)
    for left in range(MOST_FAILURES, 0, -1):
        assert await sending.count() == 1, left
        await sending.store.record_outcome(target_id, delivered=False)
    assert await sending.count() == 0


async def test_of_one_person_and_one_operator_the_newest_browsers_are_kept(sending: House) -> None:
    for number in range(BROWSERS_AT_MOST + 2):
        await sending.operators_browser(f"desk{number}")
        await sending.visitors_browser(f"phone{number}")
    await sending.operators_browser("desk0")
    rows = await sending.pool.fetch("SELECT endpoint FROM push_subscriptions ORDER BY id")
    names = [row["endpoint"].rpartition("/")[2] for row in rows]
    assert len([one for one in names if one.startswith("desk")]) == BROWSERS_AT_MOST
    assert len([one for one in names if one.startswith("phone")]) == BROWSERS_AT_MOST
    assert {"desk0", "desk11", "phone11"} <= set(names)
    assert not {"desk1", "desk2", "phone0", "phone1"} & set(names)


async def test_two_processes_at_a_first_start_have_one_key(sending: House) -> None:
    await sending.pool.execute("DELETE FROM push_keys")
    several = [channel_of(sending.store, sending.service) for _ in range(5)]
    assert len(set(await asyncio.gather(*(one.public_key() for one in several)))) == 1
    sending.key = await several[0].public_key()
    target = await sending.browser("late")
    for one in several:
        await one.send(target, b'{"a": 1}', topic="t", ttl_seconds=1, urgency="normal")
    assert [one["status"] for one in await sending.service.requests()] == [201] * 5


async def test_a_login_that_is_ended_takes_its_browser_along(sending: House) -> None:
    operators = Operators(sending.pool)
    await sending.operators_browser()
    other = await operators.begin(sending.operator_id, how="password", source="127.0.0.1")
    assert other is not None
    await operators.log_out(other)
    assert await sending.count() == 1, "another login"
    await sending.pool.execute("UPDATE operator_sessions SET seen_at = now() - interval '2 hours'")
    assert await operators.begin(sending.operator_id, how="password", source="127.0.0.1")
    assert await sending.count() == 1, "one that is only idle"
    await sending.pool.execute("UPDATE operator_sessions SET expires_at = now() - interval '2 days'")
    await sending.pool.execute("DELETE FROM operator_sessions")
    assert await sending.count() == 1, "one that ran out by itself"
    again = await operators.begin(sending.operator_id, how="password", source="127.0.0.1")
    assert again is not None
    sending.login = again
    await sending.operators_browser()
    await operators.log_out(again)
    assert await sending.count() == 0
    target = await sending.browser("late")
    kept = await sending.store.subscribe_operator(
        target, operator_id=sending.operator_id, login_hash=hash_secret(again)
    )
    assert (kept, await sending.count()) == (None, 0), "nobody subscribes by a login that is over"
    await operators.close()


async def test_what_a_visitor_has_ended_is_not_renewed(sending: House) -> None:
    hashed, target = hash_token(sending.token), await sending.browser("phone")
    assert await sending.store.subscribe_visitor(target, visitor_hash=hashed, renews=True) is None
    assert await sending.store.subscribe_visitor(target, visitor_hash=hashed) is True
    moved = replace(target, endpoint=f"{target.endpoint}-moved")
    assert await sending.store.subscribe_visitor(moved, visitor_hash=hashed, renews=True) is True
    await sending.pool.execute("DELETE FROM push_subscriptions")
    assert await sending.store.subscribe_visitor(target, visitor_hash=hashed, renews=True) is None
    assert await sending.count() == 0


async def test_a_visitors_token_that_ends_takes_its_browser_along(sending: House) -> None:
    await sending.visitors_browser()
    await PostgresVisitors(sending.pool).revoke(sending.token)
    assert await sending.count() == 0


async def test_export_names_push_browsers_and_erasure_ends_them(sending: House) -> None:
    await sending.visitors_browser(language="de")
    await sending.operators_browser()
    head = await PostgresExport(sending.pool).load_head(sending.visitor.session_id)
    (browser,) = head.more["notifications"]
    assert (browser["service"], browser["language"]) == (sending.service.origin.removeprefix("http://"), "de")
    erasing = PostgresErasure(sending.pool)
    begun = await erasing.start_erasure(sending.visitor.session_id, actor="person")
    while (report := await erasing.advance(begun.erasure_id)) is None:
        pass
    assert report.counts["push_subscriptions"] == 1
    assert await sending.pool.fetchval("SELECT bool_and(operator_id IS NOT NULL) FROM push_subscriptions")


async def test_a_browser_changes_hands_with_who_asks_last(sending: House) -> None:
    target = await sending.operators_browser()
    await sending.store.subscribe_visitor(target, visitor_hash=hash_token(sending.token))
    row = await sending.pool.fetchrow("SELECT operator_id, login_hash, visitor_hash FROM push_subscriptions")
    assert row is not None
    assert tuple(row) == (None, None, hash_token(sending.token))
    await sending.store.unsubscribe(target.endpoint, operator_id=sending.operator_id)
    assert await sending.count() == 1, "it is not that operator's"
    await sending.store.unsubscribe(target.endpoint, visitor_hash=hash_token(sending.token))
    assert await sending.count() == 0


@pytest.mark.control("S26")
@pytest.mark.parametrize("answers", [("127.0.0.1",), ("93.184.216.34", "10.0.0.1"), ("::1",), ()])
async def test_a_name_that_leads_inside_is_not_posted_to(sending: House, answers: Sequence[str]) -> None:
    """Whatever a subscription says: a name is looked at when it is resolved."""

    async def resolve(_host: str, _port: int) -> Sequence[ipaddress.IPv4Address | ipaddress.IPv6Address]:
        return [ipaddress.ip_address(one) for one in answers]

    channel = channel_of(sending.store, sending.service, resolve=resolve)
    given = Browser().subscription("https://push.example.org/inside")
    target = parse_target(**given, language="", services=())
    sent = await channel.send(target, b"{}", topic="t", ttl_seconds=1, urgency="normal")
    assert sent == AlertRefused(code="address_refused")
