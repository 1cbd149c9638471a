"""What is measured: the share of evidence that is found, the answers that survive, the time it takes."""

from __future__ import annotations

import random
import statistics
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import asyncpg

from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.postgres.memory.passage_vectors import PostgresPassageVectors
from shared.adapters.postgres.memory.recall import PostgresRecall
from shared.core.compaction.digest import digest
from shared.core.context.question import read_question
from shared.core.context.recall_query import RecallQuery
from shared.core.memory.recall import (
    Found,
    Ranked,
    Search,
    pack_passages,
    rank_passages,
    render_passages,
)
from shared.core.session.ledger import Ledger
from shared.core.session.session import Entry
from shared.core.session.summary import render_summary
from shared.core.values.messages import Text
from shared.core.values.searching import searchable
from shared.core.values.tokens import Count
from shared.ports import Encoder, Reranker
from shared.services.memory.passage_encoder import PassageEncoder
from shared.services.turns.retrieval import encode_question, rerank
from tests.bench.policies.reach import COMMON, stem
from tests.bench.recall.data import UNANSWERABLE, Conversation, Question
from tests.bench.recall.plain import PlainSearch
from tests.bench.recall.storing import Stored, make_searchable, note_facts, store

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
BUDGETS = (500, 1_200, 2_000, 4_000)
SHIPPED_TOKENS = 1_200
DIGEST_TOKENS, RECALL_TOKENS = 1_000, 2_000
ELSEWHERE = 40
"""So many questions of other conversations are asked in each: nothing here answers them."""
QUESTIONS_TIMED = 200
COMPARED = ("recall_at_10", "within_1200")
"""Rows in which plain BM25 may never find more."""
LEAST_QUESTIONS = 40
"""Questions of a category that are compared; fewer say little, since one is worth several points."""
_JUDGED = ("multi_hop", "single_hop")
"""Whose answers stand word for word in the talk."""

FLOOR = """
SELECT number, text FROM passages
 WHERE session_id = $1 AND recall_keys(session_id, vector) && $2::text[] ORDER BY number DESC LIMIT 200
"""
"""The least that any search costs: one rare word by the index, and the passages that hold it."""


async def quality(
    pool: Pool,
    talks: Sequence[Conversation],
    orderer: Reranker | None = None,
    encoder: Encoder | None = None,
) -> dict[str, Any]:
    """Measure what ships, where nobody has a name, beside plain BM25; then with names and with notes."""
    nameless = [replace(talk, name=f"{talk.name}-nameless", person="", assistant="") for talk in talks]
    found = await _quality(pool, nameless, orderer, encoder, notes=False)
    if any(talk.person for talk in talks):
        found["with_names"] = await _quality(pool, talks, orderer, encoder, notes=False)
    if any(talk.facts for talk in talks):
        again = [replace(talk, name=f"{talk.name}-noted") for talk in talks]
        found["with_notes"] = await _quality(pool, again, orderer, encoder, notes=True)
    return found


def below_plain(found: Mapping[str, Any]) -> list[str]:
    """Return the rows, of all questions and of each category, in which plain BM25 finds more."""
    below: list[str] = []
    for name, of in {"": found, **found["by_category"]}.items():
        if of["questions"] < LEAST_QUESTIONS:
            continue
        for row in COMPARED:
            if of[row] < of["plain"][row]:
                place = f"{name}.{row}" if name else row
                below.append(f"{place}: {of[row]} is less than {of['plain'][row]}")
    return below


@dataclass(slots=True)
class _Tally:
    """Shares of the evidence found by one way of searching, question by question."""

    at_10: list[float] = field(default_factory=list)
    within: defaultdict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    candidates: list[float] = field(default_factory=list)
    silent: list[float] = field(default_factory=list)
    tokens: list[float] = field(default_factory=list)

    def rows(self) -> dict[str, Any]:
        return {
            "recall_at_10": _mean(self.at_10),
            "any_at_10": _mean([share > 0 for share in self.at_10]),
            **{f"within_{budget}": _mean(shares) for budget, shares in self.within.items()},
            "silent": _mean(self.silent),
            "candidates": _mean(self.candidates),
            "tokens": round(_mean(self.tokens)),
        }


