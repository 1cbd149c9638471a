"""`./evertalk test --changed`: finds the test files that a change touches."""

from __future__ import annotations

import fnmatch
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.kit.suite.imports import Graph

EVERYTHING = ("pyproject.toml", "requirements*.lock", "package-lock.json", "tests/conftest.py")
"""Files that all tests depend on."""


class NoChange(Exception):
    """There is nothing to compare with, or nothing has changed; only in the latter case is `is_good` True."""

    def __init__(self, message: str, *, is_good: bool = False) -> None:
        super().__init__(message)
        self.is_good = is_good


def find_changed_files(root: Path, base: str | None = None) -> list[Path]:
    """Return the files that differ from where this branch left `base`, with those not committed yet.

    Raises: NoChange if there is no such base or no such file.
    """
    try:
        if base is None:
            base = "main" if _git(root, "branch", "--list", "main") else "HEAD"
        elif not _git(root, "rev-parse", "--verify", "--quiet", f"{base}^{{commit}}"):
            raise NoChange(f"git knows no {base}")
        fork = (_git(root, "merge-base", base, "HEAD") or [base])[0]
        names = _git(root, "diff", "--name-only", fork) + _git(
            root, "ls-files", "--others", "--exclude-standard"
        )
    except FileNotFoundError:
        raise NoChange("git is not installed here") from None
    if not names:
        raise NoChange(f"no file differs from {base}", is_good=True)
    return sorted(map(Path, set(names)))


def find_touched_tests(files: Iterable[Path], root: Path, graph: Graph | None = None) -> list[Path]:
    """Return the test files that depend on one of `files` by imports, fixtures, processes or mentions."""
    tests = sorted(path.relative_to(root) for path in (root / "tests").rglob("test_*.py"))
    files = list(files)
    if any(fnmatch.fnmatch(file.as_posix(), pattern) for file in files for pattern in EVERYTHING):
        return tests
    graph = graph or Graph.read(root)
    touched = graph.find_touched({name for file in files for name in graph.find_modules(file, root)})
    paths = {graph.sources[name].path for name in touched if name in graph.sources}
    return [path for path in tests if root / path in paths]


def _git(root: Path, *words: str) -> list[str]:
    done = subprocess.run(
        ["git", "-c", "core.quotepath=off", *words], cwd=root, capture_output=True, text=True, check=False
    )
    if done.returncode and words[0] != "rev-parse":
        lines = done.stderr.strip().splitlines() or ["git does not answer"]
        raise NoChange(lines[0])
    return done.stdout.splitlines()
