"""Spoken answers on Telegram: off until chosen, behind the text, held by caps, and never in its way."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.kit.fakes.bot_api import Person, Screen
from tests.kit.fakes.speech.harness import RunningSpeech
from tests.kit.fakes.transcriptions.harness import RunningTranscriptions
from tests.kit.fakes.transcriptions.recordings import recording
from tests.kit.telegram.deployment import MINE, Deployment, deployment

LONG = "This is a sentence of the long answer. " * 200
ANSWERS = {
    "cat Miso": {"text": "What a **fine** name."},
    "some code": {"text": "Look:\n\n```py\nprint(1)\n```\n\nThat is all."},
    "tell me all": {"text": LONG},
}


@pytest.fixture(scope="module")
async def bot_options(module_speech: RunningSpeech) -> AsyncIterator[dict[str, Any]]:
    async with RunningTranscriptions() as hears:
        yield {"answers": ANSWERS, "settings": {**module_speech.settings, **hears.settings}}


@pytest.fixture(autouse=True)
async def fresh_speech(module_speech: RunningSpeech) -> None:
    await module_speech.next()
    await module_speech.requests()


def notes(screen: Screen) -> int:
    return sum("voice" in line.raw for line in screen.answers)


async def chosen(ann: Person, choice: str, said: str) -> None:
    await ann.command(f"voice {choice}")
    await ann.sees(said)


async def booked(here: Deployment, person: Person) -> list[list[object]]:
    sql = "SELECT coalesce(json_agg(json_build_array(t.purpose, t.cost_micro)), '[]')::text FROM usage t"
    rows: list[list[object]] = json.loads(
        await here.house.one(f"{sql} {MINE} AND t.purpose = 'speech'", str(person.id))
    )
    return rows


async def over(here: Deployment, person: Person) -> None:
    await here.house.until(
        f"SELECT count(*) > 0 AND bool_and(t.state = 'over' AND t.body IS NULL) FROM spoken_answers t {MINE}",
        str(person.id),
    )


async def test_under_auto_a_voice_message_is_answered_with_one(
    here: Deployment, module_speech: RunningSpeech
) -> None:
    ann = await here.person(first_name="Ann")
    await chosen(ann, "auto", "When you send a voice message")
    await ann.say("My cat Miso is hungry.")
    await ann.sees("What a fine name.")
    await ann.send_voice(recording("My cat Miso purrs."))
    screen = await ann.sees(lambda screen: notes(screen) == 1)
    assert "voice" in screen.answers[-1].raw
    assert screen.answers[-2].text == "What a fine name."
    [asked] = await module_speech.requests()
    assert (asked["input"], asked["response_format"]) == ("What a fine name.", "opus")
    await over(here, ann)
    assert await booked(here, ann) == [["speech", 170]]


async def test_speech_is_off_until_chosen_by_command_or_button(
    here: Deployment, module_speech: RunningSpeech
) -> None:
    ann = await here.person(first_name="Ann")
    await ann.send_voice(recording("My cat Miso purrs."))
    await ann.sees("What a fine name.")
    await ann.command("voice")
    await ann.sees("I answer in writing only.")
    await ann.tap("on")
    await ann.sees("can also be heard")
    await ann.say("My cat Miso sleeps.")
    await ann.sees(lambda screen: notes(screen) == 1)
    assert len(await module_speech.requests()) == 1


async def test_code_is_not_read_aloud_and_a_long_answer_only_begins(
    here: Deployment, module_speech: RunningSpeech
) -> None:
    ann = await here.person(first_name="Ann")
    await chosen(ann, "on", "can also be heard")
    await ann.say("Show me some code.")
    await ann.sees(lambda screen: notes(screen) == 1)
    await ann.say("Now tell me all.")
    await ann.sees(lambda screen: notes(screen) == 2)
    code, long = [one["input"] for one in await module_speech.requests()]
    assert code == "Look:\nThat is all.\nThe code is only in the text."
    assert len(long) < 1_600
    assert long.endswith("answer.\nThe rest is in the text.")


async def test_a_failure_leaves_the_text_and_is_not_tried_for_ever(
    here: Deployment, module_speech: RunningSpeech
) -> None:
    ann = await here.person(first_name="Ann")
    await chosen(ann, "on", "can also be heard")
    await module_speech.next({"status": 400, "message": "no"})
    await ann.say("My cat Miso is back.")
    screen = await ann.sees("What a fine name.")
    await over(here, ann)
    assert notes(screen) == 0
    assert await booked(here, ann) == []
    assert len(await module_speech.requests()) == 1


async def test_a_cap_holds_before_the_service_is_asked(
    module_speech: RunningSpeech, database_url: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A dollar for 1,000 characters: what is short may be heard, what is long costs more than five cents."""
    more = {"EVERTALK_SPEECH_PER_1000_CHARS_USD": "1", "EVERTALK_CAP_PERSON_PER_DAY_USD": "0.05"}
    settings, folder = {**module_speech.settings, **more}, tmp_path_factory.mktemp("capped")
    async with deployment(ANSWERS, database_url, redis_url, folder, settings=settings) as here:
        ann = await here.person(first_name="Ann")
        await chosen(ann, "on", "can also be heard")
        await ann.say("Now tell me all.")
        await over(here, ann)
        assert await module_speech.requests() == []
        await ann.say("My cat Miso eats.")
        await ann.sees(lambda screen: notes(screen) == 1)
        assert await booked(here, ann) == [["speech", 17_000]]


async def test_without_a_service_the_command_says_so(
    database_url: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with deployment({}, database_url, redis_url, tmp_path_factory.mktemp("mute")) as here:
        ann = await here.person(first_name="Ann")
        await ann.command("voice on")
        await ann.sees("Nothing is set up here that reads answers aloud.")
        await ann.command("help")
        screen = await ann.sees("/settings")
        assert "/voice" not in screen.answers[-1].text
