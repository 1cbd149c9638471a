"""Money as people meet it: what is left, a word of warning once, and a kind stop."""

from __future__ import annotations

from typing import Any

import pytest

from shared.core.session.turns import Stored
from tests.acceptance.long_talks import WINDOW
from tests.kit.app_driver import Visit
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.midday import MIDDAY, TODAY

LONG_NOTE = {"name": "save_memory", "input": {"kind": "fact", "text": "The dog is called Bertil. " * 30}}
SPENT = "SELECT coalesce(sum(spent_micro), 0)::bigint FROM spend_days WHERE scope = 'total'"


@pytest.fixture
def app_options() -> dict[str, Any]:
    return {"context_window": WINDOW, "max_output": 1_000, "cap_person_per_day_usd": "2"}


async def budget(guest: Visit, **more: Any) -> str:
    said = await guest.app.commands.run(
        session_id=guest.session_id, address_id=guest.address_id, name="budget", **more
    )
    return said.result


async def set_aside(guest: Visit, scope: str, micro: int) -> None:
    """As if somebody else had spent it today; the reservation keeps the books in order."""
    await guest.app.pool.execute(
        f"""WITH r AS (INSERT INTO reservations (session_id, contact_id, day, amount_micro, settled_micro,
                                                state, scopes, ended_at)
                      SELECT id, contact_id, {TODAY}, $3, $3, 'settled',
                             ARRAY[$2], now() FROM sessions WHERE id = $1 RETURNING day)
           INSERT INTO spend_days AS d (scope, day, spent_micro) SELECT $2, day, $3 FROM r
           ON CONFLICT (scope, day) DO UPDATE SET spent_micro = d.spent_micro + excluded.spent_micro""",
        guest.session_id, scope, micro,
    )  # fmt: skip


async def contact(guest: Visit) -> str:
    return f"contact:{await guest.one('SELECT contact_id FROM sessions WHERE id = $1', guest.session_id)}"


async def test_budget_command_shows_rest_and_reset_time(guest: Visit) -> None:
    await guest.ask("Hello")
    await set_aside(guest, await contact(guest), 1_700_000)
    told = await budget(guest)
    assert "- You: $1.70 of $2.00 (85 %) ⚠️" in told
    assert "of $100.00 (0 %)" in told
    assert f"Resets at 00:00 ({MIDDAY})" in told
    assert "This conversation today: < $0.01" in told
    assert "unknown" not in told
    assert "Sie: 1,70 $ von 2,00 $ (85 %)" in await budget(guest, language="de")


async def test_calls_of_unknown_price_are_shown_as_such(guest: Visit) -> None:
    await guest.ask("Hello")
    cost = await guest.one("SELECT cost_micro FROM usage")
    await guest.app.pool.execute("UPDATE usage SET cost_micro = NULL")
    told = await budget(guest)
    await guest.app.pool.execute("UPDATE usage SET cost_micro = $1", cost)
    assert "and 1 call of unknown price" in told


@pytest.mark.control("S28")
async def test_a_warning_comes_once_with_the_answer_and_is_no_answer(guest: Visit) -> None:
    await set_aside(guest, await contact(guest), 1_700_000)
    for words in ("Hello", "And now?", "And then?"):
        await guest.ask(words)
    stored = [event.payload for event in guest.heard if isinstance(event, Stored)]
    warnings = [payload for payload in stored if payload.get("error") == "budget_warning"]
    assert len(warnings) == 1
    assert "/budget" in warnings[0]["text"]
    assert await guest.one("SELECT count(*) FROM turns WHERE state = 'answered'") == 3


@pytest.mark.control("S28")
async def test_reached_cap_names_reset_time_and_commands_still_work(guest: Visit) -> None:
    await set_aside(guest, await contact(guest), 2_000_000)
    words = await guest.ask("Hello")
    assert f"after midnight ({MIDDAY})" in words
    assert await guest.one("SELECT error_code FROM turns") == "cap_reached"
    assert await guest.one("SELECT refused_scope FROM turns") == "contact"
    assert "(100 %) ⛔" in await budget(guest)
    assert await guest.one("SELECT count(*) FROM usage") == 0


@pytest.mark.control("S28", "S29")
async def test_the_rounds_of_one_turn_stay_under_the_lid_together(
    guest: Visit, provider: RunningFake
) -> None:
    """Each round alone would have room; the refusal comes before the lid, not after it."""
    await guest.ask("Hello")
    lid = 20_000
    await guest.app.pool.execute(
        """UPDATE agents
              SET config = jsonb_build_object('caps', jsonb_build_object('session_usd', $1::float8))""",
        lid / 1e6,
    )
    await provider.script([{"match": {"kind": "chat"}, "times": -1, "action": {"tool_use": [LONG_NOTE]}}])
    words = await guest.ask("Go on.")
    assert "The spending limit of this conversation for today is reached" in words
    assert await guest.one("SELECT refused_scope FROM turns WHERE turn_no = 2") == "session"
    assert await guest.one("SELECT refused_scope FROM turns WHERE turn_no = 1") is None
    spent = await guest.one("SELECT sum(cost_micro)::bigint FROM usage WHERE turn_no = 2")
    assert 0 < spent <= lid
    assert await guest.one(SPENT) == await guest.one("SELECT sum(cost_micro)::bigint FROM usage")
