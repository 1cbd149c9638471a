"""A strict, deterministic fake of the provider's Messages API, run as a process."""

from __future__ import annotations

from tests.kit.fakes.messages_api.harness import RunningFake, running_fake

__all__ = ["RunningFake", "running_fake"]
