"""Commands of Evertalk as an operator types them, with settings of one's own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
KEY = "k" * 48


def environment(data: Path, url: str, redis_url: str) -> Mapping[str, str]:
    return {
        **os.environ, "PYTHONPATH": str(ROOT), "EVERTALK_DATA_DIR": str(data), "EVERTALK_SECRET_KEY": KEY,
        "DATABASE_URL": url, "REDIS_URL": redis_url,
    }  # fmt: skip


async def run(*arguments: str, said_by: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run, [sys.executable, "-P", "-m", "shared", *arguments],
        env=dict(said_by), capture_output=True, text=True, timeout=150, cwd="/",
    )  # fmt: skip
