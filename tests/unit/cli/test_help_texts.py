"""`./evertalk VERB --help`: every verb explains itself, in plain words."""

from __future__ import annotations

import re

import pytest

from shared.__main__ import NEEDS_CHECKOUT, VERB_NAMES, main

VAGUE = re.compile(r"\b(somebody|nobody|whoever|anybody|whom|which of|so many|as much)\b", re.IGNORECASE)
UNEXPLAINED = re.compile(r"^  -\S+(?: \S+)*\n(?! {6})", re.MULTILINE)
"""Option without help on its line or on an indented line after it."""


def read_help(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    try:
        code: object = main([*arguments, "--help"])
    except SystemExit as end:
        code = end.code
    output = capsys.readouterr()
    assert (code or 0, output.err) == (0, "")
    return output.out


@pytest.mark.parametrize("verb", VERB_NAMES)
def test_help_of_every_verb_is_printed_in_plain_words(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = read_help(capsys, verb)
    assert text.lower().startswith("usage:")
    assert VAGUE.findall(text) == []


def test_list_of_verbs_is_printed_in_plain_words(capsys: pytest.CaptureFixture[str]) -> None:
    text = read_help(capsys)
    assert all(f"\n    {verb}" in text for verb in VERB_NAMES)
    assert VAGUE.findall(text) == []


@pytest.mark.parametrize("verb", [verb for verb in VERB_NAMES if verb not in NEEDS_CHECKOUT])
def test_every_option_has_a_line_of_help(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    _, _, options = read_help(capsys, verb).partition("\noptions:\n")
    assert UNEXPLAINED.findall(options) == []
