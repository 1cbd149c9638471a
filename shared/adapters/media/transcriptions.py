"""Transcription of recordings, by any server with OpenAI's `/audio/transcriptions`."""

from __future__ import annotations

import io
import math
from collections.abc import Collection, Mapping
from typing import Any

import aiohttp

from shared.adapters.media.media_service import SECONDS, MediaService, build_paid_failure, parse_body
from shared.core.values.messages import storable
from shared.core.values.recordings import Recording, name_recording
from shared.core.verdicts.breaker import BreakerState
from shared.ports import Transcript

MOST_ANSWER_BYTES = 2 * 1024 * 1024
"""Maximum bytes of an answer."""


class HttpTranscriber:
    """Client of one transcription model.

    Where a ModelError has `aborted`, the call may have cost something.
    """

    def __init__(self, *, url: str, key: str, model: str, seconds: float = SECONDS) -> None:
        self.model = model
        self._service = MediaService(
            url=url, path="/audio/transcriptions", key=key, seconds=seconds,
            optional=("response_format", "language"), most_bytes=MOST_ANSWER_BYTES,
        )  # fmt: skip

    def list_states(self) -> Mapping[str, BreakerState]:
        """Return the state of the server's circuit breaker, keyed by its address."""
        return self._service.list_states()

    async def transcribe(
        self, recording: Recording, *, language: str = "", session: int | None = None
    ) -> Transcript:
        """Return the text of a recording, and its length if the server names it. Raises ModelError.

        `language` is a guess, such as `de`, or ""; `session` is the number of the conversation.
        """
        return await self._service.ask(
            lambda refused: {"data": self._form(recording, language, refused)},
            lambda body: _transcript(parse_body(body)),
            session=session,
        )

    def _form(self, recording: Recording, language: str, refused: Collection[str]) -> aiohttp.FormData:
        form = aiohttp.FormData()
        form.add_field(
            "file",
            io.BytesIO(recording.body),
            filename=name_recording(recording.mime),
            content_type=recording.mime,
        )
        form.add_field("model", self.model)
        form.add_field("response_format", "json" if "response_format" in refused else "verbose_json")
        if language and "language" not in refused:
            form.add_field("language", language)
        return form


def _transcript(told: Any) -> Transcript:
    text = told.get("text") if isinstance(told, Mapping) else None
    if not isinstance(text, str):
        raise build_paid_failure("the answer has no text")
    usage = told.get("usage")
    seconds = told.get("duration", usage.get("seconds") if isinstance(usage, Mapping) else None)
    return Transcript(text=" ".join(storable(text).split()), seconds=_positive(seconds))


def _positive(value: object) -> float | None:
    """Return a finite number of 0 or more, given as number or text; None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0 else None
