"""`evertalk restore`: builds the restored state next to the present one, checks it and swaps both."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from shared.adapters.embedded import EmbeddedChoice, EmbeddedServerFailed, EmbeddedServers
from shared.adapters.embedded.atomic_swap import begin_swap, finish_swap
from shared.adapters.embedded.binaries import POSTGRES_MAJOR
from shared.adapters.embedded.errors import FolderInUse
from shared.adapters.embedded.folders import FolderLock
from shared.adapters.files.archive import open_archive, sync_folder, unpack, unpack_folder, write_private
from shared.adapters.files.erasure_file import FILE as ERASURES
from shared.adapters.files.erasure_file import ErasureFile
from shared.adapters.postgres.db.readiness import Standing, build_schema_state
from shared.adapters.postgres.db.urls import format_location
from shared.adapters.postgres.operations.dump import is_empty, load_facts
from shared.adapters.postgres.operations.restore import RestoredDump, restore_dump
from shared.cli.backup import FOLDERS, PrintLine, copy_erasures, format_counts
from shared.cli.servers import open_database
from shared.config.settings import Settings, resolve_secret_key
from shared.core.ops.backups import DATABASE, FILES, KEY, BadBackup, Manifest, check_seal, read_manifest
from shared.core.privacy.erasures import Erased
from shared.core.values.errors import EvertalkError
from shared.runtime import CrashPoint, build_crash_point, ignore_crash_point

STAGE = "restore.new"
"""Name of the folder in the data folder in which a restore is built."""
_SPARE_BYTES = 128 * 1024**2


class CannotRestore(EvertalkError):
    """The restore was refused; no data were changed."""

    sentence = "The restore was refused; no data were changed."
    code = "cannot_restore"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResult:
    """Manifest of a restored backup, and what became of its dump."""

    manifest: Manifest
    filled: RestoredDump


def read_restore_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; if they are invalid, print a usage line and exit with status 2."""
    parser = argparse.ArgumentParser(
        prog="evertalk restore",
        description="Replace all data with a backup. Stop Evertalk first.",
    )
    parser.add_argument("path", type=Path, metavar="PATH", help="file written by ./evertalk backup")
    parser.add_argument(
        "--foreign", action="store_true",
        help="accept a backup that was sealed with another installation's key; only if you trust its origin",
    )  # fmt: skip
    parser.add_argument(
        "--erasures", type=Path, metavar="FILE",
        help=f"erasure log of the backup's installation ({ERASURES} in its backup folder)",
    )  # fmt: skip
    return parser.parse_args(arguments)


async def run_restore(wish: argparse.Namespace, *, settings: Settings, say: PrintLine) -> int:
    """Restore a backup into the embedded or the external database; return exit status 0, or 1 if restored
    data fail a check.

    The restored data are in place in both cases. Previous embedded data are kept in a folder, which a line
    names; an external database must be empty. Raises CannotRestore, also if Evertalk runs with embedded
    servers, BadBackup, EmbeddedServerFailed, DumpFailed, SchemaRefused, StorageUnavailable, TimeoutError,
    OSError and errors of the migration. After an error while it is filled, an external database may hold
    restored data.
    """
    into = restore_embedded if settings.embedded_postgres else restore_external
    path = wish.path.expanduser().absolute()
    return await into(settings, path, foreign=wish.foreign, erasures=wish.erasures, say=say)


async def restore_embedded(
    settings: Settings, path: Path, *, foreign: bool = False, erasures: Path | None = None, say: PrintLine
) -> int:
    """Build the restored servers and folders beside the present ones, and swap both; return exit status 0 or
    1.

    The previous data are kept in a folder, which a line names. Status 1 means that restored data fail a
    check. Raises CannotRestore, BadBackup, EmbeddedServerFailed and DumpFailed.
    """
    crash_point = build_crash_point(settings.crash_point)
    data = settings.data_dir
    data.mkdir(parents=True, exist_ok=True, mode=0o711 if os.geteuid() == 0 else 0o700)
    with hold_data_folder(data):
        finish_swap(data)
        check_backup(settings, path, foreign=foreign)
        logged = await _load_erasures(settings, erasures, say)
        with open_stage(settings, path) as stage:
            done = await _build(settings, path, stage, logged)
            crash_point("restore_before_swap")
            aside = _swap(data, stage, done.manifest, crash_point)
    for line in describe_restore(done, path):
        say(line)
    if aside is not None:
        say(describe_aside(aside, data))
    say("Start it: ./evertalk up")
    return 0 if not done.filled.broken else 1


