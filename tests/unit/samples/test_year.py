"""The ready conversation: it is well formed, and the demo finds in it what a person would ask for."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.models.offline import OFFLINE_MODEL, OfflineModel
from shared.core.values.messages import Message, text_message, text_of
from tests.kit.model_makers import WordCounter, asking

YEAR = Path(__file__).parents[3] / "shared/samples/year.json"


def exchanges() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(YEAR.read_text("utf-8"))["exchanges"]
    return found


def test_it_tells_one_year_in_order_and_every_message_says_something() -> None:
    told = exchanges()
    days = [date.fromisoformat(one["date"]) for one in told]
    assert len(told) == 68
    assert days == sorted(set(days))
    assert {day.month for day in days} >= {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
    assert {day.year for day in days} == {2025}
    for one in told:
        assert one.keys() == {"date", "person", "assistant"}
        assert all(20 <= len(one[author]) <= 600 for author in ("person", "assistant"))
    answers = "\n".join(one["assistant"] for one in told)
    assert "```python" in answers
    assert "| flour |" in answers


def test_no_sentence_of_a_person_is_said_twice() -> None:
    persons = [one["person"] for one in exchanges()]
    assert len(set(persons)) == len(persons)


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("What is Saffron allergic to?", "fish"),
        ("Which number does my certificate have?", "WQ-2025-0417"),
        ("What is the booking code?", "KESTREL7"),
        ("What is my address?", "Natlandsveien 52"),
        ("How hot is the oven?", "225"),
        ("What is the name of the head of the laboratory?", "Ingrid Solheim"),
    ],
)
async def test_the_demo_finds_what_a_person_asks_at_the_end(question: str, told: str) -> None:
    model = OfflineModel(WordCounter(), window=200_000, piece_seconds=0)
    history: list[Message] = []
    for one in exchanges():
        history += [text_message("user", one["person"]), text_message("assistant", one["assistant"])]
    reply = await model.reply(asking(*history, text_message("user", question), model=OFFLINE_MODEL))
    assert told in text_of(reply.blocks)
