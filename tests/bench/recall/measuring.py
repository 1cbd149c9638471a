"""What is measured: the share of evidence that is found, the answers that survive, the time it takes."""

from __future__ import annotations

import random
import statistics
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import asyncpg

from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.postgres.memory.recall import PostgresRecall
from shared.core.compaction.digest import digest
from shared.core.context.question import read_question
from shared.core.context.recall_query import RecallQuery
from shared.core.memory.recall import (
    Ranked,
    Search,
    pack_passages,
    rank_passages,
    recall_budget,
    render_passages,
)
from shared.core.session.ledger import Ledger
from shared.core.session.session import Entry
from shared.core.session.summary import render_summary
from shared.core.values.messages import Text
from shared.core.values.searching import searchable
from shared.ports import Reranker
from shared.services.turns.retrieval import rerank
from tests.bench.policies.reach import COMMON, stem
from tests.bench.recall.data import UNANSWERABLE, Conversation, Question
from tests.bench.recall.storing import Stored, make_searchable, note_facts, store

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
BUDGETS = (500, 1_200, 2_000, 4_000)
SHIPPED_TOKENS = 1_200
DIGEST_TOKENS, RECALL_TOKENS = 1_000, 2_000
ELSEWHERE = 40
"""So many questions of other conversations are asked in each: nothing here answers them."""
QUESTIONS_TIMED = 200
_JUDGED = ("multi_hop", "single_hop")
"""Whose answers stand word for word in the talk."""

FLOOR = """
SELECT number, text FROM passages
 WHERE session_id = $1 AND recall_keys(session_id, vector) && $2::text[] ORDER BY number DESC LIMIT 200
"""
"""The least that any search costs: one rare word by the index, and the passages that hold it."""


async def quality(
    pool: Pool, talks: Sequence[Conversation], orderer: Reranker | None = None
) -> dict[str, Any]:
    """As shipped, where nobody has a name; then with names where the data has them, and with notes."""
    nameless = [replace(talk, name=f"{talk.name}-nameless", person="", assistant="") for talk in talks]
    found = await _quality(pool, nameless, orderer, notes=False)
    behind = [_behind(talk) for talk in nameless]
    found["behind_other_words"] = await _quality(pool, behind, orderer, notes=False)
    if any(talk.person for talk in talks):
        found["with_names"] = await _quality(pool, talks, orderer, notes=False)
    if any(talk.facts for talk in talks):
        again = [replace(talk, name=f"{talk.name}-noted") for talk in talks]
        found["with_notes"] = await _quality(pool, again, orderer, notes=True)
    return found


async def _quality(
    pool: Pool, talks: Sequence[Conversation], orderer: Reranker | None, *, notes: bool
) -> dict[str, Any]:
    count = VocabularyCounter().count_tokens
    at_10: defaultdict[str, list[float]] = defaultdict(list)
    any_at_10: list[float] = []
    within: defaultdict[int, list[float]] = defaultdict(list)
    recalled: list[int] = []
    survived: list[bool] = []
    silent: defaultdict[str, list[float]] = defaultdict(list)
    for talk in talks:
        stored = await store(pool, talk)
        if notes:
            await note_facts(pool, talk, stored)
        await make_searchable(pool, stored.session_id)
        summary = _content(_digest(talk, count))
        everything = _content(" ".join(message.text for message in talk.said))
        for question in talk.questions:
            asked = read_question(question.text)
            search = await _search(pool, stored, question)
            items = await rerank(orderer, rank_passages(search, asked), asked.text)
            if question.category == UNANSWERABLE:
                silent["abstention"].append(not items)
                continue
            judged = question.category != "adversarial"
            if question.evidence:
                at_10[question.category].append(_share(question, stored, _first(items, 10)))
            if question.evidence and judged:
                any_at_10.append(at_10[question.category][-1] > 0)
            for budget in BUDGETS:
                if question.evidence and judged:
                    allowed = recall_budget(search, asked, budget, count)
                    chosen = pack_passages(
                        items, limit_tokens=allowed, count=count, session_id=stored.session_id
                    )
                    seqs = {passage.seq for passage in chosen if passage.lane == "said"}
                    within[budget].append(_share(question, stored, seqs))
                    if budget == SHIPPED_TOKENS:
                        recalled.append(count(render_passages(chosen, session_id=stored.session_id)))
            answer = _content(question.answer)
            if question.category in _JUDGED and answer and answer <= everything:
                chosen = pack_passages(
                    items, limit_tokens=RECALL_TOKENS, count=count, session_id=stored.session_id
                )
                text = render_passages(chosen, session_id=stored.session_id)
                survived.append(answer <= summary | _content(text))
        for question in _asked_elsewhere(talk, talks):
            silent["abstention_elsewhere"].append(not await _ranked(pool, stored, question))
    shares_at_10 = [share for category, of in at_10.items() if category != "adversarial" for share in of]
    return {
        "recall_at_10": _mean(shares_at_10),
        "any_at_10": _mean(any_at_10),
        **{f"within_{budget}": _mean(shares) for budget, shares in within.items()},
        **{name: _mean(shares) for name, shares in sorted(silent.items())},
        "tokens": round(_mean(recalled)),
        **{f"recall_at_10_{category}": _mean(shares) for category, shares in sorted(at_10.items())},
        **({"survival": _mean(survived), "answers_judged": len(survived)} if survived else {}),
        "questions": len(shares_at_10),
    }


