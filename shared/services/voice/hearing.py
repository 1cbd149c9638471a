"""Transcription of recordings, within the caps; each is paid once, by the minute, and stored."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Protocol

import structlog

from shared.core.session.turns import Caps, Spending
from shared.core.values.errors import BadInput, EvertalkError, ModelError, ModelRejectedRequest
from shared.core.values.recordings import Recording, RecordingLimits
from shared.ports import Transcriber
from shared.runtime import CrashPoint
from shared.services.turns.spend_tracker import SpendStore

MOST_WORDS_CHARS = 50_000
"""Most characters of one transcript: an hour of speech, and less than a message may have."""
AT_ONCE = 4
"""Most transcriptions at the same time in a process, since each keeps its recording in memory."""

log = structlog.get_logger(__name__)


class NotHeard(EvertalkError):
    """The service that transcribes did not do it; the recording is kept."""

    sentence = "The service that transcribes did not do it; the recording is kept."
    code = "not_heard"
    advice = "I could not hear your recording just now. It is kept: try again."


class RecordingTooLong(BadInput):
    """The recording is longer than what may be heard."""

    sentence = "The recording is longer than what may be heard."
    code = "recording_too_long"

    def __init__(self, minutes: float) -> None:
        super().__init__(f"longer than {minutes:g} minutes")
        self.minutes = minutes
        self.advice = f"This recording is too long: I can hear up to {minutes:g} minutes."


class RecordingEmpty(BadInput):
    """The recording has no speech, or cannot be decoded."""

    sentence = "The recording has no speech, or cannot be decoded."
    code = "recording_empty"
    advice = "I could not hear any words in this recording."


class HeardStore(Protocol):
    """Store of transcripts, and of their cost.

    `load_transcript` returns None if the recording was not transcribed. `record_transcript` settles the
    reservation; None as `words` stores only the cost, and a stored transcript stays.
    """

    async def load_transcript(self, session_id: int, attachment_id: int) -> str | None: ...
    async def record_transcript(
        self,
        session_id: int,
        attachment_id: int,
        *,
        words: str | None,
        spent: Spending,
        reservation_id: int | None,
    ) -> None: ...


class HearingService:
    """Transcription of stored recordings; a stored transcript is never paid for again."""

    def __init__(
        self,
        *,
        transcriber: Transcriber,
        store: HeardStore,
        spend: SpendStore,
        caps: Caps,
        limits: RecordingLimits,
        crash_point: CrashPoint,
    ) -> None:
        self.limits = limits
        self._transcriber = transcriber
        self._store = store
        self._spend = spend
        self._caps = caps
        self._crash_point = crash_point
        self._places = asyncio.Semaphore(AT_ONCE)

    def check_length(self, seconds: float | None) -> None:
        """Raise RecordingTooLong if a recording of `seconds` exceeds the limit; None is accepted."""
        if seconds is not None and seconds > self.limits.minutes * 60:
            raise RecordingTooLong(self.limits.minutes)

    async def hear(
        self, session_id: int, attachment_id: int, recording: Recording, *, language: str = ""
    ) -> str:
        """Return the transcript of a recording, at most 50,000 characters; make and store it if none is
        stored.

        `language` is a hint for the service, "" for none. Raises NotHeard if the service fails,
        RecordingEmpty if there is no speech, RecordingTooLong, CapReached, CapHeld and StorageUnavailable.
        """
        async with self._places:
            return await self._hear(session_id, attachment_id, recording, language)

    async def _hear(self, session_id: int, attachment_id: int, recording: Recording, language: str) -> str:
        self._crash_point("before_hearing")
        if (known := await self._store.load_transcript(session_id, attachment_id)) is not None:
            return _require_words(known)
        self.check_length(recording.seconds)
        seconds = self.limits.estimate_seconds(recording)
        micro = self.limits.cost_micro(seconds)
        reservation_id = await self._spend.reserve(session_id, micro, caps=self._caps) if micro else None
        record = partial(
            self._store.record_transcript, session_id, attachment_id, reservation_id=reservation_id
        )
        try:
            transcript = await self._transcriber.transcribe(recording, language=language, session=session_id)
        except ModelError as error:
            log.warning("transcription_failed", session_id=session_id, code=error.code, reason=str(error))
            if error.aborted:
                await record(words=None, spent=self._spending(seconds, known=False, aborted=True))
            elif reservation_id is not None:
                await self._spend.release_reservation(reservation_id)
            raise _map_error(error) from error
        self._crash_point("after_hearing")
        told = transcript.seconds
        spent = self._spending(seconds if told is None else told, known=told is not None)
        # A recording longer than it claimed was paid for, but its transcript is discarded.
        too_long = told is not None and told > self.limits.minutes * 60
        words = "" if too_long else transcript.text[:MOST_WORDS_CHARS]
        await record(words=words, spent=spent)
        self.check_length(told)
        return _require_words(words)

    def _spending(self, seconds: float, *, known: bool, aborted: bool = False) -> Spending:
        return Spending(
            model=self._transcriber.model,
            known=known,
            cost_micro=self.limits.cost_micro(seconds),
            aborted=aborted,
        )


def _map_error(error: ModelError) -> EvertalkError:
    """Return the error for people after a failed transcription; RecordingEmpty if the service rejected it."""
    return RecordingEmpty(str(error)) if isinstance(error, ModelRejectedRequest) else NotHeard(str(error))


def _require_words(words: str) -> str:
    if not words:
        raise RecordingEmpty
    return words
