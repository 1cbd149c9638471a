"""Encryption of stored secrets, such as those of sites, with a key derived from EVERTALK_SECRET_KEY."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

from shared.core.values.errors import EvertalkError

_NONCE_BYTES = 12


class CannotUnseal(EvertalkError):
    """Raised if a sealed value cannot be opened: another key, damaged data, or data of another owner."""

    sentence = "The sealed value cannot be opened."
    code = "cannot_unseal"
    advice = (
        "EVERTALK_SECRET_KEY is not the one that this was stored with. "
        "Set the old one, or enter the secret again."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """Encrypted value: nonce and ciphertext, and the id of its key."""

    key_id: str
    """Id of the key that sealed the value; it distinguishes a wrong key from damaged data."""
    data: bytes


class Encryption:
    """Cipher AES-256-GCM with one key.

    `about` names the value's owner and is authenticated, so that rows cannot be swapped.
    """

    def __init__(self, secret_key: bytes) -> None:
        """Derive the key.

        The package cryptography is imported here, since most processes never seal a value.
        """
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        key = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"evertalk.vault.1").derive(secret_key)
        self.key_id = hashlib.sha256(b"evertalk.vault.key-id" + key).hexdigest()[:12]
        self._cipher = AESGCM(key)

    def seal(self, plain: bytes, *, about: str) -> Sealed:
        """Return the bytes encrypted with a new nonce and bound to `about`."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return Sealed(key_id=self.key_id, data=nonce + self._cipher.encrypt(nonce, plain, about.encode()))

    def open(self, sealed: Sealed, *, about: str) -> bytes:
        """Return the decrypted bytes.

        Raises CannotUnseal if key, data or `about` differ from those of sealing.
        """
        from cryptography.exceptions import InvalidTag

        if sealed.key_id != self.key_id:
            raise CannotUnseal(f"sealed with key {sealed.key_id}, this is {self.key_id}")
        nonce, data = sealed.data[:_NONCE_BYTES], sealed.data[_NONCE_BYTES:]
        try:
            return self._cipher.decrypt(nonce, data, about.encode())
        except (InvalidTag, ValueError) as error:
            raise CannotUnseal("damaged, or of something else") from error
