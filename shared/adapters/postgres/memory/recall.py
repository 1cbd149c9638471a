"""Search for passages of the past by words and meaning: one statement for messages, notes and knowledge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg

from shared.adapters.postgres.db.pool import PoolStore, store_method
from shared.adapters.postgres.memory.passage_vectors import bits_of
from shared.adapters.postgres.memory.recall_sql import BETWEEN, EARLIER_CALLS, SEARCH
from shared.core.context.agents import ASSISTANT
from shared.core.context.recall_query import RECALL, RecallQuery
from shared.core.memory.recall import FoundPassage, Frequencies, Lane, Search
from shared.core.memory.vectors import nearness
from shared.core.values.searching import DICTIONARIES

SEARCH_SECONDS = 3.0
"""Maximum seconds of a search while a person waits; after them it raises StorageUnavailable."""
LANES: tuple[Lane, ...] = ("said", "note", "knowledge")
"""Kinds of passages: messages, notes, knowledge."""


class PostgresRecall(PoolStore):
    """Read-only queries of recall. They raise StorageUnavailable."""

    @store_method
    async def search(self, query: RecallQuery) -> Search:
        """Return candidate passages with their neighbours, and how frequent the question's words are.

        The caller ranks them; their order here means nothing. Raises StorageUnavailable after SEARCH_SECONDS.
        """
        rows = await self._pool.fetch(*SEARCH(**_arguments(query)), timeout=SEARCH_SECONDS)
        return _search(rows[0]["known"], rows, query)

    @store_method
    async def load_range(self, query: RecallQuery) -> list[FoundPassage]:
        """Return the first passages of a period or a range of messages, at most 120, oldest first."""
        rows = await self._pool.fetch(*BETWEEN(**_reached(query)), timeout=SEARCH_SECONDS)
        return [_build_found(row, query) for row in rows]

    @store_method
    async def count_earlier_calls(self, session_id: int, turn: int, call_id: str) -> tuple[int, int]:
        """Return (number of the session's newest message, earlier calls of the tool `recall` in this turn).

        Calls before the call `call_id` count. Returns (0, 0) for an unknown session.
        """
        row = await self._pool.fetchrow(
            *EARLIER_CALLS(session_id=session_id, turn=turn, call_id=call_id, tool=RECALL.name)
        )
        return (0, 0) if row is None else (row["last_seq"], row["asked"])


def _reached(query: RecallQuery) -> dict[str, Any]:
    """Return the parameters of the range of passages that a query may reach."""
    return {
        "session_id": query.session_id, "base_turn": query.base_turn, "turn": query.turn,
        "automatic": query.automatic, "after": query.after, "before": query.before,
        "from_seq": query.from_seq, "through_seq": query.through_seq,
    }  # fmt: skip


def _arguments(query: RecallQuery) -> dict[str, Any]:
    spoken_from, spoken_until = query.spoken_of or (None, None)
    return _reached(query) | {
        "words": list(query.words), "dictionary": query.dictionary, "dictionaries": list(DICTIONARIES),
        "known_notes": list(query.known_notes), "asked": query.asked, "asks": query.asks,
        "spoken_from": spoken_from, "spoken_until": spoken_until,
        "cited": list(query.cited),
        "signs": bits_of(query.vector) if query.vector else None, "encoder": query.encoder,
    }  # fmt: skip


def _search(known: Mapping[str, Any], rows: Sequence[asyncpg.Record], query: RecallQuery) -> Search:
    found = tuple([_build_found(row, query) for row in rows if row["lane"] is not None])
    frequencies: dict[Lane, Frequencies] = {}
    for lane in LANES:
        mine = [passage for passage in found if passage.lane == lane]
        if mine:
            frequencies[lane] = _frequencies(known["lanes"].get(lane), known, mine)
    names = {"assistant": ASSISTANT} | {of: name for of, name in known["names"].items() if name}
    return Search(
        found=found, frequencies=frequencies, words=tuple(known["words"]), asked=known["asked"], names=names
    )


def _frequencies(
    counted: Mapping[str, Any] | None, known: Mapping[str, Any], mine: Sequence[FoundPassage]
) -> Frequencies:
    words = range(len(known["words"]))
    if counted is not None:
        return Frequencies(
            passages=int(counted["passages"]),
            terms=int(counted["terms"]),
            with_word=tuple(counted["words"].get(str(at), 0) for at in words),
        )
    passages = max(len(mine), known["notes"])
    return Frequencies(
        passages=passages,
        terms=sum(passage.terms for passage in mine) * passages // max(1, len(mine)),
        with_word=tuple(sum(1 for passage in mine if at in passage.hits) for at in words),
    )


def _build_found(row: asyncpg.Record, query: RecallQuery) -> FoundPassage:
    """Return a found passage.

    Columns are in the order of its fields, followed by vector and cited messages.
    """
    _, lane, owner, number, at, text, terms, words, *rest, vector, cites = row
    found = FoundPassage(
        lane, owner, number, at.astimezone(query.zone), text, terms, tuple(sorted(words or ())), *rest
    )
    if cites:
        found = found._replace(cites=tuple(cites))
    return found if vector is None else found._replace(nearness=nearness(query.vector, vector))
