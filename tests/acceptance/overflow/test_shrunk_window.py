"""Window that shrank: believed from the second refusal on, so that few requests are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.models.token_counter import VocabularyCounter
from tests.kit.app_driver import running_app, settings_for, visit
from tests.kit.dialects.server import Answer, dialect_server, events, refusal

COUNT = VocabularyCounter().count_tokens
FORMER, WINDOW = 8_000, 5_454
TURNS = 60
TEXT = "The keeper of the lighthouse notes the weather at nine, and again in the evening. " * 3


def count_request(body: Any) -> int:
    texts = [str(message["content"]) for message in body["messages"]]
    return COUNT("\n".join((*texts, json.dumps(body.get("tools", [])))))


@pytest.mark.timeout(300)
async def test_shrunk_window_refuses_four_requests_at_most(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    refused = 0
    window = FORMER

    def reply(body: Any) -> Answer:
        nonlocal refused
        tokens = count_request(body)
        if tokens + body["max_tokens"] > window:
            refused += 1
            words = f"This model's maximum context length is {window} tokens, you requested {tokens} tokens."
            return refusal(400, {"error": {"message": words, "code": "context_length_exceeded"}})
        usage = {"prompt_tokens": tokens, "completion_tokens": COUNT(TEXT)}
        end = {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": usage}
        return Answer(body=events({"choices": [{"delta": {"content": TEXT}}]}, end))

    async with dialect_server(reply) as server:
        models = tmp_path / "models.json"
        entry = {"name": "odd", "wire": "openai", "base_url": server.url, "window": FORMER, "max_output": 600}
        models.write_text(json.dumps([{**entry, "prices": {"input": 0, "output": 0}}]))
        settings = settings_for(database_url, redis_url, models_file=models, model="odd", summary_model="odd")
        async with running_app(settings) as app:
            guest = await visit(app)
            for number in range(TURNS):
                if number == TURNS // 3:
                    refused, window = 0, WINDOW
                await guest.ask(f"What of day {number}, and of the night after it?")
                await guest.run_due_jobs()
            answered = await guest.one("SELECT count(*) FROM turns WHERE state = 'answered'")
            states = await guest.one(
                "SELECT string_agg(DISTINCT state || coalesce(error_code, ''), ', ') FROM turns"
            )
    assert answered == TURNS, states
    assert 1 <= refused <= 4
