"""Finds passages of the past by their words: one statement for messages, notes and knowledge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg

from shared.adapters.postgres.pool import store_method
from shared.adapters.postgres.recall_sql import SEARCH
from shared.core.recall import Found, Frequencies, Lane, Search
from shared.core.recall_query import RecallQuery
from shared.core.searching import DICTIONARIES

LANES: tuple[Lane, ...] = ("said", "note", "knowledge")


class PostgresRecall:
    """Reads only; raises StorageUnavailable."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    @store_method
    async def search(self, query: RecallQuery) -> Search:
        """Candidates and their neighbours for a question, each with how often the question's words are in it."""
        rows = await self._pool.fetch(
            SEARCH, query.session_id, query.base_turn, list(query.words), query.dictionary,
            list(DICTIONARIES), query.turn, query.automatic, list(query.known_notes),
            query.after, query.before, query.from_seq, query.through_seq,
        )  # fmt: skip
        if not rows:
            return Search()
        return _search(rows[0]["known"], rows)


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
    return Found(
        lane=row["lane"],
        owner=row["owner"],
        number=row["number"],
        text=row["text"],
        terms=row["terms"],
        hits=tuple(max((_often(vector, form) for form in word), default=0) for word in forms),
        at=row["at"],
        seq=row["seq"],
        part=row["part"],
        turn=row["turn_no"],
        author=row["author"],
        speaker=row["speaker"],
        sitting=row["sitting"],
        through_turn=row["through_turn"],
        session=row["session_id"],
        path=row["path"],
        heading=row["heading"],
    )


def _often(vector: str, form: str) -> int:
    """How often a word stands in a vector as Postgres writes it: `'hike':3,9 'lake':4`."""
    begin = vector.find(f"'{form}':")
    if begin < 0:
        return 0
    begin += len(form) + 3
    end = vector.find(" ", begin)
    return vector.count(",", begin, end if end >= 0 else len(vector)) + 1
