"""Runs the fake of Chat Completions as a process, like `tests.kit.fakes.messages_api`."""

from __future__ import annotations

from tests.kit.fakes.chat_completions.server import ChatCompletionsApi
from tests.kit.fakes.messages_api.__main__ import main

if __name__ == "__main__":
    main(ChatCompletionsApi)
