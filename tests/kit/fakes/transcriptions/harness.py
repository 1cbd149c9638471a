"""Runs the fake of the transcription service as a process for a test."""

from __future__ import annotations

from tests.kit.fakes.running_api import RunningApi
from tests.kit.fakes.scripted_api import KEY


class RunningTranscriptions(RunningApi):
    """The fake of the transcription service as a process.

    Used as `async with RunningTranscriptions() as service`.
    """

    module = "tests.kit.fakes.transcriptions"

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings of a deployment that uses this service, at 0.006 USD a minute."""
        return {
            "EVERTALK_TRANSCRIBE_URL": self.url,
            "EVERTALK_TRANSCRIBE_KEY": KEY,
            "EVERTALK_TRANSCRIBE_PER_MINUTE_USD": "0.006",
        }
