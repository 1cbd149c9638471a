"""In Telegram, too, a turn that waits for its provider can be tried now, and can be stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.telegram.deployment import MINE, deployment

HOUR = {"status": 429, "retry_after": 3_600}


@pytest.mark.parametrize(
    ("language", "notice"), [("en", "I try again by myself"), ("de", "ich versuche es von selbst wieder")]
)
async def test_a_turn_that_waits_is_tried_now_or_stopped(
    database_url: str, redis_url: str, tmp_path: Path, language: str, notice: str
) -> None:
    async with deployment({}, database_url, redis_url, tmp_path) as place:
        ada = await place.person(language_code=language)
        for command, state in (("retry", "answered"), ("stop", "stopped")):
            await place.provider.script([{"match": {"contains": f"{command}?"}, "times": 1, "action": HOUR}])
            waiting = (
                f"SELECT count(*) = 1 FROM turns t {MINE} AND t.waits_for IS NOT NULL AND t.state = 'claimed'"
            )
            await ada.say(f"Shall I {command}?")
            await place.house.until(waiting, str(ada.id))
            await ada.sees(notice)
            await ada.command(command)
            ended = f"SELECT count(*) = 1 FROM turns t {MINE} AND t.state = '{state}'"
            await place.house.until(ended, str(ada.id))
        assert await place.house.one(f"SELECT count(*) FROM turns t {MINE}", str(ada.id)) == 2
