"""Text of a PDF, page by page, from a child process: a hostile file can end only that process."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import sys

from shared.core.values.files import find_pdf

SECONDS = 60.0
"""Seconds after which the child process is killed."""
MOST_PAGES = 2_000
"""Maximum pages that are read; further ones are left out."""
CPU_SECONDS = 50
"""Maximum CPU seconds of the child process."""
MEMORY_BYTES = 1_024 * 1024 * 1024
"""Maximum bytes of the child process's address space."""
NICE = 10
"""Nice level of the child process, so that answers do not wait for it."""


class BrokenPdf(Exception):
    """Raised for a PDF that cannot be read; the message says why."""


async def extract_pages(content: bytes, *, seconds: float = SECONDS) -> list[str]:
    """Return the texts of at most MOST_PAGES pages, read in a child process.

    Raises BrokenPdf if the process fails or takes longer than `seconds`.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shared.adapters.files.pdf_pages",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(seconds):
            out, _ = await process.communicate(content)
    except TimeoutError:
        raise BrokenPdf(f"took longer than {seconds:g} seconds") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        raise BrokenPdf("is broken, encrypted or far too large")
    pages: list[str] = json.loads(out)
    return pages


def read_pages(content: bytes) -> list[str]:
    """Return the texts of at most MOST_PAGES pages; "" for an unreadable page.

    Raises ValueError for an encrypted file, and errors of pypdf for a broken one.
    """
    from pypdf import PdfReader

    from shared.adapters.files.pdf_layout import read_page

    reader = PdfReader(io.BytesIO(content[find_pdf(content) or 0 :]))
    if reader.is_encrypted and not reader.decrypt(""):
        raise ValueError("encrypted")
    pages: list[str] = []
    for number in range(min(len(reader.pages), MOST_PAGES)):
        try:
            pages.append(read_page(reader.pages[number]))
        except Exception:  # noqa: BLE001 - a broken page may fail in any way; the others are still wanted
            pages.append("")
    return pages


def main() -> int:
    """Read a PDF from standard input and write its pages as a JSON list; return 1 if it is broken."""
    _limit()
    try:
        pages = read_pages(sys.stdin.buffer.read())
    except Exception:  # noqa: BLE001 - a hostile file may fail in any way; the answer is always the same
        return 1
    sys.stdout.buffer.write(json.dumps(pages).encode())
    return 0


def _limit() -> None:
    """Limit CPU time and memory of this process.

    Where the system cannot limit them, the parent's timeout does.
    """
    try:
        import resource
    except ImportError:
        return
    os.nice(NICE)
    for which, most in ((resource.RLIMIT_CPU, CPU_SECONDS), (resource.RLIMIT_AS, MEMORY_BYTES)):
        with contextlib.suppress(ValueError, OSError):  # macOS knows no limit of addresses
            resource.setrlimit(which, (most, most))


if __name__ == "__main__":
    sys.exit(main())
