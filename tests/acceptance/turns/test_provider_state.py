"""State of a provider in the running system: it lives as long as its turn, and nobody reads it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.kit.dialects.guest import guest_of
from tests.kit.dialects.server import GOOD, Answer, Json, completion, events

THOUGHT = "She wants the time."
CALL = {"index": 0, "id": "c1", "function": {"name": "current_time", "arguments": "{}"}}
SIGNED = {**CALL, "extra_content": {"google": {"thought_signature": "c2lnbmVk"}}}
ROUND = Answer(
    body=events(
        {"choices": [{"delta": {"reasoning_content": THOUGHT}}]},
        {"choices": [{"delta": {"tool_calls": [SIGNED]}}]},
        {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
    )
)


async def test_provider_state_is_sent_back_while_its_turn_is_open(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    def reply(body: Json) -> Answer:
        return ROUND if body["messages"][-1]["role"] == "user" else completion(GOOD)

    async with guest_of(database_url, redis_url, tmp_path, reply) as (guest, server):
        assert await guest.ask("What time is it?") == GOOD
        said = next(one for one in server.requests[1]["messages"] if one["role"] == "assistant")
        assert said["reasoning_content"] == THOUGHT
        assert said["tool_calls"][0]["extra_content"] == SIGNED["extra_content"]
        await guest.ask("And now?")
        assert THOUGHT not in json.dumps(server.requests[2])
        shown = await guest.one(
            "SELECT count(*) FROM events WHERE payload::text LIKE '%' || $1 || '%'", THOUGHT
        )
        assert shown == 0
