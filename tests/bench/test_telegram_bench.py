"""The bench of Telegram runs and says what it must; how fast anything is, is nobody's test."""

from __future__ import annotations

import pytest

from tests.bench import telegram_turn
from tests.bench.telegram import as_table, measure


async def test_the_bench_counts_what_a_telegram_turn_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the pauses that keep chats away from their limits, and without the part that needs processes
    of its own for a minute: nobody looks at the numbers here."""
    monkeypatch.setattr(telegram_turn, "PACE_SECONDS", 1.5)
    found = await measure(rounds=2, blocks=1, turns=4, reply_rounds=1, with_processes=False)
    assert {
        "inbox_ratio", "inbox_updates_per_second", "acknowledge_ratio", "acknowledge_ms", "statements",
        "commits", "calls_per_turn",
    } <= found.keys()  # fmt: skip
    assert round(found["commits"]) <= 6
    assert round(found["statements"]) <= 13
    calls = found["calls_per_turn"]
    assert (calls["sendMessage"], calls.get("editMessageText", 0.0)) == (1.0, 0.0)
    assert "inbox_ratio" in as_table(found)
