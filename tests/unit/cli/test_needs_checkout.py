"""Verbs whose code is in `tests` say so where that folder is missing, as in a container image."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared import __main__ as command_line


@pytest.mark.parametrize("verb", command_line.NEEDS_CHECKOUT)
def test_a_verb_without_its_code_says_where_to_get_it(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_line, "ROOT", tmp_path)
    assert command_line.main([verb]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert f"`{verb}` needs the folder tests/" in told.err
    assert "Clone the repository" in told.err
