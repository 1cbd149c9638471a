"""Background runner that examines uploaded exports and imports them; resumes after a crash."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import structlog

from shared.core.memory.past import (
    FileState,
    FoundPast,
    ImportFile,
    ImportRefused,
    PastImport,
    PastMessage,
    PastSource,
    look_through,
)
from shared.core.values.errors import BadInput, LeaseLost, StorageUnavailable
from shared.runtime import CrashPoint
from shared.services.memory.past_importer import PastImporter

log = structlog.get_logger(__name__)

LOOK_SECONDS = 2.0
"""Seconds between two searches for uploaded files."""
BEAT_SECONDS = 5.0
"""Seconds between two extensions of a file's claim, which also store the number of imported messages."""


class ImportFileStore(Protocol):
    """Store of uploaded exports, in pieces.

    `claim` returns a file to examine or import that no other worker has, None if there is none. `extend` and
    `finish` return False if the claim is lost or the file deleted. `load_piece` returns the piece that begins
    at byte `start`, None without one.
    """

    async def claim(self) -> ImportFile | None: ...
    async def exists(self, file: ImportFile) -> bool: ...
    async def extend(self, file: ImportFile, *, stored: int) -> bool: ...
    async def load_piece(self, file: ImportFile, start: int) -> bytes | None: ...
    async def finish(
        self, file: ImportFile, state: FileState, *, found: FoundPast | None = None, error: str = "",
        stored: int = 0,
    ) -> bool: ...  # fmt: skip


class ExportReader(Protocol):
    """Reader of files exported from other programs; all methods raise OSError and ImportRefused.

    `unpack` returns the file with the messages, which is written to `target` if `path` is an archive.
    `recognise` returns the program that made the file. `me` is the person's name in the file.
    """

    def unpack(self, path: Path, target: Path) -> Path: ...
    def recognise(self, path: Path) -> PastSource: ...
    def read(self, source: PastSource, path: Path, *, me: str) -> Iterator[PastMessage]: ...


class ImportRunner:
    """Runner of one worker's imports; a claim in the database keeps other workers from the same file."""

    def __init__(
        self, files: ImportFileStore, importer: PastImporter, reader: ExportReader, *, crash_point: CrashPoint
    ) -> None:
        self._files = files
        self._importer = importer
        self._reader = reader
        self._crash_point = crash_point

    async def run(self) -> None:
        """Examine and import uploaded files until cancelled; look for new ones every `LOOK_SECONDS`."""
        while True:
            try:
                while await self.run_next():
                    pass
            except StorageUnavailable as error:
                log.warning("import_storage_unavailable", reason=str(error))
            except OSError as error:
                log.warning("import_disk_unavailable", reason=f"{type(error).__name__}: {error}")
            await asyncio.sleep(LOOK_SECONDS)

    async def run_next(self) -> bool:
        """Claim a file; examine it, or import it after the person's consent. Return False if there is no
        file.

        A file that cannot be used ends as failed. If the person deletes it meanwhile, its import is undone.
        Raises StorageUnavailable and OSError.
        """
        file = await self._files.claim()
        if file is None:
            return False
        progress = _StoredCount(file.stored)
        beating = asyncio.ensure_future(self._beat(file, progress))
        working = asyncio.ensure_future(self._work(file, progress))
        try:
            await asyncio.wait([beating, working], return_when=asyncio.FIRST_COMPLETED)
            (working if working.done() else beating).result()
        except LeaseLost:
            log.info("import_claim_lost", session_id=file.session_id)
            await _end(beating, working)
            if progress.import_id and not await self._files.exists(file):
                # The person cancelled the upload.
                await self._importer.undo(file.session_id, progress.import_id, "person")
        finally:
            await _end(beating, working)
        return True

    async def _beat(self, file: ImportFile, progress: _StoredCount) -> None:
        """Extend the claim until it is lost. Raises LeaseLost."""
        # No event reports the loss of a claim.
        while await self._files.extend(file, stored=progress.stored):  # noqa: ASYNC110
            await asyncio.sleep(BEAT_SECONDS)
        raise LeaseLost(f"import file {file.id}")

    async def _work(self, file: ImportFile, progress: _StoredCount) -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="import-") as folder:
                path = await self._unpack(file, Path(folder))
                if file.state == "looking":
                    await self._look(file, path)
                else:
                    await self._import(file, path, progress)
        except ImportRefused as error:
            await self._files.finish(file, "failed", error=error.error)
        except BadInput as error:
            log.info("import_refused", session_id=file.session_id, reason=str(error))
            await self._files.finish(file, "failed", error="unreadable")

    async def _unpack(self, file: ImportFile, folder: Path) -> Path:
        whole = folder / "file"
        start = 0
        with whole.open("wb") as out:
            while start < file.size:
                piece = await self._files.load_piece(file, start)
                if piece is None:
                    raise LeaseLost(f"pieces of import file {file.id}")
                await asyncio.to_thread(out.write, piece)
                start += len(piece)
        return await asyncio.to_thread(self._reader.unpack, whole, folder / "messages")

    async def _look(self, file: ImportFile, path: Path) -> None:
        def look() -> FoundPast:
            source = self._reader.recognise(path)
            return look_through(source, self._reader.read(source, path, me=""))

        found = await asyncio.to_thread(look)
        if not found.messages:
            raise ImportRefused("empty")
        self._crash_point("import_looked")
        await self._files.finish(file, "ready", found=found)

    async def _import(self, file: ImportFile, path: Path, progress: _StoredCount) -> None:
        if file.source is None:
            raise ImportRefused("unknown_kind")
        digest = await asyncio.to_thread(digest_export, file.source, file.me, path)
        made = await self._importer.import_past(
            file.session_id, file.source, digest, self._reader.read(file.source, path, me=file.me),
            on_stored=progress.note, on_begun=progress.begin,
        )  # fmt: skip
        self._crash_point("import_stored")
        if not await self._files.finish(file, "done", stored=made.messages):
            raise LeaseLost(f"import file {file.id}")


async def _end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


class _StoredCount:
    """Progress of an import: its id, and the number of stored messages."""

    def __init__(self, stored: int) -> None:
        self.stored = stored
        self.import_id = ""

    def begin(self, begun: PastImport) -> None:
        self.import_id = begun.id

    def note(self, number: int) -> None:
        self.stored = number


def digest_export(source: PastSource, me: str, path: Path) -> bytes:
    """Return the SHA-256 by which a repeated import of the same file is recognised.

    It covers the source, the name `me` of the person in the file, and the file's bytes. Raises OSError.
    """
    digest = hashlib.sha256(f"{source}\0{me}\0".encode())
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.digest()
