"""Known holes are asked for by a command of its own, and its answer is read strictly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shared.known_holes import LOCK, Hole, NotUnderstood, read_report, run_audit

ROOT = Path(__file__).resolve().parent.parent.parent
CLEAN: dict[str, Any] = {"dependencies": [{"name": "aiohttp", "version": "3.14.5", "vulns": []}], "fixes": []}
HOLED: dict[str, Any] = {
    "dependencies": [
        {
            "name": "aiohttp",
            "version": "3.13.3",
            "vulns": [
                {
                    "id": "GHSA-x",
                    "aliases": ["CVE-2026-22815"],
                    "fix_versions": ["3.13.4"],
                    "description": "…",
                },
                {"id": "PYSEC-1", "aliases": [], "fix_versions": []},
            ],
        },
        {"name": "redis", "version": "5.3.1", "vulns": []},
    ]
}


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which `pip-audit` is whatever the test puts there; nothing else is found."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(
        "shutil.which", lambda name: str(tmp_path / name) if (tmp_path / name).exists() else None
    )
    return tmp_path


def program(folder: Path, answer: str) -> None:
    (folder / "answer").write_text(answer)
    (folder / "pip-audit").write_text(
        f'#!/bin/sh\necho "$@" > {folder}/arguments\ncat {folder}/answer\nexit 1\n'
    )
    (folder / "pip-audit").chmod(0o755)


@pytest.mark.control("S43")
def test_a_known_hole_ends_with_1_and_says_what_mends_it(asked: Path) -> None:
    said: list[str] = []
    program(asked, json.dumps(HOLED))
    assert run_audit(ROOT, ["--strict"], say=said.append) == 1
    assert said == [
        "aiohttp 3.13.3: CVE-2026-22815 (mended in 3.13.4)",
        "aiohttp 3.13.3: PYSEC-1 (no version is without it yet)",
        "2 requirements, 2 known holes.",
    ]
    arguments = (asked / "arguments").read_text()
    assert f"--requirement {ROOT / LOCK} --require-hashes --disable-pip" in arguments
    assert arguments.endswith("--strict\n")
    program(asked, json.dumps(CLEAN))
    assert run_audit(ROOT, [], say=said.append) == 0


def test_where_nobody_can_be_asked_it_says_how_and_ends_with_2(asked: Path) -> None:
    said: list[str] = []
    assert run_audit(ROOT, [], say=said.append) == 2
    assert "pipx install pip-audit" in said[0]


@pytest.mark.control("S43")
@pytest.mark.parametrize(
    "text",
    ["", "no network", "[]", "{}", '{"dependencies": {}}', '{"dependencies": [{"name": "x"}]}',
     '{"dependencies": [{"name": "x", "skip_reason": "not on PyPI"}]}'],
)  # fmt: skip
def test_an_answer_that_is_no_report_is_never_taken_for_a_clean_one(text: str, asked: Path) -> None:
    said: list[str] = []
    program(asked, text)
    with pytest.raises(NotUnderstood):
        read_report(text)
    assert run_audit(ROOT, [], say=said.append) == 2
    assert "could not tell" in said[0]


@pytest.mark.control("S43")
def test_without_advisories_nothing_is_called_clean_and_the_reason_is_told(asked: Path) -> None:
    """What pip-audit 2 says where the index that it asks has none."""
    said: list[str] = []
    reason = "Dependency not found on PyPI and could not be audited: aiohttp (3.14.5)"
    left_out = [{"name": "aiohttp", "skip_reason": reason}]
    program(asked, json.dumps({"dependencies": left_out, "fixes": []}))
    assert run_audit(ROOT, [], say=said.append) == 2
    assert said == [f"pip-audit could not tell: aiohttp was left out ({reason}). Can pypi.org be reached?"]


def test_a_hole_is_told_by_the_number_that_everybody_uses() -> None:
    _, (hole, other) = read_report(json.dumps(HOLED))
    assert hole == Hole(package="aiohttp", version="3.13.3", number="CVE-2026-22815", mended=("3.13.4",))
    assert other.number == "PYSEC-1"
