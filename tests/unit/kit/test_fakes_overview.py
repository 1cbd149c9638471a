"""The overview of the fakes names each of them."""

from __future__ import annotations

import re
from pathlib import Path

FAKES = Path(__file__).resolve().parents[2] / "kit" / "fakes"


def test_fakes_readme_names_every_fake_and_nothing_else() -> None:
    text = (FAKES / "README.md").read_text(encoding="utf-8")
    named = {name.removesuffix(".py") for name in re.findall(r"`([a-z_]+(?:\.py)?)`", text)}
    packages = {path.parent.name for path in FAKES.glob("*/__init__.py")}
    modules = {path.stem for path in FAKES.glob("*.py")} - {"__init__"}
    assert packages | modules == named - {"server"}


def test_files_that_test_a_fake_exist() -> None:
    text = (FAKES / "README.md").read_text(encoding="utf-8")
    places = re.findall(r"`(tests/[\w/.]+)`", text)
    assert places
    assert [place for place in places if not (FAKES.parents[2] / place).exists()] == []
