"""Recordings on real Postgres: heard once, booked by the minute, held by caps, kept for another try."""

from __future__ import annotations

from typing import Any

import pytest

from shared.core.values.errors import CapReached, EvertalkError
from shared.core.values.recordings import Recording
from shared.services.voice.hearing import HearingService, NotHeard, RecordingEmpty, RecordingTooLong
from tests.kit.app_driver import Visit, running_app, settings_for
from tests.kit.fakes.transcriptions.harness import RunningTranscriptions
from tests.kit.fakes.transcriptions.recordings import recording


@pytest.fixture
def app_options(transcriptions: RunningTranscriptions) -> dict[str, Any]:
    return {
        "cap_total_per_day_usd": "0.06", "transcribe_url": transcriptions.url,
        "transcribe_key": "a-key-for-the-fake", "transcribe_per_minute_usd": "0.006",
    }  # fmt: skip


def hearing(guest: Visit) -> HearingService:
    assert guest.app.hearing is not None
    return guest.app.hearing


async def hear(guest: Visit, words: str, *, seconds: float = 30.0, told: float | None = None) -> str:
    body = recording(words, seconds=seconds)
    number = await guest.app.stores.attachments.store(guest.session_id, body=body, mime="audio/ogg")
    spoken = Recording(body=body, mime="audio/ogg", seconds=told)
    return await hearing(guest).hear(guest.session_id, number, spoken, language="en")


async def ledger(guest: Visit) -> list[tuple[object, ...]]:
    rows = await guest.app.pool.fetch(
        "SELECT purpose, status, model, known, cost_micro FROM usage WHERE session_id = $1 ORDER BY id",
        guest.session_id,
    )
    return [tuple(row) for row in rows]


async def money(guest: Visit) -> tuple[int, int]:
    row = await guest.app.pool.fetchrow(
        "SELECT reserved_micro, spent_micro FROM spend_days WHERE scope = 'total'"
    )
    return (0, 0) if row is None else (row["reserved_micro"], row["spent_micro"])


async def test_a_recording_is_heard_once_and_booked_by_the_minute(
    guest: Visit, transcriptions: RunningTranscriptions
) -> None:
    assert await hear(guest, "Good morning") == "Good morning"
    assert await hear(guest, "Good morning") == "Good morning"
    assert len(await transcriptions.requests()) == 1
    assert await ledger(guest) == [("transcribe", "done", "whisper-1", True, 3_000)]


@pytest.mark.parametrize(
    ("action", "booked"),
    [
        ({"status": 429, "retry_after": 60}, []),
        ({"cut": True}, [("transcribe", "aborted", "whisper-1", False, 2_000)]),
    ],
)
async def test_a_service_that_fails_is_said_and_the_next_try_goes_on(
    action: dict[str, object],
    booked: list[tuple[object, ...]],
    guest: Visit,
    transcriptions: RunningTranscriptions,
) -> None:
    await transcriptions.next(action)
    with pytest.raises(NotHeard):
        await hear(guest, "Good morning", told=20)
    assert await ledger(guest) == booked
    assert await hear(guest, "Good morning", told=20) == "Good morning"


@pytest.mark.parametrize(
    ("words", "seconds", "told", "error", "calls"),
    [
        ("three hours", 3.0, 10_800.0, RecordingTooLong, 0),
        ("three hours", 10_800.0, None, RecordingTooLong, 1),
        ("", 3.0, None, RecordingEmpty, 1),
    ],
)
async def test_what_cannot_be_used_is_said(
    words: str,
    seconds: float,
    told: float | None,
    error: type[EvertalkError],
    calls: int,
    guest: Visit,
    transcriptions: RunningTranscriptions,
) -> None:
    """What turns out to be longer than its header says is paid for, and its words go nowhere."""
    with pytest.raises(error):
        await hear(guest, words, seconds=seconds, told=told)
    assert len(await transcriptions.requests()) == calls


async def test_a_cap_holds_before_the_call(guest: Visit, transcriptions: RunningTranscriptions) -> None:
    assert await hear(guest, "the first nine minutes", seconds=540, told=540) == "the first nine minutes"
    with pytest.raises(CapReached):
        await hear(guest, "two more", seconds=120, told=120)
    assert len(await transcriptions.requests()) == 1
    assert (await money(guest))[1] >= 54_000


async def test_nothing_of_it_is_loaded_where_nothing_transcribes(database_url: str, redis_url: str) -> None:
    async with running_app(settings_for(database_url, redis_url)) as app:
        assert app.hearing is None
