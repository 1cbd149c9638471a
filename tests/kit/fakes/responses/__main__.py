"""Runs the fake of the Responses API as a process, like `tests.kit.fakes.messages_api`."""

from __future__ import annotations

from tests.kit.fakes.messages_api.__main__ import main
from tests.kit.fakes.responses.server import ResponsesApi

if __name__ == "__main__":
    main(ResponsesApi)
