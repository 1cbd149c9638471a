"""Worker process that transcribes one recording from standard input with faster-whisper."""

from __future__ import annotations

import importlib
import io
import json
import os
import resource
import sys
from typing import Any

from shared.adapters.media.local import UNREADABLE

MOST_MEMORY_BYTES = 6 * 1024**3
"""Maximum bytes of the worker's address space."""


def main(folder: str, language: str, seconds: str) -> int:
    """Transcribe the recording from standard input with the model in `folder`; return the exit code.

    `language` is a code or empty, `seconds` the CPU seconds for each core.
    """
    cores = os.cpu_count() or 1
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) * cores, int(seconds) * cores))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    content = sys.stdin.buffer.read()
    whisper = importlib.import_module("faster_whisper")
    model = whisper.WhisperModel(folder, compute_type="int8", local_files_only=True)
    return write_heard(model, content, language)


def write_heard(model: Any, content: bytes, language: str) -> int:
    """Write the text and length in seconds as JSON.

    Returns the exit code, UNREADABLE if the decoder refuses the data.
    """
    try:
        segments, about = model.transcribe(io.BytesIO(content), language=language or None)
        words = " ".join(segment.text.strip() for segment in segments)
    except (ValueError, IndexError, OSError):
        return UNREADABLE
    sys.stdout.write(json.dumps({"text": words, "seconds": about.duration}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
