"""Whatever a prompt tells about itself, nobody learns a secret from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
WRITERS = ("shared/core", "shared/services")


@pytest.mark.control("S27", "S37")
def test_prompt_code_cannot_reach_settings_or_environment() -> None:
    """Only `reads` of settings would bring a secret there: the floors of prompts have none."""
    reading = re.compile(r"os\.environ|getenv|get_secret_value|from shared\.settings|import shared\.settings")
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for folder in WRITERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (match := reading.search(path.read_text(encoding="utf-8")))
    ]
    assert found == []
