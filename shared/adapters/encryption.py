"""Seals what must be read again, such as a site's secrets, with a key made of EVERTALK_SECRET_KEY."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

from shared.core.values.errors import EvertalkError

_NONCE_BYTES = 12


class CannotUnseal(EvertalkError):
    """The sealed value cannot be opened."""

    code = "cannot_unseal"
    advice = (
        "EVERTALK_SECRET_KEY is not the one that this was stored with. "
        "Set the old one, or enter the secret again."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    key_id: str
    """Id of the key, so that a wrong key is distinguished from damage."""
    data: bytes


class Encryption:
    """AES-256-GCM; what a thing is about is signed along, so that no row can stand in for another."""

    def __init__(self, secret_key: bytes) -> None:
        """cryptography is imported late: most processes of most installations seal nothing."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        key = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"evertalk.vault.1").derive(secret_key)
        self.key_id = hashlib.sha256(b"evertalk.vault.key-id" + key).hexdigest()[:12]
        self._cipher = AESGCM(key)

    def seal(self, plain: bytes, *, about: str) -> Sealed:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return Sealed(key_id=self.key_id, data=nonce + self._cipher.encrypt(nonce, plain, about.encode()))

    def open(self, sealed: Sealed, *, about: str) -> bytes:
        """Raises CannotUnseal."""
        from cryptography.exceptions import InvalidTag

        if sealed.key_id != self.key_id:
            raise CannotUnseal(f"sealed with key {sealed.key_id}, this is {self.key_id}")
        nonce, data = sealed.data[:_NONCE_BYTES], sealed.data[_NONCE_BYTES:]
        try:
            return self._cipher.decrypt(nonce, data, about.encode())
        except (InvalidTag, ValueError) as error:
            raise CannotUnseal("damaged, or of something else") from error
