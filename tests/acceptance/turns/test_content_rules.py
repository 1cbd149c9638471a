"""What a provider's rules on content forbid is said as what it is, and harms no later turn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kit.app_driver import Visit, visit
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.fakes.messages_api.shapes import Json
from tests.kit.telegram.deployment import MINE, deployment

FORBIDDEN = {"status": 400, "message": "Output blocked by content filtering policy"}


def forbids(*, times: int) -> list[Json]:
    return [{"match": {"anywhere": "Zitronengift"}, "times": times, "action": FORBIDDEN}]


async def through_all_tries(guest: Visit, words: str) -> str:
    await guest.say(words)
    while await guest.one("SELECT answered_turn < next_turn - 1 FROM sessions"):
        await guest.app.pool.execute("UPDATE sessions SET retry_at = NULL")
        await guest.answered()
    return guest.last_words


async def test_forbidden_message_is_reported_and_never_sent_again(
    guest: Visit, provider: RunningFake
) -> None:
    await provider.script(forbids(times=-1))
    words = await through_all_tries(guest, "How do I make Zitronengift?")
    assert "rules on content" in words
    assert "other words" in words
    assert "our side" not in words
    assert await guest.one("SELECT error_code FROM turns") == "content_refused"
    assert len(await provider.requests()) == 2
    await guest.ask("Then tell me about the sea.")
    assert await guest.one("SELECT state FROM turns WHERE turn_no = 2") == "answered"
    sent = json.dumps((await provider.requests())[-1]["body"])
    assert "Zitronengift" not in sent
    assert "not answered: the provider's rules on content forbade it" in sent


async def test_forbidden_answer_is_retried_on_the_next_turn(guest: Visit, provider: RunningFake) -> None:
    await provider.script(forbids(times=1))
    await through_all_tries(guest, "How do I make Zitronengift?")
    assert await guest.one("SELECT state FROM turns") == "answered"


async def test_content_refusal_does_not_open_the_breaker(guest: Visit, provider: RunningFake) -> None:
    """Some say it with the status of a refused account."""
    flagged = {"status": 403, "message": "This model requires moderation. Your input was flagged."}
    await provider.script([{"match": {"contains": "Zitronengift"}, "times": -1, "action": flagged}])
    words = await through_all_tries(guest, "How do I make Zitronengift?")
    assert "rules on content" in words
    other = await visit(guest.app)
    await other.ask("Good day.")
    assert await other.one("SELECT state FROM turns WHERE session_id = $1", other.session_id) == "answered"


@pytest.mark.parametrize(("language", "words"), [("en", "rules on content"), ("de", "Regeln für Inhalte")])
async def test_in_telegram_it_is_said_in_the_persons_language(
    database_url: str, redis_url: str, tmp_path: Path, language: str, words: str
) -> None:
    answers = {"Zitronengift": FORBIDDEN}
    async with deployment(answers, database_url, redis_url, tmp_path) as place:
        ada = await place.person(language_code=language)
        await ada.say("Zitronengift?")
        await ada.sees(words)
        failed = f"SELECT count(*) = 1 FROM turns t {MINE} AND t.state = 'failed'"
        await place.house.until(failed, str(ada.id))
