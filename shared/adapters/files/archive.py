"""Backup archives, read back after writing, and unpacked with checks of every member."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Literal

from shared.core.ops.backups import MANIFEST, MOST_MANIFEST_BYTES, BadBackup, Manifest, Member, read_manifest

_CHUNK = 1024 * 1024
PART = ".part"
"""Suffix of a file that is not complete yet."""
FolderProblem = Literal["missing", "denied"]
"""Reason why a folder cannot take copies: it does not exist, or is not writable."""


def compute_digest(path: Path) -> Member:
    """Return the size in bytes and the SHA-256 of a file."""
    with path.open("rb") as file:
        return _digest(file)


def pack_folder(root: Path, names: tuple[str, ...], target: Path) -> tuple[int, list[str]]:
    """Pack the regular files below `root/name`, for each name, into a new tar file `target`.

    Return their number and the relative paths of entries left out, such as symbolic links.
    """
    number, left_out = 0, []
    with _private(target) as file, tarfile.open(fileobj=file, mode="w") as tar:
        for path in _files(root, names):
            if path.is_symlink() or not path.is_file():
                left_out.append(path.relative_to(root).as_posix())
                continue
            # Read whole: a file that is being written keeps the size that was read.
            content = path.read_bytes()
            about = tarfile.TarInfo(path.relative_to(root).as_posix())
            about.size, about.mtime, about.mode = len(content), int(path.stat().st_mtime), 0o600
            tar.addfile(about, io.BytesIO(content))
            number += 1
    return number, left_out


def write_archive(target: Path, manifest: bytes, parts: Mapping[str, Path]) -> Path:
    """Write manifest and parts as a tar file next to `target`, with the suffix `.part`, and return its path.

    The file is synced to disk; `finish_archive` renames it.
    """
    partial = target.with_name(target.name + PART)
    with _private(partial) as file:
        with tarfile.open(fileobj=file, mode="w") as tar:
            _add(tar, MANIFEST, io.BytesIO(manifest), len(manifest))
            for name, path in parts.items():
                with path.open("rb") as part:
                    _add(tar, name, part, path.stat().st_size)
        file.flush()
        os.fsync(file.fileno())
    return partial


def finish_archive(partial: Path, target: Path) -> None:
    """Rename a finished `.part` file to `target`, and sync the folder."""
    partial.rename(target)
    sync_folder(target.parent)


def copy_archive(source: Path, folder: Path) -> Path:
    """Copy a backup into another folder, read the copy back, and return its path.

    Raises BadBackup if the copy differs, OSError if it cannot be written.
    """
    target = folder / source.name
    partial = target.with_name(target.name + PART)
    with source.open("rb") as original, _private(partial) as file:
        shutil.copyfileobj(original, file, _CHUNK)
        file.flush()
        os.fsync(file.fileno())
    if compute_digest(partial) != compute_digest(source):
        raise BadBackup(f"the copy in {folder} does not read back as it was written")
    finish_archive(partial, target)
    return target


def find_folder_problem(folder: Path) -> FolderProblem | None:
    """Return why a folder cannot take copies of backups: "missing" or "denied"; None if it can.

    It is denied if a test file cannot be written there, also on a full disk or below a folder that may not
    be searched.
    """
    try:
        if not folder.is_dir():
            return "missing"
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"evertalk")
    except OSError:
        return "denied"
    return None


def shares_disk(folder: Path, other: Path) -> bool:
    """Return whether two folders, or the nearest ones that exist, lie on the same disk."""
    return _nearest(folder).stat().st_dev == _nearest(other).stat().st_dev


def _nearest(path: Path) -> Path:
    return next(one for one in (path, *path.parents) if one.exists())


def open_archive(path: Path) -> bytes:
    """Return the manifest's bytes of a backup. Raises BadBackup if the file is no readable backup."""
    with _reading(path) as tar:
        return _read_manifest(tar)


