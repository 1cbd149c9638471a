"""Codes that open a visitor's conversation in another browser: unguessable, in groups that can be copied."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from shared.core.identity.people import CODE_ALPHABET

CHARS = 24
"""Characters of a code; each has 32 possible values, together 120 bits."""
GROUP = 4
_MOST_READ = 200


def code_of(numbers: Sequence[int]) -> str:
    """Return a code such as `ABCD-EFGH-…`, made of as many random bytes as it has characters."""
    letters = "".join(CODE_ALPHABET[number % len(CODE_ALPHABET)] for number in numbers[:CHARS])
    return "-".join(letters[at : at + GROUP] for at in range(0, CHARS, GROUP))


def code_hash(words: str) -> bytes:
    """Return the hash of a code in any spelling; invalid codes have one, too, so that looking them up takes
    equally long.
    """
    return hashlib.sha256(f"evertalk.recovery:{plain_code(words)}".encode()).digest()


def plain_code(words: str) -> str:
    """Return a code in upper case without its separators."""
    return "".join(char for char in words[:_MOST_READ].upper() if char in CODE_ALPHABET)
