"""What of an answer is read aloud."""

from __future__ import annotations

import pytest

from shared.core.values.speech import MOST_SPOKEN_CHARS, speech_micro, spoken_text


@pytest.mark.parametrize(
    ("answer", "spoken"),
    [
        ("Plain words.", "Plain words."),
        (
            "# Title\n\n**Bold** and *fine* and `code` and ~~gone~~.",
            "Title\nBold and fine and code and gone.",
        ),
        ("- one\n- two\n\n> said", "one\ntwo\nsaid"),
        ("See [the docs](https://example.org/a/b).", "See the docs."),
        ("Go to https://example.org/a?b=c now", "Go to example.org now"),
        ("![a cat](cat.png)", "a cat"),
        ("snake_case_name and 2 * 3 * 4", "snake_case_name and 2 * 3 * 4"),
        ("Hi 👋 there", "Hi there"),
        ("Look:\n\n```py\nprint(1)\n```\n\nDone.", "Look:\nDone.\n[code]"),
        ("Look:\n```\nnever closed", "Look:\n[code]"),
        ("It is:\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nDone.", "It is:\nDone.\n[table]"),
        ("```\nonly code\n```", ""),
        ("---\n", ""),
    ],
)
def test_marks_go_and_what_cannot_be_read_is_named(answer: str, spoken: str) -> None:
    assert spoken_text(answer, lambda what: f"[{what}]") == spoken


def test_a_long_answer_ends_with_a_sentence() -> None:
    words = spoken_text("One sentence here. " * 200, lambda what: f"[{what}]")
    assert words.endswith("here.\n[rest]")
    assert MOST_SPOKEN_CHARS - 30 < len(words) <= MOST_SPOKEN_CHARS + 10
    assert len(spoken_text("a" * 5_000, lambda what: "")) == MOST_SPOKEN_CHARS + 1


def test_a_hostile_answer_is_read_in_no_time() -> None:
    for piece in ("`" * 3 + "\n", "|", "**", "[", "- ", "_ ", "$$", "<", "https://"):
        assert isinstance(spoken_text(piece * 20_000, lambda what: ""), str)


def test_speech_price_is_rounded_up_or_unknown() -> None:
    assert speech_micro("abc", 15_000) == 45
    assert speech_micro("abc", 1) == 1
    assert speech_micro("abc", None) is None
