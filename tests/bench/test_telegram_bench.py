"""The bench of Telegram runs and says what it must; how fast anything is, is nobody's test."""

from __future__ import annotations

import pytest

from tests.bench import telegram_replies, telegram_turn
from tests.bench.telegram import as_table, measure


async def test_the_bench_counts_what_a_telegram_turn_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the pauses that keep chats away from their limits: nobody looks at the numbers here."""
    monkeypatch.setattr(telegram_replies, "REST_SECONDS", 0.1)
    monkeypatch.setattr(telegram_turn, "PACE_SECONDS", 0.5)
    found = await measure(rounds=2, blocks=1, turns=2, reply_rounds=1, with_processes=True)
    assert {
        "inbox_ratio", "inbox_updates_per_second", "acknowledge_ratio", "acknowledge_ms", "statements",
        "commits", "calls_per_turn", "reply_ratio_1", "reply_ratio_10", "reply_ratio_10_to_1",
        "reply_p50_ms_1", "reply_p50_ms_10", "cpu_ms_per_turn", "edits_per_streamed_answer",
        "rss_bot_mib", "rss_bot_after_answer_mib",
    } <= found.keys()  # fmt: skip
    assert found["commits"] <= 12
    assert found["edits_per_streamed_answer"] >= 1
    assert found["messages_per_streamed_answer"] == 1
    assert "inbox_ratio" in as_table(found)
