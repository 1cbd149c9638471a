"""A strict, deterministic stand-in for the provider's Messages API that runs as its own process."""

from __future__ import annotations

from tests.kit.fakes.messages_api.harness import RunningFake, running_fake

__all__ = ["RunningFake", "running_fake"]
