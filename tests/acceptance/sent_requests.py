"""The last request that a provider received, beside the one that the replay builds."""

from __future__ import annotations

import json
from typing import Any

from shared.adapters.models.catalog import ModelEntry, build_card
from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.models.wire import build_request_body
from shared.adapters.postgres.turns.replays import PostgresReplays
from shared.services.turns.request_replay import rebuild_request
from tests.kit.app_driver import Visit
from tests.kit.fakes.messages_api.harness import RunningFake

CHAT = "claude-sonnet-5-5"
FILLER = "Then we talked about the weather, the garden and the long way home along the river. " * 12
COUNTER = VocabularyCounter()


async def again(guest: Visit, turn: int) -> str:
    stored = await PostgresReplays(guest.app.pool).load_turn(guest.session_id, turn)
    assert stored is not None
    request = rebuild_request(stored, count=COUNTER.count_tokens)
    return json.dumps(
        {**build_request_body(request, build_card(ModelEntry(name=CHAT)), CHAT), "stream": True}
    )


class Sent:
    """The body that the provider received last, as the order of its keys was."""

    def __init__(self, guest: Visit, provider: RunningFake) -> None:
        self._guest = guest
        self._provider = provider
        self.bodies: list[str] = []

    async def ask(self, words: str, *tools: str) -> None:
        calls = [{"name": "look_up", "input": {"query": name}} for name in tools]
        rule = {
            "match": {"kind": "chat"},
            "times": 1,
            "action": {"tool_use": calls, "thinking": "Look first."},
        }
        await self._provider.script([rule] if calls else [])
        assert await self._guest.ask(words)
        chats = [r for r in await self._provider.requests() if r["kind"] == "chat" and r["status"] == 200]
        self.bodies.append(json.dumps(chats[-1]["body"]))


def sorted_keys(body: str) -> str:
    """Where a request's fields stand is the transport's choice; what stands in its parts is not."""
    return json.dumps(dict(sorted(json.loads(body).items())))


def blocks(body: dict[str, Any]) -> list[dict[str, Any]]:
    said = [block for message in body["messages"] for block in message["content"]]
    return [*body.get("tools", ()), *body.get("system", ()), *said]


def unmarked(body: dict[str, Any]) -> None:
    for block in blocks(body):
        block.pop("cache_control", None)
