"""Access to exports of other programs, for the import of uploaded files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from shared.adapters.past.exports import read_past
from shared.adapters.past.recognise import recognise, unpack_export
from shared.core.memory.past import PastMessage, PastSource
from shared.core.values.local_time import resolve_zone
from shared.ports import Clock


class ExportFiles:
    """Reader of exports of other chat programs: finds the program, and yields the messages."""

    def __init__(self, *, clock: Clock, timezone: str) -> None:
        """Configure the reader; `timezone` is for exports whose times have none."""
        self._clock = clock
        self._timezone = timezone

    def unpack(self, path: Path, target: Path) -> Path:
        """Return the file with the messages: `path` itself, or the one of an archive, written to `target`.

        Raises ImportRefused if it cannot be used, OSError.
        """
        return unpack_export(path, target)

    def recognise(self, path: Path) -> PastSource:
        """Return the program that made the file. Raises ImportRefused if it is unknown, OSError."""
        return recognise(path)

    def read(self, source: PastSource, path: Path, *, me: str) -> Iterator[PastMessage]:
        """Yield the messages of a file in order; `me` is the person's name in it, "" if not given.

        Raises BadInput for a file of another form, and OSError, while messages are read.
        """
        zone = resolve_zone(self._timezone, self._timezone)
        return read_past(source, path, zone=zone, now=self._clock.now(), me=me)
