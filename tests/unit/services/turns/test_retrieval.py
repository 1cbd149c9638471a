"""How much a turn is reminded of: all that is allowed for a question, a little for what merely tells."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from shared.core.context.recall_query import RecallQuery
from shared.core.memory.recall import LONG_TOKENS, OF_LONG, SHORT_TOKENS, Found, Frequencies, Search
from shared.services.turns.request_builder import RequestBuilder
from shared.services.turns.retrieval import Retriever
from tests.kit.builders import claim_of, entry, view
from tests.kit.model_makers import WordCounter

LIMIT = 1_200
WORDS = "we rowed " * 30
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Harbours:
    """A past that says much about one rare thing."""

    async def search(self, query: RecallQuery) -> Search:
        passages = tuple(
            Found(
                lane="said", owner=1, number=number, seq=number, text=f"In harbour {number} {WORDS}",
                terms=60, hits=(1,) * len(query.words), at=NOON + timedelta(days=number), author="person",
                sitting=number,
            )
            for number in range(10, 100, 10)
        )  # fmt: skip
        of = Frequencies(passages=100_000, terms=1_000_000, with_word=(9,) * len(query.words))
        return Search(found=passages, frequencies={"said": of}, words=query.words, asked=query.asked)


class Requests:
    timezone = "UTC"
    counter = WordCounter()

    def recall_limit(self, agent_config: Any, window: int) -> int:
        return LIMIT

    def known_notes(self, view: Any, zone: Any) -> Any:
        class Nothing:
            shown = ()

        return Nothing


async def recalled(words: str) -> int:
    """Tokens."""
    retriever = Retriever(store=Harbours(), requests=cast("RequestBuilder", Requests()))
    past = view([entry(1, 1, words)], open_turn=1)
    found = await retriever.recall_for_turn(claim_of(view=past, recallable=True), past, window=200_000)
    return Requests.counter.count_tokens(found.text)


@pytest.mark.parametrize("words", ["Which harbour was that?", "where did I leave the boat in the harbour"])
async def test_a_question_gets_all_that_is_allowed(words: str) -> None:
    assert SHORT_TOKENS < await recalled(words) <= LIMIT


async def test_a_long_message_that_asks_gets_a_part() -> None:
    told = "I wrote down what the chandler said. " * LONG_TOKENS
    assert SHORT_TOKENS < await recalled(f"{told}Which harbour was that?") <= LIMIT // OF_LONG


async def test_what_merely_tells_gets_a_little() -> None:
    assert 0 < await recalled("Today I saw the old harbour again.") <= SHORT_TOKENS


class LikesThirty:
    async def rank(self, question: str, passages: Sequence[str]) -> Sequence[int]:
        return [at for at, passage in enumerate(passages) if "harbour 30 " in passage]

    async def close(self) -> None: ...


async def test_servers_preferred_passage_is_shown_where_one_fits() -> None:
    """A statement is reminded of little: of the newest, unless somebody knows better."""
    words = "Today I saw the old harbour again."
    past = view([entry(1, 1, words)], open_turn=1)
    told = []
    for reranker in (None, LikesThirty()):
        retriever = Retriever(
            store=Harbours(), requests=cast("RequestBuilder", Requests()), reranker=reranker
        )
        found = await retriever.recall_for_turn(claim_of(view=past, recallable=True), past, window=200_000)
        told.append("harbour 30 " in found.text)
    assert told == [False, True]
