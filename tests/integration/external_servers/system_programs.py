"""Programs that Debian's packages bring: without them tests are skipped, in CI they fail."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from shared.adapters.embedded.process import die_with_parent
from tests.kit.needed_programs import find_program, postgres_folders, refuse

START_SECONDS = 60.0
STOP_SECONDS = 20.0


def program(name: str, *, package: str) -> Path:
    found = find_program(name)
    return Path(found) if found else missing(name, package)


def postgres_programs() -> Path:
    """The folder of the newest PostgreSQL here that knows TLS."""
    return next(iter(postgres_folders()), None) or missing("a PostgreSQL with TLS", "postgresql")


def missing(name: str, package: str) -> NoReturn:
    refuse(f"{name} is not on this machine (Debian: apt-get install {package})")


def as_nobody() -> dict[str, Any]:
    """PostgreSQL and PgBouncer refuse to be root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def own(*paths: Path) -> None:
    """To whom the server runs as."""
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        for path in paths:
            os.chown(path, nobody.pw_uid, nobody.pw_gid)


def version_of(found: Path) -> tuple[int, ...]:
    shown = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=20, check=True)
    number = re.search(r"(\d+(?:\.\d+)+)", shown.stdout)
    assert number is not None, shown.stdout
    return tuple(map(int, number.group(1).split(".")))


@contextlib.asynccontextmanager
async def running(
    command: Sequence[str | Path], *, log: Path, ports: Sequence[int]
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Until somebody listens at each of its ports; it ends with the block."""
    with log.open("ab") as words:
        process = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.DEVNULL, stdout=words, stderr=words, cwd="/",
            preexec_fn=die_with_parent(signal.SIGTERM), **as_nobody(),
        )  # fmt: skip
    try:
        async with asyncio.timeout(START_SECONDS):
            for port in ports:
                await _listened(process, port, log)
        yield process
    finally:
        await asyncio.to_thread(stop, process)


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_SECONDS)


async def _listened(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    while True:
        assert process.poll() is None, f"{process.args!r} ended:\n{log.read_text(errors='replace')[-2000:]}"
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.05)
