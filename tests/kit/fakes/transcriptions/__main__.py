"""Runs the fake as its own process."""

from tests.kit.fakes.scripted_api import run
from tests.kit.fakes.transcriptions.server import TranscriptionsApi

if __name__ == "__main__":
    run(TranscriptionsApi())
