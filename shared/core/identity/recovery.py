"""Codes that bring a conversation to another browser: beyond guessing, in groups that can be copied."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from shared.core.identity.people import CODE_ALPHABET

CHARS = 24
"""Of 32 each: 120 bits."""
GROUP = 4
_MOST_READ = 200


def code_of(numbers: Sequence[int]) -> str:
    """From as many random bytes as a code has characters: `ABCD-EFGH-…`"""
    letters = "".join(CODE_ALPHABET[number % len(CODE_ALPHABET)] for number in numbers[:CHARS])
    return "-".join(letters[at : at + GROUP] for at in range(0, CHARS, GROUP))


def code_hash(words: str) -> bytes:
    """However it was typed; what can be no code has a hash, too, and costs the same to look for."""
    return hashlib.sha256(f"evertalk.recovery:{plain_code(words)}".encode()).digest()


def plain_code(words: str) -> str:
    """As it was made, without its groups."""
    return "".join(char for char in words[:_MOST_READ].upper() if char in CODE_ALPHABET)