def _behind(talk: Conversation) -> Conversation:
    """Each question behind something that its person said another time, in one message."""
    chance = random.Random(talk.said[0].text)
    told = [message for message in talk.said if message.by_person and not set("?？؟") & set(message.text)]

    def asked(question: Question) -> Question:
        others = [message.text for message in told if message.id not in question.evidence]
        return replace(question, text="\n".join((*chance.choices(others, k=bool(others)), question.text)))

    return replace(talk, name=f"{talk.name}-behind", questions=tuple(map(asked, talk.questions)))


def _asked_elsewhere(talk: Conversation, talks: Sequence[Conversation]) -> list[Question]:
    """Questions that another conversation answers; the same ones each time."""
    others = [asked for other in talks if other is not talk for asked in other.questions if asked.evidence]
    return random.Random(talk.said[0].text).sample(others, min(ELSEWHERE, len(others)))


async def speed(pool: Pool, talk: Conversation) -> dict[str, Any]:
    """Milliseconds of the statement and of the ranking, each question after all have been asked once."""
    number = len(talk.said)
    talk = replace(talk, name=f"{talk.name}-{number}", questions=talk.questions[:QUESTIONS_TIMED])
    stored = await store(pool, talk)
    await make_searchable(pool, stored.session_id)
    await pool.execute("VACUUM ANALYZE", timeout=120)
    whole: list[float] = []
    ranking: list[float] = []
    floor: list[float] = []
    right = 0
    for timed in (False, True):
        for question in talk.questions:
            began = time.perf_counter()
            search = await _search(pool, stored, question)
            cpu = time.process_time()
            items = rank_passages(search, read_question(question.text))
            if timed:
                ranking.append((time.process_time() - cpu) * 1000)
                whole.append((time.perf_counter() - began) * 1000)
                right += bool(_share(question, stored, _first(items, 10)))
                floor.append(await _floor(pool, stored, question))
    return {
        f"p50_ms_{number}": round(statistics.median(whole), 2),
        f"p95_ms_{number}": round(_p95(whole), 2),
        f"ranking_cpu_p50_ms_{number}": round(statistics.median(ranking), 2),
        f"ranking_cpu_p95_ms_{number}": round(_p95(ranking), 2),
        f"floor_p50_ms_{number}": round(statistics.median(floor), 2),
        f"ratio_to_floor_{number}": round(statistics.median(whole) / statistics.median(floor), 2),
        f"statements_{number}": await _statements(pool, stored, talk.questions[0]),
        f"found_{number}": round(right / max(1, len(talk.questions)), 3),
    }


async def _statements(pool: Pool, stored: Stored, question: Question) -> int:
    """How many one search sends, as the connections hear it."""
    sent: list[str] = []

    def heard(record: Any) -> None:
        if "pg_advisory_unlock_all" not in record.query:
            sent.append(record.query)

    connections = [await pool.acquire() for _ in range(pool.get_size())]
    for connection in connections:
        connection.add_query_logger(heard)
        await pool.release(connection)
    await _search(pool, stored, question)
    return len(sent)


async def _floor(pool: Pool, stored: Stored, question: Question) -> float:
    began = time.perf_counter()
    await pool.fetch(FLOOR, stored.session_id, [f"{stored.session_id}:{question.answer}"])
    return (time.perf_counter() - began) * 1000


async def _ranked(pool: Pool, stored: Stored, question: Question) -> tuple[Ranked, ...]:
    return rank_passages(await _search(pool, stored, question), read_question(question.text))


async def _search(pool: Pool, stored: Stored, question: Question) -> Search:
    asked = read_question(question.text)
    query = RecallQuery(
        session_id=stored.session_id,
        base_turn=stored.last_turn,
        words=asked.words,
        asked=asked.asked,
        dictionary=asked.dictionary,
    )
    return await PostgresRecall(pool).search(query)


def _first(items: Sequence[Ranked], number: int) -> set[int]:
    seqs = dict.fromkeys(item.passage.seq for item in items if item.passage.lane == "said")
    return set(list(seqs)[:number])


def _share(question: Question, stored: Stored, seqs: Collection[int]) -> float:
    return sum(stored.seqs[place] in seqs for place in question.evidence) / len(question.evidence)


def _digest(talk: Conversation, count: Any) -> str:
    entries = [
        Entry(
            seq=seq, turn=seq, step=seq, role="user" if message.by_person else "assistant",
            author="person" if message.by_person else "assistant", blocks=(Text(text=message.text),),
            tokens=count(message.text), at=message.at,
        )
        for seq, message in enumerate(talk.said, start=1)
    ]  # fmt: skip
    return render_summary(digest(entries, Ledger(), count, budget_tokens=DIGEST_TOKENS))


def _content(text: str) -> set[str]:
    """The words that say something, without their endings."""
    return {stem(word) for word in searchable(text).split() if word not in COMMON}


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4) if values else 0.0


def _p95(values: Sequence[float]) -> float:
    return sorted(values)[int(0.95 * (len(values) - 1))]
