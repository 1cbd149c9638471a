"""Messages whose turn failed: later requests have them whole, by their beginning, or by a mark alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from shared.core.context.build_context import build_context
from shared.core.session.failed_messages import FAILED_FORMS
from tests.acceptance.long_talks import guests
from tests.acceptance.sent_requests import Sent, again, sorted_keys
from tests.acceptance.turns.repeated_answers import run
from tests.kit.app_driver import Visit
from tests.kit.dialects.guest import guest_of
from tests.kit.dialects.server import GOOD, Answer, DialectServer, Json, completion, events, refusal
from tests.kit.fakes.messages_api.harness import RunningFake

BEGINNING = "My parcel 4711 has not come."
SECRET = "xyzzy"
"""Last word of the message; only a whole message has it."""
LONG = f"{BEGINNING} {'word ' * 100}{SECRET}"
NULL_CALL = {"index": 0, "id": "c1", "function": {"name": "current_time", "arguments": "null"}}
UNUSABLE = Answer(
    body=events({"choices": [{"delta": {"tool_calls": [NULL_CALL]}, "finish_reason": "tool_calls"}]})
)
FAILURES: dict[str, Answer] = {
    "model_rejected_request": refusal(400, {"error": {"message": "messages.3: no such call"}}),
    "context_budget_exceeded": refusal(
        400, {"error": {"message": "prompt is too long", "code": "context_length_exceeded"}}
    ),
    "content_refused": refusal(400, {"error": {"message": "blocked by content filtering policy"}}),
    "model_answer_unusable": UNUSABLE,
    "model_gave_up": refusal(503, {"error": {"message": "overloaded"}}),
}
"""Answers of the server to the message, by the code with which its turn ends."""
SHOWN = {
    "model_rejected_request": "beginning", "context_budget_exceeded": "beginning",
    "prompt_too_long": "beginning", "internal_error": "beginning",
    "content_refused": "mark", "process_stopped": "mark",
    "model_answer_unusable": "whole", "model_gave_up": "whole",
    "cap_reached": "whole", "hour_cap_reached": "whole",
}  # fmt: skip
"""What the next request has of the message, by the code with which its turn ended."""


def fail_on(answer: Answer, *, shown: str = "beginning") -> Callable[[Json], Answer]:
    """Build a server that answers so to the message, and later, too, while requests have it whole."""

    def reply(body: Json) -> Answer:
        sent = json.dumps(body["messages"])
        is_later = "And now?" in sent and shown == "whole"
        return answer if SECRET in sent and not is_later else completion(GOOD)

    return reply


async def fail(guest: Visit, text: str = LONG) -> None:
    """Send a message, and let its turn be tried until it ends."""
    await guest.say(text)
    while True:
        await guest.answered()
        if not await guest.one("SELECT answered_turn < next_turn - 1 FROM sessions"):
            return
        await guest.one(
            "UPDATE turns SET waits_since = waits_since - interval '11 min' WHERE ended_at IS NULL"
        )
        await guest.one("UPDATE sessions SET retry_at = now()")


def sent_text(server: DialectServer) -> str:
    return json.dumps(server.requests[-1]["messages"])


def expect_shown(sent: str, shown: str) -> None:
    assert ("was not answered" in sent) == (shown != "whole")
    assert (BEGINNING in sent) == (shown != "mark")
    assert (SECRET in sent) == (shown == "whole")


@pytest.mark.parametrize("code", FAILURES)
async def test_next_requests_have_the_failed_message(
    database_url: str, redis_url: str, tmp_path: Path, code: str
) -> None:
    reply = fail_on(FAILURES[code], shown=SHOWN[code])
    async with guest_of(database_url, redis_url, tmp_path, reply) as (guest, server):
        assert await guest.ask("Good day.") == GOOD
        await fail(guest)
        assert await guest.one("SELECT error_code FROM turns WHERE turn_no = 2") == code
        for _ in range(2):
            before = len(server.requests)
            assert await guest.ask("And now?") == GOOD
            assert len(server.requests) == before + 1, "a short message passes at once"
            expect_shown(sent_text(server), SHOWN[code])


@pytest.mark.parametrize("code", [code for code in SHOWN if code not in FAILURES])
async def test_stored_end_decides_what_requests_have(
    database_url: str, redis_url: str, tmp_path: Path, code: str
) -> None:
    """Ends that a server does not cause."""
    reply = fail_on(FAILURES["model_rejected_request"], shown="whole")
    async with guest_of(database_url, redis_url, tmp_path, reply) as (guest, server):
        await fail(guest)
        state = "refused" if code.endswith("cap_reached") else "failed"
        sql = "UPDATE turns SET state = $1, error_code = $2, process_faults = 2"
        await guest.one(sql, state, code)
        assert await guest.ask("And now?") == GOOD
        expect_shown(sent_text(server), SHOWN[code])


def test_each_form_of_a_failed_message_has_a_case() -> None:
    assert FAILED_FORMS.keys() == {code for code, shown in SHOWN.items() if shown != "whole"}


async def test_message_that_our_code_fails_at_ends_one_turn_only(
    database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build_faultily(view, **more):  # type: ignore[no-untyped-def]
        assert SECRET not in str(view.entries), "a fault of our own"
        return build_context(view, **more)

    monkeypatch.setattr("shared.services.turns.request_builder.build_context", build_faultily)
    reply = fail_on(completion(GOOD))
    async with guest_of(database_url, redis_url, tmp_path, reply) as (guest, server):
        await fail(guest)
        assert await guest.one("SELECT error_code FROM turns") == "internal_error"
        assert await guest.ask("And now?") == GOOD
        expect_shown(sent_text(server), "beginning")


async def test_short_failed_message_is_shown_in_full(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    reply = fail_on(FAILURES["model_rejected_request"], shown="whole")
    async with guest_of(database_url, redis_url, tmp_path, reply) as (guest, server):
        await fail(guest, f"Where is {SECRET}?")
        assert await guest.ask("And now?") == GOOD
        assert f"It was:]\\nWhere is {SECRET}?" in sent_text(server)


async def test_repeated_question_replaces_the_failed_one(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    good: list[bool] = []
    refused = fail_on(FAILURES["model_rejected_request"])
    async with guest_of(
        database_url, redis_url, tmp_path, lambda body: completion(GOOD) if good else refused(body)
    ) as (guest, server):
        await fail(guest)
        good.append(True)
        assert (await run(guest, "retry")).success
        assert await guest.answered() == GOOD
        assert sent_text(server).count(BEGINNING) == 1
        assert await guest.ask("And now?") == GOOD
        expect_shown(sent_text(server), "whole")
        assert sent_text(server).count(BEGINNING) == 1


async def test_pinned_failed_message_stays_short_after_a_compaction(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    reply = fail_on(FAILURES["content_refused"], shown="mark")
    async with guest_of(database_url, redis_url, tmp_path, reply) as (guest, server):
        await fail(guest)
        seq = await guest.one("SELECT seq FROM turn_entries WHERE turn_no = 1")
        await guest.one("INSERT INTO pins (session_id, seq) VALUES ($1, $2)", guest.session_id, seq)
        assert await guest.ask("And now?") == GOOD
        expect_shown(sent_text(server), "mark")
        await guest.one("UPDATE sessions SET base_turn = 2, view_epoch = view_epoch + 1")
        assert await guest.ask("And later?") == GOOD
        expect_shown(sent_text(server), "mark")


async def test_request_after_a_failed_message_is_replayed_byte_for_byte(
    database_url: str, redis_url: str, provider: RunningFake
) -> None:
    refused = {"status": 400, "message": "messages.3: no such call"}
    async for guest in guests(database_url, redis_url, provider):
        await provider.script([{"match": {"anywhere": SECRET}, "times": -1, "action": refused}])
        await fail(guest)
        sent = Sent(guest, provider)
        await sent.ask("And now?")
        expect_shown(sent.bodies[0], "beginning")
        assert sorted_keys(await again(guest, 2)) == sorted_keys(sent.bodies[0])


async def test_a_beginning_that_is_rejected_too_gives_way_to_a_mark(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    rejected = FAILURES["model_rejected_request"]

    def reply(body: Json) -> Answer:
        return rejected if "4711" in json.dumps(body["messages"]) else completion(GOOD)

    async with guest_of(database_url, redis_url, tmp_path, reply) as (guest, server):
        await fail(guest)
        assert await guest.ask("And now?") == GOOD
        assert BEGINNING in json.dumps(server.requests[-2]["messages"])
        expect_shown(sent_text(server), "mark")
