"""Packed vectors keep the direction of what a model says, in a byte for each number."""

from __future__ import annotations

import math
import random

import pytest

from shared.core.memory.vectors import find_middle, nearness, pack_vector, signs_of

MIDDLE = [0.3] * 64


def vector(seed: int, *, numbers: int = 64) -> list[float]:
    chance = random.Random(seed)
    return [0.3 + chance.gauss(0, 0.1) for _ in range(numbers)]


def cosine(one: list[float], other: list[float]) -> float:
    a, b = ([number - 0.3 for number in each] for each in (one, other))
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


@pytest.mark.parametrize(("one", "other"), [(1, 1), (1, 2), (3, 4), (5, 6)])
def test_nearness_is_the_cosine_seen_from_the_middle(one: int, other: int) -> None:
    near = nearness(pack_vector(vector(one), MIDDLE), pack_vector(vector(other), MIDDLE))
    assert near == pytest.approx(cosine(vector(one), vector(other)), abs=0.02)


def test_signs_hold_a_bit_for_each_number() -> None:
    packed = pack_vector([0.4, 0.2, 0.3, *[0.4] * 61, 0.2], [*MIDDLE, 0.3])
    assert signs_of(packed) == bytes([0b10011111, *[0xFF] * 7, 0])


def test_nearness_is_zero_for_vectors_of_other_lengths() -> None:
    assert nearness(pack_vector(vector(1), MIDDLE), b"") == 0
    assert nearness(b"", b"") == 0
    assert nearness(bytes(64), bytes(128)) == 0


def test_vector_equal_to_the_middle_is_near_to_nothing() -> None:
    assert nearness(pack_vector(MIDDLE, MIDDLE), pack_vector(vector(1), MIDDLE)) == 0


@pytest.mark.parametrize(
    "broken", [[math.nan] * 64, [math.inf] + [0.0] * 63, [0.1] * 63, [0.1] * 65, []], ids=str
)
def test_vector_that_no_model_makes_is_refused(broken: list[float]) -> None:
    with pytest.raises(ValueError, match=r"."):
        pack_vector(broken, MIDDLE if len(broken) != 0 else [])


def test_one_huge_number_stays_within_its_byte() -> None:
    packed = pack_vector([1e9, *[0.3] * 63], MIDDLE)
    assert packed[0] == 127
    assert set(packed[1:]) == {0}


def test_middle_is_the_mean_number_by_number() -> None:
    assert find_middle([[1.0, 3.0], [3.0, 5.0]]) == (2.0, 4.0)
