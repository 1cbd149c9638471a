"""The bench of pruning itself: its sessions are of public size, and no cut of them is an invalid request."""

from __future__ import annotations

import pytest

from tests.bench.pruning.play import WAYS, play
from tests.bench.pruning.sessions import KINDS, Kind, make


@pytest.mark.parametrize(("kind", "calls", "tokens"), [("coder", 469, 370_000), ("researcher", 438, 130_000)])
def test_a_session_has_the_size_of_a_public_one(kind: Kind, calls: int, tokens: int) -> None:
    session = make(kind, 0)
    assert sum(entry.author == "assistant" for entry in session.entries) == calls
    assert sum(entry.tokens for entry in session.entries) == pytest.approx(tokens, rel=0.15)
    assert session == make(kind, 0)


@pytest.mark.night
@pytest.mark.parametrize("kind", KINDS)
def test_steady_pruning_costs_less_than_by_age_and_stays_valid(kind: Kind) -> None:
    session = make(kind, 4)
    mine, turns = play(session, WAYS["steady"]), play(session, WAYS["by turns"])
    assert mine.cost_tokens <= 0.85 * turns.cost_tokens
    assert (mine.invalid, mine.batches > 5) == (0, True)