async def restore_external(
    settings: Settings, path: Path, *, foreign: bool = False, erasures: Path | None = None, say: PrintLine
) -> int:
    """Restore into an external database; return exit status 0, or 1 if restored data fail a check.

    The data folder is not changed, so that agents' folders stay in the backup. Raises CannotRestore if the
    database is not empty, so no data can be lost.
    """
    assert settings.database_url is not None
    url = settings.direct_url(settings.database_url.get_secret_value())
    check_backup(settings, path, foreign=foreign)
    if not await is_empty(url):
        raise CannotRestore(
            f"the database at {format_location(url)} is not empty; nothing was changed",
            advice="Stop Evertalk, run ./evertalk backup (it brings the log of erasures up to date), make an "
            "empty database, point DATABASE_URL to it, and restore again. The old one stays as it is.",
        )
    logged = ErasureFile(erasures or settings.backups / ERASURES).read()
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open_stage(settings, path) as stage:
        manifest = unpack(path, stage)
        done = await _fill(url, stage, manifest, logged)
    for line in describe_restore(done, path):
        say(line)
    say(f"The agents' folders are in its {FILES}; they belong into {settings.data_dir}.")
    return 0 if not done.filled.broken else 1


def check_backup(settings: Settings, path: Path, *, foreign: bool) -> Manifest:
    """Read a whole backup and check that it can be restored here; change nothing, and return its manifest.

    `foreign` accepts the seal of another installation. Raises BadBackup if it is damaged or newer,
    CannotRestore for a foreign seal.
    """
    manifest = read_manifest(open_archive(path))
    if manifest.postgres_major > POSTGRES_MAJOR and settings.embedded_postgres:
        raise BadBackup(
            f"it was made by PostgreSQL {manifest.postgres}, and this is {POSTGRES_MAJOR}",
            advice="Update Evertalk first, then restore it.",
        )
    state = build_schema_state(manifest.revision, made_by=manifest.evertalk)
    if state.standing is Standing.NEWER:
        raise BadBackup(
            f"its {state.describe()}",
            advice=f"Update Evertalk to {manifest.evertalk} first, then restore it.",
        )
    if (refusal := state.find_refusal()) is not None:
        raise BadBackup(f"its {refusal}", advice=refusal.advice)
    key = _present_key(settings)
    if key is not None and not foreign and not check_seal(open_archive(path), key):
        raise CannotRestore(
            "its seal is not of this installation's secret key: it is of another one, or was changed since",
            advice="When you know where it comes from, add --foreign; it may bring a key of its own.",
        )
    unpack(path, None)
    return manifest


def describe_restore(done: RestoreResult, path: Path) -> list[str]:
    """Return the lines that report a restore: counts, schema, repeated erasures, and checks that failed."""
    lines = [
        f"Restored {path.name} ({done.manifest.made_at:%Y-%m-%d %H:%M} UTC): {format_counts(done.manifest)}.",
        f"  {build_schema_state(done.manifest.revision, made_by=done.manifest.evertalk).describe_change()}",
        f"  erasures done again: {done.filled.erased_again}",
        f"  log_epoch is {done.filled.log_epoch} now: every open page reloads",
        "  operators have to log in again; keys, operators and access are as they were then",
        "  what was spent since then is not counted: look at today's cap",
    ]
    lines += [f"  a promise does not hold: {line}" for line in done.filled.broken[:20]]
    return lines


@contextlib.contextmanager
def hold_data_folder(data: Path) -> Iterator[None]:
    """Lock the data folder while the block runs, so that Evertalk cannot start. Raises CannotRestore if it
    runs.
    """
    (data / "servers").mkdir(exist_ok=True, mode=0o711 if os.geteuid() == 0 else 0o700)
    try:
        # `evertalk up` holds the first lock; commands that start the servers for a moment hold the second.
        with FolderLock(data / "up.lock"):
            with FolderLock(data / "servers" / "lock"):
                pass
            yield
    except FolderInUse:
        raise CannotRestore(
            "Evertalk runs with this data folder; nothing was changed",
            advice="Stop it first: Ctrl-C where it runs, or systemctl [--user] stop evertalk.",
        ) from None


@contextlib.contextmanager
def open_stage(settings: Settings, path: Path) -> Iterator[Path]:
    """Yield an empty folder within the data folder, and delete it afterwards.

    Its content can be renamed into place, since it is on the same disk. Raises CannotRestore if the disk
    lacks room.
    """
    stage = settings.data_dir / STAGE
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700)
    needed = 4 * path.stat().st_size + _SPARE_BYTES
    free = shutil.disk_usage(stage).free
    try:
        if free < needed:
            raise CannotRestore(
                f"{free / 2**20:,.0f} MiB are free, and {needed / 2**20:,.0f} MiB may be needed",
                advice="The present state is kept beside the restored one. Make room; nothing was changed.",
            )
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


