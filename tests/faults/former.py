"""The program as it was some migrations ago, from the history of this repository."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from shared.adapters.postgres.db.readiness import VERSIONS, find_newest_revision
from tests.kit.deployment.breakable_servers import Case
from tests.kit.deployment.processes import ROOT, Process
from tests.kit.former_schemas import NoHistory, run_git


@dataclass(frozen=True, slots=True, kw_only=True)
class Former:
    """Its processes run beside ours, with the packages that ours have."""

    folder: Path
    revision: str
    """The schema that it was written for."""

    def process(self, module: str, case: Case, **more: str) -> Process:
        return Process(module, case.settings(**more), program=self.folder)


def former(folder: Path, *, migrations: int, history: Path = ROOT) -> Former:
    """Unpacked into this folder. Raises NoHistory, also where no commit has just that schema."""
    wanted = sorted(VERSIONS.glob("[0-9]*.py"))[-migrations - 1]
    packed = run_git(history, "archive", _newest_with(wanted.name, history))
    with tarfile.open(fileobj=BytesIO(packed)) as files:
        files.extractall(folder, filter="data")
    return Former(folder=folder, revision=find_newest_revision(folder / VERSIONS.relative_to(ROOT)))


def _newest_with(newest: str, history: Path) -> str:
    """The last commit whose newest migration is this. What is not committed yet, none of them knows."""
    place = f"{VERSIONS.relative_to(ROOT)}/"
    changed = run_git(history, "log", "--format=%P %H", "--", place).decode().split()
    for commit in ("HEAD", *changed):
        known = run_git(history, "ls-tree", "--name-only", commit, place).decode().split()
        if known and _number(max(one for one in known if one.endswith(".py"))) == _number(newest):
            return commit
    raise NoHistory(f"no commit has {newest} as its newest migration")


def _number(migration: str) -> str:
    """What stays when a file gets another name."""
    return Path(migration).name.partition("_")[0]
