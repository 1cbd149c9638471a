"""Runs the fake of the speech service as a process for a test."""

from __future__ import annotations

from tests.kit.fakes.running_api import RunningApi
from tests.kit.fakes.scripted_api import KEY


class RunningSpeech(RunningApi):
    """The fake of the speech service as a process; used as `async with RunningSpeech() as service`."""

    module = "tests.kit.fakes.speech"

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings of a deployment that uses this service, at 0.01 USD for 1,000 characters."""
        return {
            "EVERTALK_SPEECH_URL": self.url,
            "EVERTALK_SPEECH_KEY": KEY,
            "EVERTALK_SPEECH_PER_1000_CHARS_USD": "0.01",
        }
