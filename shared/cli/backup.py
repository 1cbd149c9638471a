"""`evertalk backup`: a copy of everything in one file, made while people talk, read back before it counts."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shared.adapters.embedded.errors import FolderInUse
from shared.adapters.embedded.folders import FolderLock
from shared.adapters.files.archive import (
    PART,
    FolderProblem,
    compute_digest,
    copy_archive,
    find_folder_problem,
    finish_archive,
    open_archive,
    pack_folder,
    unpack,
    write_archive,
    write_private,
)
from shared.adapters.files.erasure_file import FILE as ERASURES
from shared.adapters.files.erasure_file import ErasureFile
from shared.adapters.mcp.tools import KNOWN_FILE
from shared.adapters.postgres.db.connecting import open_connection
from shared.adapters.postgres.db.pool import Named
from shared.adapters.postgres.db.readiness import FLOOR
from shared.adapters.postgres.operations.dump import DumpFailed, dump, load_counts, load_facts, verify_dump
from shared.bootstrap.foundation import FAILED_BACKUP_FILE
from shared.bootstrap.from_settings import WORKSPACES_FOLDER
from shared.bootstrap.stores import open_stores
from shared.config.settings import Settings, resolve_secret_key
from shared.core.ops.backups import (
    DATABASE,
    FILES,
    KEY,
    BadBackup,
    Manifest,
    check_seal,
    find_superfluous,
    is_due,
    key_id_of,
    name_of,
    newest,
    parse_made_at,
    read_manifest,
    write_manifest,
)
from shared.core.values.errors import EvertalkError, StorageUnavailable
from shared.runtime import CrashPoint, build_crash_point, read_version

FOLDERS = (WORKSPACES_FOLDER, "drafts", "mcp.json", KNOWN_FILE)
"""Paths in the data folder that a backup contains; the database is dumped separately, logs are left out."""
INTERVAL = timedelta(days=1)
"""Time between two daily backups."""
_SPARE_BYTES = 64 * 1024**2
_COPY_SETTING = "EVERTALK_BACKUP_COPY_DIR"
_COPY_ADVICE = "Mount the folder, make room there, or name another one in the dashboard's settings."
FOLDER_PROBLEMS: Mapping[FolderProblem, str] = {
    "missing": "there is no such folder; its disk may not be mounted",
    "denied": "Evertalk may not write to it",
}
"""Sentence for each problem of the folder for copies."""
PrintLine = Callable[[str], None]


class BackupFailed(EvertalkError):
    """No backup or no copy was made; earlier ones are unchanged."""

    sentence = "No copy was made; those of before are as they were."
    code = "backup_failed"
    advice = "./evertalk doctor tells about room and the database; EVERTALK_BACKUP_DIR moves the copies."


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupResult:
    """Finished backup, with the names of old backups that were deleted and of files that were left out."""

    path: Path
    manifest: Manifest
    deleted: Sequence[str] = ()
    skipped: Sequence[str] = ()


def read_backup_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; if they are invalid, print a usage line and exit with status 2."""
    parser = argparse.ArgumentParser(
        prog="evertalk backup", description="Back up all data into one file, or list and verify backups."
    )
    parser.add_argument(
        "--to", type=Path, metavar="PATH", help="folder for the backup; default: EVERTALK_BACKUP_DIR"
    )
    parser.add_argument("--without-key", action="store_true", help="do not store the secret key in the file")
    parser.add_argument(
        "--daily", action="store_true", help="do nothing if the newest backup is less than a day old"
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--list", action="store_true", dest="shows", help="list backups")
    shown.add_argument(
        "--verify", type=Path, metavar="FILE", help="check that a backup can be read; changes nothing"
    )
    return parser.parse_args(arguments)


async def run_backup(
    wish: argparse.Namespace, *, settings: Settings, database_url: str, say: PrintLine
) -> int:
    """Make a backup, with `--daily` only if one is due, and copy it to the folder for copies; return exit
    status 0.

    Backups in another folder (`--to`) are not copied. Raises BackupFailed and DumpFailed.
    """
    folder = (wish.to or settings.backups).expanduser().absolute()
    due = settings.backup_keep > 0 and is_due(_names(folder), now=datetime.now(UTC), every=INTERVAL)
    if due or not wish.daily:
        made = await make_backup(settings, database_url, folder=folder, with_key=not wish.without_key)
        for line in describe_backup(made):
            say(line)
    if wish.to is None and (target := await load_copy_folder(settings, database_url)) is not None:
        for name in await asyncio.to_thread(copy_elsewhere, settings, target):
            say(f"  copied to {target / name}")
    return 0


_STORED_SETTING = Named("SELECT value FROM stored_settings WHERE name = :name")


async def load_copy_folder(settings: Settings, database_url: str) -> Path | None:
    """Return the folder for copies: from the environment, else the setting in the database; None if neither
    names one.
    """
    if settings.backup_copy_dir is not None:
        return settings.backup_copy_dir
    async with open_connection(database_url) as connection:
        if not await connection.fetchval("SELECT to_regclass('stored_settings') IS NOT NULL", timeout=10):
            return None
        stored = await connection.fetchval(*_STORED_SETTING(name=_COPY_SETTING), timeout=10)
    return Path(stored) if stored else None


def copy_elsewhere(settings: Settings, target: Path) -> list[str]:
    """Copy the newest backup and the erasure log to `target`, delete old copies there; return the names of
    new copies.

    A copy that failed is made with the next call, also when no new backup is due. Returns [] while another
    backup is being made. Raises BackupFailed.
    """
    folder = settings.backups
    try:
        with FolderLock(folder / ".lock"):
            copied = _copy_newest(settings, target)
            (folder / FAILED_BACKUP_FILE).unlink(missing_ok=True)
    except FolderInUse:
        return []
    except (OSError, BadBackup, BackupFailed) as error:
        _record_failure(folder, f"no copy in {target}: {error}")
        raise BackupFailed(f"no copy was made in {target}: {error}", advice=_COPY_ADVICE) from error
    return copied


def _copy_newest(settings: Settings, target: Path) -> list[str]:
    if problem := find_folder_problem(target):
        raise BackupFailed(FOLDER_PROBLEMS[problem])
    for left in target.glob(f"evertalk-*{PART}"):
        left.unlink()
    dated = {at: name for name in _names(settings.backups) if (at := parse_made_at(name)) is not None}
    last = newest(dated.values(), now=datetime.now(UTC))
    copied = []
    if last is not None and not (target / dated[last]).exists():
        copied.append(copy_archive(settings.backups / dated[last], target).name)
        _rotate(target, dated[last], settings.backup_keep)
    _copy_log(settings.backups / ERASURES, target / ERASURES)
    return copied


def _copy_log(source: Path, target: Path) -> None:
    """Copy the erasure log if it has changed: a restored copy repeats its erasures."""
    if not source.exists():
        return
    content = source.read_bytes()
    if not target.exists() or target.read_bytes() != content:
        write_private(target, content)


async def make_backup(
    settings: Settings, database_url: str, *, folder: Path, with_key: bool = True, rotate: bool = True
) -> BackupResult:
    """Make a backup of database and data folder in `folder`, and read it back before it counts.

    With `rotate`, old backups are deleted after that. `with_key` puts the secret key into the file, unless
    the environment sets it. Raises BackupFailed, also while another backup is made there; earlier backups
    then stay.
    """
    crash_point = build_crash_point(settings.crash_point)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with FolderLock(folder / ".lock"), _work_folder(folder) as bench:
            made = await _make(settings, database_url, folder, bench, with_key, crash_point)
            let_go = _rotate(folder, made.path.name, settings.backup_keep) if rotate else []
            (folder / FAILED_BACKUP_FILE).unlink(missing_ok=True)
    except FolderInUse:
        raise BackupFailed("another backup is being made there", advice="Wait until it has ended.") from None
    except (OSError, DumpFailed, BadBackup, StorageUnavailable) as error:
        _record_failure(folder, str(error))
        raise BackupFailed(f"no backup was made: {error}", advice=_advice(error)) from error
    except BackupFailed as error:
        _record_failure(folder, str(error))
        raise
    return BackupResult(path=made.path, manifest=made.manifest, deleted=let_go, skipped=made.skipped)


async def _make(
    settings: Settings, database_url: str, folder: Path, bench: Path, with_key: bool, crash_point: CrashPoint
) -> BackupResult:
    version, revision, epoch = await load_facts(database_url)
    if revision is None:
        raise BackupFailed("there is nothing to back up yet", advice="Start it once: ./evertalk up")
    await _check_room(folder, database_url)
    erasures = ErasureFile(settings.backups / ERASURES)
    await copy_erasures(database_url, erasures)
    erasures.discard_old(now=datetime.now(UTC))
    counts = await load_counts(database_url)
    parts = {DATABASE: bench / DATABASE, FILES: bench / FILES}
    await dump(database_url, parts[DATABASE])
    crash_point("backup_after_dump")
    await verify_dump(parts[DATABASE], major=int(version.split(".", 1)[0]))
    _, left_out = await asyncio.to_thread(pack_folder, settings.data_dir, FOLDERS, parts[FILES])
    secret_key = resolve_secret_key(settings)
    if with_key and settings.secret_key is None:
        parts[KEY] = bench / KEY
        write_private(parts[KEY], secret_key)
    manifest = Manifest(
        made_at=datetime.now(UTC), evertalk=read_version(), revision=revision, floor=FLOOR,
        log_epoch=epoch, postgres=version, key_id=key_id_of(secret_key), counts=counts,
        members={name: await asyncio.to_thread(compute_digest, path) for name, path in parts.items()},
    )  # fmt: skip
    target = _free_name(folder, manifest.made_at)
    partial = await asyncio.to_thread(write_archive, target, write_manifest(manifest, secret_key), parts)
    if await asyncio.to_thread(unpack, partial, None) != manifest:
        raise BadBackup("it does not read back as it was written")
    crash_point("backup_before_name")
    finish_archive(partial, target)
    return BackupResult(path=target, manifest=manifest, skipped=left_out)


async def copy_erasures(database_url: str, file: ErasureFile) -> int:
    """Add the erasures of the database to the log next to the backups; return the number of new lines."""
    async with open_stores(database_url, size=1) as stores:
        logged = await stores.erasure_log.list_all() if await stores.erasure_log.is_kept() else []
    return file.add(logged)


def describe_backup(made: BackupResult) -> list[str]:
    """Return the lines that report a backup: path, size, counts, schema, key, and what was left out or
    deleted.
    """
    manifest = made.manifest
    size = made.path.stat().st_size
    lines = [
        f"{made.path}",
        f"  {size / 2**20:.1f} MiB, read back and sound; {format_counts(manifest)}",
        f"  PostgreSQL {manifest.postgres}, {manifest.describe_schema()}",
        "  It holds the secret key: keep it as you keep the data folder."
        if KEY in manifest.members
        else "  It does not hold the secret key: keep EVERTALK_SECRET_KEY somewhere else.",
    ]
    lines += [f"  left out, since it is no plain file: {name}" for name in made.skipped]
    lines += [f"  let go: {name}" for name in made.deleted]
    return lines


_ONE = {"people": "person"}
"""Names of one, where it is not the plural without its last letter."""


def format_counts(manifest: Manifest) -> str:
    """Return the numbers of rows in a backup as text, such as `3 people, 1 note`."""
    return ", ".join(
        f"{number:,} {_ONE.get(what, what.removesuffix('s')) if number == 1 else what}"
        for what, number in manifest.counts.items()
    )


def show_backups(settings: Settings, say: PrintLine) -> int:
    """Print a line for each backup, also for unusable ones; return exit status 0, or 1 if there is none."""
    folder = settings.backups
    names = sorted(name for name in _names(folder) if parse_made_at(name) is not None)
    if not names:
        say(f"There are no backups in {folder}.")
        return 1
    for name in names:
        path = folder / name
        try:
            manifest = read_manifest(open_archive(path))
            size = f"{path.stat().st_size / 2**20:.1f} MiB"
            say(f"{path}  {size}, {format_counts(manifest)}, {manifest.describe_schema()}")
        except BadBackup as error:
            say(f"{path}  cannot be used: {error}")
    return 0


def verify_backup(path: Path, settings: Settings, say: PrintLine) -> int:
    """Read a whole backup and print what it contains and whose seal it has; return exit status 0.

    A seal of another key is reported only. Raises BadBackup if the file is damaged.
    """
    path = path.expanduser().absolute()
    manifest = unpack(path, None)
    say(f"{path} is complete, from {manifest.made_at:%Y-%m-%d %H:%M} UTC: {format_counts(manifest)}.")
    say(f"It has {manifest.describe_schema()}.")
    if check_seal(open_archive(path), resolve_secret_key(settings)):
        say("Its seal is of this installation.")
    else:
        say("Its seal is not of this installation's secret key: of another one, or changed since.")
    return 0


def read_last_failure(settings: Settings) -> str | None:
    """Return the reason why the last backup or copy failed, at most 500 characters; None if none failed
    since.
    """
    try:
        return (settings.backups / FAILED_BACKUP_FILE).read_text(errors="replace").strip()[:500]
    except OSError:
        return None


async def _check_room(folder: Path, database_url: str) -> None:
    sizes = [path.stat().st_size for path in folder.iterdir() if parse_made_at(path.name) is not None]
    needed = 2 * (max(sizes) if sizes else await _load_size(database_url)) + _SPARE_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise BackupFailed(
            f"{folder} has {free / 2**20:,.0f} MiB free, and a backup may need {needed / 2**20:,.0f} MiB",
            advice="Make room, or set EVERTALK_BACKUP_DIR to a folder on a larger disk.",
        )


async def _load_size(database_url: str) -> int:
    async with open_connection(database_url) as connection:
        return int(await connection.fetchval("SELECT pg_database_size(current_database())", timeout=10))


@contextlib.contextmanager
def _work_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder for unfinished files, after deleting those of an interrupted backup."""
    for left in (*folder.glob(".making-*"), *folder.glob(f"*{PART}")):
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    bench = Path(tempfile.mkdtemp(prefix=".making-", dir=folder))
    try:
        yield bench
    finally:
        shutil.rmtree(bench, ignore_errors=True)


def _rotate(folder: Path, just_made: str, keep: int) -> list[str]:
    if not keep:
        return []
    gone = find_superfluous(_names(folder), keep=keep, just_made=just_made, now=datetime.now(UTC))
    for name in gone:
        (folder / name).unlink(missing_ok=True)
    return gone


def _free_name(folder: Path, moment: datetime) -> Path:
    """Two within a second are one second apart by name."""
    while (path := folder / name_of(moment)).exists():
        moment += timedelta(seconds=1)
    return path


def find_last_backup(settings: Settings, *, now: datetime) -> datetime | None:
    """Return the time of the newest backup by its name; None if there is none."""
    return newest(_names(settings.backups), now=now)


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


def _record_failure(folder: Path, reason: str) -> None:
    with contextlib.suppress(OSError):
        for left in folder.glob(f"*{PART}"):
            left.unlink(missing_ok=True)
        write_private(
            folder / FAILED_BACKUP_FILE, f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC: {reason}\n".encode()
        )


def _advice(error: BaseException) -> str:
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if full or "No space left" in str(error):
        return "The disk is full: make room, or set EVERTALK_BACKUP_DIR to a folder on another one."
    return error.advice if isinstance(error, DumpFailed) else BackupFailed.advice
