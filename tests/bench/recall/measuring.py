"""What is measured: the share of evidence that is found, the answers that survive, the time it takes."""

from __future__ import annotations

import random
import statistics
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg

from shared.adapters.models.token_counter import VocabularyCounter
from shared.adapters.postgres.memory.passage_vectors import PostgresPassageVectors
from shared.adapters.postgres.memory.recall import PostgresRecall
from shared.core.compaction.digest import digest
from shared.core.context.question import read_question
from shared.core.context.recall_query import RecallQuery
from shared.core.memory.recall import (
    FoundPassage,
    Ranked,
    Search,
    pack_passages,
    rank_passages,
    render_passages,
)
from shared.core.memory.vectors import SPREAD, Encoded, EncodedPassage
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
VECTORS_AT_ONCE = 2_000
COMPARED = ("recall_at_10", "within_1200")
COMPARED_OF_FILES = ("recall_at_10", "within_500", "within_1200", "within_2000")
"""Rows of a category, and of a whole file, in which plain BM25 may never find more."""
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
        for row in COMPARED if name else COMPARED_OF_FILES:
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


async def _passages(pool: Pool, stored: Stored) -> list[FoundPassage]:
    rows = await pool.fetch(
        """SELECT number, at, text, terms, seq, part, turn_no, author, speaker, sitting FROM passages
            WHERE session_id = $1 AND author <> 'tool' ORDER BY number""",
        stored.session_id,
    )
    return [
        FoundPassage(
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


async def speed(
    pool: Pool, talk: Conversation, encoder: Encoder | None = None, *, encoder_pid: int = 0
) -> dict[str, Any]:
    """Measure the statement and the ranking, each question after all have been asked once.

    CPU is that of this process, of its connections' backends, and of the encoder's process if it is known.
    With an encoder, all is measured once more with vectors.
    The vectors of passages are made up, for their number decides; that of a question is the encoder's.
    """
    number = len(talk.said)
    talk = replace(talk, name=f"{talk.name}-{number}", questions=talk.questions[:QUESTIONS_TIMED])
    stored = await store(pool, talk)
    await make_searchable(pool, stored.session_id)
    await pool.execute("VACUUM ANALYZE", timeout=120)
    found = await _timed(pool, stored, talk)
    floor = [await _floor(pool, stored, question) for question in talk.questions]
    found |= {
        "floor_p50_ms": round(statistics.median(floor), 2),
        "ratio_to_floor": round(found["p50_ms"] / statistics.median(floor), 2),
        "statements": await _statements(pool, stored, talk.questions[0]),
    }
    if encoder is not None:
        await _make_up_vectors(pool, stored.session_id, await encoder.encode(("Where are the keys?",)))
        with_meaning = await _timed(pool, stored, talk, encoder, encoder_pid)
        found |= {f"meaning_{name}": value for name, value in with_meaning.items()}
    return {f"{name}_{number}": value for name, value in found.items()}


async def _timed(
    pool: Pool, stored: Stored, talk: Conversation, encoder: Encoder | None = None, encoder_pid: int = 0
) -> dict[str, Any]:
    whole: list[float] = []
    ranking: list[float] = []
    cpu: list[float] = []
    of_process: list[float] = []
    encoding: list[float] = []
    right = 0
    backends, encoders = await _backends(pool), [encoder_pid] if encoder_pid else []
    held = resident_mib()
    for timed in (False, True):
        for question in talk.questions:
            began, process = time.perf_counter(), time.process_time()
            servers, encoded = _cpu_ms(backends), _cpu_ms(encoders)
            search = await _search(pool, stored, question, encoder)
            ranked_from = time.process_time()
            items = rank_passages(search, read_question(question.text))
            if timed:
                ended = time.process_time()
                ranking.append((ended - ranked_from) * 1000)
                encoding.append(_cpu_ms(encoders) - encoded)
                of_process.append((ended - process) * 1000)
                cpu.append(of_process[-1] + _cpu_ms(backends) - servers + encoding[-1])
                whole.append((time.perf_counter() - began) * 1000)
                right += bool(_share(question, stored, _first(items, 10)))
    return {
        "p50_ms": round(statistics.median(whole), 2),
        "p95_ms": round(_p95(whole), 2),
        "cpu_p50_ms": round(statistics.median(cpu), 2),
        "cpu_p95_ms": round(_p95(cpu), 2),
        **({"encoding_cpu_p50_ms": round(statistics.median(encoding), 2)} if encoders else {}),
        "process_cpu_p50_ms": round(statistics.median(of_process), 2),
        "process_cpu_p95_ms": round(_p95(of_process), 2),
        "ranking_cpu_p50_ms": round(statistics.median(ranking), 2),
        "ranking_cpu_p95_ms": round(_p95(ranking), 2),
        "memory_growth_mib": round(max(0.0, resident_mib() - held), 1),
        "found": round(right / max(1, len(talk.questions)), 3),
    }


async def _backends(pool: Pool) -> list[int]:
    """Return the process ids of the pool's connections."""
    connections = [await pool.acquire() for _ in range(pool.get_size())]
    pids = [await connection.fetchval("SELECT pg_backend_pid()") for connection in connections]
    for connection in connections:
        await pool.release(connection)
    return pids


def _cpu_ms(pids: Sequence[int]) -> float:
    """Return the CPU that processes have used, in milliseconds; 0 where the system does not tell."""
    try:
        threads = [thread for pid in pids for thread in Path(f"/proc/{pid}/task").iterdir()]
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e6
    except (OSError, ValueError, IndexError):
        return 0.0


def resident_mib(pid: str = "self", kind: str = "Pss") -> float:
    """Return the memory of a process, its share of pages that several use included.

    With the kind `Pss_Anon`, pages of files are left out, which the system takes back when it needs room.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith(f"{kind}:")) / 1024


async def _make_up_vectors(pool: Pool, session_id: int, like: Encoded) -> None:
    """Give each passage a vector of the model of `like` whose numbers are distributed as usual ones are."""
    chance, numbers = random.Random(session_id), len(like.vectors[0])
    usual = statistics.NormalDist(0, SPREAD)
    table = bytes(round(usual.inv_cdf((byte + 0.5) / 256)) % 256 for byte in range(256))
    vectors = PostgresPassageVectors(pool)
    rows = await pool.fetch("SELECT number, text FROM passages WHERE session_id = $1", session_id)
    for start in range(0, len(rows), VECTORS_AT_ONCE):
        made = [
            EncodedPassage(
                number=row["number"], text=row["text"], vector=chance.randbytes(numbers).translate(table)
            )
            for row in rows[start : start + VECTORS_AT_ONCE]
        ]
        await vectors.store(session_id, like.encoder, made)
    await pool.execute("VACUUM ANALYZE", timeout=120)


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
