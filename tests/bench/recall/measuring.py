"""What is measured: the share of evidence that is found, the answers that survive, the time it takes."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

import asyncpg

from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.postgres.memory.recall import PostgresRecall
from shared.core.compaction.digest import digest
from shared.core.context.recall_query import RecallQuery, question_dictionary, question_words
from shared.core.memory.recall import Ranked, Search, packed, ranked, rendered
from shared.core.session.ledger import Ledger
from shared.core.session.session import Entry
from shared.core.session.summary import render_summary
from shared.core.values.messages import Text
from shared.core.values.searching import searchable
from tests.bench.policies.reach import COMMON, stem
from tests.bench.recall.data import Conversation, Question
from tests.bench.recall.storing import Stored, make_searchable, note_facts, store

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
BUDGETS = (500, 1_000, 2_000, 4_000)
DIGEST_TOKENS, RECALL_TOKENS = 1_000, 2_000
QUESTIONS_TIMED = 200
_JUDGED = ("multi_hop", "single_hop")
"""Whose answers stand word for word in the talk."""

FLOOR = """
SELECT number, text FROM passages
 WHERE session_id = $1 AND recall_keys(session_id, vector) && $2::text[] ORDER BY number DESC LIMIT 200
"""
"""The least that any search costs: one rare word by the index, and the passages that hold it."""


async def quality(pool: Pool, talks: Sequence[Conversation]) -> dict[str, Any]:
    found = await _quality(pool, talks, notes=False)
    if any(talk.facts for talk in talks):
        again = [
            Conversation(
                name=f"{talk.name}-noted", person=talk.person, assistant=talk.assistant, said=talk.said,
                questions=talk.questions, facts=talk.facts,
            )
            for talk in talks
        ]  # fmt: skip
        found["with_notes"] = await _quality(pool, again, notes=True)
    return found


async def _quality(pool: Pool, talks: Sequence[Conversation], *, notes: bool) -> dict[str, Any]:
    count = VocabularyCounter().count_tokens
    at_10: defaultdict[str, list[float]] = defaultdict(list)
    within: defaultdict[int, list[float]] = defaultdict(list)
    survived: list[bool] = []
    for talk in talks:
        stored = await store(pool, talk)
        if notes:
            await note_facts(pool, talk, stored)
        await make_searchable(pool, stored.session_id)
        summary = _content(_digest(talk, count))
        everything = _content(" ".join(message.text for message in talk.said))
        for question in talk.questions:
            items = ranked(await _search(pool, stored, question), question.text)
            if question.evidence:
                at_10[question.category].append(_share(question, stored, _first(items, 10)))
            for budget in BUDGETS:
                if question.evidence and question.category != "adversarial":
                    chosen = packed(items, limit_tokens=budget, count=count, session_id=stored.session_id)
                    seqs = {passage.seq for passage in chosen if passage.lane == "said"}
                    within[budget].append(_share(question, stored, seqs))
            answer = _content(question.answer)
            if question.category in _JUDGED and answer and answer <= everything:
                chosen = packed(items, limit_tokens=RECALL_TOKENS, count=count, session_id=stored.session_id)
                text = rendered(chosen, session_id=stored.session_id)
                survived.append(answer <= summary | _content(text))
    asked = [share for category, shares in at_10.items() if category != "adversarial" for share in shares]
    return {
        "recall_at_10": _mean(asked),
        **{f"recall_at_10_{category}": _mean(shares) for category, shares in sorted(at_10.items())},
        **{f"within_{budget}": _mean(shares) for budget, shares in within.items()},
        "survival": _mean([float(whole) for whole in survived]),
        "questions": len(asked),
        "answers_judged": len(survived),
    }


async def speed(pool: Pool, talk: Conversation) -> dict[str, Any]:
    """Milliseconds of the statement and of the ranking, each question after all have been asked once."""
    number = len(talk.said)
    talk = Conversation(
        name=f"{talk.name}-{number}", person=talk.person, assistant=talk.assistant, said=talk.said,
        questions=talk.questions[:QUESTIONS_TIMED],
    )  # fmt: skip
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
            items = ranked(search, question.text)
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


async def _search(pool: Pool, stored: Stored, question: Question) -> Search:
    query = RecallQuery(
        session_id=stored.session_id,
        base_turn=stored.last_turn,
        words=question_words(question.text),
        dictionary=question_dictionary(question.text),
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
