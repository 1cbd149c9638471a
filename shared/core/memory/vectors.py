"""Vectors of meaning as they are stored: one byte per number, and one bit for its sign."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

LEAST_NUMBERS, MOST_NUMBERS = 64, 4_096
"""Fewest and most numbers of a vector; encoders in use have 256 to 3,072."""
SPREAD = 20.0
"""Steps of a byte for a number of average size; numbers above about six times that size are cut."""
_LARGEST = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """Packed vectors of some texts in their order, and the name of the model that made them."""

    encoder: str
    vectors: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnencodedPassages:
    """Passages of a session that lack a vector of the present model, as pairs of number and text, newest
    first.

    `listings` counts how often the session was listed for this; the session leaves the list only if the count
    is unchanged, since new passages raise it.
    """

    session_id: int
    listings: int
    texts: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedPassage:
    """Passage with its packed vector; None if its text made the encoder fail."""

    number: int
    text: str
    vector: bytes | None


def find_middle(vectors: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return the mean of vectors of equal length, number by number.

    Empty without vectors. Raises ValueError if the lengths differ.
    """
    return tuple(sum(numbers) / len(vectors) for numbers in zip(*vectors, strict=True))


def pack_vector(vector: Sequence[float], middle: Sequence[float]) -> bytes:
    """Return the direction from `middle` to a vector, as one signed byte per number, independent of its
    length.

    Raises ValueError if the lengths of both differ, if it has fewer than 64 or more than 4,096 numbers, or if
    one is not finite.
    """
    moved = [number - mean for number, mean in zip(vector, middle, strict=True)]
    length = math.hypot(*moved)
    if not math.isfinite(length):
        raise ValueError("a number of the vector is not finite")
    if not LEAST_NUMBERS <= len(moved) <= MOST_NUMBERS:
        raise ValueError(f"a vector of {len(moved)} numbers")
    steps = _steps(len(moved)) / (length or 1.0)
    return array("b", [max(-_LARGEST, min(_LARGEST, round(number * steps))) for number in moved]).tobytes()


def signs_of(packed: bytes) -> bytes:
    """Return one bit per number of a packed vector, set where the number is above 0; zeros fill the last
    byte.

    Raises ValueError for an empty vector.
    """
    bits = "".join("1" if 0 < number < 128 else "0" for number in packed)
    bits += "0" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


def nearness(one: bytes, other: bytes) -> float:
    """Return the cosine similarity of two packed vectors, about -1 to 1; 0 if their lengths differ or are
    0.
    """
    if len(one) != len(other) or not one:
        return 0.0
    product: int = sum(map(mul, memoryview(one).cast("b"), memoryview(other).cast("b")))
    return product / _steps(len(one)) ** 2


def _steps(numbers: int) -> float:
    return SPREAD * math.sqrt(numbers)
