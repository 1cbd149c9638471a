"""One state of the data folder for another by renaming, which a crash in the middle does not divide."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from shared.adapters.embedded.errors import EmbeddedServerFailed

JOURNAL = "restore.json"
Moves = Sequence[tuple[Path, Path]]


def begin_swap(data_folder: Path, moves: Moves, write: Callable[[Path, bytes], None]) -> None:
    """From the moment that the journal is on the disk, the swap happens, however often we fall."""
    entries = [
        [str(source.relative_to(data_folder)), str(target.relative_to(data_folder))]
        for source, target in moves
    ]
    write(data_folder / JOURNAL, json.dumps(entries).encode())


def finish_swap(data_folder: Path, *, between: Callable[[], None] = lambda: None) -> bool:
    """Do what a journal says is left of it; False when there is none."""
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
    """Each move is done or not done: what is gone from its old place has arrived."""
    if source.exists() and not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o711)
        source.rename(target)
