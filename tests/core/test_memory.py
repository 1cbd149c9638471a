"""Notes: the same thing is the same note, and secrets are told by their looks."""

from __future__ import annotations

import pytest

from shared.core.memory import core_block, near_duplicate, note_hash
from shared.core.secrets_filter import REDACTED, holds_secret, redact
from shared.core.session import Note
from tests.core.builders import words


def test_case_blanks_and_punctuation_do_not_make_another_note() -> None:
    assert note_hash("Anna  likes TEA.") == note_hash("anna likes tea")
    assert note_hash("Anna likes tea") != note_hash("Anna likes coffee")
    assert note_hash("👍") != note_hash("👎")


@pytest.mark.parametrize(
    ("a", "b", "alike"),
    [
        ("Anna likes green tea in the morning", "Anna likes green tea in the morning!", True),
        ("Anna likes green tea very much", "In the morning Anna drinks coffee", False),
        ("Anna has two cats and a dog called Rex", "Anna has three cats and a dog called Rex", False),
        ("Anna was born on 5 May in Rome, Italy", "Anna was born on 6 May in Rome, Italy", False),
        ("Anna does eat meat on most days of it", "Anna does not eat meat on most days of it", False),
        ("", "Anna", False),
    ],
)
def test_near_duplicates_share_nearly_all_words_and_every_number(a: str, b: str, alike: bool) -> None:
    assert near_duplicate(a, b) is alike
    assert near_duplicate(b, a) is alike


def test_the_core_block_does_not_depend_on_the_order_of_notes() -> None:
    notes = [Note(id=i, kind="fact", text=f"note {i}", importance=9 - i) for i in range(1, 6)]
    assert core_block(notes, words) == core_block(notes[::-1], words)
    assert core_block(notes, words, 8).splitlines() == ["- note 1", "- note 2"]
    assert core_block([], words) == ""


@pytest.mark.parametrize(
    "secret",
    [
        "sk-ant-abcdefghij0123456789",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "AKIAIOSFODNN7EXAMPLE",
        "123456789:AAabcdefghijklmnopqrstuvwxyz0123456",
        "eyJhbGciOiJI.eyJzdWIiOiIx.abcdefghijk",
        "password: hunter2!",
        "my password is hunter2!",
        "postgresql://joe:s3cret@db/x",
        "Authorization: Bearer abcdefghijklmnop1234",
        "4111 1111 1111 1111",
        "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----",
    ],
)
def test_secrets_are_told_by_their_looks(secret: str) -> None:
    assert holds_secret(f"well, {secret} it is")
    assert REDACTED in redact(secret)
    assert not holds_secret(redact(secret))


@pytest.mark.parametrize(
    "text",
    [
        "My number is +49 30 1234567 and I was born on 1984-03-05.",
        "The password is long.",
        "a token of my love",
        "order 1234 5678 9012 3456",
        "https://example.org/a:b@c",
        "2026-11-21 14:50:19",
    ],
)
def test_ordinary_words_and_numbers_are_left_alone(text: str) -> None:
    assert redact(text) == text
