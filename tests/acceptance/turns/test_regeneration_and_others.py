"""An answer given again beside everything else: summaries, undo, humans, memory, exports and forgetting."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared.adapters.postgres.memory.recall_index import PostgresRecallIndex
from tests.acceptance.identity.handovers import replies, taken
from tests.acceptance.sent_requests import again, sorted_keys
from tests.acceptance.turns.repeated_answers import messages_of, run, says, sent, talk
from tests.kit.app_driver import Visit
from tests.kit.fakes.messages_api.harness import RunningFake

FIRST, SECOND, THIRD = "Papagei-Eins", "Papagei-Zwei", "Papagei-Drei"
QUESTION = "Which Leuchtturm-77 bird is it?"


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"handover": "on", "context_window": 12_000, "max_output": 1_000, "keep_turns": 2}


async def asked_twice(guest: Visit, provider: RunningFake) -> None:
    """m1 asks, m2 answers; m3 asks again, m4 answers."""
    await says(provider, f"It is {FIRST}.")
    await guest.ask(QUESTION)
    await retried(guest, provider, SECOND)


async def retried(guest: Visit, provider: RunningFake, word: str) -> None:
    await says(provider, f"It is {word}.")
    result = await run(guest, "retry")
    assert result.success, result
    await guest.answered()


async def test_what_was_summarised_and_undone_is_sent_as_before(guest: Visit, provider: RunningFake) -> None:
    await talk(guest, 2)
    await says(provider, f"It is {FIRST}.")
    await guest.ask(QUESTION)
    await retried(guest, provider, SECOND)
    await talk(guest, 3)
    before = messages_of(await sent(provider))
    size = await guest.one("SELECT context_tokens FROM sessions")
    assert (await run(guest, "compact", "--force")).success
    assert await guest.one("SELECT base_turn FROM sessions") >= 4
    summary = [r for r in await provider.requests() if r["kind"] == "summary"][-1]
    assert SECOND in json.dumps(summary["body"])
    assert FIRST not in json.dumps(summary["body"]), "of two answers the summary knows the newest"
    assert (await run(guest, "undo")).success
    assert abs(await guest.one("SELECT context_tokens FROM sessions") - size) < 200
    await guest.ask("And now?")
    after = messages_of(await sent(provider))
    assert json.dumps(after[: len(before) - 1]) == json.dumps(before[:-1])
    assert FIRST not in json.dumps(after)
    turns = await guest.one("SELECT max(turn_no) FROM turns")
    assert sorted_keys(await again(guest, turns)) == sorted_keys(await sent(provider))


async def test_every_attempt_is_made_again_as_it_was_sent(guest: Visit, provider: RunningFake) -> None:
    bodies = []
    await says(provider, f"It is {FIRST}.")
    await guest.ask(QUESTION)
    bodies.append(await sent(provider))
    for word in (SECOND, THIRD):
        await retried(guest, provider, word)
        bodies.append(await sent(provider))
    await guest.ask("Thank you")
    bodies.append(await sent(provider))
    for turn, body in enumerate(bodies, start=1):
        assert sorted_keys(await again(guest, turn)) == sorted_keys(body), turn
    assert FIRST not in bodies[2]
    assert SECOND not in bodies[2]
    assert THIRD in bodies[3]


async def test_a_question_whose_answers_a_summary_parts_is_there_once(
    guest: Visit, provider: RunningFake
) -> None:
    """The former answer is hidden with the turns before it, the newer one is live."""
    await talk(guest, 3)
    await asked_twice(guest, provider)
    await talk(guest, 1)
    assert (await run(guest, "compact", "--force")).success
    await guest.ask("And now?")
    body = await sent(provider)
    assert FIRST not in body
    assert (await run(guest, "undo")).success
    await guest.ask("And then?")
    assert FIRST not in await sent(provider)


@pytest.mark.parametrize("seq", [1, 3, 5])
async def test_a_question_that_was_asked_three_times_is_forgotten_whole(
    guest: Visit, provider: RunningFake, seq: int
) -> None:
    await asked_twice(guest, provider)
    await retried(guest, provider, THIRD)
    report = await guest.app.erasure.erase_messages(guest.session_id, [seq], "person")
    assert report.counts["entries"] == 3
    assert await guest.one("SELECT count(*) FROM entries WHERE blocks::text LIKE '%Leuchtturm-77%'") == 0
    assert not (await run(guest, "retry")).success, "what is forgotten is not asked again"


@pytest.mark.parametrize("seq", [2, 4, 6])
async def test_an_answer_that_was_given_three_times_is_forgotten_whole(
    guest: Visit, provider: RunningFake, seq: int
) -> None:
    await asked_twice(guest, provider)
    await retried(guest, provider, THIRD)
    report = await guest.app.erasure.erase_messages(guest.session_id, [seq], "person")
    assert report.counts["entries"] == 3
    assert await guest.one("SELECT count(*) FROM entries WHERE blocks::text LIKE '%Papagei%'") == 0
    assert await guest.one("SELECT count(*) FROM events WHERE payload::text LIKE '%Papagei%'") == 0
    await guest.ask("And now?")
    assert "Papagei" not in await sent(provider)


async def test_an_export_holds_every_answer_and_names_what_it_replaces(
    guest: Visit, provider: RunningFake
) -> None:
    await asked_twice(guest, provider)
    pieces = [piece async for piece in guest.app.exporter.stream(guest.session_id, "json")]
    (conversation,) = json.loads("".join(pieces))["conversations"]
    told = {message["seq"]: message for message in conversation["messages"]}
    assert SECOND in told[4]["text"]
    assert [told[seq].get("replaces") for seq in (1, 2, 3, 4)] == [None, None, 1, 2]
    assert FIRST in told[2]["text"]
    text = "".join([piece async for piece in guest.app.exporter.stream(guest.session_id, "md")])
    assert text.index(FIRST) < text.index("in place of message 2") < text.index(SECOND)


async def test_of_two_answers_the_newest_is_remembered_and_found(guest: Visit, provider: RunningFake) -> None:
    await asked_twice(guest, provider)
    await run(guest, "new")
    await guest.run_due_jobs()
    flushes = [r for r in await provider.requests() if r["kind"] == "flush"]
    assert flushes
    assert all(SECOND in json.dumps(r["body"]) for r in flushes)
    assert not any(FIRST in json.dumps(r["body"]) for r in flushes)
    while await PostgresRecallIndex(guest.app.pool).index_session(guest.session_id):
        pass
    found = await guest.app.pool.fetch("SELECT seq FROM passages ORDER BY seq")
    assert [row["seq"] for row in found] == [3, 4]


async def test_a_human_who_writes_is_not_answered_over(guest: Visit, provider: RunningFake) -> None:
    await guest.ask(QUESTION)
    anna = await taken(guest)
    refused = await run(guest, "retry")
    assert (refused.success, refused.event_seq) == (False, None)
    assert "A human was asked for or is writing" in refused.error
    await guest.say("Are you there?")
    await replies(guest, anna, f"It is {FIRST}, says Anna.")
    await guest.app.handover_service.release(guest.session_id, operator_id=anna)
    refused = await run(guest, "retry")
    assert not refused.success, "what a human answered is not the assistant's to answer again"
    await guest.ask("Thank you")
    assert FIRST in await sent(provider)
    await retried(guest, provider, SECOND)
    assert FIRST in await sent(provider), "a human's words stay in sight"


async def test_a_human_may_answer_what_was_wished_again(guest: Visit, provider: RunningFake) -> None:
    await says(provider, f"It is {FIRST}.")
    await guest.ask(QUESTION)
    assert (await run(guest, "retry")).success
    anna = await taken(guest)
    await replies(guest, anna, f"It is {SECOND}, says Anna.")
    await guest.app.handover_service.release(guest.session_id, operator_id=anna)
    await guest.ask("Thank you")
    body = await sent(provider)
    assert SECOND in body
    assert FIRST not in body
    assert body.count(QUESTION) == 1
