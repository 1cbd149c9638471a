"""In which order the files of a whole run are given to its workers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

FOLDERS = ("acceptance", "browser", "faults", "others", "unit")
WITH_ONE_CHROMIUM = ("browser", "widget")
"""Share one as long as no other file comes between them."""
QUICK_AT_THE_END = 4
"""Every fourth file of unit tests."""


def in_order_of_weight(files: Iterable[Path], tests: Path) -> list[Path]:
    """Files that wait for other processes stand among those that compute, and some quick ones at the end.

    So no core rests while all workers wait for an outage, nor while one of them has a long file left.
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
