"""A progress bar on the terminal's last line; it prints nothing if the output is no terminal."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_WIDTH = 30
_REDRAW_SECONDS = 0.1


class ProgressBar:
    def __init__(self, total: int, *, stream: TextIO | None = None) -> None:
        self._total, self._done, self._label = total, 0, ""
        self._stream = stream or sys.stderr
        self._began, self._drawn = time.monotonic(), 0.0

    def advance(self, count: int = 1, *, label: str | None = None) -> None:
        self._done += count
        self._label = self._label if label is None else label
        if self._stream.isatty() and time.monotonic() - self._drawn >= _REDRAW_SECONDS:
            self._drawn = time.monotonic()
            self._stream.write(f"\r\x1b[K{self._line()}")
            self._stream.flush()

    def close(self) -> None:
        if self._stream.isatty():
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _line(self) -> str:
        filled = _WIDTH * self._done // max(1, self._total)
        pace = self._done / max(0.001, time.monotonic() - self._began)
        left = (self._total - self._done) / pace if pace else 0.0
        bar = f"{'█' * filled}{'░' * (_WIDTH - filled)}"
        return f"{bar} {self._done}/{self._total} · {pace:.1f}/s · {left:.0f} s left · {self._label}"
