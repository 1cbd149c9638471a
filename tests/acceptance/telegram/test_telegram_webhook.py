"""The same bot, when Telegram posts to it instead of being asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.kit.fakes.bot_api import USERNAME
from tests.kit.telegram.deployment import MINE, Deployment, has_button, posted_to

PIECES = " ".join(f"piece{number}" for number in range(60))
ANSWERS: dict[str, dict[str, Any]] = {
    "pieces": {"text": PIECES, "pace_ms": 400},
    "First of all": {"latency": 8.0, "text": "The first answer is turquoise.", "pace_ms": 200},
}


@pytest.fixture(scope="module")
def bot_options() -> dict[str, Any]:
    return {"answers": ANSWERS, "settings": posted_to()}


@pytest.fixture(scope="module", autouse=True)
async def every_update_is_posted(here: Deployment) -> AsyncIterator[None]:
    yield
    assert set((await here.api.bot())["posts"]) == {"200"}
    assert "getUpdates" not in await here.api.counts()


async def test_a_person_and_a_group_are_answered(here: Deployment) -> None:
    ada = await here.person(first_name="Ada")
    await ada.command("start")
    await ada.sees("Hello Ada!")
    await ada.say("My boat is called Njord.")
    await ada.sees("Njord")
    crew = await here.api.group("Crew", ada)
    await here.house.let_in(crew.id)
    await ada.say(f"@{USERNAME} we sail on Sunday.", chat=crew.id)
    await ada.sees("sail on Sunday", chat=crew.id)


async def test_a_stop_reaches_the_answer_that_is_written(here: Deployment) -> None:
    ada = await here.person()
    await ada.say("Write in pieces, please.")
    await ada.sees("piece2")
    await ada.tap("Stop")
    screen = await ada.sees("⏹ Stopped.")
    assert "piece59" not in screen.answers[0].text
    await ada.say("My boat is called Njord.")
    await ada.sees("Njord")


async def test_a_long_paste_is_one_turn(here: Deployment) -> None:
    ada = await here.person()
    text = "".join(f"Line{line:05d}." for line in range(1_300))
    await ada.paste(text)
    await here.answered(ada.id, 1)
    words = f"SELECT blocks->0->>'text' FROM entries t {MINE} AND t.author = 'person'"
    assert await here.house.one(words, str(ada.id)) == text


async def test_a_second_message_is_answered_after_the_first_and_others_meanwhile(here: Deployment) -> None:
    ada, bob = await here.person(), await here.person()
    await ada.say("First of all, a slow one: what is your colour?")
    await here.house.until(f"SELECT count(*) = 1 FROM turns t {MINE} AND t.state = 'claimed'", str(ada.id))
    await ada.say("My cat is called Miso.")
    await bob.say("My boat is called Njord.")
    await here.answered(bob.id, 1)
    done = f"SELECT count(*) FROM turns t {MINE} AND t.state = 'answered'"
    assert await here.house.one(done, str(ada.id)) == 0
    screen = await ada.sees("Miso")
    assert screen.texts[0] == "The first answer is turquoise."


async def test_buttons_come_by_post_too(here: Deployment) -> None:
    ada = await here.person()
    await ada.say("My boat is called Njord.")
    await ada.sees(has_button("Again"))
    await ada.tap("Again")
    await here.answered(ada.id, 2)
