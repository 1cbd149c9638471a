"""Recordings: named by their first bytes, their length by their headers, and nothing hostile is believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.values.recordings import (
    AUDIO_MIMES,
    Recording,
    RecordingLimits,
    audio_mime,
    header_seconds,
)
from tests.kit.fakes.transcriptions.recordings import opus, recording

HOURS = 3 * 3_600.0
LIMITS = RecordingLimits(minutes=10, bytes=1_000, micro_per_minute=6_000)


def wav(*, data_bytes: int, rate: int = 32_000) -> bytes:
    form = b"\x01\x00\x01\x00" + (16_000).to_bytes(4, "little") + rate.to_bytes(4, "little") + bytes(4)
    return b"RIFF\xff\xff\xff\xffWAVEfmt \x10\x00\x00\x00" + form + b"data" + data_bytes.to_bytes(4, "little")


def mp4(*, duration: int, scale: int = 1_000, long: bool = False) -> bytes:
    times, size = (16, 8) if long else (8, 4)
    told = scale.to_bytes(4, "big") + duration.to_bytes(size, "big")
    return b"\x00\x00\x00\x18ftypM4A " + b"mvhd" + bytes((long, 0, 0, 0)) + bytes(times) + told + bytes(40)


@pytest.mark.parametrize(
    ("content", "seconds"),
    [
        (opus("hi", header_seconds=HOURS), HOURS),
        (opus("hi", header_seconds=1.5), 1.5),
        (recording("hi"), None),
        (wav(data_bytes=32_000 * 10_800), HOURS),
        (wav(data_bytes=2**32 - 1, rate=62), 44 / 62),
        (wav(data_bytes=8, rate=0), None),
        (mp4(duration=10_800_000), HOURS),
        (mp4(duration=10_800_000, long=True), HOURS),
        (mp4(duration=5, scale=0), None),
        (mp4(duration=2**32 - 1), None),
        (recording("hi", kind="webm"), None),
    ],
)
def test_the_length_is_what_the_header_claims(content: bytes, seconds: float | None) -> None:
    mime = audio_mime(content)
    assert mime is not None
    assert header_seconds(content, mime) == (None if seconds is None else pytest.approx(seconds, rel=0.01))


@given(st.binary(max_size=300), st.sampled_from(AUDIO_MIMES), st.sampled_from([b"", b"OggSOpusHead"]))
def test_no_bytes_break_the_look_at_a_header(content: bytes, mime: str, before: bytes) -> None:
    seconds = header_seconds(before + content, mime)
    assert seconds is None or seconds >= 0


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"<html>", b"\xff\xd8\xff\xe0", b"\xff\xfeh\x00i\x00", b"GIF89a", b"MZ"),
        *(b"\x00\x00\x00\x18ftyp" + kind for kind in (b"heic", b"hevc", b"avif", b"mif1")),
    ],
)
def test_what_is_no_recording_has_no_kind(content: bytes) -> None:
    assert audio_mime(content) is None


def test_a_minute_costs_its_price_and_an_unknown_one_nothing_known() -> None:
    assert LIMITS.cost_micro(60) == 6_000
    assert LIMITS.cost_micro(0.001) == 1
    assert RecordingLimits(minutes=1, bytes=1).cost_micro(60) is None


def test_a_recording_of_no_known_length_is_reckoned_by_its_size() -> None:
    told = Recording(body=b"x", mime="audio/ogg", seconds=30)
    silent = Recording(body=bytes(15_000), mime="audio/ogg")
    assert LIMITS.estimate_seconds(told) == 30
    assert LIMITS.estimate_seconds(silent) == 10
    assert LIMITS.estimate_seconds(Recording(body=bytes(10**7), mime="audio/ogg")) == 600
