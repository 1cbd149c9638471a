"""Push notifications for browsers without an open page: subscriptions and notices."""

from __future__ import annotations

import base64
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from shared.core.tools.web_address import BadWebAddress, WebAddress, is_public, web_address
from shared.core.values.errors import BadInput, EvertalkError

Kind = Literal["waits", "wrote", "answer"]
"""Event: a person waits for a human, wrote to their operator, or was answered."""
Urgency = Literal["normal", "high"]
"""Urgency of a notification in the sense of Web Push (RFC 8030)."""
_POINT_BYTES, _AUTH_BYTES = 65, 16
_UNCOMPRESSED = 4


class BadSubscription(BadInput):
    """Subscription of a browser that is malformed, or whose address Evertalk must not post to."""

    sentence = "This browser's push service cannot be used from here."
    code = "bad_subscription"
    advice = "This browser's push service cannot be used from here."


class PushUnavailable(EvertalkError):
    """Notifications that cannot be sent or subscribed to, because there is no key to sign them with."""

    sentence = "Notifications cannot be sent just now. The server's log says why."
    code = "push_unavailable"
    advice = "Notifications cannot be sent just now. The server's log says why."


@dataclass(frozen=True, slots=True, kw_only=True)
class PushTarget:
    """Push subscription of one browser: the address of its push service, and the keys for encryption."""

    endpoint: str
    p256dh: bytes
    """Public key of the browser, as an uncompressed point of P-256."""
    auth: bytes
    """Secret of the subscription, 16 bytes."""
    language: str = ""
    """Language of the notifications; empty if unknown."""
    id: int = 0
    """Row id; 0 before it is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushNotice:
    """Notification for one browser, about an event of one session."""

    target: PushTarget
    kind: Kind
    session: str
    """Public id of the session."""
    name: str
    """Name of the waiting person or the answering operator; empty if unknown, and for the assistant."""
    site: str = ""
    title: str = ""
    """Title of the site's chat; may be empty."""


def origin_of(endpoint: str) -> str:
    """Return the scheme and host of an address, such as `https://host`, with a port only if it names one."""
    parts = urlsplit(endpoint)
    return f"{parts.scheme}://{parts.netloc}"


def parse_target(
    endpoint: str, p256dh: str, auth: str, *, language: str, services: Collection[str]
) -> PushTarget:
    """Return the push target of a browser's subscription, whose keys are in base64url; it is not stored.

    `services` are origins of the deployment's own push services, which may be private. Raises BadSubscription
    for bad keys, and for any other address that is not public https.
    """
    try:
        if origin_of(endpoint) not in services:
            _refuse_private(web_address(endpoint))
        point, secret = _bytes(p256dh), _bytes(auth)
    except ValueError as error:
        raise BadSubscription(str(error)) from error
    if len(point) != _POINT_BYTES or point[0] != _UNCOMPRESSED or len(secret) != _AUTH_BYTES:
        raise BadSubscription("no keys of a browser")
    return PushTarget(endpoint=endpoint, p256dh=point, auth=secret, language=language)


def _refuse_private(address: WebAddress) -> None:
    """Raise BadWebAddress unless the address is https and not a private IP address.

    Host names are checked again when they are resolved.
    """
    if address.scheme != "https" or (address.literal is not None and not is_public(address.literal)):
        raise BadWebAddress("not https, or not public")


def _bytes(text: str) -> bytes:
    plain = text.rstrip("=")
    return base64.b64decode(plain + "=" * (-len(plain) % 4), altchars=b"-_", validate=True)
