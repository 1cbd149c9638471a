"""How much a turn is reminded of: all that is allowed for a question, a little for what merely tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from shared.core.context.recall_query import RecallQuery
from shared.core.memory.recall import SHORT_TOKENS, FoundPassage, Frequencies, Search
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
            FoundPassage(
                lane="said", owner=1, number=number, seq=number, text=f"In harbour {number} {WORDS}",
                terms=60, hits=tuple(range(len(query.words))), at=NOON + timedelta(days=number),
                author="person", sitting=number,
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


async def recalled(words: str, store: Harbours | None = None) -> int:
    """Tokens."""
    retriever = Retriever(store=store or Harbours(), requests=cast("RequestBuilder", Requests()))
    past = view([entry(1, 1, words)], open_turn=1)
    found = await retriever.recall_for_turn(claim_of(view=past, recallable=True), past, window=200_000)
    return Requests.counter.count_tokens(found.text)


@pytest.mark.parametrize("words", ["Which harbour was that?", "where did I leave the boat in the harbour"])
async def test_a_question_gets_all_that_is_allowed(words: str) -> None:
    assert SHORT_TOKENS < await recalled(words) <= LIMIT


class OneRareWord(Harbours):
    """A past in which one word of a message is rare, and the others are everywhere."""

    async def search(self, query: RecallQuery) -> Search:
        past = await super().search(query)
        one = tuple(passage._replace(hits=(len(query.words) - 1,)) for passage in past.found)
        of = Frequencies(passages=100_000, terms=6_000_000, with_word=(*[50_000] * (len(query.words) - 1), 9))
        return replace(past, found=one, frequencies={"said": of})


class RareWords(Harbours):
    """A past in which all words of a message are rare, and passages have all of them."""

    async def search(self, query: RecallQuery) -> Search:
        past = await super().search(query)
        every = tuple(passage._replace(hits=tuple(range(len(query.words)))) for passage in past.found)
        of = Frequencies(passages=100_000, terms=6_000_000, with_word=(9,) * len(query.words))
        return replace(past, found=every, frequencies={"said": of})


async def test_statement_recalls_as_much_as_its_rare_words_are_worth() -> None:
    told = "The old harbour flooded the chandler"
    assert 0 < await recalled(told) <= SHORT_TOKENS
    assert await recalled(told, RareWords()) > SHORT_TOKENS
    assert await recalled(told, OneRareWord()) == 0


class Heard(Harbours):
    """A past that keeps what it was asked for."""

    async def search(self, query: RecallQuery) -> Search:
        self.query = query
        return await super().search(query)


@pytest.mark.parametrize(
    "text", ["What did we say about the harbour yesterday?", "Was war gestern im Hafen?"]
)
async def test_message_that_speaks_of_a_day_searches_that_day(text: str) -> None:
    past = Heard()
    assert await recalled(text, past) > 0
    assert past.query.spoken_of is not None
    begin, end = past.query.spoken_of
    assert end - begin == timedelta(days=1)


async def test_statement_of_small_talk_recalls_nothing() -> None:
    assert await recalled("Thanks, haha!") == 0


class LikesThirty:
    async def rank(
        self, question: str, passages: Sequence[str], *, session: int | None = None
    ) -> Sequence[int]:
        return [at for at, passage in enumerate(passages) if "harbour 30 " in passage]

    async def close(self) -> None: ...


class LittleRoom(Requests):
    def recall_limit(self, agent_config: Any, window: int) -> int:
        return SHORT_TOKENS


async def test_servers_preferred_passage_is_shown_where_one_fits() -> None:
    """Recall the newest of equal passages, unless a server orders them."""
    words = "Today I saw the old harbour again."
    past = view([entry(1, 1, words)], open_turn=1)
    told = []
    for reranker in (None, LikesThirty()):
        retriever = Retriever(
            store=Harbours(), requests=cast("RequestBuilder", LittleRoom()), reranker=reranker
        )
        found = await retriever.recall_for_turn(claim_of(view=past, recallable=True), past, window=200_000)
        told.append("harbour 30 " in found.text)
    assert told == [False, True]
