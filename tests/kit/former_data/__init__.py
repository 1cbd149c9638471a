"""Backups that earlier versions of the program made, for the tests of restore and upgrade.

`python -m tests.kit.former_data` makes them again: it takes each program out of this repository's history,
has people talk with its demo, and runs its own backup. `life.py` runs inside the earlier program.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

BACKUPS = Path(__file__).parent / "backups"
KEEPSAKE, NOTE, SECRET = "My ferry leaves from Lindholm at 7:40.", "Likes gooseberry jam.", "k" * 48
"""Text of the first message and of the note in each backup, and the key that encrypts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerProgram:
    """A commit whose program made one of the backups."""

    version: str
    revision: str
    commit: str

    @property
    def backup(self) -> Path:
        return BACKUPS / f"{self.version}-{self.revision}.tar.xz"


PROGRAMS = (
    FormerProgram(version="0.1.0", revision="0036", commit="3d02763c"),
    FormerProgram(version="0.1.0", revision="0046", commit="863684ba"),
    FormerProgram(version="0.1.0", revision="0060", commit="85974916"),
)
"""The first data of 0.1.0, the last before migrations were squashed to 0044, and the last schema of 0.1.0."""
