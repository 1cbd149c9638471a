"""The browser's half of RFC 8291, written from the RFC: the keys of a subscription, and how messages are
decrypted.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

CURVE = ec.SECP256R1()
_TAG_BYTES, _HEADER_BYTES = 16, 21
_LAST = b"\x02"


class NotForMe(ValueError):
    """The message cannot be decrypted with this browser's keys, or breaks RFC 8188."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Browser:
    """The secret half of a browser's push subscription."""

    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(CURVE))
    auth: bytes = field(default_factory=lambda: secrets.token_bytes(16))

    @classmethod
    def of(cls, kept: dict[str, str]) -> Browser:
        """Return the browser whose keys `kept` returned."""
        private = int.from_bytes(unpadded(kept["private"]), "big")
        return cls(key=ec.derive_private_key(private, CURVE), auth=unpadded(kept["auth"]))

    @property
    def kept(self) -> dict[str, str]:
        """The private keys as text, with which the fake push service decrypts messages."""
        private = self.key.private_numbers().private_value.to_bytes(32, "big")
        return {"private": padded(private), "auth": padded(self.auth)}

    @property
    def point(self) -> bytes:
        return self.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)

    def subscription(self, endpoint: str) -> dict[str, Any]:
        """Return the subscription for this endpoint, as Evertalk's page sends it to the server."""
        return {"endpoint": endpoint, "p256dh": padded(self.point), "auth": padded(self.auth)}

    def opened(self, body: bytes) -> bytes:
        """Return the decrypted message.

        Raises NotForMe if the keys do not fit or the message is malformed.
        """
        salt, record_bytes = body[:16], int.from_bytes(body[16:20], "big")
        sender = body[_HEADER_BYTES : _HEADER_BYTES + body[20]]
        record = body[_HEADER_BYTES + body[20] :]
        if not record_bytes >= _TAG_BYTES + 2 or len(record) > record_bytes:
            raise NotForMe("more than one record")
        theirs = ec.EllipticCurvePublicKey.from_encoded_point(CURVE, sender)
        shared = self.key.exchange(ec.ECDH(), theirs)
        secret = _expand(_mac(self.auth, shared), b"WebPush: info\x00" + self.point + sender, 32)
        own = _mac(salt, secret)
        key = _expand(own, b"Content-Encoding: aes128gcm\x00", 16)
        nonce = _expand(own, b"Content-Encoding: nonce\x00", 12)
        try:
            plain = AESGCM(key).decrypt(nonce, record, None).rstrip(b"\x00")
        except Exception as error:
            raise NotForMe("not with my keys") from error
        if not plain.endswith(_LAST):
            raise NotForMe("no end of a last record")
        return plain[:-1]


def padded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unpadded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.new(key, data, hashlib.sha256).digest()


def _expand(secret: bytes, about: bytes, length: int) -> bytes:
    """Return the first block of HKDF-Expand, cut to `length` bytes."""
    return _mac(secret, about + b"\x01")[:length]
