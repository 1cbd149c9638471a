"""The model on this machine: in a process of its own, which says what is missing, and ends in time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.media.local import UNREADABLE, LocalTranscriber
from shared.adapters.media.local_worker import write_heard
from shared.config.settings import BadSettings, load_settings
from shared.core.values.errors import ModelUnavailable
from shared.core.values.recordings import Recording, silence

SILENCE = Recording(body=silence(), mime="audio/wav")


@dataclass(frozen=True)
class Said:
    text: str = ""
    duration: float = 2.5


class Whisper:
    """In the words of faster-whisper: a generator of segments, and what is known of the whole."""

    def __init__(self, *words: str, error: Exception | None = None) -> None:
        self._words = words
        self._error = error
        self.asked: str | None = ""

    def transcribe(self, content: Any, *, language: str | None) -> tuple[Iterator[Said], Said]:
        assert content.read() == SILENCE.body
        self.asked = language
        if self._error is not None:
            raise self._error
        return iter(map(Said, self._words)), Said()


def test_segments_become_one_text(capsys: pytest.CaptureFixture[str]) -> None:
    whisper = Whisper(" Good morning,", " Ada. ")
    assert write_heard(whisper, SILENCE.body, "") == 0
    assert whisper.asked is None
    assert json.loads(capsys.readouterr().out) == {"text": "Good morning, Ada.", "seconds": 2.5}


def test_what_its_decoder_refuses_is_no_recording(capsys: pytest.CaptureFixture[str]) -> None:
    assert write_heard(Whisper(error=ValueError("Invalid data")), SILENCE.body, "de") == UNREADABLE
    assert capsys.readouterr().out == ""


async def test_a_worker_that_cannot_work_says_why(tmp_path: Path) -> None:
    """The package is no part of this installation."""
    with pytest.raises(ModelUnavailable, match="faster_whisper"):
        await LocalTranscriber(tmp_path).transcribe(SILENCE)


async def test_a_worker_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match="took too long"):
        await LocalTranscriber(tmp_path, seconds=0.001).transcribe(SILENCE)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "run ./evertalk install voice"),
        ({"transcribe_url": "http://127.0.0.1:9"}, "cannot stand beside EVERTALK_TRANSCRIBE_URL"),
    ],
)
def test_a_folder_without_what_it_needs_is_refused_at_start(
    given: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(BadSettings, match=reason):
        load_settings(transcribe_folder=tmp_path, **given)
    with pytest.raises(BadSettings, match="there is no such folder"):
        load_settings(transcribe_folder=tmp_path / "none")
