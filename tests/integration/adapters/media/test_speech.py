"""The adapter that has words read aloud, against a strict service in a process of its own."""

from __future__ import annotations

import pytest

from shared.adapters.media.speech import HttpSpeaker
from shared.core.values.errors import (
    ModelBusy,
    ModelError,
    ModelRefusedAccount,
    ModelRejectedRequest,
    ModelUnavailable,
)
from tests.kit.fakes.scripted_api import KEY
from tests.kit.fakes.speech.harness import RunningSpeech


def speaker(speech: RunningSpeech, *, key: str = KEY, seconds: float = 30.0) -> HttpSpeaker:
    return HttpSpeaker(url=speech.url, key=key, model="tts-1", voice="nova", seconds=seconds)


async def test_words_come_back_in_the_wanted_form(speech: RunningSpeech) -> None:
    assert await speaker(speech).speak("Grüezi", form="opus") == b"OggS" + "Grüezi".encode()
    assert (await speaker(speech).speak("Grüezi", form="mp3")).endswith("Grüezi".encode())
    first, second = await speech.requests()
    assert first == {"model": "tts-1", "voice": "nova", "input": "Grüezi", "response_format": "opus"}
    assert second["response_format"] == "mp3"


@pytest.mark.parametrize(
    ("action", "error", "paid"),
    [
        ({"status": 401}, ModelRefusedAccount, False),
        ({"status": 429, "retry_after": 60}, ModelBusy, False),
        ({"status": 400, "message": "Invalid voice"}, ModelRejectedRequest, False),
        ({"cut": True}, ModelUnavailable, True),
        ({"latency": 30}, ModelUnavailable, True),
        ({"body": "<html>"}, ModelUnavailable, True),
        ({"body": ""}, ModelUnavailable, True),
    ],
)
async def test_each_failure_has_its_name(
    action: dict[str, object], error: type[ModelError], paid: bool, speech: RunningSpeech
) -> None:
    await speech.next(action)
    with pytest.raises(error) as raised:
        await speaker(speech, seconds=1.5).speak("Hello", form="opus")
    assert bool(raised.value.aborted) is paid


async def test_temporary_speech_failure_is_retried_and_permanent_one_is_not(
    speech: RunningSpeech,
) -> None:
    asks = speaker(speech)
    await speech.next({"status": 503})
    assert await asks.speak("Hello", form="opus")
    assert len(await speech.requests()) == 2
    await speech.next(*({"status": 500} for _ in range(20)))
    for _ in range(4):
        with pytest.raises(ModelUnavailable):
            await asks.speak("Hello", form="opus")
    assert len(await speech.requests()) < 8
