"""What a conversation is called: the first words of its first question, cut at a word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.session.turns import TITLE_CHARS, title_of


@pytest.mark.parametrize(
    ("question", "title"),
    [
        ("", ""),
        ("  Where is\n my parcel? ", "Where is my parcel?"),
        ("a" * 60, "a" * 60),
        ("a" * 61, "a" * 59 + "…"),
        ("Which of the many towns by the great lakes would you go to, in June?",
         "Which of the many towns by the great lakes would you go to…"),
    ],
)  # fmt: skip
def test_a_title_is_the_beginning_of_the_first_question(question: str, title: str) -> None:
    assert title_of(question) == title


@given(st.text())
def test_no_title_is_longer_than_it_may_be_or_has_lines(question: str) -> None:
    title = title_of(question)
    assert len(title) <= TITLE_CHARS
    assert title == " ".join(title.split())
    assert question.split()[:1] == [] or title
