"""A human takes over: the assistant is silent, reads what was said, and answers what still waits."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.adapters.postgres.turns.events import PostgresEvents
from shared.core.identity.handover import (
    AnswerRuns,
    HandoverLimits,
    NewHandover,
    NotTaken,
    Snooze,
    TakenByOther,
)
from shared.services.tools.handover import HandoverExpiry
from tests.acceptance.identity.handovers import operator, replies, taken
from tests.acceptance.long_talks import WINDOW
from tests.kit.app_driver import Visit
from tests.kit.fakes.messages_api.harness import RunningFake

SAYS = {"match": {"kind": "chat"}, "times": -1, "action": {"text": "The assistant speaks."}}
ASKS: dict[str, Any] = {
    "match": {"kind": "chat"}, "times": 1,
    "action": {"tool_use": [{"name": "ask_human", "input": {"reason": "wants a refund"}}]},
}  # fmt: skip

IN_TWO_DAYS = ("mo", "tu", "we", "th", "fr", "sa", "su")[(datetime.now(UTC).weekday() + 2) % 7]


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"context_window": WINDOW, "max_output": 1_000, "handover": "on"}


@pytest.fixture(autouse=True)
async def provider_speaks(guest: Visit, provider: RunningFake) -> None:
    await provider.script([SAYS])


async def human(guest: Visit, args: str = "") -> str:
    outcome = await guest.app.commands.run(
        session_id=guest.session_id, address_id=guest.address_id, name="human", args=args
    )
    return outcome.result


async def events(guest: Visit) -> list[dict[str, Any]]:
    rows = await PostgresEvents(guest.app.pool).list_after(guest.session_id, 0)
    return [{"kind": row.kind, **row.payload} for row in rows]


async def state(guest: Visit) -> Any:
    return (
        (await PostgresEvents(guest.app.pool).load_running(guest.session_id)).get("handover", {}).get("state")
    )


async def lapsed(guest: Visit, *, waiting: float = 10, silence: float = 60) -> None:
    look = HandoverExpiry(
        guest.app.stores.handovers, guest.app.announcer, HandoverLimits(waiting=waiting, silence=silence)
    )
    await look.end_overdue("web")


async def test_the_assistant_is_silent_until_it_gets_the_conversation_back(
    guest: Visit, provider: RunningFake
) -> None:
    await guest.ask("Hello.")
    assert "asked for somebody" in await human(guest, "my parcel is lost")
    assert await state(guest) == "waiting"
    await guest.say("Is anybody there?")
    before = len(await provider.requests())
    assert await guest.app.sessions.list_unanswered("web") == []
    await guest.answered()
    anna = await taken(guest)
    assert await state(guest) == "human"
    reply = await replies(guest, anna, "Anna here: it arrives tomorrow.")
    await guest.say("Thank you, and what about the invoice?")
    await guest.answered()
    assert len(await provider.requests()) == before
    moved = await guest.app.handover_service.release(guest.session_id, operator_id=anna)
    assert moved.bot_has_turn
    assert await guest.app.sessions.list_unanswered("web") == [guest.session_id]
    assert await guest.answered() == "The assistant speaks."
    assert await state(guest) is None
    request = (await provider.requests())[-1]["body"]
    assert [message["role"] for message in request["messages"]] == ["user", "assistant", "user"]
    said = str(request["messages"][-1]["content"])
    assert "[Message from the operator: a human on the team" in said
    assert said.index("Is anybody there?") < said.index("it arrives tomorrow") < said.index("the invoice")
    told = await events(guest)
    shown = next(one for one in told if one.get("role") == "operator")
    assert (shown["mid"], shown["name"], shown["text"]) == (
        reply.mid, "Anna from Acme", "Anna here: it arrives tomorrow.",
    )  # fmt: skip
    changes = [one for one in told if one["kind"] == "handover"]
    assert [one["state"] for one in changes] == ["waiting", "human", "bot"]
    assert changes[0]["reason"] == "my parcel is lost"
    assert changes[1]["name"] == "Anna from Acme"


async def test_what_the_operator_has_answered_the_assistant_does_not_answer_again(
    guest: Visit, provider: RunningFake
) -> None:
    await guest.ask("Hello.")
    await human(guest)
    await guest.say("Where is it?")
    anna = await taken(guest)
    await replies(guest, anna, "In the shop.")
    await replies(guest, anna, "It is open until six.", cid="r2")
    before = len(await provider.requests())
    moved = await guest.app.handover_service.release(guest.session_id, operator_id=anna)
    assert not moved.bot_has_turn
    await guest.answered()
    assert len(await provider.requests()) == before
    await guest.ask("And on Sunday?")
    said = str((await provider.requests())[-1]["body"]["messages"])
    assert "In the shop." in said
    assert "open until six" in said


async def test_the_model_asks_and_its_turn_is_finished_first(guest: Visit, provider: RunningFake) -> None:
    await provider.script([ASKS, SAYS])
    assert await guest.ask("I want my money back!") == "The assistant speaks."
    assert await state(guest) == "waiting"
    assert await guest.one("SELECT asked_by || ': ' || reason FROM handovers") == "assistant: wants a refund"
    waiting = [one for one in await events(guest) if one["kind"] == "handover"]
    assert "reason" not in waiting[0], "what the assistant writes is for operators"
    await guest.say("Hello?")
    await guest.answered()
    assert await guest.one("SELECT count(*) FROM turns WHERE ended_at IS NULL") == 1


async def test_handover_without_operator_is_announced_then_assistant_answers(guest: Visit) -> None:
    await guest.ask("Hello.")
    await human(guest)
    await guest.say("Anybody?")
    await lapsed(guest)
    assert await state(guest) == "waiting"
    await guest.app.pool.execute("UPDATE handovers SET asked_at = now() - interval '11 minutes'")
    await asyncio.gather(lapsed(guest), lapsed(guest))
    assert await state(guest) is None
    notices = [one for one in await events(guest) if one.get("role") == "notice"]
    assert [one["error"] for one in notices] == ["handover_unanswered"]
    assert await guest.app.sessions.list_unanswered("web") == [guest.session_id]
    assert await guest.answered() == "The assistant speaks."


async def test_an_operator_who_falls_silent_does_not_keep_it_for_ever(guest: Visit) -> None:
    await guest.ask("Hello.")
    anna = await taken(guest)
    await guest.app.pool.execute("UPDATE handovers SET taken_at = now() - interval '3 hours'")
    await lapsed(guest)
    assert await state(guest) == "human", "nobody waits for a word"
    await guest.say("Are you there?")
    await lapsed(guest)
    assert await state(guest) == "human"
    await guest.app.pool.execute(
        "UPDATE turns SET opened_at = now() - interval '61 minutes' WHERE ended_at IS NULL"
    )
    await lapsed(guest)
    assert await state(guest) is None
    assert [one["error"] for one in await events(guest) if one.get("role") == "notice"] == ["handover_silent"]
    with pytest.raises(NotTaken):
        await replies(guest, anna, "Sorry, I was away.")


async def test_of_two_operators_one_has_it(guest: Visit) -> None:
    await guest.ask("Hello.")
    await human(guest)
    numbers = {name: await operator(guest, name) for name in ("anna", "bert")}
    handovers = guest.app.handover_service
    results = await asyncio.gather(
        *(handovers.take_over(guest.session_id, operator_id=id_, name=name) for name, id_ in numbers.items()),
        return_exceptions=True,
    )
    refused = [one for one in results if isinstance(one, TakenByOther)]
    assert len(refused) == 1
    loser = next(name for name in numbers if name != refused[0].name)
    with pytest.raises(TakenByOther):
        await replies(guest, numbers[loser], "Me first!")
    with pytest.raises(TakenByOther):
        await handovers.release(guest.session_id, operator_id=numbers[loser])
    assert (
        await handovers.take_over(guest.session_id, operator_id=numbers[refused[0].name], name="x")
    ).event_seq == 0
    await handovers.release(guest.session_id, operator_id=numbers[loser], any_ones=True)
    assert await state(guest) is None


async def test_a_repeated_cid_gets_the_same_mid(guest: Visit) -> None:
    await guest.ask("Hello.")
    anna = await taken(guest)
    both = await asyncio.gather(*(replies(guest, anna, "Good day!") for _ in range(3)))
    assert len({one.mid for one in both}) == 1
    assert sum(not one.repeated for one in both) == 1
    await guest.app.handover_service.release(guest.session_id, operator_id=anna)
    assert (await replies(guest, anna, "Good day!")).mid == both[0].mid


async def test_a_turn_that_runs_is_finished_and_the_operator_waits_for_it(
    guest: Visit, provider: RunningFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.services.tools.handover.WAIT_FOR_ANSWER_SECONDS", 0.3)
    slow = {"match": {"kind": "chat"}, "times": 1, "action": {"text": "Slowly said. " * 12, "pace_ms": 300}}
    await provider.script([slow, SAYS])
    await guest.say("Hello.")
    answering = asyncio.ensure_future(guest.answered())
    async with asyncio.timeout(30):
        while not await guest.one("SELECT leased_by IS NOT NULL FROM sessions"):
            await asyncio.sleep(0.02)
    anna = await taken(guest)
    await guest.say("And this is for a human.")
    with pytest.raises(AnswerRuns):
        await replies(guest, anna, "I am here.")
    assert (await answering).startswith("Slowly said.")
    assert (await replies(guest, anna, "I am here.")).turn == 2
    assert await guest.one("SELECT count(*) FROM turns WHERE state = 'answered'") == 2


async def test_a_turn_that_was_put_back_may_be_answered_by_a_human(
    guest: Visit, provider: RunningFake
) -> None:
    """The model is away: that is when people ask for somebody else. Two turns get one answer."""
    await provider.script([{"match": {"kind": "chat"}, "times": -1, "action": {"status": 529}}])
    await guest.say("Hello?")
    await guest.answered()
    await guest.say("Hello??")
    await human(guest)
    anna = await taken(guest)
    reply = await replies(guest, anna, "The assistant is ill today, I am not.")
    assert reply.turn == 2
    ended = "SELECT array_agg(state || coalesce(' ' || error_code, '') ORDER BY turn_no) FROM turns"
    assert await guest.one(ended) == ["answered answered_together", "answered"]
    await guest.app.handover_service.release(guest.session_id, operator_id=anna)
    await provider.script([SAYS])
    assert await guest.ask("Well again?") == "The assistant speaks."


async def test_a_reminder_waits_until_the_assistant_is_back(guest: Visit) -> None:
    await guest.ask("Hello.")
    anna = await taken(guest)
    await guest.app.pool.execute(
        """INSERT INTO reminders (key, contact_id, session_id, address_id, text, due_at, tell_at)
           SELECT 'k', contact_id, session_id, id, 'call Bob', now(), now() FROM addresses"""
    )
    await guest.app.sessions.list_unanswered("web")
    assert await guest.one("SELECT state FROM reminders") == "pending"
    await guest.app.handover_service.release(guest.session_id, operator_id=anna)
    assert await guest.app.sessions.list_unanswered("web") == [guest.session_id]
    await guest.answered()
    await guest.app.sessions.list_unanswered("web")
    assert await guest.one("SELECT state FROM reminders") == "done"


async def test_the_person_may_take_the_wish_back(guest: Visit) -> None:
    await guest.ask("Hello.")
    assert "No human was asked" in await human(guest, "cancel")
    await human(guest)
    assert "already" in await human(guest)
    assert "I answer here again" in await human(guest, "cancel")
    assert await guest.ask("Good.") == "The assistant speaks."
    for _ in range(4):
        await human(guest)
        await human(guest, "cancel")
    assert "several times" in await human(guest)


async def test_forgetting_ends_it_and_leaves_no_reason(guest: Visit) -> None:
    await guest.ask("Hello.")
    await human(guest, "canary 4711")
    anna = await taken(guest)
    await guest.say("Forget me.")
    await guest.app.erasure.erase_everything(guest.session_id, actor="person")
    assert await guest.one("SELECT count(*) FROM handovers") == 0
    assert await state(guest) is None
    with pytest.raises(NotTaken):
        await replies(guest, anna, "Hello?")
    assert await guest.ask("New day.") == "The assistant speaks."


@pytest.mark.parametrize("app_options", [{"handover": "off"}], ids=["off"])
async def test_disabled_handover_is_refused_kindly_and_tool_is_not_offered(
    guest: Visit, provider: RunningFake
) -> None:
    await guest.ask("Hello.")
    assert "no human can take over here" in await human(guest)
    tools = (await provider.requests())[-1]["body"].get("tools", [])
    assert "ask_human" not in [tool["name"] for tool in tools]
    await guest.app.stores.handovers.request_handover(
        NewHandover(session_id=guest.session_id, address_id=guest.address_id, asked_by="person")
    )
    await guest.app.sessions.list_unanswered("web")
    assert await state(guest) is None, "what waited when it was switched off waits no longer"


async def test_an_export_says_who_wrote(guest: Visit) -> None:
    await guest.ask("Hello.")
    anna = await taken(guest)
    await replies(guest, anna, "Words of a human.")
    whole = (await guest.app.exporter.export(guest.session_id, "json")).decode()
    told = next(line for line in whole.split("{") if "Words of a human." in line)
    assert "operator" in whole[: whole.index(told) + len(told)]


async def test_private_note_reaches_no_model_and_is_erased_with_person(
    guest: Visit, provider: RunningFake
) -> None:
    anna = await taken(guest)
    inbox, session = guest.app.stores.inbox, await guest.one("SELECT public_id FROM sessions")
    secret = "owes us a beer"
    await inbox.record_contact(guest.address_id, {"page": "https://shop.example/cart"})
    first = await inbox.add_note(session, operator_id=anna, cid="n1", body=secret)
    assert first == await inbox.add_note(session, operator_id=anna, cid="n1", body=secret)
    await replies(guest, anna, "It is on its way.")
    await guest.app.handover_service.release(guest.session_id, operator_id=anna, resolved=True)
    await guest.ask("Thank you! Who are you?")
    assert secret not in str([one["body"] for one in await provider.requests()])
    assert secret not in str(await events(guest))
    copy = (await guest.app.exporter.export(guest.session_id, "json")).decode()
    assert "on its way" in copy
    assert secret not in copy
    assert "https://shop.example/cart" in copy, "what is kept of a person is theirs to have"
    assert "shop.example" not in str([one["body"] for one in await provider.requests()])
    await guest.app.erasure.erase_everything(guest.session_id, actor="person")
    assert await guest.one("SELECT count(*) FROM private_notes") == 0
    assert await guest.one("SELECT contact FROM addresses") == {}


async def test_a_snoozed_conversation_is_not_overdue_until_it_wakes(guest: Visit) -> None:
    await human(guest)
    anna = await operator(guest)
    handovers = guest.app.handover_service
    soon = datetime.now(UTC) + timedelta(hours=1)
    await guest.app.pool.execute("UPDATE handovers SET asked_at = now() - interval '1 day'")
    await handovers.change(guest.session_id, Snooze(until=soon), version=0, operator_id=anna)
    assert [one.snoozed_until for one in await handovers.list_handovers()] == [soon]
    await lapsed(guest)
    assert await state(guest) == "waiting"
    await guest.say("Hello?")
    assert [one.snoozed_until for one in await handovers.list_handovers()] == [None], "words bring it back"
    await handovers.change(guest.session_id, Snooze(until=soon), version=1, operator_id=anna)
    await guest.app.pool.execute(
        "UPDATE handovers SET snoozed_at = now() - interval '2 h', snoozed_until = now() - interval '1 h'"
    )
    assert [one.snoozed_until for one in await handovers.list_handovers()] == [None], "time brings it back"
    await lapsed(guest)
    assert await state(guest) is None


@pytest.mark.parametrize(
    "app_options",
    [{"handover": "on", "working_hours": f"{IN_TWO_DAYS} 9-10 UTC", "away_text": "We are at sea."}],
    ids=["closed"],
)
async def test_handover_outside_working_hours_is_announced_once(guest: Visit, provider: RunningFake) -> None:
    await provider.script([ASKS, SAYS])
    said = await human(guest)
    assert "asked for somebody" in said
    assert said.endswith("We are at sea.")
    assert "at sea" not in await human(guest)
    await human(guest, "cancel")
    await guest.ask("I want a human.")
    request = str((await provider.requests())[-1]["body"])
    assert "outside of the team's working hours" in request
    assert "We are at sea." in request
