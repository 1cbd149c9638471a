"""What backup and restore tell the operator."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shared.cli.backup import format_counts
from shared.cli.restore import describe_aside


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({"conversations": 1, "messages": 1, "people": 1}, "1 conversation, 1 message, 1 person"),
        ({"conversations": 0, "messages": 1200, "people": 2}, "0 conversations, 1,200 messages, 2 people"),
    ],
)
def test_counts_of_one_are_singular(counts: dict[str, int], text: str) -> None:
    assert format_counts(cast("Any", SimpleNamespace(counts=counts))) == text


def test_restore_names_what_the_backup_lacks(tmp_path: Path) -> None:
    aside = tmp_path / f"before-restore-{datetime.now(UTC):%Y}"
    for place in ("servers/pg", "workspaces"):
        (aside / place).mkdir(parents=True)
        (tmp_path / place).mkdir(parents=True)
    (aside / "mcp.json").write_text("{}")
    text = describe_aside(aside, tmp_path)
    assert f"{aside}: the database, workspaces, mcp.json." in text
    assert "The backup has no mcp.json: copy what you need from there." in text
    (tmp_path / "mcp.json").write_text("{}")
    assert "The backup has no" not in describe_aside(aside, tmp_path)
