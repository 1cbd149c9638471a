"""The adapter that asks a service what is said, against a strict one in a process of its own."""

from __future__ import annotations

import pytest

from shared.adapters.media.transcriptions import HttpTranscriber
from shared.core.values.errors import (
    ModelBusy,
    ModelError,
    ModelRefusedAccount,
    ModelRejectedRequest,
    ModelUnavailable,
)
from shared.core.values.recordings import AUDIO_MIMES, Recording, audio_mime
from shared.ports import Transcript
from tests.kit.fakes.scripted_api import KEY
from tests.kit.fakes.transcriptions.harness import RunningTranscriptions
from tests.kit.fakes.transcriptions.recordings import MAGIC, recording


def transcriber(transcriptions: RunningTranscriptions, **more: object) -> HttpTranscriber:
    return HttpTranscriber(**{"url": transcriptions.url, "key": KEY, "model": "whisper-1", **more})  # type: ignore[arg-type]


def spoken(words: str, *, kind: str = "ogg") -> Recording:
    body = recording(words, kind=kind, seconds=7.5)
    mime = audio_mime(body)
    assert mime is not None
    return Recording(body=body, mime=mime)


@pytest.mark.parametrize("kind", sorted(MAGIC))
async def test_each_kind_of_recording_is_heard(kind: str, transcriptions: RunningTranscriptions) -> None:
    assert spoken("", kind=kind).mime in AUDIO_MIMES
    heard = await transcriber(transcriptions).transcribe(
        spoken("Good  morning,\nÖrebro", kind=kind), language="sv"
    )
    assert heard == Transcript(text="Good morning, Örebro", seconds=7.5)
    [asked] = await transcriptions.requests()
    assert (asked["model"], asked["language"]) == ("whisper-1", "sv")


async def test_a_model_that_gives_no_length_is_asked_for_less(transcriptions: RunningTranscriptions) -> None:
    """It refuses once; from then on it is not asked for what it refused."""
    asks = transcriber(transcriptions, model="gpt-4o-transcribe")
    assert await asks.transcribe(spoken("one")) == Transcript(text="one")
    assert await asks.transcribe(spoken("two")) == Transcript(text="two")
    formats = [one["response_format"] for one in await transcriptions.requests()]
    assert formats == ["verbose_json", "json", "json"]


@pytest.mark.parametrize(
    ("action", "error", "paid"),
    [
        ({"status": 401}, ModelRefusedAccount, False),
        ({"status": 429, "message": "insufficient_quota"}, ModelRefusedAccount, False),
        ({"status": 429, "retry_after": 60}, ModelBusy, False),
        ({"status": 400, "message": "Audio file might be corrupted"}, ModelRejectedRequest, False),
        ({"status": 400, "message": "the audio is 10800 seconds"}, ModelRejectedRequest, False),
        ({"cut": True}, ModelUnavailable, True),
        ({"latency": 30}, ModelUnavailable, True),
        ({"body": "no JSON"}, ModelUnavailable, True),
        ({"body": '{"text": 5}'}, ModelUnavailable, True),
        ({"body": "[" * 100_000}, ModelUnavailable, True),
        ({"body": '{"text": "hello"}', "pad": 3_000_000}, ModelUnavailable, True),
    ],
)
async def test_each_failure_has_its_name(
    action: dict[str, object], error: type[ModelError], paid: bool, transcriptions: RunningTranscriptions
) -> None:
    await transcriptions.next(action)
    with pytest.raises(error) as raised:
        await transcriber(transcriptions, seconds=1.5).transcribe(spoken("hello"))
    assert bool(raised.value.aborted) is paid


async def test_temporary_transcription_failure_is_retried(transcriptions: RunningTranscriptions) -> None:
    for action in ({"status": 500}, {"status": 503}, {"status": 429, "retry_after": 0}):
        await transcriptions.next(action)
        assert (await transcriber(transcriptions).transcribe(spoken("hello"))).text == "hello"
        assert len(await transcriptions.requests()) == 2


async def test_a_service_that_keeps_failing_is_not_asked_for_a_while(
    transcriptions: RunningTranscriptions,
) -> None:
    asks = transcriber(transcriptions)
    await transcriptions.next(*({"status": 500} for _ in range(20)))
    for _ in range(4):
        with pytest.raises(ModelUnavailable):
            await asks.transcribe(spoken("hello"))
    assert len(await transcriptions.requests()) < 8


async def test_unreachable_transcriber_is_reported_as_unavailable() -> None:
    asks = HttpTranscriber(url="http://127.0.0.1:9", key="", model="whisper-1")
    with pytest.raises(ModelUnavailable) as raised:
        await asks.transcribe(spoken("hello"))
    assert not raised.value.aborted


@pytest.mark.parametrize("told", ['"7.5"', "7.5"])
async def test_transcript_length_may_be_given_as_text(
    told: str, transcriptions: RunningTranscriptions
) -> None:
    await transcriptions.next(
        {"body": f'{{"text": "hi", "usage": {{"type": "duration", "seconds": {told}}}}}'}
    )
    assert await transcriber(transcriptions).transcribe(spoken("")) == Transcript(text="hi", seconds=7.5)


@pytest.mark.parametrize("told", ["-1", "1e999", '"long"', "null", "true", "[]"])
async def test_a_length_that_is_none_is_unknown(told: str, transcriptions: RunningTranscriptions) -> None:
    await transcriptions.next({"body": f'{{"text": "a\\u0000b\\ud800", "duration": {told}}}'})
    heard = await transcriber(transcriptions).transcribe(spoken(""))
    assert heard.seconds is None
    assert "\x00" not in heard.text
    assert heard.text.encode()
