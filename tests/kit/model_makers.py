"""Small helpers of the tests of models: requests, clocks, and retries without waiting."""

from __future__ import annotations

import asyncio
from typing import Any

from shared.adapters.models import Patience
from shared.core.values.messages import Message, text_message
from shared.ports import ModelRequest, ToolSpec

SAVE = ToolSpec(
    name="save_memory",
    description="Keeps a note.",
    input_schema={
        "type": "object",
        "properties": {
            "kind": {"type": "string", "enum": ["fact", "preference", "plan"]},
            "text": {"type": "string", "maxLength": 500},
            "subject": {"type": "string"},
            "sources": {"type": "array", "items": {"type": "integer"}},
        },
        "required": ["kind", "text", "subject"],
    },
)


class WordCounter:
    """A token counter that counts words."""

    def count_tokens(self, text: str) -> int:
        return len(text.split())


class HandClock:
    """A clock in seconds that only a test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Naps:
    """A replacement for `sleep` that records the wished seconds and returns at once."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)


class Listener:
    """A listener that keeps the streamed text by attempt."""

    def __init__(self) -> None:
        self.pieces: dict[int, list[str]] = {}

    async def __call__(self, attempt: int, piece: str) -> None:
        self.pieces.setdefault(attempt, []).append(piece)

    def text(self, attempt: int) -> str:
        return "".join(self.pieces.get(attempt, []))


def impatient(naps: Naps | None = None, **changes: Any) -> Patience:
    """Return a patience with full backoff, without jitter, and without real sleep."""
    usual: dict[str, Any] = {"sleep": naps or Naps(), "jitter": lambda seconds: seconds}
    return Patience(**{**usual, **changes})


def asking(*messages: Message | str, model: str = "claude-haiku-5-5", **fields: Any) -> ModelRequest:
    made = tuple(text_message("user", item) if isinstance(item, str) else item for item in messages)
    return ModelRequest(model=model, system=fields.pop("system", ()), messages=made, **fields)
