"""Drafts through kills: no message is lost, nothing is sent twice, and nothing without approval."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from tests.faults.crash_points import SECRETARY_POINTS
from tests.kit.deployment.processes import CRASHED
from tests.kit.fakes.bot_api import Person
from tests.kit.fakes.bot_api.client import Refused
from tests.kit.telegram.deployment import Answers, Deployment, deployment, has_button

ANSWERS: Answers = {"ferry": {"latency": 0.2, "text": "It leaves at noon."}}
DRAFTS = {
    "EVERTALK_TELEGRAM_SECRETARY": "drafts", "EVERTALK_CAP_SECRETARY_PER_DAY_USD": "1000",
    "EVERTALK_CAP_CUSTOMER_PER_DAY_USD": "1000", "EVERTALK_CAP_TOTAL_PER_DAY_USD": "10000",
}  # fmt: skip
OPEN = """
SELECT count(*) = 0 FROM secretary_drafts WHERE state IN ('due', 'showing', 'approved', 'sending')
"""
UNDRAFTED = """
SELECT count(*) = 0 FROM turns t JOIN addresses a ON a.id = t.address_id
 WHERE a.channel = 'telegram_business' AND NOT EXISTS (
       SELECT FROM secretary_drafts f WHERE f.session_id = t.session_id AND f.turn_no = t.turn_no)
"""
SENT = """
SELECT count(*) FILTER (WHERE state = 'sent'), count(*) FILTER (WHERE state = 'uncertain')
  FROM secretary_drafts WHERE owner_id = $1 AND chat_id = $2
"""
STORED = """
SELECT count(*) FROM entry_rows e JOIN addresses a ON a.session_id = e.session_id
 WHERE a.channel = 'telegram_business' AND a.chat = $1 AND e.author = 'person'
   AND e.blocks::text LIKE '%' || $2 || '%'
"""


async def connected_owner(here: Deployment, number: int) -> Person:
    person = await here.house.person(number, first_name="Olga")
    await person.connects_business()
    return person


async def sent_to(owner: Person, customer: Person) -> list[str]:
    return [one["text"] for one in await owner.business_chat(customer) if one["by_bot"]]


async def press_send(owner: Person, names: frozenset[str]) -> None:
    """Press Send below each draft for one of these customers, twice: on two devices."""
    screen = await owner.screen()
    for line in screen.answers:
        if "Send" in line.buttons and line.text.partition(" wrote:")[0] in names:
            with suppress(Refused):  # the button has gone meanwhile
                await asyncio.gather(*(owner.tap("Send", message_id=line.message_id) for _ in range(2)))


@pytest.mark.row("F61")
@pytest.mark.parametrize(("point", "sent", "state"), [
    ("telegram_before_draft", 1, "sent"),
    ("telegram_after_draft", 1, "sent"),
    ("telegram_after_approval", 1, "sent"),
    ("telegram_before_customer", 0, "uncertain"),
    ("telegram_after_customer", 1, "uncertain"),
])  # fmt: skip
async def test_approved_draft_is_sent_once_through_a_crash(
    point: str, sent: int, state: str, database_url: str, redis_url: str, tmp_path: Any
) -> None:
    assert point in SECRETARY_POINTS
    async with deployment(ANSWERS, database_url, redis_url, tmp_path, settings=DRAFTS) as here:
        await here.api.change_bot(business=True)
        olga = await connected_owner(here, 71_000)
        cara = await here.house.person(71_001, allowed=False, first_name="Cara")
        await olga.sees("I am connected")
        await here.house.restart(EVERTALK_CRASH_POINT=point)
        await cara.writes_to_owner(olga, "When does the ferry leave?")
        if not point.endswith("draft"):
            await olga.sees(has_button("Send"))
            await olga.tap("Send")
        assert await here.house.bot.ended() == CRASHED
        await here.house.start()
        if point.endswith("draft"):
            await olga.sees(has_button("Send"))
            await here.house.until("SELECT count(*) = 1 FROM secretary_drafts WHERE state = 'shown'")
            await olga.tap("Send")
        await here.house.until("SELECT count(*) = 1 FROM secretary_drafts WHERE state = $1", state)
        await here.house.until("SELECT count(*) = 1 FROM secretary_drafts WHERE shown_state = state")
        assert len(await sent_to(olga, cara)) == sent
        turns = """SELECT count(*) FROM turns t JOIN addresses a ON a.id = t.address_id
                    WHERE a.channel = 'telegram_business'"""
        assert await here.house.one(turns) == 1


@pytest.mark.row("F61")
@pytest.mark.timeout(300)
async def test_two_hundred_messages_survive_kills_of_bot_and_worker(
    database_url: str, redis_url: str, tmp_path: Any
) -> None:
    """Ten owners' customers are approved, ten are not; of the latter nothing may ever be sent."""
    async with deployment(ANSWERS, database_url, redis_url, tmp_path, worker=True, settings=DRAFTS) as here:
        await here.api.change_bot(business=True)
        owners = [await connected_owner(here, 72_000 + number) for number in range(2)]
        customers = [
            await here.house.person(73_000 + number, allowed=False, first_name=f"Customer {number:02}")
            for number in range(20)
        ]
        approved = frozenset(f"Customer {number:02}" for number in range(10))
        for number in range(10):
            for place, one in enumerate(customers):
                words = f"ferry question {number} of customer {place:02}"
                await one.writes_to_owner(owners[place % 2], words)
            await asyncio.gather(*(press_send(owner, approved) for owner in owners))
            if number % 3 == 1:
                await here.house.bot.kill()
                if here.house.worker is not None:
                    await here.house.worker.kill()
                    here.house.worker = type(here.house.worker)("worker", here.house.settings)
                    await here.house.worker.start()
                await here.house.start()
            await asyncio.sleep(0.5)
        await here.house.handled(seconds=120)
        await here.house.until(UNDRAFTED, seconds=120)
        await here.house.until(OPEN, seconds=120)
        await asyncio.gather(*(press_send(owner, approved) for owner in owners))
        await here.house.handled(seconds=60)
        await here.house.until(OPEN, seconds=60)
        all_sent = 0
        for place, one in enumerate(customers):
            olga = owners[place % 2]
            for number in range(10):
                words = f"ferry question {number} of customer {place:02}"
                assert await here.house.one(STORED, f"{olga.id}:{one.id}", words) == 1, f"lost: {words}"
            found = len(await sent_to(olga, one))
            sent, uncertain = await here.house.row(SENT, olga.id, one.id)
            assert sent <= found <= sent + uncertain, f"doubled to customer {place}"
            if place >= 10:
                assert (found, sent, uncertain) == (0, 0, 0), f"sent without approval to customer {place}"
            all_sent += found
        assert all_sent >= 10, "each approved customer has at least the last answer"
