"""Counts of tokens that nothing could have."""

from __future__ import annotations

import pytest

from tests.kit.app_driver import Visit, visit
from tests.kit.fakes.messages_api.harness import RunningFake


@pytest.mark.parametrize("counted", [10**7, 10**18, 10**30], ids=["dear", "huge", "beyond"])
async def test_a_count_that_nothing_could_have_does_not_spend_the_days_money(
    guest: Visit, provider: RunningFake, counted: int
) -> None:
    await provider.script(
        [{"match": {"kind": "chat"}, "times": 1, "action": {"counted": {"input_tokens": counted}}}]
    )
    await guest.ask("What is blue?")
    row = await guest.app.pool.fetchrow("SELECT * FROM usage")
    assert row is not None
    assert not row["known"]
    assert 1_000 < row["input_tokens"] < 20_000
    assert 0 < row["cost_micro"] < 100_000
    assert await guest.one("SELECT token_ratio FROM sessions") < 3
    other = await visit(guest.app)
    await other.ask("What is green?")
    assert await other.one("SELECT state FROM turns WHERE session_id = $1", other.session_id) == "answered"


@pytest.mark.parametrize("counted", [-5, 2.5, "many", None, True, {}], ids=str)
async def test_a_count_that_is_none_is_passed_over(
    guest: Visit, provider: RunningFake, counted: object
) -> None:
    action = {"counted": {"input_tokens": counted, "output_tokens": counted}}
    await provider.script([{"match": {"kind": "chat"}, "times": 1, "action": action}])
    await guest.ask("What is blue?")
    assert await guest.one("SELECT state FROM turns") == "answered"
    assert await guest.one("SELECT min(least(input_tokens, output_tokens, cost_micro)) FROM usage") >= 0
