"""Parsing of a stream into server-sent events, including the ways in which servers deviate from the standard.

These are: no empty line between events, one JSON text over several lines with a single `data:`, `data:`
twice, an `error:` line, and `[DONE]` without a field name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

_MOST_JOINED_LINES = 64
"""Maximum lines of one event in which the end of another, without an empty line, is looked for."""
_DONE = b"[DONE]"


@dataclass(slots=True)
class EventLines:
    """Parser of one stream; it keeps the beginning of an incomplete event."""

    has_comment: bool = False
    """Whether the last fed bytes had a comment, which shows that the server is alive."""
    _begun: bytearray = field(default_factory=bytearray)
    """Beginning of an incomplete line."""
    _skips_feed: bool = False
    """Whether the last line ended with a carriage return, so that a line feed that follows belongs to it."""
    _data: list[bytes] = field(default_factory=list)
    _data_bytes: int = 0
    _kind: str | None = None

    @property
    def pending_bytes(self) -> int:
        """Bytes of the incomplete event so far."""
        return self._data_bytes + len(self._begun)

    def feed(self, chunk: bytes | None) -> list[tuple[str | None, str]]:
        """Return (name, data) of each event that these bytes complete; name is None if not given.

        `chunk` None means the end of the stream.
        """
        self.has_comment = False
        events: list[tuple[str | None, str]] = []
        for line in self._take_lines(chunk):
            self._read(line, events)
        if chunk is None:
            self._dispatch(events)
        return events

    def _take_lines(self, chunk: bytes | None) -> list[bytes]:
        begun = self._begun
        if chunk is None:
            lines = bytes(begun).splitlines()
            begun.clear()
            return lines
        if self._skips_feed and chunk:
            self._skips_feed = False
            chunk = chunk.removeprefix(b"\n")
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        if not end:
            begun += chunk
            return []
        whole = bytes(begun) + chunk[:end] if begun else chunk[:end]
        self._begun = bytearray(chunk[end:])
        self._skips_feed = whole.endswith(b"\r")
        return whole.splitlines()

    def _read(self, line: bytes, events: list[tuple[str | None, str]]) -> None:
        if not line:
            self._dispatch(events)
            return
        if line.startswith(b"data:"):
            while line.startswith(b"data:"):
                line = line[5:].removeprefix(b" ")
            if self._data and line.startswith((b"{", _DONE)) and self._is_whole():
                self._dispatch(events)
            self._add(line)
            return
        if line.startswith(b":"):
            self.has_comment = True
            return
        self._read_other(line, events)

    def _read_other(self, line: bytes, events: list[tuple[str | None, str]]) -> None:
        name, colon, value = line.partition(b":")
        match name:
            case b"event" if colon:
                self._kind = value.strip().decode("utf-8", "replace")
            case b"error" if colon:
                self._kind = "error"
                self._add(value.strip())
            case b"id" | b"retry":
                pass
            case _ if line.strip() == _DONE:
                self._dispatch(events)
                self._add(_DONE)
            case _ if self._data or line.lstrip().startswith(b"{"):
                self._add(line)
            case _:
                pass

    def _add(self, value: bytes) -> None:
        self._data.append(value)
        self._data_bytes += len(value) + 1

    def _dispatch(self, events: list[tuple[str | None, str]]) -> None:
        if self._data or self._kind:
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            events.append((self._kind, data.decode("utf-8", "replace")))
        self._data, self._data_bytes, self._kind = [], 0, None

    def _is_whole(self) -> bool:
        """Return whether the data so far are a complete JSON text, so that a new event begins."""
        if len(self._data) > _MOST_JOINED_LINES or not self._data[-1].rstrip().endswith(b"}"):
            return False
        try:
            json.loads(b"\n".join(self._data))
        except (ValueError, RecursionError):
            return False
        return True
