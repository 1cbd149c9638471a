"""The rest of an album or a paste comes seconds late: it joins the answer that is being written."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.kit.fakes.bot_api import Screen
from tests.kit.telegram.deployment import MINE, Deployment, deployment

ANSWERS: dict[str, dict[str, Any]] = {
    "which is best": {"text": "The last one is best. " * 6, "latency": 3.0},
    "BBBB": {"text": "Said at once."},
    "Something else": {"text": "Said at once."},
    "AAAA": {"text": "I have read it all. " * 6, "latency": 3.0},
}


def picture() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (64, 48), "teal").save(out, "JPEG")
    return out.getvalue()


def pictures(body: dict[str, Any]) -> int:
    return json.dumps(body["messages"]).count('"type": "image"')


@pytest.fixture
async def replying(database_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    async with deployment(ANSWERS, database_url, redis_url, tmp_path) as place:
        yield place


def answers(screen: Screen, words: str) -> list[str]:
    return [line.text for line in screen.answers if words in line.text]


async def test_five_pictures_that_come_over_four_seconds_get_one_answer(replying: Deployment) -> None:
    ada = await replying.person(first_name="Ada")
    await ada.album(5, gap=[2, 1, 1, 0], caption="which is best?", content=picture())
    screen = await ada.sees("The last one is best")
    await replying.answered(ada.id, 1)
    chats = [one["body"] for one in await replying.provider.requests() if one["kind"] == "chat"]
    assert max(pictures(body) for body in chats) == 5
    assert len(answers(screen, "best")) == 1
    turns = f"SELECT array_agg((t.turn_no, t.state)::text) FROM turns t {MINE}"
    assert await replying.house.one(turns, str(ada.id)) == ["(1,answered)"]
    await asyncio.sleep(2)
    assert len(answers(await ada.screen(), "best")) == 1
    waiting = "SELECT count(*) FROM telegram_updates WHERE handled_at IS NULL"
    assert await replying.house.one(waiting) == 0


async def test_what_comes_after_the_answer_is_a_turn_of_its_own(replying: Deployment) -> None:
    ada = await replying.person(first_name="Ada")
    await ada.say("B" * 4_096)
    await replying.answered(ada.id, 1)
    await ada.say("Something else")
    await replying.answered(ada.id, 2)
    await ada.sees(lambda screen: len(answers(screen, "Said at once")) == 2)


async def test_the_late_end_of_a_paste_joins_its_beginning(replying: Deployment) -> None:
    ada = await replying.person(first_name="Ada")
    await ada.say("A" * 4_096)
    await asyncio.sleep(3)
    await ada.say("and this is the end of the paste")
    await ada.sees("I have read it all")
    await replying.answered(ada.id, 1)
    (newest,) = await replying.prompts(holding="the end of the paste")
    assert "AAAA" in json.dumps(newest["messages"][-1])
    assert len(answers(await ada.screen(), "read it all")) == 1


async def test_a_process_that_dies_between_the_parts_loses_none_of_them(replying: Deployment) -> None:
    ada = await replying.person(first_name="Ada")
    sending = asyncio.create_task(ada.album(3, gap=[2.5, 1], caption="which is best?", content=picture()))
    await replying.house.until("SELECT count(*) >= 2 FROM telegram_updates")
    await replying.house.restart(how="kill")
    await sending
    await ada.sees("The last one is best")
    kept = f"SELECT sum(jsonb_array_length(t.blocks)) = 4 FROM entries t {MINE} AND t.author = 'person'"
    await replying.house.until(kept, str(ada.id))
    await replying.house.until(f"SELECT bool_and(t.ended_at IS NOT NULL) FROM turns t {MINE}", str(ada.id))
