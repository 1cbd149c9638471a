"""Text to speech, by any server with OpenAI's `/audio/speech`."""

from __future__ import annotations

from collections.abc import Mapping

from shared.adapters.media.media_service import MediaService, build_paid_failure
from shared.core.values.recordings import SPEECH_MIMES, SpeechFormat, audio_mime
from shared.core.verdicts.breaker import BreakerState

SECONDS = 60.0
"""Maximum seconds for one recording with all tries."""
MOST_ANSWER_BYTES = 8 * 1024 * 1024
"""Maximum bytes of a recording."""


class HttpSpeaker:
    """Client of one speech model and voice.

    Where a ModelError has `aborted`, the call may have cost something.
    """

    def __init__(self, *, url: str, key: str, model: str, voice: str, seconds: float = SECONDS) -> None:
        self.model = model
        self._voice = voice
        self._service = MediaService(
            url=url, path="/audio/speech", key=key, seconds=seconds, most_bytes=MOST_ANSWER_BYTES
        )

    def list_states(self) -> Mapping[str, BreakerState]:
        """Return the state of the server's circuit breaker, keyed by its address."""
        return self._service.list_states()

    async def speak(self, words: str, *, form: SpeechFormat, session: int | None = None) -> bytes:
        """Return a recording of the text in this format.

        Raises ModelError, also if the answer has another format.
        """

        def read(body: bytes) -> bytes:
            if audio_mime(body) != SPEECH_MIMES[form]:
                raise build_paid_failure(f"the answer is no {form}")
            return body

        asked = {"model": self.model, "voice": self._voice, "input": words, "response_format": form}
        return await self._service.ask(lambda _: {"json": asked}, read, session=session)
