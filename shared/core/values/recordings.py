"""Sound recordings: their type and length by header bytes, and the price of transcribing them."""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from typing import Literal

_ENDINGS = {
    "audio/ogg": "ogg", "audio/webm": "webm", "audio/mp4": "mp4", "audio/mpeg": "mp3", "audio/wav": "wav",
    "audio/flac": "flac",
}  # fmt: skip
AUDIO_MIMES = tuple(_ENDINGS)
"""MIME types of recordings that can be transcribed."""
SpeechFormat = Literal["opus", "mp3"]
"""Audio formats of spoken answers: Opus for Telegram's voice notes, MP3 for browsers."""
SPEECH_MIMES: dict[SpeechFormat, str] = {"opus": "audio/ogg", "mp3": "audio/mpeg"}
"""MIME type of each format of spoken answers."""
HEARD = "🎤"
"""Sign before text that was transcribed, not typed."""
RECORDING_NOTE = "[voice message]"
"""Note for the model before a transcript; clients show a player instead."""
_MAGIC = (
    (b"OggS", "audio/ogg"),
    (b"\x1aE\xdf\xa3", "audio/webm"),
    (b"fLaC", "audio/flac"),
    (b"ID3", "audio/mpeg"),
    *((bytes((0xFF, second)), "audio/mpeg") for second in (0xF2, 0xF3, 0xFA, 0xFB)),
)
_PICTURES = frozenset({b"hei", b"hev", b"avi"})
"""Marks of HEIC and AVIF pictures, which use the same container as MP4 audio."""
_OPUS_RATE = 48_000
_PART_BYTES = 65_536
"""Bytes at each end of a file that are searched for headers."""
LEAST_BYTES_PER_SECOND = 1_500
"""Least bytes per second of recorded speech, to bound the length of recordings that do not state it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Recording as it arrived; `seconds` is the length that the sender or its header states, None if
    unknown.
    """

    body: bytes
    mime: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingLimits:
    """Limits of transcription: the longest recording in minutes, the largest in bytes, and the price.

    `micro_per_minute` is in micro-dollars, None if unknown.
    """

    minutes: float
    bytes: int
    micro_per_minute: int | None = None

    def cost_micro(self, seconds: float) -> int | None:
        """Return the price of transcribing `seconds`, in micro-dollars, rounded up; None if it is unknown."""
        if self.micro_per_minute is None:
            return None
        return math.ceil(self.micro_per_minute * seconds / 60)

    def estimate_seconds(self, recording: Recording) -> float:
        """Return the length of a recording in seconds, at most the limit.

        Without a stated length it is the longest that its bytes can hold, at 1,500 bytes per second.
        """
        most = self.minutes * 60
        if recording.seconds is not None:
            return min(recording.seconds, most)
        return min(len(recording.body) / LEAST_BYTES_PER_SECOND, most)


def audio_mime(content: bytes) -> str | None:
    """Return the MIME type of a sound file by its first bytes; None if it is not one of `AUDIO_MIMES`."""
    for magic, mime in _MAGIC:
        if content.startswith(magic):
            return mime
    if content[:4] == b"RIFF" and content[8:12] == b"WAVE":
        return "audio/wav"
    is_picture = content[8:11] in _PICTURES or content[8:12] in (b"mif1", b"msf1")
    return "audio/mp4" if content[4:8] == b"ftyp" and not is_picture else None


def header_seconds(content: bytes, mime: str) -> float | None:
    """Return the length in seconds that the header states, without decoding; None if it states none.

    Only Ogg with Opus, WAV and MP4 are read; the other types give None.
    """
    match mime:
        case "audio/ogg":
            return _ogg_seconds(content)
        case "audio/wav":
            return _wav_seconds(content)
        case "audio/mp4":
            return _mp4_seconds(content)
    return None


def silence(*, seconds: int = 1) -> bytes:
    """Return a WAV file of silence (16 kHz, mono, 16 bits), for testing a transcription service."""
    rate, size = 16_000, 2 * 16_000 * seconds
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16)
    return (
        struct.pack("<4sI4s", b"RIFF", size + 36, b"WAVE")
        + form
        + struct.pack("<4sI", b"data", size)
        + bytes(size)
    )


def name_recording(mime: str) -> str:
    """Return a file name such as `recording.ogg` for a MIME type; `.bin` for an unknown one."""
    return f"recording.{_ENDINGS.get(mime, 'bin')}"


def guess_language(app: str, chosen: str = "") -> str:
    """Return a language code for transcription, such as `de`; empty if unknown.

    `app` is the app's language, ignored if English, which people of all languages use; `chosen` is the
    person's choice.
    """
    guess = re.split(r"[-_,;]", chosen or app)[0].strip().lower()
    return guess if len(guess) == 2 and (chosen or guess != "en") else ""


def transcript_text(words: str) -> str:
    """Return transcribed text with the sign of a microphone before it."""
    return f"{HEARD} {words}"


def _ogg_seconds(content: bytes) -> float | None:
    """Return the length by the position of the last page; None unless the codec is Opus, whose
    rate is fixed.
    """
    at = content.rfind(b"OggS", -_PART_BYTES)
    if b"OpusHead" not in content[:_PART_BYTES] or at < 0 or at + 14 > len(content):
        return None
    position = _number(content, at + 6, 8)
    return None if position >= 2**63 else position / _OPUS_RATE


def _wav_seconds(content: bytes) -> float | None:
    at, data = content.find(b"fmt ", 0, _PART_BYTES), content.find(b"data", 0, _PART_BYTES)
    rate = _number(content, at + 16, 4) if at >= 0 else 0
    if not rate:
        return None
    claimed = _number(content, data + 4, 4) if data >= 0 else 0
    # Streaming programs write the largest possible number.
    return max(len(content), claimed if claimed < 2**32 - 1 else 0) / rate


def _mp4_seconds(content: bytes) -> float | None:
    at = content.find(b"mvhd", 0, _PART_BYTES)
    if at < 0:
        at = content.rfind(b"mvhd", -_PART_BYTES)
    if at < 0 or at + 36 > len(content):
        return None
    long = content[at + 4] == 1
    scale = int.from_bytes(content[at + (24 if long else 16) :][:4], "big")
    duration = int.from_bytes(content[at + (28 if long else 20) :][: 8 if long else 4], "big")
    return duration / scale if scale and duration < 2**32 - 1 else None


def _number(content: bytes, at: int, size: int) -> int:
    return int.from_bytes(content[at : at + size], "little")
