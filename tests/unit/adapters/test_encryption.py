"""What is sealed can be opened with the same key, for the same thing, and by nobody else."""

from __future__ import annotations

import pytest

from shared.adapters.encryption import CannotUnseal, Encryption, Sealed


@pytest.mark.control("S37")
def test_what_was_sealed_comes_back_and_never_looks_the_same() -> None:
    vault = Encryption(b"k" * 40)
    one, two = (vault.seal(b"secret", about="a") for _ in range(2))
    assert one.data != two.data
    assert b"secret" not in one.data
    assert vault.open(one, about="a") == Encryption(b"k" * 40).open(two, about="a") == b"secret"


@pytest.mark.control("S37")
def test_another_key_another_thing_and_damage_open_nothing() -> None:
    vault = Encryption(b"k" * 40)
    sealed = vault.seal(b"secret", about="a")
    damaged = Sealed(key_id=sealed.key_id, data=sealed.data[:-1] + bytes([sealed.data[-1] ^ 1]))
    for opener, what, about in (
        (Encryption(b"o" * 40), sealed, "a"),
        (vault, sealed, "b"),
        (vault, damaged, "a"),
        (vault, Sealed(key_id=sealed.key_id, data=b""), "a"),
    ):
        with pytest.raises(CannotUnseal):
            opener.open(what, about=about)
