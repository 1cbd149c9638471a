"""`/sample`: a year of conversation is played into a person's own one, and can be taken out again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.bootstrap.from_settings import DEMO_SOFT_BUDGET
from shared.core.session.turns import ContextMeasured
from shared.core.values.messages import text_of
from shared.samples import load_year
from shared.services.commands.command_service import CommandNotFound
from tests.kit.app_driver import Visit, running_app, settings_for, visit

YEAR = load_year()
SAID = """
SELECT string_agg(words, E'\n' ORDER BY te.turn_no, te.seq)
  FROM entry_rows e JOIN turn_entries te USING (session_id, seq) WHERE author = $1
"""
TRACES = """
SELECT count(*) FROM (
  SELECT words FROM entry_rows WHERE author = 'person' UNION ALL SELECT blocks::text FROM entry_rows
  UNION ALL SELECT payload::text FROM events UNION ALL SELECT text FROM notes
  UNION ALL SELECT summary_text || ledger::text FROM compactions
  UNION ALL SELECT body FROM prompt_parts) AS t(words) WHERE words LIKE '%Saffron%'
"""


@pytest.fixture
def model_options() -> dict[str, Any]:
    """Let the built-in demo answer."""
    return {}


async def give(guest: Visit, args: str = "", *, by_operator: bool = False) -> tuple[bool, str]:
    address = None if by_operator else guest.address_id
    done = await guest.app.commands.run(
        session_id=guest.session_id, address_id=address, name="sample", args=args
    )
    return done.success, done.result


async def look(guest: Visit, times: int = 1) -> None:
    """As the process of the channel does again and again, with a worker beside it."""
    for _ in range(times):
        for session_id in await guest.app.sessions.list_unanswered("web"):
            await guest.app.sessions.answer(session_id, guest.hear)
        await guest.run_due_jobs()


async def played(guest: Visit) -> int | None:
    number: int | None = await guest.one("SELECT played FROM sample_plays")
    return number


async def test_the_year_is_played_word_for_word_and_summarised_on_the_way(guest: Visit) -> None:
    done, words = await give(guest)
    assert done
    assert f"{DEMO_SOFT_BUDGET:,} tokens" in words
    await look(guest, len(YEAR) + 1)
    assert await played(guest) == len(YEAR)
    assert await guest.one(SAID, "person") == "\n".join(one.person for one in YEAR)
    assert await guest.one(SAID, "assistant") == "\n".join(one.assistant for one in YEAR)
    assert await guest.one("SELECT count(*) FROM compactions WHERE kind = 'summary' AND active") == 1
    measured = [one for one in guest.heard if isinstance(one, ContextMeasured)]
    assert {one.status for one in measured} == {"ok", "warning"}
    gauges = [one.percent for one in measured]
    full = gauges.index(max(gauges))
    assert max(gauges) > 95
    assert full < len(YEAR) - 1
    assert gauges[full + 1] < 60
    assert gauges[-1] < 60
    saving: float = await guest.one(
        "SELECT 1 - tokens_after::float / tokens_before FROM compactions WHERE kind = 'summary' AND active"
    )
    assert saving >= 0.5


async def test_sample_waits_for_a_summary_that_is_due(guest: Visit) -> None:
    await give(guest)
    due = "SELECT count(*) FROM jobs WHERE kind = 'compact' AND state = 'due'"
    while await guest.one(due) == 0:
        for session_id in await guest.app.sessions.list_unanswered("web"):
            await guest.app.sessions.answer(session_id, guest.hear)
    before = await played(guest)
    for _ in range(5):
        assert await guest.app.sessions.list_unanswered("web") == []
    assert await played(guest) == before
    await guest.run_due_jobs()
    await guest.app.sessions.list_unanswered("web")
    assert await played(guest) == (before or 0) + 1
    await look(guest, len(YEAR))
    assert {one.status for one in guest.heard if isinstance(one, ContextMeasured)} == {"ok", "warning"}


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("What is Saffron allergic to?", "fish"),
        ("How hot is the oven?", "I found this: “I forgot the oven: 225 degrees"),
        ("What is the booking code?", "KESTREL7"),
    ],
)
async def test_the_beginning_is_found_behind_the_summary(guest: Visit, question: str, told: str) -> None:
    await give(guest)
    await look(guest, len(YEAR))
    assert told in await guest.ask(question)


async def test_two_clicks_and_two_processes_play_it_once(guest: Visit) -> None:
    assert [(await give(guest))[0] for _ in range(2)] == [True, False]
    for _ in range(3):
        await asyncio.gather(*(guest.app.sessions.list_unanswered("web") for _ in range(4)))
        await guest.answered()
    assert await played(guest) == 3
    assert await guest.one(SAID, "person") == "\n".join(one.person for one in YEAR[:3])


async def test_what_the_person_says_meanwhile_is_answered_first_and_stays(guest: Visit) -> None:
    await guest.ask("My dog Bertil is allergic to chicken.")
    await give(guest)
    await look(guest, 3)
    await guest.say("What is my dog allergic to?")
    await guest.app.sessions.list_unanswered("web")
    assert await played(guest) == 3
    assert "chicken" in await guest.answered()
    await look(guest, 2)
    assert await played(guest) == 5
    await give(guest, "remove")
    said = await guest.one(
        "SELECT string_agg(words, ' ' ORDER BY seq) FROM entry_rows WHERE author = 'person'"
    )
    assert said.count("Bertil") == 1
    assert said.count("What is my dog allergic to?") == 1


@pytest.mark.parametrize("exchanges", [5, len(YEAR) + 1])
async def test_own_messages_stay_in_the_context_when_sample_is_removed(guest: Visit, exchanges: int) -> None:
    await guest.ask("My dog Bertil is allergic to chicken.")
    await give(guest)
    await look(guest, exchanges)
    await guest.ask("My bicycle lock opens with 4711.")
    await give(guest, "remove")
    state = await guest.app.stores.jobs.load_state(guest.session_id)
    said = [text_of(entry.blocks) for entry in state.view.entries if entry.author == "person"]
    assert said == ["My dog Bertil is allergic to chicken.", "My bicycle lock opens with 4711."]
    assert state.view.head is None
    assert not state.view.hold_compaction
    assert "chicken" in await guest.ask("What is my dog allergic to?")
    assert "4711" in await guest.ask("What opens my bicycle lock?")
    assert await guest.one(TRACES) == 0


async def test_removed_it_leaves_no_word_and_no_place(guest: Visit) -> None:
    await give(guest)
    await look(guest, len(YEAR))
    await guest.say("What is Saffron allergic to?", cid="sample-1-ask")
    assert "fish" in await guest.answered()
    await guest.app.commands.run(
        session_id=guest.session_id, address_id=guest.address_id, name="pin", args=""
    )
    assert await guest.one("SELECT count(*) FROM pins") == 1
    assert await guest.one(TRACES) > 0
    done, words = await give(guest, "remove")
    assert done
    assert "deleted" in words
    assert await guest.one(TRACES) == 0
    assert await guest.one("SELECT count(*) FROM pins") == 0
    shown = await guest.app.stores.events.list_newest(guest.session_id)
    assert [one.kind for one in shown if one.kind == "msg"] == []
    page = await guest.app.stores.history.list_before(guest.session_id, None, limit=100, summaries=True)
    assert [one.payload.get("command") for one in page.events if one.kind == "command.result"] == [
        "sample"
    ] * 2
    assert (await give(guest, "remove"))[0] is False
    assert "nothing about that" in await guest.ask("What is Saffron allergic to?")


async def test_sample_removed_halfway_ends_and_can_be_played_again(guest: Visit) -> None:
    await give(guest)
    await look(guest, 4)
    await give(guest, "remove")
    await look(guest, 3)
    assert await played(guest) is None
    assert (await give(guest))[0]
    await look(guest, 2)
    assert await played(guest) == 2
    assert await guest.one("SELECT count(*) FROM entry_rows WHERE words = $1", YEAR[0].person) == 1


async def test_no_message_of_a_browser_stands_in_its_way(guest: Visit) -> None:
    """Whatever ids a browser gives its own."""
    for left in (67, 66, 65):
        await guest.say("Hello", cid=f"sample-2-{left}")
    await guest.answered()
    await give(guest)
    assert await guest.one("SELECT begun_turn FROM sample_plays") == 2
    await look(guest, 3)
    assert await played(guest) == 3


async def test_operator_cannot_play_sample_into_a_visitors_conversation(guest: Visit) -> None:
    assert (await give(guest, by_operator=True))[0] is False
    await look(guest)
    assert await played(guest) is None


async def test_with_a_real_model_there_is_no_sample(database_url: str, redis_url: str) -> None:
    settings = settings_for(database_url, redis_url, anthropic_api_key="test-key")
    async with running_app(settings) as app:
        guest = await visit(app)
        with pytest.raises(CommandNotFound):
            await give(guest)
        offered = app.commands.list_offered(channel="web", audience="personal")
        assert "sample" not in {one.name for one in offered}
