"""The fake provider as processes are told of it, and an answer of sixteen words."""

from __future__ import annotations

from tests.kit.fakes.messages_api.harness import RunningFake

LONG = "One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen."


def provided_by(fake: RunningFake) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": fake.base_url, "ANTHROPIC_API_KEY": "a-key-for-the-fake"}
