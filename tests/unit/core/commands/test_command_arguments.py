"""Arguments by name become the words that a person would type, or a sentence that says what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from shared.core.commands.arguments import Argument, BadArguments, read_value, render_arguments
from shared.core.commands.commands import COMMANDS, command_named, compact_arguments


def words(command: str, **given: Any) -> str:
    found = command_named(command)
    assert found is not None
    return found.words(given)


def test_compact_takes_what_the_design_says() -> None:
    typed = words("compact", force=True, focus="the budget of May")
    assert compact_arguments(typed).force
    assert compact_arguments(typed).focus == "the budget of May"
    assert words("compact", force=False, focus=None) == ""


@pytest.mark.parametrize(
    ("command", "given", "typed"),
    [
        ("pin", {"message": "m12"}, "m12"),
        ("reminders", {"cancel": 3}, "cancel 3"),
        ("unlink", {"number": 2}, "2"),
        ("export", {"format": "json"}, "json"),
        ("remember", {"text": "I have a dog."}, "I have a dog."),
        ("compact", {"args": "the dog --force"}, "the dog --force"),
        ("compact", {"at": "24k"}, "at 24k"),
        ("undo", {}, ""),
        ("undo", {"args": " "}, " "),
    ],
)
def test_values_become_words(command: str, given: dict[str, Any], typed: str) -> None:
    assert words(command, **given) == typed


@pytest.mark.parametrize(
    ("command", "given", "said"),
    [
        ("compact", {"focsu": "x"}, "knows no `focsu`: it takes `at`, `automatic`, `focus`, `force`"),
        ("compact", {"force": 1}, "true or false"),
        ("compact", {"focus": "x — force me"}, "begins with `--`"),
        ("compact", {"focus": "x", "args": "y"}, "not both"),
        ("undo", {"x": 1}, "takes no arguments"),
        ("undo", {"args": "x"}, "takes no arguments"),
        ("remember", {}, "needs `text`"),
        ("reminders", {"cancel": True}, "whole number"),
        ("reminders", {"cancel": 0}, "whole number"),
        ("export", {"format": "pdf"}, "one of `json`"),
        ("mode", {"name": "x" * 81}, "80 is the most"),
    ],
)
def test_what_cannot_be_used_is_said(command: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(BadArguments) as caught:
        words(command, **given)
    assert said in caught.value.advice


def test_every_command_that_takes_words_has_named_arguments_and_no_other_has() -> None:
    for command in COMMANDS:
        assert bool(command.args) == bool(command.arguments), command.name
        assert len({argument.name for argument in command.arguments}) == len(command.arguments)
        assert not {argument.name for argument in command.arguments} & {"session_id", "cid", "args"}
        assert all(command.describe_argument(argument) for argument in command.arguments)


def test_a_nameless_argument_is_text() -> None:
    assert render_arguments("x", (Argument(name="text"),), {"text": "hello"}) == "hello"


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("flag", "true", True), ("flag", "", True), ("flag", "false", False), ("flag", "TRUE", True),
        ("flag", "False", False), ("number", "7", 7),
    ],
)  # fmt: skip
def test_a_shells_words_are_read_by_type(kind: Any, text: str, value: object) -> None:
    assert read_value(Argument(name="x", kind=kind), text) == value


@pytest.mark.parametrize(("kind", "text"), [("flag", "maybe"), ("number", "seven"), ("number", "")])
def test_a_shells_words_of_the_wrong_type_are_refused(kind: Any, text: str) -> None:
    with pytest.raises(BadArguments):
        read_value(Argument(name="x", kind=kind), text)


@pytest.mark.parametrize(
    ("typed", "limit"),
    [
        ("at 24000", 24_000),
        ("AT 24,000", 24_000),
        ("at 24.000", 24_000),
        ("at 24'000", 24_000),
        ("at 24k", 24_000),
        ("at MAX", "max"),
        ("at default", "default"),
        ("at home", None),
        ("at 24k --force", None),
        ("at", None),
        ("24000", None),
        ("at ٣٤", None),
        ("at 1234567890", None),
    ],
)
def test_compact_takes_a_limit_and_leaves_other_words_to_the_focus(typed: str, limit: object) -> None:
    wish = compact_arguments(typed)
    assert wish.limit == limit
    assert (wish.focus is None) == (limit is not None)
