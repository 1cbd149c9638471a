"""`/compact off`: nothing is summarised unless a person asks for it, and no message is lost at the limit."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.bootstrap.app import App
from shared.core.compaction.jobs import MANUAL
from tests.acceptance.long_talks import everything_is_due
from tests.kit.app_driver import Visit, visit, working
from tests.kit.deployment.person import WALK
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.night import by_night

pytestmark = pytest.mark.timeout(300)
SUMMARIES = "SELECT count(*) FROM compactions WHERE kind IN ('summary', 'digest')"
UNANSWERED = "SELECT count(*) FROM turns WHERE state <> 'answered'"


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"context_window": 12_000, "max_output": 1_000}


async def command(guest: Visit, name: str, args: str = "") -> str:
    found = guest.app.commands.run(
        session_id=guest.session_id, address_id=guest.address_id, name=name, args=args, language=""
    )
    async with working(guest):
        return (await asyncio.wait_for(found, 60)).result


async def talk(guest: Visit, turns: int) -> None:
    for number in range(turns):
        await guest.ask(f"Number {number}: {WALK}")
        await guest.run_due_jobs()


async def test_nothing_is_summarised_or_lost_while_switched_off(app: App, provider: RunningFake) -> None:
    guest = await visit(app)
    assert "no longer sent to the assistant" in await command(guest, "compact", "off")
    await talk(guest, by_night(200, else_=60))

    assert await guest.one(SUMMARIES) == 0
    assert await guest.one(UNANSWERED) == 0
    assert [one for one in await provider.requests() if one["outcome"] not in ("answered", "open")] == []
    whole = await guest.one(
        "SELECT count(*) FROM entry_rows WHERE author = 'person' AND words LIKE 'Number%'"
    )
    assert whole == by_night(200, else_=60)
    newest = (await provider.requests())[-1]["body"]["messages"]
    assert len(newest) < 2 * whole, "the oldest messages are left out of requests"
    assert "Automatic summaries are off" in await command(guest, "context")


async def test_summary_on_request_is_made_while_switched_off(app: App) -> None:
    guest = await visit(app)
    await command(guest, "compact", "off")
    await talk(guest, 8)
    assert "Summarised" in await command(guest, "compact", "--force")
    assert await guest.one("SELECT array_agg(trigger) FROM compactions") == [MANUAL]


async def test_switched_on_again_the_next_turns_are_summarised(app: App) -> None:
    guest = await visit(app)
    await command(guest, "compact", "OFF")
    await talk(guest, 40)
    assert await guest.one(SUMMARIES) == 0
    assert await command(guest, "compact", "on") == "Automatic summaries are on in this conversation."
    await talk(guest, 2)
    assert await guest.one(SUMMARIES) > 0
    assert "Automatic summaries are off" not in await command(guest, "context")


async def test_waiting_job_of_before_ends_without_a_summary(app: App) -> None:
    guest = await visit(app)
    number = 0
    while not await guest.one("SELECT count(*) FROM jobs WHERE kind = 'compact'"):
        await guest.ask(f"Number {number}: {WALK}")
        number += 1
    await guest.app.commands.run(
        session_id=guest.session_id, address_id=guest.address_id, name="compact", args="off", language=""
    )
    await everything_is_due(guest)
    await guest.run_due_jobs()
    outcome = await guest.one("SELECT outcome FROM jobs WHERE kind = 'compact' ORDER BY id LIMIT 1")
    assert outcome.get("nothing") == "switched_off", outcome
    assert await guest.one(SUMMARIES) == 0


async def test_context_says_how_many_messages_fit_before_the_next_summary(app: App) -> None:
    guest = await visit(app)
    await talk(guest, 4)
    line = next(one for one in (await command(guest, "context")).splitlines() if "until then" in one)
    left = int(line.rpartition(" ")[2])
    asked = 0
    while not await guest.one("SELECT count(*) FROM jobs WHERE kind = 'compact'"):
        await guest.ask(f"Number {asked}: {WALK}")
        asked += 1
    assert abs(asked - left) <= 3


async def test_choice_holds_for_its_conversation_only(app: App) -> None:
    mine, other = await visit(app), await visit(app)
    await command(mine, "compact", "off")
    await talk(other, 40)
    sql = "SELECT count(*) FROM compactions WHERE session_id = $1"
    assert await other.one(sql, other.session_id) > 0
    assert "Automatic summaries are off" not in await command(other, "context")


@pytest.fixture
async def by_hand(app: App) -> AsyncIterator[None]:
    """The agent makes summaries on request only, as long as the test runs."""
    before = await app.pool.fetchval("SELECT config FROM agents")
    await app.pool.execute("UPDATE agents SET config = $1", {**before, "context": {"compact_auto": False}})
    yield
    await app.pool.execute("UPDATE agents SET config = $1", before)


@pytest.mark.usefixtures("by_hand")
async def test_agent_without_automatic_summaries_says_so(app: App) -> None:
    guest = await visit(app)
    await talk(guest, 2)
    told = "This assistant makes summaries only when asked with `/compact`"
    assert await command(guest, "compact", "on") == f"{told}."
    status = await command(guest, "context")
    assert told in status
    assert "next summary" not in status
    assert "until then" not in status
    assert await command(guest, "compact", "at max") == f"{told}."
    assert "no longer sent to the assistant" in await command(guest, "compact", "off")
    assert "Automatic summaries are off" in await command(guest, "context")


async def test_limit_of_a_conversation_is_raised_up_to_the_hard_limit(app: App) -> None:
    raised, other = await visit(app), await visit(app)
    refused = await command(raised, "compact", "at 9999999")
    most = int(re.findall(r"[0-9][0-9,]+", refused)[-1].replace(",", ""))
    assert "9,999,999" in refused
    assert str(most + 1)[-3:] in await command(raised, "compact", f"at {most + 1}"), "one more is refused"
    assert f"{most:,}" in await command(raised, "compact", f"at {most}")
    state = await app.stores.jobs.load_state(raised.session_id)
    assert state.compact_at == most

    turns = [await _talk_until_due(guest) for guest in (raised, other)]
    assert turns[0] > turns[1], turns


async def _talk_until_due(guest: Visit) -> int:
    """Return the number of turns after which a summary is due."""
    turns, due = 0, "SELECT count(*) FROM jobs WHERE kind = 'compact' AND session_id = $1"
    while not await guest.one(due, guest.session_id):
        await guest.ask(f"Number {turns}: {WALK}")
        turns += 1
    return turns


async def test_default_gives_a_conversation_its_own_limit_back(app: App) -> None:
    guest = await visit(app)
    await command(guest, "compact", "at max")
    assert (await app.stores.jobs.load_state(guest.session_id)).compact_at is not None
    assert "usual limit" in await command(guest, "compact", "at default")
    assert (await app.stores.jobs.load_state(guest.session_id)).compact_at is None


async def test_limit_of_a_conversation_never_makes_an_invalid_request(
    app: App, provider: RunningFake
) -> None:
    guest = await visit(app)
    await command(guest, "compact", "at max")
    await talk(guest, by_night(200, else_=40))
    assert await guest.one(UNANSWERED) == 0
    assert [one for one in await provider.requests() if one["outcome"] not in ("answered", "open")] == []
    assert await guest.one(SUMMARIES) > 0
