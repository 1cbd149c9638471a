"""A server that makes vectors orders what recall finds, against a strict one in a process of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from shared.adapters.models.embeddings import HttpEmbedder
from shared.adapters.models.reranker import SECONDS
from shared.core.verdicts.breaker import FEWEST_CALLS
from shared.services.turns.retrieval import RERANKED, rerank
from tests.integration.adapters.models.ranked_items import PATIENCE, item
from tests.kit.fakes.embeddings.harness import RunningEmbeddings
from tests.kit.fakes.embeddings.server import MODEL
from tests.kit.fakes.scripted_api import KEY

QUESTION = "Which number has the piano?"
PASSAGES = ("We rowed to the harbour.", "The piano has the number PX-4471.", "It rains.", "Which boat?")
FUSED = [1, 0, 3, 2]
"""By its words alone, the server says 1, 3, 0, 2; the order that the passages have counts as much."""


@pytest.fixture(scope="module")
async def running() -> AsyncIterator[RunningEmbeddings]:
    async with RunningEmbeddings() as server:
        yield server


@pytest.fixture
async def server(running: RunningEmbeddings) -> RunningEmbeddings:
    await running.next()
    await running.requests()
    return running


@pytest.fixture
async def embedder(server: RunningEmbeddings) -> AsyncIterator[HttpEmbedder]:
    """Its connection is open, as after the first of its questions; it knows no passage yet."""
    made = HttpEmbedder(url=server.url, key=KEY, model=MODEL, seconds=PATIENCE)
    await made.ask("Is anybody there?", ())
    await server.requests()
    yield made
    await made.close()


def body(*vectors: Any) -> dict[str, Any]:
    """An answer with these vectors, as JSON of Python, which knows NaN."""
    return {"body": json.dumps({"data": [{"index": at, "embedding": of} for at, of in enumerate(vectors)]})}


async def test_the_orders_of_words_and_of_meaning_become_one(
    server: RunningEmbeddings, embedder: HttpEmbedder
) -> None:
    assert await embedder.rank(QUESTION, PASSAGES) == tuple(FUSED)
    await server.next({"backwards": True})
    again = HttpEmbedder(url=server.url, key=KEY, model=MODEL)
    assert await again.ask(QUESTION, PASSAGES) == tuple(FUSED)
    await again.close()
    items = [item(number, text) for number, text in enumerate(PASSAGES, 1)]
    ordered = await rerank(embedder, items, QUESTION)
    assert [one.passage.text for one in ordered] == [PASSAGES[at] for at in FUSED]


async def test_one_request_has_the_question_and_only_passages_that_are_new(
    server: RunningEmbeddings, embedder: HttpEmbedder
) -> None:
    key = "sk-ant-api03-" + "Ab3" * 20
    items = [item(number, f"Line {number} has {key}.") for number in range(1, 60)]
    ordered = await rerank(embedder, items, f"Which line? {key}")
    [asked] = await server.requests()
    assert len(asked["input"]) == 1 + RERANKED
    assert key not in str(asked)
    assert sorted(one.passage.number for one in ordered) == [one.passage.number for one in items]
    await rerank(embedder, [item(99, "The last line."), *items, item(1, items[0].passage.text)], "And now?")
    [asked] = await server.requests()
    assert asked["input"] == ["And now?", "The last line."]


async def test_the_same_words_twice_are_asked_for_once(
    server: RunningEmbeddings, embedder: HttpEmbedder
) -> None:
    assert await embedder.rank(QUESTION, ("It rains.", "It rains.")) == (0, 1)
    [asked] = await server.requests()
    assert asked["input"] == [QUESTION, "It rains."]


@pytest.mark.parametrize(
    "action",
    [
        {"status": 500},
        {"status": 302},
        {"without_last": True},
        {"body": "no JSON"},
        {"body": "[]"},
        {"body": '{"data": [{"index": true, "embedding": [1]}]}'},
        {"body": '{"data": [' + ", ".join(['{"index": 0, "embedding": [1]}'] * 5) + "]}"},
        body([1, 0], [1, 0], [1, 0], [1, 0], [1, 0], [1, 0]),
        body([1, 0], [1, 0], [1, 0], [1, 0], [1, float("nan")]),
        body([1, 0], [1, 0], [1, 0], [1, 0], [1, float("inf")]),
        body([1, 0], [1, 0], [1, 0], [1, 0], [0, 0]),
        body([1, 0], [1, 0], [1, 0], [1, 0], []),
        body([1, 0], [1, 0], [1, 0], [1, 0], [1, 0, 0]),
        body([1, 0], [1, 0], [1, 0], [1, 0], [1, None]),
        body([1, 0], [1, 0], [1, 0], [1, 0], "AACAPwAAAAA="),
        body([1, 0], [1, 0], [1, 0], [1, 0], [10**400, 0]),
    ],
)
async def test_what_is_no_vector_for_each_text_changes_nothing(
    action: dict[str, Any], server: RunningEmbeddings, embedder: HttpEmbedder
) -> None:
    await server.next(action)
    assert await embedder.rank(QUESTION, PASSAGES) is None
    assert await embedder.rank(QUESTION, PASSAGES) == tuple(FUSED)
    assert [len(asked["input"]) for asked in await server.requests()] == [1 + len(PASSAGES)] * 2


async def test_vectors_of_another_length_make_it_forget_those_before(
    server: RunningEmbeddings, embedder: HttpEmbedder
) -> None:
    """Somebody gave the server another model."""
    assert await embedder.rank(QUESTION, PASSAGES) is not None
    await server.next({"dimensions": 64}, {"dimensions": 64})
    assert await embedder.rank(QUESTION, PASSAGES) is None
    assert await embedder.rank(QUESTION, PASSAGES) is not None
    assert [len(asked["input"]) for asked in await server.requests()] == [5, 1, 5]


async def test_slow_embedding_server_costs_its_timeout_and_is_reported_once(
    server: RunningEmbeddings,
) -> None:
    embedder = HttpEmbedder(url=server.url, key=KEY, model=MODEL)
    items = [item(number, text) for number, text in enumerate(PASSAGES, 1)]
    with capture_logs() as logs:
        for _ in range(3):
            await server.next({"latency": 3 * PATIENCE})
            async with asyncio.timeout(PATIENCE):
                assert await rerank(embedder, items, QUESTION) == items
    await embedder.close()
    assert [(one["event"], one["endpoint"]) for one in logs] == [("rerank_fails", "/embeddings")]


async def test_what_comes_too_late_helps_the_next_question(server: RunningEmbeddings) -> None:
    embedder = HttpEmbedder(url=server.url, key=KEY, model=MODEL)
    await server.next({"latency": 2 * SECONDS})
    assert await embedder.rank(QUESTION, PASSAGES) is None
    async with asyncio.timeout(PATIENCE):
        while embedder._requests:
            await asyncio.sleep(0.02)
    # As patient as a test: the vectors are there, only the question's is asked for.
    embedder._seconds = PATIENCE
    assert await embedder.rank(QUESTION, PASSAGES) == tuple(FUSED)
    assert [asked["input"] for asked in await server.requests()] == [[QUESTION, *PASSAGES], [QUESTION]]
    await embedder.close()


async def test_unawaited_embedding_request_does_not_delay_closing(server: RunningEmbeddings) -> None:
    embedder = HttpEmbedder(url=server.url, key=KEY, model=MODEL, seconds=0.05)
    await server.next({"latency": 30})
    assert await embedder.rank(QUESTION, PASSAGES) is None
    [request] = embedder._requests
    await embedder.close()
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait((request,))
    assert request.cancelled()


async def test_a_server_that_keeps_failing_is_left_alone(
    server: RunningEmbeddings, embedder: HttpEmbedder
) -> None:
    await server.next(*({"status": 503} for _ in range(20)))
    for _ in range(2 * FEWEST_CALLS):
        assert await embedder.rank(QUESTION, PASSAGES) is None
    assert len(await server.requests()) <= FEWEST_CALLS + 1


async def ranked_by(url: str, key: str, passages: Sequence[str] = PASSAGES) -> Sequence[int] | None:
    embedder = HttpEmbedder(url=url, key=key, model=MODEL)
    try:
        return await embedder.rank(QUESTION, passages)
    finally:
        await embedder.close()


async def test_unreachable_server_and_refused_key_rank_nothing(server: RunningEmbeddings) -> None:
    assert await ranked_by("http://127.0.0.1:9", "") is None
    assert await ranked_by(server.url, "another") is None
    assert await server.requests() == []
