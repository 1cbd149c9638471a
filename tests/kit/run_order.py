"""In which order the files of a whole run are given to its workers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

FOLDERS = ("browser", "faults", "others", "unit")
QUICK_AT_THE_END = 4
"""Every fourth file of unit tests."""


def in_order_of_weight(files: Iterable[Path], tests: Path) -> list[Path]:
    """Files that wait for other processes stand among those that compute, and some quick ones at the end.

    So no core rests while all workers wait for an outage, nor while one of them has a long file left.
    Browser tests stay together: they share a Chromium per folder.
    """
    kinds: dict[str, list[Path]] = {folder: [] for folder in FOLDERS}
    for path in files:
        folder = path.relative_to(tests).parts[0]
        kinds[folder if folder in FOLDERS else "others"].append(path)
    last = kinds["unit"][::QUICK_AT_THE_END]
    kinds["unit"] = [path for path in kinds["unit"] if path not in last]
    places = [
        ((number + 0.5) / len(kinds[kind]), path)
        for kind in ("faults", "others", "unit")
        for number, path in enumerate(kinds[kind])
    ]
    return [*kinds["browser"], *(path for _, path in sorted(places)), *last]
