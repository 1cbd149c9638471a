"""What a request holds of recalled passages."""

from __future__ import annotations

from typing import Any

from shared.core.context.prompts import RECALL_TAG
from tests.kit.fakes.messages_api.harness import RunningFake


async def chats(provider: RunningFake) -> list[dict[str, Any]]:
    return [r["body"] for r in await provider.requests() if r["kind"] == "chat" and r["status"] == 200]


def recalled(body: dict[str, Any]) -> str:
    """The words between our marks in the last message, which stands behind the last cache breakpoint."""
    texts = [block.get("text", "") for block in body["messages"][-1]["content"]]
    found = [text for text in texts if text.startswith(f"<{RECALL_TAG}>")]
    return found[0] if found else ""
