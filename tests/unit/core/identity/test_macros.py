"""Macros as values: which are sensible, and how their variables are filled in."""

from __future__ import annotations

import pytest

from shared.core.identity.macros import BadMacro, UnfilledVariable, check_macro, fill_variables


def test_macro_variables_are_filled_in_with_blanks_around_them() -> None:
    values = {"name": "Ada {{site}}", "operator": "Ben", "site": ""}
    assert fill_variables("Dear {{ name }}, {{operator}}.", values) == "Dear Ada {{site}}, Ben."


@pytest.mark.parametrize("text", ["{{name}}", "Hi {{ unknown }}", "{{}}", "{{site}}"])
def test_macro_variable_without_value_is_refused(text: str) -> None:
    with pytest.raises(UnfilledVariable):
        fill_variables(text, {"name": "", "operator": "Ben"})


def test_single_braces_of_a_reply_stay_as_written() -> None:
    assert fill_variables("{a} { {b} }", {}) == "{a} { {b} }"


@pytest.mark.parametrize(("assignee", "resolve"), [("", True), ("*", True), ("ben", False), ("*", False)])
def test_macro_with_an_action_is_accepted(assignee: str, resolve: bool) -> None:
    check_macro(labels=(), assignee=assignee, reply="", resolve=resolve)


@pytest.mark.parametrize(("assignee", "resolve"), [("", False), ("ben", True)])
def test_macro_without_sensible_action_is_refused(assignee: str, resolve: bool) -> None:
    with pytest.raises(BadMacro):
        check_macro(labels=(), assignee=assignee, reply="", resolve=resolve)
