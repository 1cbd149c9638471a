"""A view that comes back is measured as it will be sent: results as short as they are shown."""

from __future__ import annotations

from typing import Any

import pytest

from shared.core.context.build_context import LeftOut, left_out_counter
from shared.core.presets.catalog import preset
from shared.core.session.session_state import ChangeRefused, CompactionStored
from tests.kit.app_driver import Visit
from tests.kit.rival_compactors import rivals_of

TURNS, BIG = 12, 50_000
"""Each turn is made of a result of this many tokens, a person's words and an answer."""
SAID = "SELECT sum(tokens) FROM entries WHERE author <> 'tool'"


@pytest.fixture
def rows_by_hand() -> bool:
    return True


async def grown(guest: Visit, *, tokens: int = BIG) -> list[int]:
    """Turns with large results, hidden behind a digest; the seqs of the results, oldest first."""
    for number in range(TURNS):
        await guest.ask(f"Message {number}: read the report.")
    seqs = [
        await guest.one(_ADD_RESULT, guest.session_id, turn, tokens, _result(turn))
        for turn in range(1, TURNS + 1)
    ]
    await guest.app.pool.execute("UPDATE sessions SET token_ratio = 1.0")
    rivals = await rivals_of(guest)
    await rivals.try_once()
    assert rivals.told["committed"] == 1
    return seqs


_ADD_RESULT = """
WITH s AS (UPDATE sessions SET next_seq = next_seq + 1 WHERE id = $1 RETURNING next_seq - 1 AS seq
), e AS (INSERT INTO entries (session_id, seq, role, author, blocks, tokens)
         SELECT $1, seq, 'user', 'tool', $4, $3 FROM s
), te AS (INSERT INTO turn_entries (session_id, seq, turn_no, step) SELECT $1, seq, $2, 0 FROM s)
SELECT seq FROM s
"""


def _result(turn: int) -> list[dict[str, Any]]:
    return [
        {"type": "tool_result", "tool_use_id": f"call_{turn}", "text": "word " * 2_000, "is_error": False}
    ]


async def decide(guest: Visit, seq: int, form: str, *, turn: int = TURNS, shown: Any = None) -> None:
    await guest.app.pool.execute(
        "INSERT INTO prune_decisions (session_id, seq, form, turn_no, shown) VALUES ($1, $2, $3, $4, $5)",
        guest.session_id, seq, form, turn, shown,
    )  # fmt: skip


async def undone(guest: Visit, left_out: LeftOut | None = None, *, limit: int = 10**9) -> CompactionStored:
    done = await guest.app.stores.jobs.undo_compaction(
        guest.session_id, limit_tokens=limit, fixed_tokens=0, left_out=left_out
    )
    assert isinstance(done, CompactionStored), done
    return done


async def test_an_undo_whose_results_were_cleared_is_not_refused(guest: Visit) -> None:
    for seq in await grown(guest):
        await decide(guest, seq, "trim", turn=TURNS - 1)
        await decide(guest, seq, "clear")
    back = await undone(guest, limit=100_000)
    assert back.tokens_after == await guest.one(SAID) + 60 * TURNS
    assert await guest.one("SELECT context_tokens FROM sessions") == back.tokens_after
    again = await guest.app.stores.jobs.restore_compaction(guest.session_id, fixed_tokens=0)
    assert isinstance(again, CompactionStored)
    assert again.tokens_after < back.tokens_after


async def test_undo_that_would_not_fit_is_refused_with_whole_results(guest: Visit) -> None:
    await grown(guest)
    refused = await guest.app.stores.jobs.undo_compaction(
        guest.session_id, limit_tokens=100_000, fixed_tokens=0
    )
    assert isinstance(refused, ChangeRefused)
    assert refused.reason == "would_not_fit"


async def test_each_form_counts_as_short_as_it_is_shown(guest: Visit) -> None:
    trim, clear, repeat, hide, own, partly, pinned, *whole = await grown(guest)
    await decide(guest, trim, "trim")
    await decide(guest, clear, "clear")
    await decide(guest, repeat, "duplicate")
    await decide(guest, hide, "hide")
    await decide(guest, own, "trim", shown={"call_5": "word " * 200})
    await decide(guest, partly, "clear", shown={"call_6": None})
    await decide(guest, pinned, "hide")
    await guest.app.pool.execute("INSERT INTO pins VALUES ($1, $2)", guest.session_id, pinned)
    after = (await undone(guest)).tokens_after
    fixed = await guest.one(SAID) + 1_200 + 60 + 60 + 0 + BIG + BIG + BIG * len(whole)
    assert BIG * 0.09 < after - fixed < BIG * 0.11, "a tenth of the characters of one"


async def test_a_short_result_is_never_counted_longer_than_it_is(guest: Visit) -> None:
    for seq in await grown(guest, tokens=30):
        await decide(guest, seq, "clear" if seq % 2 else "trim")
    assert (await undone(guest)).tokens_after == await guest.one(SAID) + 30 * TURNS


async def test_window_subtracts_left_out_results_at_their_counted_size(guest: Visit) -> None:
    for seq in await grown(guest):
        await decide(guest, seq, "clear")
    left_out = left_out_counter(preset("chatbox"), channel="web", ratio=1.0)
    after = (await undone(guest, left_out)).tokens_after
    words = await guest.one(
        """SELECT sum(tokens) FROM turn_entries JOIN entries USING (session_id, seq)
            WHERE author <> 'tool' AND turn_no > $1""",
        TURNS - 3,
    )
    assert after == words + 2 * 60, "the window begins behind the first of three results"


async def test_a_window_that_does_not_hide_sends_what_another_policy_hid(guest: Visit) -> None:
    seqs = await grown(guest)
    await decide(guest, seqs[-1], "hide")
    left_out = left_out_counter(preset("chatbox"), channel="web", ratio=1.0)
    assert (await undone(guest, left_out)).tokens_after >= BIG
