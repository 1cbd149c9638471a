"""What is taken from an answer that describes a picture, and when it is asked for by a schema."""

from __future__ import annotations

import pytest

from shared.services.turns.pictures import DESCRIPTION_CHARS, read_description


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ('{"description": "A red\\n cat."}', "A red cat."),
        ('```json\n{"description": "A red cat."}\n```', "A red cat."),
        ('{"description": "A red cat that si', "A red cat that si"),
        (r'{"description": "A sign \"Zum L\u00f6wen\" an', 'A sign "Zum Löwen" an'),
        (r'{"description": "A sign of L\u00f6we\u00', "A sign of Löwe"),
        ("A red  cat.", "A red cat."),
        ('A sign that says {"open": 1}', 'A sign that says {"open": 1}'),
        ('{"description": ["x"]}', '{"description": ["x"]}'),
        ('{"description": ""}', ""),
        ("", ""),
    ],
)
def test_a_description_is_read_with_or_without_json(answer: str, said: str) -> None:
    assert read_description(answer) == said


def test_a_description_has_a_most() -> None:
    assert len(read_description('{"description": "' + "cat " * 500)) == DESCRIPTION_CHARS
