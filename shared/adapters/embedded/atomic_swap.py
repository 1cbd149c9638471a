"""Replacement of folders in the data folder by renaming, completed even after a crash in the middle."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from shared.adapters.embedded.errors import EmbeddedServerFailed

JOURNAL = "restore.json"
"""Name of the journal in the data folder, a JSON list of pairs of relative paths."""
Moves = Sequence[tuple[Path, Path]]
"""Pairs of a source and a target, in the order in which they are renamed."""


def begin_swap(data_folder: Path, moves: Moves, write: Callable[[Path, bytes], None]) -> None:
    """Write the journal of moves from source to target; `finish_swap` carries them out.

    Once the journal is on the disk, a crash only delays the swap. `write` stores bytes at a path.
    Raises ValueError for a path outside `data_folder`.
    """
    entries = [
        [str(source.relative_to(data_folder)), str(target.relative_to(data_folder))]
        for source, target in moves
    ]
    write(data_folder / JOURNAL, json.dumps(entries).encode())


def finish_swap(data_folder: Path, *, between: Callable[[], None] = lambda: None) -> bool:
    """Carry out the remaining moves of the journal and delete it; return False if there is no journal.

    `between` is called after each move. Raises EmbeddedServerFailed if the journal cannot be read.
    """
    journal = data_folder / JOURNAL
    try:
        entries = json.loads(journal.read_bytes())
    except FileNotFoundError:
        return False
    except ValueError as error:
        raise EmbeddedServerFailed(
            f"{journal} cannot be read: {error}", advice="Put it aside, and restore the backup again."
        ) from None
    for source, target in entries:
        _move(data_folder / source, data_folder / target)
        between()
    journal.unlink()
    return True


def _move(source: Path, target: Path) -> None:
    """Rename `source` to `target`, unless an earlier run has already done so."""
    if source.exists() and not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o711)
        source.rename(target)
