"""A search finds what was said, live or hidden, newest first, and nothing of anybody else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import asyncpg
import pytest

from shared.adapters.postgres.memory import search_sql
from shared.adapters.postgres.memory.search import PostgresMessageSearch
from shared.core.memory.search import MessagesFound, SearchKey
from tests.bench.recall.data import Conversation, Said
from tests.bench.recall.storing import Stored, make_searchable, store
from tests.kit.dashboard.listing import LIST_ALL

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LINES = (
    "My sister Ingrid lives in Tromsø and hikes every weekend in March.",
    "Lovely! " + "The fjord is blue. " * 60 + "Ingrid must be happy there.",
    "Der Schlüssel zum Keller liegt unter den Blumentöpfen an der Straße.",
    "Gut, das merke ich mir.",
    "我把备用钥匙放在蓝色的花瓶里。",
    "好的，我记住了，东京见。",
    "The invoice of the piano is PX-4471, plan B and all.",
    "Noted, the piano invoice.",
)  # fmt: skip
FOUND: tuple[tuple[str, list[int]], ...] = (
    ("ingrid", [2, 1]),
    ("Ingrid fjord", [2]),
    ("hike", [1]),
    ("HIKING", [1]),
    ("invoi", [8, 7]),
    ("piano PX-4471", [7]),
    ("Schlüssel", [3]),
    ("Strasse", [3]),
    ("strasse keller", [3]),
    ("备用钥匙", [5]),
    ("钥", [5]),
    ("京", [6]),
    ("b", [7]),
    ("the", [8, 7, 2]),
    ("the piano", [8, 7]),
    ("March", [1]),
    ("2026", []),
    ("Ada", []),
    ("violin", []),
    ("piano violin", []),
    ("…!?", []),
    ("", []),
)


def conversation(name: str = "one", lines: tuple[str, ...] = LINES) -> Conversation:
    said = tuple(
        Said(id=f"m{at}", by_person=at % 2 == 0, text=text, at=NOON + timedelta(minutes=at))
        for at, text in enumerate(lines)
    )
    return Conversation(name=name, person="Ada", assistant="Robin", said=said, questions=())


@pytest.fixture(params=["live", "hidden", "half"])
async def partly_hidden(pool: Pool, request: pytest.FixtureRequest) -> Stored:
    """What a search answers must not change with what was summarised meanwhile."""
    stored = await store(pool, conversation())
    hidden = {"live": 0, "hidden": stored.last_turn, "half": 2}[request.param]
    await pool.execute("UPDATE sessions SET base_turn = $1 WHERE id = $2", hidden, stored.session_id)
    await make_searchable(pool, stored.session_id)
    return stored


async def found(pool: Pool, stored: Stored, words: str, **more: Any) -> MessagesFound:
    return await PostgresMessageSearch(pool).search(stored.session_id, words, **more)


async def seqs(pool: Pool, stored: Stored, words: str, **more: Any) -> list[int]:
    return [int(hit.mid[1:]) for hit in (await found(pool, stored, words, **more)).hits]


async def test_words_are_found_newest_first(pool: Pool, partly_hidden: Stored) -> None:
    for words, expected in FOUND:
        assert await seqs(pool, partly_hidden, words) == expected, words


async def test_the_excerpt_marks_the_hit_where_it_stands(pool: Pool, partly_hidden: Stored) -> None:
    _, first = (await found(pool, partly_hidden, "ingrid")).hits
    assert [part.text for part in first.excerpt if part.hit] == ["Ingrid"]
    long = (await found(pool, partly_hidden, "happy")).hits[0]
    assert [part.text for part in long.excerpt if part.hit] == ["happy"]
    assert long.excerpt[0].text == "…"
    assert sum(len(part.text) for part in long.excerpt) < 200


async def test_pages_follow_one_another_without_gap_or_repeat(pool: Pool) -> None:
    lines = tuple(f"Number {at} of the walnuts." for at in range(25))
    stored = await store(pool, conversation("nuts", lines))
    await pool.execute("UPDATE sessions SET base_turn = 7 WHERE id = $1", stored.session_id)
    await make_searchable(pool, stored.session_id)
    met: list[int] = []
    key: SearchKey | None = None
    for _ in range(9):
        page = await found(pool, stored, "walnut", before=key, limit=4)
        met += [int(hit.mid[1:]) for hit in page.hits]
        if (key := page.next and SearchKey.parse(str(page.next))) is None:
            break
    assert met == list(range(25, 0, -1))


async def test_a_usual_word_is_looked_for_backwards_in_time(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_sql, "USUAL", 3)
    monkeypatch.setattr(search_sql, "LOOKED_AT", 5)
    lines = tuple("rare walnut" if at == 1 else f"walnut {at}" if at % 2 else "no" for at in range(30))
    stored = await store(pool, conversation("usual", lines))
    await make_searchable(pool, stored.session_id)
    assert await seqs(pool, stored, "walnut rar") == [2], "few say both"
    met: list[int] = []
    key: SearchKey | None = None
    asked = 0
    while asked == 0 or key is not None:
        page = await found(pool, stored, "walnut", before=key, limit=4)
        met += [int(hit.mid[1:]) for hit in page.hits]
        key, asked = page.next, asked + 1
        assert asked < 12
    assert met == list(range(30, 0, -2))
    newest = await found(pool, stored, "walnut", limit=4)
    assert [hit.mid for hit in newest.hits] == ["m30", "m28", "m26"]


@pytest.mark.control("S22")
async def test_others_find_nothing_and_who_was_linked_finds_both(pool: Pool, partly_hidden: Stored) -> None:
    other = await store(pool, conversation("two", ("I play the piano, too.", "Nice.")))
    assert await seqs(pool, other, "piano") == [1]
    await pool.execute(
        "UPDATE contacts SET merged_into = $1 WHERE id = $2", other.contact_id, partly_hidden.contact_id
    )
    assert await seqs(pool, other, "piano") == [1]
    await pool.execute("UPDATE sessions SET archived_at = now() WHERE id = $1", partly_hidden.session_id)
    both = await found(pool, other, "piano")
    assert [(hit.here, hit.mid) for hit in both.hits] == [(False, "m8"), (False, "m7"), (True, "m1")]
    assert await seqs(pool, other, "piano", linked=False) == [1]


async def test_operators_find_conversations_the_last_active_first(pool: Pool, partly_hidden: Stored) -> None:
    other = await store(pool, conversation("two", ("I play the piano, too.", "Nice.")))
    silent = await store(pool, conversation("three", ("I play the flute.", "Nice.")))
    for minutes, one in enumerate((partly_hidden, other, silent)):
        await pool.execute(
            "UPDATE sessions SET last_active_at = now() + make_interval(mins => $1) WHERE id = $2",
            minutes, one.session_id,
        )  # fmt: skip
    await pool.execute("DELETE FROM session_list")
    await pool.execute(LIST_ALL)
    search = PostgresMessageSearch(pool)
    first, key = await search.search_all("piano", limit=1)
    assert [[hit.mid for hit in one.hits] for one in first] == [["m1"]]
    second, end = await search.search_all("piano", before=key, limit=5)
    assert [[hit.mid for hit in one.hits] for one in second] == [["m8", "m7"]]
    assert end is None
