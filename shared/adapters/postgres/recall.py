"""Finds passages of the past by their words: one statement for messages, notes and knowledge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg

from shared.adapters.postgres.pool import store_method
from shared.adapters.postgres.recall_sql import ASKED_BEFORE, BETWEEN, SEARCH
from shared.core.recall import Found, Frequencies, Lane, Search
from shared.core.recall_query import RECALL, RecallQuery
from shared.core.searching import DICTIONARIES

SEARCH_SECONDS = 3.0
"""A person waits: beyond that the answer is made without."""
LANES: tuple[Lane, ...] = ("said", "note", "knowledge")


class PostgresRecall:
    """Reads only; raises StorageUnavailable."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    @store_method
    async def search(self, query: RecallQuery) -> Search:
        """Candidates and their neighbours, each with how often the question's words are in it."""
        rows = await self._pool.fetch(SEARCH, *_arguments(query), timeout=SEARCH_SECONDS)
        return _search(rows[0]["known"], rows)

    @store_method
    async def between(self, query: RecallQuery) -> list[Found]:
        """The first passages of a time or a range, in their order."""
        rows = await self._pool.fetch(BETWEEN, *_arguments(query), timeout=SEARCH_SECONDS)
        return [_passage(row, ()) for row in rows]

    @store_method
    async def asked_before(self, session_id: int, turn: int, call_id: str) -> tuple[int, int]:
        """The newest message's number, and how often this turn has used the tool before this call."""
        row = await self._pool.fetchrow(ASKED_BEFORE, session_id, turn, call_id, RECALL.name)
        return (0, 0) if row is None else (row["last_seq"], row["asked"])


def _arguments(query: RecallQuery) -> tuple[Any, ...]:
    return (
        query.session_id, query.base_turn, list(query.words), query.dictionary, list(DICTIONARIES),
        query.turn, query.automatic, list(query.known_notes), query.after, query.before, query.from_seq,
        query.through_seq,
    )  # fmt: skip


def _search(known: Mapping[str, Any], rows: Sequence[asyncpg.Record]) -> Search:
    found = tuple(_found(row, known["forms"]) for row in rows if row["lane"] is not None)
    frequencies: dict[Lane, Frequencies] = {}
    for lane in LANES:
        if any(passage.lane == lane for passage in found):
            frequencies[lane] = _frequencies(lane, known, found)
    return Search(found=found, frequencies=frequencies)


def _frequencies(lane: Lane, known: Mapping[str, Any], found: Sequence[Found]) -> Frequencies:
    counted = known["lanes"].get(lane)
    if counted is not None:
        return Frequencies(
            passages=counted["passages"],
            terms=counted["terms"],
            with_word=tuple(counted["words"].get(str(at), 0) for at in range(len(known["forms"]))),
        )
    mine = [passage for passage in found if passage.lane == lane]
    return Frequencies(
        passages=max(len(mine), known["notes"]),
        terms=sum(passage.terms for passage in mine) * max(len(mine), known["notes"]) // max(1, len(mine)),
        with_word=tuple(sum(1 for passage in mine if passage.hits[at]) for at in range(len(known["forms"]))),
    )


def _found(row: asyncpg.Record, forms: Sequence[Sequence[str]]) -> Found:
    vector = row["vector"]
    hits = tuple(max((_often(vector, form) for form in word), default=0) for word in forms)
    if row["lane"] == "said":
        return _passage(row, hits)
    return Found(
        lane=row["lane"],
        owner=row["owner"],
        number=row["number"],
        text=row["text"],
        terms=row["terms"],
        hits=hits,
        at=row["at"],
        turn=row["turn_no"],
        author=row["author"],
        through_turn=row["through_turn"],
        session=row["session_id"],
        path=row["path"],
        heading=row["heading"],
    )


def _passage(row: asyncpg.Record, hits: tuple[int, ...]) -> Found:
    return Found(
        lane="said",
        owner=row["owner"],
        number=row["number"],
        text=row["text"],
        terms=row["terms"],
        hits=hits,
        at=row["at"],
        seq=row["seq"],
        part=row["part"],
        turn=row["turn_no"],
        author=row["author"],
        speaker=row["speaker"],
        sitting=row["sitting"],
    )


def _often(vector: str, form: str) -> int:
    """How often a word stands in a vector as Postgres writes it: `'hike':3,9 'lake':4`."""
    begin = vector.find(f"'{form}':")
    if begin < 0:
        return 0
    begin += len(form) + 3
    end = vector.find(" ", begin)
    return vector.count(",", begin, end if end >= 0 else len(vector)) + 1
