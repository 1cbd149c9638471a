"""Sends alerts as signed POST requests to an operator's address on the open internet or on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable

from shared.adapters.alerts.post import Poster, permit_this_machine
from shared.adapters.files.web_pages import Resolve, resolve_host
from shared.core.ops.alerts import Outcome, Sending, payload, signature

TIME_HEADER = "X-Evertalk-Timestamp"
"""Header with the time of a request in seconds since 1970, which the signature includes."""
SIGNATURE_HEADER = "X-Evertalk-Signature"
"""Header with the signature of time and body."""
KEY_HEADER = "Idempotency-Key"
"""Header with the key of a message, which is equal if the message is sent again."""


class AlertWebhook:
    """Client of one webhook address; an alert that is sent again has the same key and the same bytes."""

    def __init__(
        self,
        url: str,
        secret: str,
        *,
        dashboard_url: str,
        resolve: Resolve = resolve_host,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._url = url
        self._secret = secret
        self._dashboard_url = dashboard_url
        self._poster = Poster(permit_this_machine, resolve=resolve)
        self._clock = clock

    async def send(self, sending: Sending) -> Outcome:
        """POST an alert as signed JSON, and return the outcome; nothing is raised for a failure."""
        body = payload(sending, dashboard_url=self._dashboard_url)
        at = int(self._clock())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "Evertalk/0.1 (alerts)",
            KEY_HEADER: sending.send_key,
            TIME_HEADER: str(at),
            SIGNATURE_HEADER: signature(self._secret, at, body),
        }
        return await self._poster.post(self._url, body, headers)
