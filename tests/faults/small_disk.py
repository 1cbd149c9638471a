"""A disk of a few megabytes that a server's files may lie on, made without asking anybody's leave."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from shared.adapters.embedded.process_user import ProcessUser

_KEEPER = 'mount -t tmpfs -o "$1" none "$2" && echo made && exec cat'
_FILLER = "something-else"
_CHUNK = b"\0" * 4096
_AGAIN_SECONDS = 0.01


class NoSmallDisk(Exception):
    """This machine lets nobody mount anything."""


class SmallDisk:
    """What lies in `folder` may not be larger than the disk, all together."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextlib.asynccontextmanager
    async def full(self) -> AsyncIterator[None]:
        """Something else takes every byte that is free, and each that becomes free, until it is done."""
        self._fill()
        filling = asyncio.create_task(self._keep_full())
        try:
            yield
        finally:
            filling.cancel()
            await asyncio.wait([filling])
            (self.folder / _FILLER).unlink()

    async def _keep_full(self) -> None:
        while True:
            await asyncio.sleep(_AGAIN_SECONDS)
            self._fill()

    def _fill(self) -> None:
        with contextlib.suppress(OSError), (self.folder / _FILLER).open("ab", buffering=0) as filler:
            while filler.write(_CHUNK) == len(_CHUNK):
                continue


@contextlib.contextmanager
def small_disk(at: Path, *, megabytes: int, account: ProcessUser) -> Iterator[SmallDisk]:
    """In memory, for the programs of this account. Raises NoSmallDisk."""
    account.folder(at)
    if os.geteuid() != 0:
        with _kept(at, f"size={megabytes}m,mode=0700") as folder:
            yield SmallDisk(folder)
        return
    owner = at.stat()
    options = f"size={megabytes}m,mode=0700,uid={owner.st_uid},gid={owner.st_gid}"
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(at)]
    made = subprocess.run(command, capture_output=True, timeout=20)
    if made.returncode != 0:
        raise NoSmallDisk(made.stderr.decode(errors="replace").strip())
    try:
        yield SmallDisk(at)
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True, timeout=20)


@contextlib.contextmanager
def _kept(at: Path, options: str) -> Iterator[Path]:
    """In a namespace of its own, where anybody may mount; it lasts as long as a process in it."""
    if shutil.which("unshare") is None:
        raise NoSmallDisk("there is no `unshare` here")
    shell = ["sh", "-c", _KEEPER, "keeper", options, str(at)]
    command = ["unshare", "--user", "--map-root-user", "--mount", *shell]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as keeper:
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        assert keeper.stderr is not None
        if keeper.stdout.readline() != b"made\n":
            raise NoSmallDisk(keeper.stderr.read().decode(errors="replace").strip())
        try:
            # The system shows what another process of ours sees under its number.
            yield Path(f"/proc/{keeper.pid}/root{at}")
        finally:
            keeper.stdin.close()
