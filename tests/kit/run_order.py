"""The order in which the test files of a whole run are given to its workers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

FOLDERS = ("acceptance", "browser", "faults", "others", "unit")
WITH_ONE_CHROMIUM = ("browser", "widget")
"""Folder whose files share one Chromium if no other file is run between them."""
QUICK_AT_THE_END = 4
"""Interval of unit test files that are kept for the end of a run: every fourth."""


def in_order_of_weight(files: Iterable[Path], tests: Path) -> list[Path]:
    """Return the files in the order of a run: slow waiting ones mixed with computing ones, some quick ones
    last.

    Thus no core is idle while all workers wait for an outage, or while one of them runs a long file.
    """
    kinds: dict[str, list[Path]] = {folder: [] for folder in FOLDERS}
    first: list[Path] = []
    for path in files:
        folder, *inside = path.relative_to(tests).parts
        together = (folder, *inside[:1]) == WITH_ONE_CHROMIUM
        (first if together else kinds[folder if folder in FOLDERS else "others"]).append(path)
    last = kinds["unit"][::QUICK_AT_THE_END]
    kinds["unit"] = [path for path in kinds["unit"] if path not in last]
    places = [
        ((number + 0.5) / len(of_kind), path)
        for of_kind in kinds.values()
        for number, path in enumerate(of_kind)
    ]
    return [*first, *(path for _, path in sorted(places)), *last]
