"""Two orders become one, in which neither alone decides."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared.core.memory.recall import fuse_orders


def test_what_both_orders_have_in_front_comes_first() -> None:
    assert fuse_orders([0, 1, 2, 3], [3, 1, 0, 2]) == (0, 1, 3, 2)
    """1/61 + 1/63 is worth more than 1/62 + 1/62, and that more than 1/61 + 1/64."""


def test_where_two_are_worth_as_much_the_first_order_decides() -> None:
    assert fuse_orders([0, 1], [1, 0]) == (0, 1)
    assert fuse_orders([1, 0], [0, 1]) == (1, 0)


def test_the_last_of_forty_does_not_come_first_by_one_order_alone() -> None:
    """It may be near in meaning by chance; what stands well in both orders is before it."""
    places = range(40)
    order = fuse_orders(places, (39, *range(39)))
    assert order[0] == 0
    assert order.index(39) < 39


@given(st.permutations(range(12)))
def test_an_order_with_itself_is_that_order(order: list[int]) -> None:
    assert fuse_orders(order, order) == tuple(order)
    assert sorted(fuse_orders(range(12), order)) == list(range(12))
