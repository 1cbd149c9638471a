"""The supervisor lives as long as the deployment: it loads no library that only a start needs."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.deployment.up_process import PATIENCE_SECONDS, environment, stopped

__all__ = ["environment", "stopped"]

HEAVY = {
    "aiogram", "aiohttp", "alembic", "anthropic", "arq", "openai", "redis", "sqlalchemy", "sqlmodel",
    "tiktoken",
}  # fmt: skip
MOST_MIB = 40.0
"""Memory of the supervisor, with shared pages divided among the processes that share them."""
_IMPORTED = re.compile(r"import time: +\d+ \| +\d+ \| +(\w+)")
needs_smaps = pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="the system does not tell what a process holds"
)


def start_and_list_imports(environment: dict[str, str]) -> tuple[subprocess.Popen[str], set[str]]:
    """Start `up`, and return it with the packages that its own process has imported when it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-P", "-m", "shared", "up"],
        env={**environment, "EVERTALK_HTTP_PORT": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd="/",
    )
    assert process.stdout is not None
    imported: set[str] = set()
    for line in process.stdout:
        if found := _IMPORTED.match(line):
            imported.add(found[1])
        if "Ctrl-C" in line:
            break
    return process, imported


def read_pss_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) / 1024


@needs_smaps
def test_supervisor_imports_no_library_of_a_start(
    environment: dict[str, str], stopped: list[subprocess.Popen[str]]
) -> None:
    process, imported = start_and_list_imports(environment)
    stopped.append(process)
    assert "asyncpg" in imported
    assert imported & HEAVY == set()
    assert read_pss_mib(process.pid) <= MOST_MIB
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_SECONDS) == 0