def unpack(path: Path, target: Path | None) -> Manifest:
    """Read every part of a backup, compare it with its checksum, and return the manifest.

    Parts are written into `target` unless it is None. Raises BadBackup if a part is missing, unknown or
    damaged.
    """
    found: set[str] = set()
    with _reading(path) as tar:
        manifest = read_manifest(_read_manifest(tar))
        for member in _members(tar):
            if member.name == MANIFEST and not found and member.offset == 0:
                continue  # a tar file is gone through from its beginning each time
            expected = manifest.members.get(member.name)
            if expected is None or not member.isreg() or member.name in found:
                raise BadBackup(f"it holds something that its manifest does not name: {member.name[:80]!r}")
            found.add(member.name)
            if member.size != expected.bytes or _copy(tar, member, target) != expected:
                raise BadBackup(f"{member.name} is not as its manifest says: damaged, or changed since")
        if missing := set(manifest.members) - found:
            raise BadBackup(f"it ends too early: {', '.join(sorted(missing))} is missing")
    return manifest


def unpack_folder(archive: Path, target: Path) -> int:
    """Unpack an archive of `pack_folder`; return the number of files. Raises BadBackup for unsafe names."""
    number = 0
    with _reading(archive) as tar:
        for member in _members(tar):
            name = PurePosixPath(member.name)
            if not member.isreg() or name.is_absolute() or ".." in name.parts or "\\" in member.name:
                raise BadBackup(f"it holds a file that may not be: {member.name[:80]!r}")
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _copy(tar, member, path.parent, as_name=path.name)
            number += 1
    return number


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk (fsync)."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_private(path: Path, content: bytes) -> None:
    """Write a file atomically, readable by its owner only."""
    partial = path.with_name(f".{path.name}{PART}")
    with _private(partial) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    finish_archive(partial, path)


def _files(root: Path, names: tuple[str, ...]) -> Iterator[Path]:
    for name in names:
        path = root / name
        if path.is_dir() and not path.is_symlink():
            yield from sorted(one for one in path.rglob("*") if one.is_symlink() or not one.is_dir())
        elif path.exists():
            yield path


def _private(path: Path) -> IO[bytes]:
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _reading(path: Path) -> tarfile.TarFile:
    try:
        return tarfile.open(path, mode="r:")
    except tarfile.TarError as error:
        raise BadBackup(f"{path} is no backup, or a broken one: {error}") from None
    except OSError as error:
        raise BadBackup(f"{path} cannot be read: {error.strerror}") from None


def _members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    try:
        yield from tar
    except (OSError, tarfile.TarError, ValueError, EOFError) as error:
        raise BadBackup(f"it is broken in the middle: {error}") from None


def _read_manifest(tar: tarfile.TarFile) -> bytes:
    first = next(_members(tar), None)
    if first is None or first.name != MANIFEST or not first.isreg() or first.size > MOST_MANIFEST_BYTES:
        raise BadBackup("it does not begin with a manifest: it is no backup of Evertalk")
    taken = tar.extractfile(first)
    return b"" if taken is None else taken.read(MOST_MANIFEST_BYTES)


def _copy(
    tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path | None, *, as_name: str | None = None
) -> Member:
    source = tar.extractfile(member)
    if source is None:
        raise BadBackup(f"{member.name} cannot be read")
    try:
        if folder is None:
            return _digest(source)
        with _private(folder / (as_name or member.name)) as target:
            return _digest(source, target)
    except (tarfile.TarError, EOFError) as error:
        raise BadBackup(f"{member.name} ends too early: {error}") from None


def _digest(source: IO[bytes], target: IO[bytes] | None = None) -> Member:
    """Return size and SHA-256 of a stream, and copy it to `target` unless that is None."""
    sha256, size = hashlib.sha256(), 0
    while chunk := source.read(_CHUNK):
        sha256.update(chunk)
        size += len(chunk)
        if target is not None:
            target.write(chunk)
    return Member(bytes=size, sha256=sha256.hexdigest())


def _add(tar: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    about = tarfile.TarInfo(name)
    about.size, about.mode = size, 0o600
    tar.addfile(about, content)
