"""Recordings for the fake service: the right first bytes, and the spoken words as text."""

from __future__ import annotations

MAGIC = {
    "ogg": b"OggS", "webm": b"\x1aE\xdf\xa3", "mp4": b"ftyp", "mp3": b"ID3", "wav": b"WAVE", "flac": b"fLaC",
}  # fmt: skip


def recording(words: str, *, kind: str = "ogg", seconds: float = 3.0, size: int = 0) -> bytes:
    """Return a recording of these words.

    Only the fake service reads `seconds`; the file's header does not state a length.
    """
    before = {"wav": b"RIFF\x00\x00\x00\x00", "mp4": b"\x00\x00\x00\x18"}.get(kind, b"")
    said = before + MAGIC[kind] + b"SAY<" + words.encode() + b">" + f"SECONDS<{seconds}>".encode()
    return said + bytes(max(0, size - len(said)))


def opus(words: str, *, header_seconds: float) -> bytes:
    """Return an Ogg file whose last page states this length."""
    position = int(header_seconds * 48_000).to_bytes(8, "little")
    return recording(words) + b"OpusHead" + bytes(40) + b"OggS\x00\x04" + position + bytes(16)
