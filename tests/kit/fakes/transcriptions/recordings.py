"""Recordings that no decoder has to understand: the right first bytes, and what is said in them as text."""

from __future__ import annotations

MAGIC = {
    "ogg": b"OggS", "webm": b"\x1aE\xdf\xa3", "mp4": b"ftyp", "mp3": b"ID3", "wav": b"WAVE", "flac": b"fLaC",
}  # fmt: skip


def recording(words: str, *, kind: str = "ogg", seconds: float = 3.0, size: int = 0) -> bytes:
    """`seconds` are for the fake service; the header says nothing of them."""
    before = {"wav": b"RIFF\x00\x00\x00\x00", "mp4": b"\x00\x00\x00\x18"}.get(kind, b"")
    said = before + MAGIC[kind] + b"SAY<" + words.encode() + b">" + f"SECONDS<{seconds}>".encode()
    return said + bytes(max(0, size - len(said)))


def opus(words: str, *, header_seconds: float) -> bytes:
    """An Ogg file whose last page claims this length."""
    position = int(header_seconds * 48_000).to_bytes(8, "little")
    return recording(words) + b"OpusHead" + bytes(40) + b"OggS\x00\x04" + position + bytes(16)
