"""Files of other programs, as the import of uploads reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from shared.adapters.past.exports import read_past
from shared.adapters.past.recognise import recognise, unpack_export
from shared.core.memory.past import PastMessage, PastSource
from shared.core.values.local_time import resolve_zone
from shared.ports import Clock


class ExportFiles:
    def __init__(self, *, clock: Clock, timezone: str) -> None:
        """`timezone` is for files whose times have none."""
        self._clock = clock
        self._timezone = timezone

    def unpack(self, path: Path, target: Path) -> Path:
        """Raises ImportRefused and OSError."""
        return unpack_export(path, target)

    def recognise(self, path: Path) -> PastSource:
        """Raises ImportRefused and OSError."""
        return recognise(path)

    def read(self, source: PastSource, path: Path, *, me: str) -> Iterator[PastMessage]:
        """Yield the messages of a file. Raises BadInput and OSError."""
        zone = resolve_zone(self._timezone, self._timezone)
        return read_past(source, path, zone=zone, now=self._clock.now(), me=me)
