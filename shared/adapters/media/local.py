"""Transcription on this machine: each recording is read by its own process, with a model from a folder."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import structlog

from shared.core.values.errors import ModelRejectedRequest, ModelUnavailable
from shared.core.values.messages import storable
from shared.core.values.recordings import Recording
from shared.core.verdicts.breaker import BreakerState
from shared.ports import Transcript

log = structlog.get_logger(__name__)

SECONDS = 300.0
"""Seconds that the process may take; a slow machine needs half of the recording's length."""
WAIT_SECONDS = 60.0
"""Seconds to wait for other recordings: one is transcribed at a time, since it uses all cores."""
UNREADABLE = 3
"""Exit code of the worker if the data are no recording."""
_ROOT = Path(__file__).resolve().parents[3]


class LocalTranscriber:
    """Transcriber that loads its model in a new process for each recording, to free the memory afterwards."""

    def __init__(self, folder: Path, *, seconds: float = SECONDS) -> None:
        self.model = f"local/{folder.name}"
        self._folder = folder
        self._seconds = seconds
        self._place = asyncio.Semaphore(1)

    def list_states(self) -> Mapping[str, BreakerState]:
        """Return an empty mapping, since no provider is called."""
        return {}

    async def transcribe(
        self, recording: Recording, *, language: str = "", session: int | None = None
    ) -> Transcript:
        """Return the text and length of a recording; `language` is a guess, such as `de`, or "".

        Raises ModelUnavailable if the worker fails, is too slow or busy, ModelRejectedRequest if it cannot be
        decoded.
        """
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._place.acquire()
        except TimeoutError as error:
            raise ModelUnavailable("too many recordings wait") from error
        try:
            return await self._run_worker(recording, language)
        finally:
            self._place.release()

    async def _run_worker(self, recording: Recording, language: str) -> Transcript:
        environment = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "shared.adapters.media.local_worker", str(self._folder), language,
            str(round(self._seconds)), cwd=_ROOT, env={**environment, "HF_HUB_OFFLINE": "1"},
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            out, said = await asyncio.wait_for(process.communicate(recording.body), self._seconds)
        except TimeoutError as error:
            raise ModelUnavailable("took too long") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode == UNREADABLE:
            raise ModelRejectedRequest("the recording cannot be decoded")
        if process.returncode != 0:
            reason = storable(said.decode("utf-8", "replace")).strip().rpartition("\n")[2][:300]
            raise ModelUnavailable(f"the worker ended with {process.returncode}: {reason}")
        told = json.loads(out)
        return Transcript(text=storable(" ".join(str(told["text"]).split())), seconds=float(told["seconds"]))
