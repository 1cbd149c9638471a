"""The service as a process for a test."""

from __future__ import annotations

from tests.kit.fakes.running_api import RunningApi
from tests.kit.fakes.scripted_api import KEY


class RunningTranscriptions(RunningApi):
    """`async with RunningTranscriptions() as service`."""

    module = "tests.kit.fakes.transcriptions"

    @property
    def settings(self) -> dict[str, str]:
        """For a deployment that uses it, at 6 cents for ten minutes."""
        return {
            "EVERTALK_TRANSCRIBE_URL": self.url,
            "EVERTALK_TRANSCRIBE_KEY": KEY,
            "EVERTALK_TRANSCRIBE_PER_MINUTE_USD": "0.006",
        }
