"""Migrations of a numbered version stay as they are, and no schema that a version left is forgotten."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.postgres.db.readiness import (
    FLOOR,
    RELEASED,
    VERSIONS,
    Release,
    Standing,
    build_schema_state,
    find_newest_revision,
    find_stop,
    find_version,
    list_revisions,
    load_releases,
)
from shared.runtime import read_version
from tests.kit.released_migrations import compute_digests, find_changes, freeze

RELEASES = (
    Release(version="0.1.0", floor="0044", newest="0060"),
    Release(version="0.2.0", floor="0001", newest="0066"),
    Release(version="0.3.0", floor="0001", newest="0070"),
    Release(version="0.9.0", floor="0066", newest="0099"),
)


@pytest.fixture
def released() -> dict[str, Any]:
    frozen: dict[str, Any] = json.loads(RELEASED.read_text())
    return frozen


def test_migrations_of_numbered_versions_are_unchanged(released: dict[str, Any]) -> None:
    """After a release, a mistake is mended by a new migration, and nothing is squashed."""
    assert find_changes(released, compute_digests()) == []


def test_changed_and_missing_migrations_are_found(released: dict[str, Any], tmp_path: Path) -> None:
    copied = tmp_path / "migrations"
    shutil.copytree(VERSIONS.parent, copied)
    (copied / "former" / "0036_shown_people.py").unlink()
    (copied / "versions" / "0044_first.sql").write_text("SELECT 1")
    (copied / "versions" / "0998_later.py").write_text("")
    assert find_changes(released, compute_digests(copied)) == [
        "former/0036_shown_people.py of 0.1.0 is missing",
        "versions/0044_first.sql of 0.1.0 was changed",
    ]


def test_freeze_adds_new_migrations_and_keeps_earlier_versions(released: dict[str, Any]) -> None:
    first = {"0.1.0": released["0.1.0"]}
    digests = {**compute_digests(), "versions/0998_later.py": "ab"}
    frozen = freeze(first, version="0.2.0", newest="0998", digests=digests)
    assert frozen["0.1.0"] == first["0.1.0"]
    assert frozen["0.2.0"]["digests"]["versions/0998_later.py"] == "ab"
    assert not frozen["0.2.0"]["digests"].keys() & first["0.1.0"]["digests"].keys()
    again = freeze(frozen, version="0.2.0", newest="0999", digests={**digests, "versions/0999_last.py": "cd"})
    assert again["0.2.0"]["digests"].keys() - frozen["0.2.0"]["digests"].keys() == {"versions/0999_last.py"}


def test_floor_and_newest_of_each_release_are_upgraded() -> None:
    assert load_releases()[0].version == "0.1.0"
    assert {one.newest for one in load_releases()} <= list_revisions()
    assert min(list_revisions()) == FLOOR


@pytest.mark.parametrize(
    ("found", "standing"),
    [
        (None, Standing.EMPTY),
        (find_newest_revision(), Standing.SAME),
        ("0036", Standing.OLDER),
        ("0060", Standing.OLDER),
        ("9999", Standing.NEWER),
        ("0010", Standing.UNKNOWN),
        ("0044_of_others", Standing.UNKNOWN),
        ("0000", Standing.BELOW_FLOOR),
    ],
)
def test_standing_of_a_schema(found: str | None, standing: Standing) -> None:
    assert build_schema_state(found).standing is standing


def test_schema_names_the_version_that_made_it() -> None:
    assert (find_version("0036"), find_version("0060"), find_version("9999")) == ("0.1.0", "0.1.0", None)
    newer = build_schema_state("9999", made_by="7.1.0").describe()
    ours = f"this version ({read_version()}), whose schema is {find_newest_revision()}"
    assert newer == f"schema is at 9999 of Evertalk 7.1.0, newer than {ours}"
    assert build_schema_state("0036", made_by="7.1.0").made_by == "0.1.0", "a backup made before an upgrade"


@pytest.mark.parametrize(
    ("found", "floor", "stop"),
    [
        ("0036", "0061", "0.3.0"),
        ("0050", "0060", "0.3.0"),
        ("0036", "0070", "0.3.0"),
        ("0036", "0080", None),
        ("0066", "0080", "0.9.0"),
    ],
)
def test_stop_is_the_newest_version_that_leads_over_the_floor(
    found: str, floor: str, stop: str | None
) -> None:
    assert find_stop(found, floor=floor, releases=RELEASES) == stop
