"""Pictures from descriptions, by any server with OpenAI's `/images/generations`."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Mapping
from typing import Any

from shared.adapters.media.media_service import MediaService, build_paid_failure, parse_body
from shared.core.verdicts.breaker import BreakerState

SECONDS = 180.0
"""Maximum seconds for one picture with all tries."""
MOST_ANSWER_BYTES = 40 * 1024 * 1024
"""Maximum bytes of an answer, in which the picture is base64."""
_FORMAT = "response_format"
"""Field that asks for the picture's bytes: older models need it, and newer ones refuse it."""


class HttpPictureMaker:
    """Client of one picture model; where a ModelError has `aborted`, the call may have cost something."""

    def __init__(self, *, url: str, key: str, model: str, seconds: float = SECONDS) -> None:
        self.model = model
        self._service = MediaService(
            url=url, path="/images/generations", key=key, most_bytes=MOST_ANSWER_BYTES, seconds=seconds,
            optional=(_FORMAT,),
        )  # fmt: skip

    def list_states(self) -> Mapping[str, BreakerState]:
        """Return the state of the server's circuit breaker, keyed by its address."""
        return self._service.list_states()

    async def make(self, prompt: str, *, session: int | None = None) -> bytes:
        """Return the bytes of one picture, whose content is not checked.

        Raises ModelError if the request fails.
        """

        def request(refused: Collection[str]) -> dict[str, Any]:
            body: dict[str, Any] = {"model": self.model, "prompt": prompt, "n": 1}
            return {"json": body if _FORMAT in refused else {**body, _FORMAT: "b64_json"}}

        return await self._service.ask(request, _read, session=session)


def _read(answer: bytes) -> bytes:
    told = parse_body(answer)
    data = told.get("data") if isinstance(told, Mapping) else None
    first = data[0] if isinstance(data, list) and data else None
    encoded = first.get("b64_json") if isinstance(first, Mapping) else None
    try:
        picture = base64.b64decode(encoded, validate=True) if isinstance(encoded, str) else b""
    except (binascii.Error, ValueError):
        picture = b""
    if not picture:
        raise build_paid_failure("the answer has no picture")
    return picture
