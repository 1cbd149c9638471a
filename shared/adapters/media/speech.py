"""Asks any server that has OpenAI's `/audio/speech` to read a text aloud."""

from __future__ import annotations

from collections.abc import Mapping

from shared.adapters.media.media_service import MediaService, build_paid_failure
from shared.core.values.recordings import SPEECH_MIMES, SpeechFormat, audio_mime
from shared.core.verdicts.breaker import BreakerState

SECONDS = 60.0
MOST_ANSWER_BYTES = 8 * 1024 * 1024


class HttpSpeaker:
    """One voice of one account; where a `ModelError` has `aborted`, it may have cost something."""

    def __init__(self, *, url: str, key: str, model: str, voice: str, seconds: float = SECONDS) -> None:
        self.model = model
        self._voice = voice
        self._service = MediaService(
            url=url, path="/audio/speech", key=key, seconds=seconds, most_bytes=MOST_ANSWER_BYTES
        )

    def list_states(self) -> Mapping[str, BreakerState]:
        return self._service.list_states()

    async def speak(self, words: str, *, form: SpeechFormat, session: int | None = None) -> bytes:
        """Raises ModelErrors, also where what came back is another kind of file."""

        def read(body: bytes) -> bytes:
            if audio_mime(body) != SPEECH_MIMES[form]:
                raise build_paid_failure(f"the answer is no {form}")
            return body

        asked = {"model": self.model, "voice": self._voice, "input": words, "response_format": form}
        return await self._service.ask(lambda _: {"json": asked}, read, session=session)
