"""Codes to keep a conversation by: long, grouped, read however they are typed."""

from __future__ import annotations

import secrets

from shared.core.identity.people import CODE_ALPHABET
from shared.core.identity.recovery import CHARS, code_hash, code_of


def test_a_code_has_at_least_a_hundred_bits_in_groups_of_four() -> None:
    code = code_of(secrets.token_bytes(CHARS))
    groups = code.split("-")
    assert [len(group) for group in groups] == [4] * 6
    assert set("".join(groups)) <= set(CODE_ALPHABET)
    assert len(CODE_ALPHABET) ** CHARS >= 2**100
    assert 256 % len(CODE_ALPHABET) == 0, "each letter is as likely as another"


def test_a_code_is_read_with_any_case_and_any_gaps() -> None:
    code = code_of(range(CHARS))
    assert code_hash(code) == code_hash(code.lower().replace("-", " ")) == code_hash(code.replace("-", ""))
    assert code_hash(code) != code_hash(code[:-1])


def test_what_is_no_code_has_a_hash_too() -> None:
    assert len(code_hash("")) == len(code_hash("ü" * 10_000)) == len(code_hash("\ud800")) == 32
