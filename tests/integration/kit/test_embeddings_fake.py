"""The stand-in that embeds texts serves OpenAI's own client, and refuses what OpenAI refuses."""

from __future__ import annotations

from typing import Any

import aiohttp
import openai
import pytest

from tests.kit.fakes.embeddings.harness import RunningEmbeddings
from tests.kit.fakes.embeddings.server import DIMENSIONS, MODEL
from tests.kit.fakes.scripted_api import KEY


async def test_the_openai_client_gets_vectors_of_which_shared_words_are_nearest() -> None:
    async with RunningEmbeddings() as server, openai.AsyncOpenAI(base_url=server.url, api_key=KEY) as client:
        texts = ["the old harbour", "The harbour is old.", "It rains."]
        told = await client.embeddings.create(model=MODEL, input=texts, encoding_format="float")
    first, *others = (row.embedding for row in told.data)
    near, far = (sum(map(float.__mul__, first, other)) for other in others)
    assert (len(first), near > far) == (DIMENSIONS, True)


@pytest.mark.parametrize(
    "wish",
    [
        {"input": ["a"]},
        {"model": "another", "input": ["a"]},
        {"model": MODEL, "input": []},
        {"model": MODEL, "input": ["a", ""]},
        {"model": MODEL, "input": ["a"], "truncate": True},
        {"model": MODEL, "input": [1.5]},
        {"model": MODEL, "input": ["a"] * 2_049},
    ],
)
async def test_a_wrong_request_is_refused_and_not_counted(wish: dict[str, Any]) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    async with (
        RunningEmbeddings() as server,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as http,
    ):
        async with http.post(f"{server.url}/embeddings", json=wish, headers=headers) as answer:
            assert answer.status == 400
        assert await server.requests() == []
