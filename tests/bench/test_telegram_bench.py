"""The bench of Telegram runs and says what it must; how fast anything is, is nobody's test."""

from __future__ import annotations

import pytest

from tests.bench import telegram_turn
from tests.bench.telegram import as_table, measure


async def test_the_bench_counts_what_a_telegram_turn_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the pauses that keep chats away from their limits, and without the part that needs processes
    of its own for a minute: nobody looks at the numbers here."""
    monkeypatch.setattr(telegram_turn, "PACE_SECONDS", 0.5)
    found = await measure(rounds=2, blocks=1, turns=2, reply_rounds=1, with_processes=False)
    assert {
        "inbox_ratio", "inbox_updates_per_second", "acknowledge_ratio", "acknowledge_ms", "statements",
        "commits", "calls_per_turn",
    } <= found.keys()  # fmt: skip
    assert found["commits"] <= 12
    assert "inbox_ratio" in as_table(found)
