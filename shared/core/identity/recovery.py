"""Codes that open a visitor's conversation in another browser: unguessable, in groups that can be copied."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from shared.core.identity.people import CODE_ALPHABET

CHARS = 24
"""Characters of a code; each has 32 possible values, together 120 bits."""
GROUP = 4
"""Characters of each group of a printed code."""
_MOST_READ = 200


def code_of(numbers: Sequence[int]) -> str:
    """Return a code such as `ABCD-EFGH-…` of 24 characters, one from each of the first 24 random bytes
    `numbers`.
    """
    letters = "".join(CODE_ALPHABET[number % len(CODE_ALPHABET)] for number in numbers[:CHARS])
    return "-".join(letters[at : at + GROUP] for at in range(0, CHARS, GROUP))


def code_hash(words: str) -> bytes:
    """Return the SHA-256 hash of a code, independent of case and separators.

    Invalid codes have one, too, so that looking them up takes equally long.
    """
    return hashlib.sha256(f"evertalk.recovery:{plain_code(words)}".encode()).digest()


def plain_code(words: str) -> str:
    """Return the characters of a typed text that can be in a code, in upper case; all others are dropped.

    Only the first 200 characters are read; the result need not be a valid code.
    """
    return "".join(char for char in words[:_MOST_READ].upper() if char in CODE_ALPHABET)
