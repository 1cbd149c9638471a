"""An Ollama on this machine is found, described honestly, and missed without fuss."""

from __future__ import annotations

import asyncio

from aiohttp import web
from aiohttp.test_utils import TestServer

from shared.adapters.models import find_ollama

TAGS = {
    "models": [
        {"name": "qwen3:8b", "modified_at": "2026-10-01T00:00:00Z", "details": {"family": "qwen3"}},
        {"name": "gpt-oss:120b-cloud", "modified_at": "2026-11-01T00:00:00Z"},
        {"name": "nomic-embed-text:latest", "details": {"family": "nomic-bert"}},
        {"name": ""},
        "nonsense",
    ]
}


def serving(answer: web.Response | None) -> TestServer:
    async def tags(_request: web.Request) -> web.Response:
        if answer is None:
            await asyncio.sleep(5)
        return answer or web.Response()

    app = web.Application()
    app.router.add_get("/api/tags", tags)
    return TestServer(app, host="127.0.0.1")


async def test_its_chat_models_are_listed_newest_first() -> None:
    async with serving(web.json_response(TAGS)) as server:
        url = str(server.make_url("")).rstrip("/")
        cloud, local = await find_ollama(url, seconds=30)
    assert (cloud.name, local.name, local.base_url) == ("gpt-oss:120b-cloud", "qwen3:8b", url)
    assert cloud.prices is None
    assert local.prices is not None
    assert local.prices.output == 0.0


async def test_none_running_or_something_else_there_is_no_error() -> None:
    assert await find_ollama("http://127.0.0.1:9") == ()
    for answer in (web.Response(status=404), web.Response(text="hello"), web.json_response([1])):
        async with serving(answer) as server:
            assert await find_ollama(str(server.make_url("")).rstrip("/"), seconds=30) == ()


async def test_one_that_does_not_answer_in_time_is_not_waited_for() -> None:
    async with serving(None) as server:
        assert await find_ollama(str(server.make_url("")).rstrip("/"), seconds=0.05) == ()
