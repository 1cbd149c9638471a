"""A server that orders what recall finds, against a strict one in a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.adapters.models.reranker import HttpReranker
from shared.core.verdicts.breaker import FEWEST_CALLS
from shared.services.turns.retrieval import RERANKED, rerank
from tests.integration.adapters.models.ranked_items import PATIENCE, item
from tests.kit.fakes.rerank.harness import RunningReranker
from tests.kit.fakes.rerank.server import MODEL
from tests.kit.fakes.scripted_api import KEY

QUESTION = "Which number has the piano?"
PASSAGES = ("It rains again.", "The piano has the number PX-4471.", "We rowed to the harbour.")


@pytest.fixture(scope="module")
async def reranker_process() -> AsyncIterator[RunningReranker]:
    async with RunningReranker() as server:
        yield server


@pytest.fixture
async def ranking(reranker_process: RunningReranker) -> RunningReranker:
    await reranker_process.next()
    await reranker_process.requests()
    return reranker_process


@pytest.fixture
async def reranker(ranking: RunningReranker) -> AsyncIterator[HttpReranker]:
    """Its connection is open, as after the first of its questions."""
    made = HttpReranker(url=ranking.url, key=KEY, model=MODEL, seconds=PATIENCE)
    await made.ask(QUESTION, PASSAGES)
    await ranking.requests()
    yield made
    await made.close()


async def test_the_servers_order_is_followed(ranking: RunningReranker, reranker: HttpReranker) -> None:
    places = await reranker.rank(QUESTION, PASSAGES)
    assert places is not None
    assert (places[0], sorted(places)) == (1, [0, 1, 2])
    items = [item(number, text) for number, text in enumerate(PASSAGES, 1)]
    ordered = await rerank(reranker, items, QUESTION)
    assert [one.passage.text for one in ordered] == [PASSAGES[at] for at in places]


async def test_only_the_first_candidates_are_shown_and_without_secrets(
    ranking: RunningReranker, reranker: HttpReranker
) -> None:
    key = "sk-ant-api03-" + "Ab3" * 20
    items = [item(number, f"Line {number} has {key}.") for number in range(1, 60)]
    ordered = await rerank(reranker, items, f"{'x' * 5_000} Which line?")
    [asked] = await ranking.requests()
    assert len(asked["documents"]) == RERANKED
    assert key not in str(asked)
    assert len(asked["query"]) <= 1_000
    assert asked["query"].endswith("Which line?")
    assert list(ordered[RERANKED:]) == items[RERANKED:]
    assert sorted(one.passage.number for one in ordered) == [one.passage.number for one in items]


async def test_a_slow_server_costs_no_more_than_its_time(ranking: RunningReranker) -> None:
    reranker = HttpReranker(url=ranking.url, key=KEY, model=MODEL)
    items = [item(number, text) for number, text in enumerate(PASSAGES, 1)]
    for _ in range(3):
        await ranking.next({"latency": 3 * PATIENCE})
        async with asyncio.timeout(PATIENCE):
            assert await rerank(reranker, items, QUESTION) == items
    await reranker.close()


@pytest.mark.parametrize(
    "action",
    [
        {"status": 500},
        {"status": 302},
        {"body": "no JSON"},
        {"body": "[]"},
        {"body": '{"results": [{"index": 7, "relevance_score": 1}]}'},
        {"body": '{"results": [{"index": true, "relevance_score": 1}]}'},
        {"body": '{"results": [{"index": 0, "relevance_score": 1}, {"index": 0, "relevance_score": 2}]}'},
        {"body": '{"results": [{"index": 0}]}'},
    ],
)
async def test_what_is_no_order_changes_nothing(
    action: dict[str, Any], ranking: RunningReranker, reranker: HttpReranker
) -> None:
    await ranking.next(action)
    assert await reranker.rank(QUESTION, PASSAGES) is None
    assert await reranker.rank(QUESTION, PASSAGES) is not None


async def test_a_part_of_an_order_puts_the_others_behind(
    ranking: RunningReranker, reranker: HttpReranker
) -> None:
    await ranking.next({"body": '{"results": [{"index": 2, "relevance_score": -3.5}]}'})
    items = [item(number, text) for number, text in enumerate(PASSAGES, 1)]
    assert list(await rerank(reranker, items, QUESTION)) == [items[2], items[0], items[1]]


async def test_a_server_that_keeps_failing_is_left_alone(
    ranking: RunningReranker, reranker: HttpReranker
) -> None:
    await ranking.next(*({"status": 503} for _ in range(20)))
    for _ in range(2 * FEWEST_CALLS):
        assert await reranker.rank(QUESTION, PASSAGES) is None
    assert len(await ranking.requests()) <= FEWEST_CALLS + 1


async def test_unreachable_reranker_and_empty_list_order_nothing(ranking: RunningReranker) -> None:
    away = HttpReranker(url="http://127.0.0.1:9", key="", model="")
    assert await away.rank(QUESTION, PASSAGES) is None
    await away.close()
    refused = HttpReranker(url=ranking.url, key="another", model=MODEL)
    assert await refused.rank(QUESTION, PASSAGES) is None
    alone = (item(1, PASSAGES[0]),)
    assert await rerank(refused, alone, QUESTION) == alone
    assert await rerank(None, alone * 2, QUESTION) == alone * 2
    assert await ranking.requests() == []
    await refused.close()
