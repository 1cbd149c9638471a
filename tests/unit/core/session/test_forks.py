"""Numbers, references and titles of a fork's copies."""

from __future__ import annotations

from typing import Any

import pytest

from shared.core.session.forks import (
    CopiedEntries,
    fork_title,
    renumber_files,
    renumber_ledger,
    renumber_mid,
)
from shared.core.session.ledger import Ledger, LedgerItem, Topic

WITH_GAPS = CopiedEntries.from_seqs([1, 2, 3, 5, 6, 9])


def test_copies_are_numbered_without_gaps_and_lead_back() -> None:
    copies = [WITH_GAPS.copy_of(seq) for seq in range(11)]
    assert copies == [None, 1, 2, 3, None, 4, 5, None, None, 6, None]
    assert [WITH_GAPS.original_of(copy) for copy in range(8)] == [None, 1, 2, 3, 5, 6, 9, None]
    assert [WITH_GAPS.last_copy_up_to(seq) for seq in (0, 3, 4, 5, 8, 20)] == [0, 3, 3, 4, 5, 6]


def test_copied_ranges_survive_storage() -> None:
    assert WITH_GAPS.to_json() == [[1, 3], [5, 6], [9, 9]]
    assert CopiedEntries.from_json(WITH_GAPS.to_json()) == WITH_GAPS
    assert CopiedEntries.from_seqs([]).original_of(1) is None


def test_ledger_of_a_fork_names_the_copies() -> None:
    ledger = Ledger(
        items=(LedgerItem(id="F1", kind="fact", text="The ferry leaves at nine.", sources=(2, 4, 5)),),
        topics=(Topic(label="Ferries", from_turn=1, through_turn=2, from_seq=2, through_seq=8),),
    )
    made = renumber_ledger(ledger, WITH_GAPS)
    assert made.items[0].sources == (2, 4)
    assert (made.topics[0].from_seq, made.topics[0].through_seq) == (2, 5)
    assert renumber_ledger(ledger, CopiedEntries.from_seqs(range(1, 20))) == ledger


def test_public_ids_and_files_follow_their_copies() -> None:
    assert [renumber_mid(mid, WITH_GAPS) for mid in ("m5", "m4", "n5", "")] == ["m4", None, None, None]
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "Look"}, {"type": "image", "attachment_id": 7, "mime": "image/png"},
    ]  # fmt: skip
    assert renumber_files(blocks, {7: 12})[1]["attachment_id"] == 12
    assert blocks[1]["attachment_id"] == 7


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Trip to Rome", "Trip to Rome (fork)"),
        ("Trip to Rome (fork)", "Trip to Rome (fork 2)"),
        ("Trip to Rome (fork 2)", "Trip to Rome (fork 3)"),
        ("A (forked) road", "A (forked) road (fork)"),
        ("The (forks)", "The (forks) (fork)"),
        ("", "(fork)"),
        ("x" * 60, "x" * 52 + "… (fork)"),
    ],
)
def test_fork_title_says_what_it_is_within_the_limit(title: str, expected: str) -> None:
    assert fork_title(title, "fork") == expected
    assert len(fork_title(title, "Abzweigung")) <= 60