async def _load_erasures(settings: Settings, erasures: Path | None, say: PrintLine) -> list[Erased]:
    """Return the erasures to repeat: those of the erasure log, and those of the file `erasures`, if given.

    The log is first updated from the present database, if that starts. Raises CannotRestore if the file is
    missing.
    """
    file = ErasureFile(settings.backups / ERASURES)
    if (settings.data_dir / "servers" / "pg" / "PG_VERSION").is_file():
        try:
            async with open_database(settings) as url:
                if (await load_facts(url))[1] is not None:
                    await copy_erasures(url, file)
        except (EmbeddedServerFailed, EvertalkError, OSError) as error:
            first = str(error).splitlines()[0]
            say(f"The present database cannot be read ({first}): erasures come from {ERASURES} alone.")
    if erasures is None:
        return file.read()
    if not erasures.is_file():
        advice = "Nothing was changed. Look for the right one."
        raise CannotRestore(f"there is no file {erasures}", advice=advice)
    return [*file.read(), *ErasureFile(erasures).read()]


async def _build(settings: Settings, path: Path, stage: Path, logged: Sequence[Erased]) -> RestoreResult:
    """Build a data folder and a database in `stage` from the backup, migrated and checked."""
    manifest = unpack(path, stage)
    fresh = stage / "data"
    fresh.mkdir(mode=0o700)
    unpack_folder(stage / FILES, fresh)
    if KEY in manifest.members:
        write_private(fresh / "secret_key", (stage / KEY).read_bytes())
    async with build_servers(settings, stage) as running:
        return await _fill(running.database_url, stage, manifest, logged)


def build_servers(settings: Settings, stage: Path) -> EmbeddedServers:
    """Return empty embedded servers in `stage`, not started; their folder belongs to the owner of the present
    one.
    """
    servers = stage / "servers"
    servers.mkdir(mode=0o711)
    owner = (settings.data_dir / "servers").stat()
    if os.geteuid() == 0:
        os.chown(servers, owner.st_uid, owner.st_gid)
    return EmbeddedServers(servers, wanted=EmbeddedChoice(redis=False), account=settings.servers_account)


async def _fill(url: str, stage: Path, manifest: Manifest, logged: Sequence[Erased]) -> RestoreResult:
    about = f"{manifest.made_at:%Y%m%dT%H%M%S}Z"
    return RestoreResult(
        manifest=manifest, filled=await restore_dump(url, stage / DATABASE, logged, about=about)
    )


def _swap(data: Path, stage: Path, manifest: Manifest, crash_point: CrashPoint) -> Path | None:
    files = [*FOLDERS, *(["secret_key"] if KEY in manifest.members else [])]
    built = [("servers/pg", stage / "servers" / "pg"), *((name, stage / "data" / name) for name in files)]
    return swap_in(data, "restore", built, crash_point=crash_point)


def describe_aside(aside: Path, data: Path) -> str:
    """Return the text that names the folder of the previous data, its content, and what the backup lacks."""
    kept = [place for place in ("servers/pg", *FOLDERS, "secret_key") if (aside / place).exists()]
    lost = [place for place in kept if not (data / place).exists()]
    known = {"servers/pg": "the database"}
    listed = ", ".join(known.get(place, place) for place in kept)
    text = f"What was there before lies in {aside}" + (f": {listed}." if listed else ".")
    if lost:
        text += f" The backup has no {', no '.join(lost)}: copy what you need from there."
    return f"{text} Delete the folder when all is well."


def swap_in(
    data: Path, what: str, built: Sequence[tuple[str, Path]], *, crash_point: CrashPoint = ignore_crash_point
) -> Path | None:
    """Move the present data aside, and the `built` folders (pairs of a place and a path) to their places.

    After a crash, the next start finishes the swap. Returns the folder of the previous data; None if there
    were none.
    """
    aside = _free(data / f"before-{what}-{datetime.now(UTC):%Y%m%dT%H%M%S}Z")
    places = [*(place for place, _ in built), "servers/valkey"]
    # List only existing paths: a swap that resumes after a crash must not move data created since.
    moves = [(data / place, aside / place) for place in places if (data / place).exists()]
    moves_in = [(source, data / place) for place, source in built if source.exists()]
    if moves:
        aside.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700)
    # The lock keeps other processes from starting the servers while their folder is renamed.
    with FolderLock(data / "servers" / "lock"):
        begin_swap(data, [*moves, *moves_in], write_private)
        finish_swap(data, between=lambda: crash_point("restore_mid_swap"))
    for folder in (data, data / "servers"):
        sync_folder(folder)
    return aside if moves else None


def _free(path: Path) -> Path:
    number = 1
    while path.exists():
        number += 1
        path = path.with_name(f"{path.name.split('_')[0]}_{number}")
    return path


def _present_key(settings: Settings) -> bytes | None:
    """Return this installation's secret key; None if it has none yet."""
    if settings.secret_key is None and not (settings.data_dir / "secret_key").is_file():
        return None
    return resolve_secret_key(settings)
