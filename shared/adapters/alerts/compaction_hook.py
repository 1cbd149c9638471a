"""Client of the compaction hook: signed POST requests to the open internet or to this machine."""

from __future__ import annotations

import time
from collections.abc import Callable

from shared.adapters.alerts.post import Poster, permit_this_machine
from shared.adapters.alerts.webhook import KEY_HEADER, SIGNATURE_HEADER, TIME_HEADER
from shared.adapters.files.web_pages import Resolve, resolve_host
from shared.core.compaction.hooks import MOST_ANSWER_BYTES, HookMessage, render_hook_body
from shared.core.ops.alerts import Outcome, signature


class CompactionHook:
    """Client of one hook address; a message that is sent again has the same key and the same bytes."""

    def __init__(
        self,
        url: str,
        secret: str,
        *,
        resolve: Resolve = resolve_host,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._url = url
        self._secret = secret
        self._poster = Poster(permit_this_machine, resolve=resolve)
        self._clock = clock

    async def send(self, message: HookMessage, *, seconds: float) -> tuple[Outcome, bytes]:
        """POST a signed message; return the outcome and at most MOST_ANSWER_BYTES bytes of the answer's body.

        `seconds` limits the whole call. Failures become outcomes.
        """
        body = render_hook_body(message)
        at = int(self._clock())
        headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "Evertalk/0.1 (hooks)",
            KEY_HEADER: message.send_key,
            TIME_HEADER: str(at),
            SIGNATURE_HEADER: signature(self._secret, at, body),
        }
        return await self._poster.ask(self._url, body, headers, seconds=seconds, most_bytes=MOST_ANSWER_BYTES)
