"""Runs the fake of the transcription service as a process."""

from tests.kit.fakes.scripted_api import run
from tests.kit.fakes.transcriptions.server import TranscriptionsApi

if __name__ == "__main__":
    run(TranscriptionsApi())
