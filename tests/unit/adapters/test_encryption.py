"""What is sealed can be opened with the same key, for the same thing, and by nobody else."""

from __future__ import annotations

import pytest

from shared.adapters.encryption import CannotUnseal, Encryption, Sealed


@pytest.mark.control("S37")
def test_what_was_sealed_comes_back_and_never_looks_the_same() -> None:
    encryption = Encryption(b"k" * 40)
    one, two = (encryption.seal(b"secret", about="a") for _ in range(2))
    assert one.data != two.data
    assert b"secret" not in one.data
    assert encryption.open(one, about="a") == Encryption(b"k" * 40).open(two, about="a") == b"secret"


@pytest.mark.control("S37")
def test_another_key_another_thing_and_damage_open_nothing() -> None:
    encryption = Encryption(b"k" * 40)
    sealed = encryption.seal(b"secret", about="a")
    damaged = Sealed(key_id=sealed.key_id, data=sealed.data[:-1] + bytes([sealed.data[-1] ^ 1]))
    for opener, what, about in (
        (Encryption(b"o" * 40), sealed, "a"),
        (encryption, sealed, "b"),
        (encryption, damaged, "a"),
        (encryption, Sealed(key_id=sealed.key_id, data=b""), "a"),
    ):
        with pytest.raises(CannotUnseal):
            opener.open(what, about=about)
