"""Turns that wait for their provider: never long, no longer than it is away, not when nobody wants them."""

from __future__ import annotations

import asyncpg
import pytest

from shared.adapters.postgres.operations.invariants import check_invariants
from shared.bootstrap.app import App
from shared.services.commands.command_service import CommandResult
from shared.services.turns import session_service
from tests.kit.app_driver import Visit, running_app, visit
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.fakes.messages_api.shapes import Json

HOUR = {"status": 429, "retry_after": 3_600}


@pytest.fixture(autouse=True)
async def freshly_begun(monkeypatch: pytest.MonkeyPatch, app: App) -> None:
    """The process knows what one knows that has just begun, see test_a_process_that_begins."""
    monkeypatch.setattr(session_service, "WAKE_SECONDS", 0.0)
    await app.sessions.list_unanswered("web")


def refuses(word: str, action: Json, *, times: int = 1) -> Json:
    return {"match": {"contains": word}, "times": times, "action": action}


async def waits(guest: Visit) -> float:
    """Seconds until the turn is due again; 0 when it is."""
    left = await guest.one(
        "SELECT extract(epoch FROM retry_at - now()) FROM sessions WHERE id = $1", guest.session_id
    )
    return max(0.0, float(left or 0))


async def state_of(guest: Visit, turn: int = 1) -> str:
    return str(
        await guest.one(
            "SELECT state FROM turns WHERE session_id = $1 AND turn_no = $2", guest.session_id, turn
        )
    )


async def put_back(guest: Visit, provider: RunningFake, action: Json | None = None) -> None:
    await provider.script([refuses("patient", action or HOUR)])
    await guest.ask("Are you patient?")
    assert await state_of(guest) == "claimed"


async def command(guest: Visit, name: str, *, language: str = "") -> CommandResult:
    return await guest.app.commands.run(
        session_id=guest.session_id, address_id=guest.address_id, name=name, language=language
    )


@pytest.mark.parametrize("rows_by_hand", [True], ids=["by_hand"])
async def test_no_provider_makes_anybody_wait_for_more_than_a_minute(
    guest: Visit, provider: RunningFake, database_url: str
) -> None:
    await put_back(guest, provider)
    assert 0 < await waits(guest) <= 60
    assert "within a minute" in guest.last_words
    assert "/stop" in guest.last_words
    connection = await asyncpg.connect(database_url)
    try:
        assert await check_invariants(connection) == []
        await connection.execute("UPDATE sessions SET retry_at = now() + interval '5 min'")
        (broken,) = await check_invariants(connection)
        assert "longer than the longest wait" in broken.what
    finally:
        await connection.close()


async def test_a_turn_is_due_as_soon_as_its_provider_answers_anybody(
    guest: Visit, provider: RunningFake
) -> None:
    await put_back(guest, provider)
    await guest.app.sessions.list_unanswered("web")
    assert await waits(guest) > 50, "nobody was answered meanwhile"
    other = await visit(guest.app)
    await other.ask("Good day.")
    assert guest.session_id in await guest.app.sessions.list_unanswered("web")
    await guest.answered()
    assert await state_of(guest) == "answered"


@pytest.mark.parametrize("rows_by_hand", [True], ids=["by_hand"])
async def test_a_provider_that_answers_again_is_not_overrun(guest: Visit, provider: RunningFake) -> None:
    """Some at a time, those first that have waited longest, however many there are."""
    await put_back(guest, provider)
    await guest.app.pool.execute(
        """WITH s AS (
             INSERT INTO sessions (contact_id, agent_id, next_turn, retry_at)
             SELECT contact_id, agent_id, 2, now() + interval '50 s' FROM sessions, generate_series(1, 60)
              WHERE id = $1 RETURNING id
           ) INSERT INTO turns (session_id, turn_no, state, attempt, channel, address_id, waits_for)
             SELECT s.id, 1, 'claimed', 1, 'web', $2, '127.0.0.1' FROM s""",
        guest.session_id, guest.address_id,
    )  # fmt: skip
    other = await visit(guest.app)
    await other.ask("Good day.")
    due = await guest.app.sessions.list_unanswered("web")
    assert len(due) == 20
    assert guest.session_id in due
    assert len(await guest.app.sessions.list_unanswered("web")) == 20, "none of them has been answered yet"


async def test_a_process_that_begins_tries_again_at_once(
    app: App, guest: Visit, provider: RunningFake
) -> None:
    await put_back(guest, provider)
    async with running_app(app.settings) as fresh:
        assert guest.session_id in await fresh.sessions.list_unanswered("web")


async def test_stop_ends_a_turn_that_waits(guest: Visit, provider: RunningFake) -> None:
    await put_back(guest, provider)
    assert (await command(guest, "stop")).result == "Stopped."
    asked = len(await provider.requests())
    assert guest.session_id in await guest.app.sessions.list_unanswered("web")
    await guest.answered()
    assert await state_of(guest) == "stopped"
    assert len(await provider.requests()) == asked, "nobody was asked for it once more"
    await guest.ask("And now?")
    assert await state_of(guest, 2) == "answered"


@pytest.mark.parametrize(("language", "words"), [("en", "I try again now"), ("de", "versuche es jetzt")])
async def test_retry_tries_a_turn_that_waits_now(
    guest: Visit, provider: RunningFake, language: str, words: str
) -> None:
    await put_back(guest, provider)
    result = await command(guest, "retry", language=language)
    assert result.success
    assert words in result.result
    assert await waits(guest) == 0
    await guest.answered()
    assert await state_of(guest) == "answered"
    assert await guest.one("SELECT count(*) FROM turns") == 1, "it is the same question"


@pytest.mark.parametrize("said", [{"status": 500}, {"status": 529}, {"status": 401}])
async def test_whatever_a_provider_is_away_for_its_next_answer_ends_the_wait(
    guest: Visit, provider: RunningFake, said: Json
) -> None:
    await provider.script([refuses("patient", said, times=2)])
    await guest.ask("Are you patient?")
    assert 0 < await waits(guest) <= 30
    assert await guest.one("SELECT waits_for FROM turns WHERE turn_no = 1") == "127.0.0.1"


async def test_turn_has_eight_tool_rounds_over_all_its_attempts(guest: Visit, provider: RunningFake) -> None:
    looks = {"tool_use": [{"name": "current_time", "input": {}}]}
    asks = refuses("patient", looks)
    goes_on = {"times": 4, "action": looks}
    await provider.script([asks, goes_on, {"times": 1, "action": HOUR}])
    await guest.ask("Are you patient?")
    assert await state_of(guest) == "claimed"
    assert await guest.one("SELECT count(*) FROM turn_steps") == 5
    await provider.script([{"times": 20, "action": looks}])
    await command(guest, "retry")
    await guest.answered()
    assert await state_of(guest) == "answered"
    assert await guest.one("SELECT count(*) FROM turn_steps") == 8
    assert not (await provider.requests())[-1]["body"].get("tools")