async def _quality(
    pool: Pool,
    talks: Sequence[Conversation],
    orderer: Reranker | None,
    encoder: Encoder | None,
    *,
    notes: bool,
) -> dict[str, Any]:
    count = VocabularyCounter().count_tokens
    shipped: defaultdict[str, _Tally] = defaultdict(_Tally)
    plain: defaultdict[str, _Tally] = defaultdict(_Tally)
    survived: list[bool] = []
    silent: defaultdict[str, list[float]] = defaultdict(list)
    cpu: list[float] = []
    for talk in talks:
        stored = await store(pool, talk)
        if notes:
            await note_facts(pool, talk, stored)
        await make_searchable(pool, stored.session_id)
        await _encode(pool, encoder)
        beside = PlainSearch(await _passages(pool, stored))
        summary = _content(_digest(talk, count))
        everything = _content(" ".join(message.text for message in talk.said))
        for question in talk.questions:
            asked = read_question(question.text)
            began = time.process_time()
            search = await _search(pool, stored, question, encoder)
            ranked = rank_passages(search, asked)
            cpu.append((time.process_time() - began) * 1000)
            items = await rerank(orderer, ranked, asked.text)
            if question.category == UNANSWERABLE:
                silent["abstention"].append(not items)
                continue
            if question.evidence:
                tally = shipped[question.category]
                _add(tally, question, stored, items, count)
                tally.candidates.append(
                    _share(question, stored, {found.seq for found in search.found if found.lane == "said"})
                )
                before = stored.seqs.get(question.before, len(stored.seqs) + 1)
                every = beside.rank(question.text, before_seq=before)
                _add(plain[question.category], question, stored, every, count)
            answer = _content(question.answer)
            if question.category in _JUDGED and answer and answer <= everything:
                chosen = pack_passages(
                    items, limit_tokens=RECALL_TOKENS, count=count, session_id=stored.session_id
                )
                text = render_passages(chosen, session_id=stored.session_id)
                survived.append(answer <= summary | _content(text))
        for question in _asked_elsewhere(talk, talks):
            silent["abstention_elsewhere"].append(not await _ranked(pool, stored, question))
    judged = [name for name in shipped if name != "adversarial"]
    whole = _together([shipped[name] for name in judged])
    return {
        **whole.rows(),
        **{name: _mean(shares) for name, shares in sorted(silent.items())},
        "cpu_p50_ms": round(statistics.median(cpu), 2),
        "cpu_p95_ms": round(_p95(cpu), 2),
        **({"survival": _mean(survived), "answers_judged": len(survived)} if survived else {}),
        "questions": len(whole.at_10),
        "plain": _together([plain[name] for name in judged]).rows(),
        "by_category": {
            name: {**shipped[name].rows(), "questions": len(of.at_10), "plain": of.rows()}
            for name, of in sorted(plain.items())
        },
    }


def _add(
    tally: _Tally,
    question: Question,
    stored: Stored,
    items: Sequence[Ranked],
    count: Count,
) -> None:
    tally.at_10.append(_share(question, stored, _first(items, 10)))
    tally.silent.append(not items)
    for budget in BUDGETS:
        chosen = pack_passages(items, limit_tokens=budget, count=count, session_id=stored.session_id)
        share = _share(question, stored, {passage.seq for passage in chosen if passage.lane == "said"})
        tally.within[budget].append(share)
        if budget == SHIPPED_TOKENS:
            tally.tokens.append(count(render_passages(chosen, session_id=stored.session_id)))


def _together(tallies: Sequence[_Tally]) -> _Tally:
    whole = _Tally()
    for tally in tallies:
        whole.at_10 += tally.at_10
        whole.candidates += tally.candidates
        whole.silent += tally.silent
        whole.tokens += tally.tokens
        for budget, shares in tally.within.items():
            whole.within[budget] += shares
    return whole


async def _passages(pool: Pool, stored: Stored) -> list[Found]:
    rows = await pool.fetch(
        """SELECT number, at, text, terms, seq, part, turn_no, author, speaker, sitting FROM passages
            WHERE session_id = $1 AND author <> 'tool' ORDER BY number""",
        stored.session_id,
    )
    return [
        Found(
            "said", stored.session_id, row["number"], row["at"], row["text"], row["terms"], (), row["seq"],
            row["part"], row["turn_no"], row["author"], row["speaker"], row["sitting"],
        )
        for row in rows
    ]  # fmt: skip


def _asked_elsewhere(talk: Conversation, talks: Sequence[Conversation]) -> list[Question]:
    """Questions that another conversation answers; the same ones each time."""
    others = [
        replace(asked, before="")
        for other in talks
        if other is not talk
        for asked in other.questions
        if asked.evidence
    ]
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


async def _encode(pool: Pool, encoder: Encoder | None) -> None:
    """Make the vectors of all passages and notes, as the worker does."""
    if encoder is None:
        return
    work = PassageEncoder(PostgresPassageVectors(pool), encoder)
    while await pool.fetchval("SELECT EXISTS (TABLE unencoded_sessions) OR EXISTS (TABLE unencoded_notes)"):
        await work.sweep()


async def _search(pool: Pool, stored: Stored, question: Question, encoder: Encoder | None = None) -> Search:
    asked = read_question(question.text)
    model, vector = await encode_question(encoder, question.text)
    query = RecallQuery(
        session_id=stored.session_id,
        base_turn=stored.turns[question.before] - 1 if question.before else stored.last_turn,
        words=asked.words,
        asked=asked.asked,
        asks=asked.asks,
        dictionary=asked.dictionary,
        encoder=model,
        vector=vector,
    )
    return await PostgresRecall(pool).search(query)


def _first(items: Sequence[Ranked], number: int) -> set[int]:
    seqs = dict.fromkeys(item.passage.seq for item in items if item.passage.lane == "said")
    return set(list(seqs)[:number])


def _share(question: Question, stored: Stored, seqs: Collection[int]) -> float:
    found = sum(any(stored.seqs[place] in seqs for place in places) for places in question.evidence)
    return found / len(question.evidence)


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
