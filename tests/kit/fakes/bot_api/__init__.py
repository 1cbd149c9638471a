"""A strict stand-in for Telegram's Bot API and the people behind it, as its own process or in the test's."""

from __future__ import annotations

from tests.kit.fakes.bot_api.client import TOKEN, USERNAME, BotApi, Refused
from tests.kit.fakes.bot_api.harness import LocalBotApi, RunningBotApi, local_bot_api, running_bot_api
from tests.kit.fakes.bot_api.person import Group, NotSeen, Person, Sent
from tests.kit.fakes.bot_api.sight import Line, Screen

__all__ = [
    "running_bot_api", "local_bot_api", "RunningBotApi", "LocalBotApi", "BotApi", "Refused",
    "Person", "Group", "Sent", "Screen", "Line", "NotSeen", "TOKEN", "USERNAME",
]  # fmt: skip
