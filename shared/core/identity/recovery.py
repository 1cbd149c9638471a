"""Codes that bring a conversation to another browser: beyond guessing, in groups that can be copied."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from shared.core.identity.people import CODE_ALPHABET

CHARS = 24
"""Characters of a code with 32 values each: 120 bits."""
GROUP = 4
_MOST_READ = 200


def code_of(numbers: Sequence[int]) -> str:
    """From as many random bytes as a code has characters: `ABCD-EFGH-…`"""
    letters = "".join(CODE_ALPHABET[number % len(CODE_ALPHABET)] for number in numbers[:CHARS])
    return "-".join(letters[at : at + GROUP] for at in range(0, CHARS, GROUP))


def code_hash(words: str) -> bytes:
    """Return the hash of a code in any spelling; invalid codes have one, too, and cost the same search."""
    return hashlib.sha256(f"evertalk.recovery:{plain_code(words)}".encode()).digest()


def plain_code(words: str) -> str:
    """Return the code as it was made, without its groups."""
    return "".join(char for char in words[:_MOST_READ].upper() if char in CODE_ALPHABET)
