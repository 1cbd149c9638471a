"""Runs the fake of the speech service as a process."""

from tests.kit.fakes.scripted_api import run
from tests.kit.fakes.speech.server import SpeechApi

if __name__ == "__main__":
    run(SpeechApi())
