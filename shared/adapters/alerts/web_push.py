"""Sender of Web Push messages, encrypted for one browser (RFC 8291) and signed with our key (RFC 8292)."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol
from urllib.parse import SplitResult

from shared.adapters.alerts.post import Permits, Poster
from shared.adapters.encryption import CannotUnseal, Encryption, Sealed
from shared.adapters.files.web_pages import Resolve, resolve_host
from shared.config.settings import BadSettings
from shared.core.identity.push import PushTarget, PushUnavailable, Urgency, origin_of
from shared.core.ops.alerts import AlertRefused, Outcome

if TYPE_CHECKING:
    from webpush import WebPush as Encrypting

ABOUT = "push_keys"
"""Name of the key pair, to which its encryption is bound."""
TOKEN_SECONDS = 12 * 3600
"""Lifetime of a token in seconds; push services accept at most a day."""


class PushKeyStore(Protocol):
    """Store of the deployment's key pair for Web Push, shared by all processes."""

    async def load_key(self) -> tuple[str, Sealed] | None:
        """Return the public key and the sealed key pair; None before the first `keep_key`."""
        ...

    async def keep_key(self, public_key: str, sealed: Sealed) -> tuple[str, Sealed]:
        """Store a key pair, or return the one that another process has stored first."""
        ...


class WebPush:
    """Client of browsers' push services.

    The package webpush encrypts; messages are signed here, because it drops the port of an origin and accepts
    only mail addresses as contact.
    """

    def __init__(
        self,
        store: PushKeyStore,
        *,
        encryption: Callable[[], Encryption],
        subject: str,
        services: Sequence[str] = (),
        resolve: Resolve = resolve_host,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Configure the client.

        `subject` is the contact that push services see, `services` the origins of the operator's own push
        services.
        """
        self._store = store
        self._encryption = encryption
        self._subject = subject
        self._services = frozenset(services)
        self._poster = Poster(self._own, resolve=resolve)
        self._clock = clock
        self._public, self._private = "", b""
        self._encrypting: Encrypting | None = None

    async def public_key(self) -> str:
        """Return the public key for browsers' subscriptions; it is created and stored at the first call.

        Raises StorageUnavailable and PushUnavailable.
        """
        if not self._public:
            await asyncio.to_thread(import_module, "webpush")  # a tenth of a second, once
            self._public, _ = await self._store.load_key() or await self._store.keep_key(*self._make_key())
        return self._public

    async def send(
        self, target: PushTarget, message: bytes, *, topic: str, ttl_seconds: int, urgency: Urgency
    ) -> Outcome:
        """Send an encrypted message to one browser and return the outcome.

        The outcome is `AlertRefused` if the browser's keys are invalid. A newer message replaces one with
        the same `topic` (at most 32 characters) that the push service still holds. Raises
        StorageUnavailable and PushUnavailable.
        """
        await self._open()
        try:
            body = self._encrypt(target, message)
        except ValueError:
            return AlertRefused(code="bad_keys")
        headers = {
            "Authorization": self._signature(target.endpoint),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(ttl_seconds),
            "Urgency": urgency,
            "Topic": topic,
        }
        return await self._poster.post(target.endpoint, body, headers)

    def _own(self, parts: SplitResult) -> Permits | None:
        return (lambda _: True) if origin_of(parts.geturl()) in self._services else None

    def _make_key(self) -> tuple[str, Sealed]:
        from webpush import VAPID

        private, public, shown = VAPID.generate_keys()
        pair = json.dumps({"private": private.decode(), "public": public.decode()})
        return shown, self._open_vault().seal(pair.encode(), about=ABOUT)

    async def _open(self) -> None:
        if self._encrypting is not None:
            return
        await self.public_key()
        found = await self._store.load_key()
        if found is None:
            raise PushUnavailable("the key is gone")
        try:
            pair = json.loads(self._open_vault().open(found[1], about=ABOUT))
        except CannotUnseal as error:
            raise PushUnavailable(str(error)) from error
        from webpush import WebPush as Encrypting

        self._private = pair["private"].encode()
        self._encrypting = Encrypting(self._private, pair["public"].encode(), subscriber=self._subject)

    def _open_vault(self) -> Encryption:
        """Return the encryption of this process.

        Raises PushUnavailable if the process has no EVERTALK_SECRET_KEY.
        """
        try:
            return self._encryption()
        except BadSettings as error:
            raise PushUnavailable(str(error)) from error

    def _encrypt(self, target: PushTarget, message: bytes) -> bytes:
        """Return `message` encrypted for a browser.

        Raises ValueError if the browser's public key is no point of the curve.
        """
        from webpush import WebPushSubscription

        assert self._encrypting is not None
        keys = {"p256dh": _text(target.p256dh), "auth": _text(target.auth)}
        subscription = WebPushSubscription.model_validate({"endpoint": target.endpoint, "keys": keys})
        return bytes(self._encrypting.get(message, subscription).encrypted)

    def _signature(self, endpoint: str) -> str:
        import jwt

        until = int(self._clock()) + TOKEN_SECONDS
        claims = {"aud": origin_of(endpoint), "exp": until, "sub": self._subject}
        token = jwt.encode(claims, self._private, algorithm="ES256")
        return f"vapid t={token}, k={self._public}"


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
