"""Strict fake of Telegram's Bot API and of the people who use it, in a separate process or in that of the
test.
"""

from __future__ import annotations

from tests.kit.fakes.bot_api.client import TOKEN, USERNAME, BotApi, Refused
from tests.kit.fakes.bot_api.harness import LocalBotApi, RunningBotApi, local_bot_api, running_bot_api
from tests.kit.fakes.bot_api.person import Group, NotSeen, Person, Sent
from tests.kit.fakes.bot_api.sight import Line, Screen

__all__ = [
    "running_bot_api", "local_bot_api", "RunningBotApi", "LocalBotApi", "BotApi", "Refused",
    "Person", "Group", "Sent", "Screen", "Line", "NotSeen", "TOKEN", "USERNAME",
]  # fmt: skip
