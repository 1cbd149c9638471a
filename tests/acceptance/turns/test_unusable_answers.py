"""Unusable answers and refused requests: an end for the person, an alert for operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.adapters.postgres.dashboard.alerts import PostgresAlerts, Rules
from shared.bootstrap.app import App
from shared.config.settings import load_settings
from shared.core.ops.alerts import facts
from shared.diagnostics.row_checks import check_models
from tests.kit.app_driver import health_told
from tests.kit.dialects.guest import guest_of
from tests.kit.dialects.server import GOOD, Answer, Json, completion, events, refusal

NULL_CALL = {"index": 0, "id": "c1", "function": {"name": "current_time", "arguments": "null"}}
NULL = Answer(
    body=events({"choices": [{"delta": {"tool_calls": [NULL_CALL]}, "finish_reason": "tool_calls"}]})
)
HIDDEN = "Zanzibar lighthouse keeper"


async def sweep(app: App) -> PostgresAlerts:
    await health_told(app)
    alerts = PostgresAlerts(app.pool)
    await alerts.sweep(Rules(over_seconds=0.0), worker_id=app.worker_id, targets=["webhook"])
    return alerts


async def test_message_with_unusable_answers_ends_after_three_calls(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    async with guest_of(database_url, redis_url, tmp_path, lambda _: NULL) as (guest, server):
        said = await guest.ask("When does it open?")
        assert len(server.requests) == 3
        assert "Your message is kept" in said
        state = "SELECT state || ' ' || error_code FROM turns"
        assert await guest.one(state) == "failed model_answer_unusable"
        alerts = await sweep(guest.app)
        sending = await alerts.claim(["webhook"], worker_id=guest.app.worker_id)
        assert sending is not None
        told = facts(sending.alert)
        assert (sending.alert.kind, sending.alert.detail["model"]) == ("model_rejects", "odd")
        assert "current_time: its arguments are null" in told
        session = await guest.one("SELECT public_id::text FROM sessions")
        assert sending.alert.detail["session"] == sending.alert.detail["sessions"] == session
        assert session in told
        (finding,) = await check_models(load_settings(), database_url)
        assert "odd: unusable answer" in finding.what
        assert "3 times" not in finding.what, "one answer is one rejection"


async def test_calls_of_unusable_answers_are_paid(database_url: str, redis_url: str, tmp_path: Path) -> None:
    async with guest_of(database_url, redis_url, tmp_path, lambda _: NULL) as (guest, _):
        await guest.ask("When does it open?")
        assert await guest.one("SELECT count(*) FROM usage WHERE status = 'aborted'") == 3


async def test_alert_ends_when_the_model_answers_again(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    answers = [NULL, NULL, NULL]
    async with guest_of(
        database_url, redis_url, tmp_path, lambda _: answers.pop() if answers else completion(GOOD)
    ) as (guest, _):
        await guest.ask("When does it open?")
        await sweep(guest.app)
        assert await guest.one("SELECT count(*) FROM alerts WHERE ended_at IS NULL") == 1
        assert await guest.ask("And now?") == GOOD
        await sweep(guest.app)
        assert await guest.one("SELECT count(*) FROM alerts WHERE ended_at IS NULL") == 0


@pytest.mark.parametrize("fault", ["answer", "request"])
async def test_fallback_model_answers_what_the_first_one_cannot(
    database_url: str, redis_url: str, tmp_path: Path, fault: str
) -> None:
    def reply(_: Json) -> Answer:
        return NULL if fault == "answer" else refusal(400, {"error": {"message": "messages.3: no such call"}})

    async with guest_of(database_url, redis_url, tmp_path, reply, fallback_models=("other",)) as (
        guest,
        server,
    ):
        assert await guest.ask("When does it open?") == GOOD
        asked = [body["model"] for body in server.requests]
        assert asked == (["odd"] * 3 if fault == "answer" else ["odd"]) + ["other"]


async def test_refused_request_ends_at_once_with_the_servers_words(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    words = f"messages.3: no such call. Got: the {HIDDEN} asked. Key sk-proj-abcdefghij1234567890 was used."
    reply = refusal(400, {"error": {"message": words}})
    async with guest_of(database_url, redis_url, tmp_path, lambda _: reply) as (guest, server):
        said = await guest.ask(f"Who is the {HIDDEN}?")
        assert "refuses this request" in said
        assert len(server.requests) == 1
        await sweep(guest.app)
        detail = await guest.one("SELECT detail FROM alerts WHERE kind = 'model_rejects'")
        assert "no such call" in detail["wording"]
        assert HIDDEN not in str(detail)
        assert "sk-proj" not in str(detail)
        assert (
            await guest.one("SELECT count(*) FROM workers WHERE health::text LIKE '%' || $1 || '%'", HIDDEN)
            == 0
        )


async def test_learned_ability_is_shown_to_operators(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    def reply(body: Json) -> Answer:
        return refusal(400, {"error": "odd does not support tools"}) if "tools" in body else completion(GOOD)

    async with guest_of(database_url, redis_url, tmp_path, reply) as (guest, server):
        assert await guest.ask("When does it open?") == GOOD
        assert await guest.ask("And on Sunday?") == GOOD
        assert ["tools" in body for body in server.requests] == [True, False, False]
        await sweep(guest.app)
        (finding,) = await check_models(load_settings(), database_url)
        assert (finding.level, "does not accept tools for odd" in finding.what) == ("ok", True)
        assert '"tools": false' in finding.advice
        assert await guest.one("SELECT count(*) FROM alerts") == 0


async def test_failed_message_is_asked_again_by_retry(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    answers = [NULL, NULL, NULL]
    async with guest_of(
        database_url, redis_url, tmp_path, lambda _: answers.pop() if answers else completion(GOOD)
    ) as (guest, server):
        await guest.ask("When does it open?")
        await guest.ask("Hello?")
        texts = [message["content"] for message in server.requests[-1]["messages"]]
        assert any("When does it open?" in str(text) for text in texts), "a failed message is not forgotten"


async def test_alert_of_a_refused_account_names_the_sessions(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    reply = refusal(402, {"error": {"message": "Insufficient credits"}})
    async with guest_of(database_url, redis_url, tmp_path, lambda _: reply) as (guest, _):
        await guest.ask("When does it open?")
        await sweep(guest.app)
        detail = await guest.one("SELECT detail FROM alerts WHERE kind = 'provider_refused'")
        session = await guest.one("SELECT public_id::text FROM sessions")
        assert detail == {"provider": "127.0.0.1", "sessions": session}
