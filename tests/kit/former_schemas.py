"""Lists the database schemas of this repository's earlier commits, to test that each can be upgraded."""

from __future__ import annotations

import re
import subprocess
import tarfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from shared.adapters.postgres.db.readiness import VERSIONS

ROOT = Path(__file__).parents[2]
GIT_SECONDS = 60
_REVISION = re.compile(r"""^(revision|down_revision)(?:\s*:[^=]+)?\s*=\s*["']([^"']+)["']""", re.MULTILINE)
_PLACE = VERSIONS.relative_to(ROOT).as_posix()


class NoHistory(Exception):
    """The folder is no clone, or its history is shallow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerSchema:
    """The migrations of one commit; `tree` is the Git object of their folder."""

    commit: str
    tree: str
    newest: str

    @property
    def name(self) -> str:
        return f"{self.newest}-{self.commit[:8]}"

    def unpack(self, folder: Path, *, history: Path = ROOT) -> Path:
        """Write the migrations to `folder`, together with today's `env.py`, and return their folder."""
        versions = folder / "versions"
        versions.mkdir(parents=True)
        with tarfile.open(fileobj=BytesIO(run_git(history, "archive", self.tree))) as files:
            files.extractall(versions, filter="data")
        (folder / "env.py").write_bytes((VERSIONS.parent / "env.py").read_bytes())
        return versions


def list_former_schemas(*, history: Path = ROOT) -> list[FormerSchema]:
    """Return the migrations of every commit that could create a database, oldest first, each once.

    Raises: NoHistory without the whole history.
    """
    if run_git(history, "rev-parse", "--is-shallow-repository").strip() == b"true":
        raise NoHistory("the clone is shallow")
    commits = run_git(history, "log", "--reverse", "--format=%H", "HEAD", "--", _PLACE).decode().split()
    found: dict[str, FormerSchema] = {}
    for commit in commits:
        tree = run_git(history, "rev-parse", f"{commit}:{_PLACE}").decode().strip()
        if tree not in found and (newest := _find_newest(history, tree)) is not None:
            found[tree] = FormerSchema(commit=commit, tree=tree, newest=newest)
    return list(found.values())


def _find_newest(history: Path, tree: str) -> str | None:
    """Return the newest revision of a folder of migrations; None if there are several.

    Alembic refuses several, so no database can have that schema.
    """
    listed = run_git(history, "ls-tree", tree).decode().splitlines()
    blobs = [line.split("\t")[0].split()[2] for line in listed if line.endswith(".py")]
    named: dict[str, list[str]] = {"revision": [], "down_revision": []}
    for blob in blobs:
        for kind, revision in _REVISION.findall(run_git(history, "cat-file", "blob", blob).decode()):
            named[kind].append(revision)
    heads = [one for one in named["revision"] if one not in named["down_revision"]]
    return heads[0] if len(heads) == 1 else None


def run_git(history: Path, *arguments: str) -> bytes:
    """Return the output of a Git command.

    Raises NoHistory if Git is missing or fails.
    """
    try:
        done = subprocess.run(["git", *arguments], cwd=history, capture_output=True, timeout=GIT_SECONDS)
    except FileNotFoundError as error:
        raise NoHistory("there is no git here") from error
    if done.returncode != 0:
        raise NoHistory(done.stderr.decode(errors="replace").strip().partition("\n")[0])
    return done.stdout
