"""What a turn writes is counted: updates that no index heard of, and bytes of the log."""

from __future__ import annotations

import pytest

from shared.adapters.postgres.turns import allowance
from tests.bench.writes import measure

HOT = ("sessions", "session_totals", "session_spend", "spend_days")
BYTES = 5_350
"""Most bytes of a plain turn, all tables together. Some 80 note for the numbers by the hour that it ended,
some 30 why its answer ended, and some 660 how the model counts each kind of text: without that scale a turn
writes 4 620, with it 5 280."""
SESSION_BYTES = 1_050
"""Of the session's row alone: 340 without the scale, which changes with each answer, and 990 with it."""
LIST_BYTES = 1_000
RECORDS = 58
"""Of both."""
LEAST_CALLS = allowance.LEAST_CALLS


@pytest.fixture(autouse=True)
def default_slices(monkeypatch: pytest.MonkeyPatch, on_the_shared_row: None) -> None:
    """Of the day's money, as by every process outside of tests."""
    monkeypatch.setattr(allowance, "LEAST_CALLS", LEAST_CALLS)


async def test_turn_writes_no_more_than_documented() -> None:
    found = await measure(sessions=8, turns=12)
    assert found["turns"] == 96
    for table in HOT:
        assert found["hot_share"][table] >= 0.9, table
    assert found["wal_bytes_per_turn"] <= BYTES
    assert found["wal_bytes_of_list_per_turn"] <= LIST_BYTES
    assert found["wal_records_per_turn"] <= RECORDS
    assert found["updates"]["session_list"] <= found["turns"]
    assert sum(found["wal_bytes_per_turn_by_table"]["sessions"][:1]) <= SESSION_BYTES
