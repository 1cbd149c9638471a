"""An early ledger stands in for a summary only where it covers at least half of the range."""

from __future__ import annotations

import pytest

from shared.core.session.ledger import Ledger
from shared.core.session.session_state import Checkpoint


@pytest.mark.parametrize(
    ("through", "helps"),
    [(4, False), (5, True), (9, True), (10, True), (11, False)],
)
def test_a_checkpoint_covers_at_least_half_and_nothing_beyond(through: int, helps: bool) -> None:
    made = Checkpoint(parent=None, from_turn=1, through_turn=through, ledger=Ledger(), model="m")
    assert made.helps(1, 10) is helps


def test_a_checkpoint_of_another_beginning_is_of_no_use() -> None:
    made = Checkpoint(parent=None, from_turn=3, through_turn=9, ledger=Ledger(), model="m")
    assert not made.helps(1, 10)
