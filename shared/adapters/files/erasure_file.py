"""Log of erasures in a file, by which they are repeated after a backup is restored."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from shared.core.privacy.erasures import Erased

FILE = "erasures.jsonl"
"""Name of the file, in the data folder."""
KEPT = timedelta(days=1095)
"""Time for which entries are kept, here and in the database."""
_HASH = "party"
"""Key of the contact's hash in the file; renaming it would make old files unreadable."""


class ErasureFile:
    """Append-only file with one JSON line per erasure.

    Incomplete lines, as after a power cut, are skipped.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[Erased]:
        """Return the readable entries, oldest first; empty if the file does not exist."""
        try:
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        return [erased for line in lines if (erased := _parse_entry(line)) is not None]

    def add(self, erasures: Sequence[Erased]) -> int:
        """Append the erasures that the file lacks, sync it to disk, and return their number."""
        with self._lock():
            known = {one.key for one in self.read()}
            fresh = [one for one in erasures if one.key not in known]
            if fresh:
                self._append(fresh)
        return len(fresh)

    def discard_old(self, *, now: datetime) -> None:
        """Delete entries older than KEPT before `now`."""
        with self._lock():
            everything = self.read()
            kept = [one for one in everything if one.at > now - KEPT]
            if len(kept) == len(everything):
                return
            partial = self._path.with_name(f".{FILE}.part")
            with partial.open("wb") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(_lines(kept))
                file.flush()
                os.fsync(file.fileno())
            partial.rename(self._path)

    def _append(self, erasures: Sequence[Erased]) -> None:
        with self._path.open("ab") as file:
            os.fchmod(file.fileno(), 0o600)
            torn = file.tell() > 0 and not self._path.read_bytes().endswith(b"\n")
            file.write((b"\n" if torn else b"") + _lines(erasures))
            file.flush()
            os.fsync(file.fileno())

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Lock the file against other processes: the worker appends to it while a backup reads it."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self._path.with_name(f".{FILE}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _lines(erasures: Iterable[Erased]) -> bytes:
    return b"".join(
        json.dumps(_format_entry(one), separators=(",", ":")).encode() + b"\n" for one in erasures
    )


def _format_entry(one: Erased) -> dict[str, Any]:
    at = one.at.astimezone(UTC).isoformat()
    return {"at": at, _HASH: one.contact.hex(), "scope": one.scope, "about": dict(one.about)}


def _parse_entry(line: bytes) -> Erased | None:
    try:
        told = json.loads(line)
        at = datetime.fromisoformat(told["at"]).astimezone(UTC)
        return Erased(
            at=at, contact=bytes.fromhex(told[_HASH]), scope=str(told["scope"]), about=dict(told["about"])
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
