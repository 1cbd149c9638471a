"""Has what nobody vouches for opened by a process of its own: with little memory and time, and no secrets."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, Literal

import structlog

log = structlog.get_logger(__name__)

OPEN_SECONDS = 20.0
ROOT = Path(__file__).resolve().parent.parent.parent

Kind = Literal["picture", "pdf", "page"]


def _bare_environment() -> dict[str, str]:
    """No key and no token of ours is within reach of a file."""
    return {name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT") if name in os.environ}


async def opened_elsewhere(
    kind: Kind, content: bytes, *, seconds: float = OPEN_SECONDS
) -> tuple[dict[str, Any] | None, bytes]:
    """By a process of its own with little memory and time: whatever a file does, it does it there.

    None when the file cannot be opened.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shared.adapters.opening", kind, cwd=ROOT, env=_bare_environment(),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        out, _ = await asyncio.wait_for(process.communicate(content), seconds)
    except TimeoutError:
        log.warning("file_took_too_long", kind=kind)
        return None, b""
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    line, _, body = out.partition(b"\n")
    if process.returncode != 0 or not line:
        return None, b""
    head = json.loads(line)
    return (head, body) if isinstance(head, dict) else (None, b"")
