"""Folders of the embedded servers: their lock, their owner and a short path for sockets."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import IO
from urllib.parse import quote

from shared.adapters.embedded.errors import EmbeddedServerFailed, FolderInUse
from shared.adapters.embedded.process_user import ProcessUser

LONGEST_SOCKET_BYTES = 103
"""Maximum bytes of a socket's path; macOS allows 104 with the closing zero, Linux 108."""

_LONGEST_SOCKET_NAME = ".s.PGSQL.5432.lock"


class FolderLock:
    """Lock on a data folder for one process; the system releases it however that process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def __enter__(self) -> FolderLock:
        self.take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def take(self) -> None:
        """Lock the folder. Raises FolderInUse, with the owner's note, if another process has locked it."""
        file = self._path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            note = file.read().strip()
            file.close()
            raise FolderInUse(str(self._path.parent), note) from None
        file.truncate(0)
        self._file = file

    def write_note(self, note: str) -> None:
        """Write the note that other processes read when they find the folder locked.

        The lock must be held.
        """
        assert self._file is not None
        self._file.truncate(0)
        self._file.write(note)
        self._file.flush()

    def release(self) -> None:
        """Release the lock; no effect if this object does not hold it."""
        if self._file is not None:
            self._file.close()
            self._file = None


def is_held(path: Path) -> bool:
    """Return whether a process holds the lock file `path`; False if the file does not exist."""
    lock = FolderLock(path)
    try:
        with path.open("r"):
            lock.take()
    except FolderInUse:
        return True
    except FileNotFoundError:
        return False
    lock.release()
    return False


def socket_folder(data_folder: Path, account: ProcessUser) -> Path:
    """Create the folder for the servers' sockets with `account` as owner, and return it.

    Raises EmbeddedServerFailed if the folder belongs to a foreign account.
    """
    folder = choose_socket_folder(data_folder)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    _refuse_foreign(folder, {account.uid, *_owners(data_folder)})
    account.take(folder)
    folder.chmod(0o700)
    return account.own(folder)


def find_socket_folder(data_folder: Path) -> Path:
    """Return the folder of the running servers' sockets; change nothing.

    Raises EmbeddedServerFailed if the folder belongs to a foreign account.
    """
    folder = choose_socket_folder(data_folder)
    _refuse_foreign(folder, _owners(data_folder))
    return folder


def choose_socket_folder(data_folder: Path) -> Path:
    """Return `run` in the data folder, or a folder in /tmp if its path is too long or needs escaping."""
    folder = data_folder / "run"
    name = str(folder / _LONGEST_SOCKET_NAME)
    if len(os.fsencode(name)) > LONGEST_SOCKET_BYTES or quote(name) != name:
        digest = hashlib.sha256(os.fsencode(data_folder)).hexdigest()[:16]
        folder = Path("/tmp") / f"evertalk-{digest}"  # noqa: S108 - ownership is checked
    return folder


def _owners(data_folder: Path) -> set[int]:
    """Return the ids of the accounts that own the data of PostgreSQL and Valkey in this folder."""
    found = set()
    for name in ("pg", "valkey"):
        with contextlib.suppress(OSError):
            found.add((data_folder / name).lstat().st_uid)
    return found


def _refuse_foreign(folder: Path, owners: Collection[int | None]) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in {os.geteuid(), *owners}:
        raise EmbeddedServerFailed(
            f"{folder} belongs to someone else",
            advice=f"Remove {folder}, or set EVERTALK_DATA_DIR elsewhere.",
        )
