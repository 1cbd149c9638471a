"""Every line of every document has its place, and every line that asks for something has its test."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tests.seeds
from tests.seeds.lines import DOCUMENTS, numbers

by_document = pytest.mark.parametrize("number", sorted(DOCUMENTS))


def shown_for(number: str) -> dict[str, Callable[..., Any]]:
    names = [module.name for module in pkgutil.iter_modules(tests.seeds.__path__)]
    modules = [importlib.import_module(f"tests.seeds.{name}") for name in names if f"test_{number}_" in name]
    return {
        name: made
        for module in modules
        for name, made in inspect.getmembers(module, inspect.isfunction)
        if name.startswith("test_")
    }


def marks_of(made: Callable[..., Any]) -> Iterator[tuple[Any, ...]]:
    """What its mark says: the number of a document, and lines."""
    for mark in getattr(made, "pytestmark", ()):
        if mark.name == "seed":
            yield mark.args


@by_document
def test_every_line_asks_for_something_or_has_one_reason_why_not(number: str) -> None:
    document = DOCUMENTS[number]
    placed = Counter(line for text in (document.asks, *document.rest.values()) for line in numbers(text))
    assert {line: times for line, times in placed.items() if times > 1} == {}
    assert sorted(placed) == list(range(1, document.lines + 1))
    assert all(document.rest), "a reason has words"


@by_document
def test_every_line_that_asks_for_something_has_a_test(number: str) -> None:
    shown = {line for made in shown_for(number).values() for _, *lines in marks_of(made) for line in lines}
    assert set(numbers(DOCUMENTS[number].asks)) - shown == set()
    assert shown - set(numbers(DOCUMENTS[number].asks)) == set(), "nothing is asked there"


@by_document
def test_every_test_names_lines_of_its_own_document(number: str) -> None:
    found = shown_for(number)
    assert found
    for name, made in found.items():
        named = list(marks_of(made))
        assert named, name
        assert all(document == number and lines for document, *lines in named), name


def test_numbers_and_ranges_are_read() -> None:
    assert list(numbers("2-4 7")) == [2, 3, 4, 7]
