"""Recall of hidden messages, notes and files for each turn, without calling a chat model."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Protocol

import structlog

from shared.core.context.memory import CORE_CANDIDATES
from shared.core.context.question import read_question
from shared.core.context.recall_query import RecallQuery
from shared.core.memory.facts import find_cited
from shared.core.memory.recall import (
    NOTHING_RECALLED,
    SHORT_TOKENS,
    Ranked,
    Recalled,
    Search,
    pack_passages,
    rank_passages,
    render_passages,
    reorder,
)
from shared.core.session.session import View
from shared.core.session.turns import Claim
from shared.core.values.errors import ModelError, StorageUnavailable
from shared.core.values.local_time import resolve_zone
from shared.core.values.messages import text_of
from shared.core.values.secrets_filter import redact
from shared.core.values.spoken_times import Span, spoken_spans
from shared.ports import Encoder, Reranker
from shared.services.turns.request_builder import RequestBuilder

log = structlog.get_logger(__name__)

RERANKED = 40
"""Number of best passages that a reranker may reorder."""
QUESTION_CHARS = 1_000
"""Characters at the end of a long message that encoder and reranker read, since the question is usually
there.
"""


class RecallStore(Protocol):
    """Store that searches hidden messages, notes and files for passages; raises StorageUnavailable."""

    async def search(self, query: RecallQuery) -> Search: ...


class Retriever:
    """Finder of passages that fit the person's newest messages, with at most one database
    statement per turn.
    """

    def __init__(
        self,
        *,
        store: RecallStore,
        requests: RequestBuilder,
        reranker: Reranker | None = None,
        encoder: Encoder | None = None,
    ) -> None:
        self._store = store
        self._requests = requests
        self._reranker = reranker
        self._encoder = encoder

    async def recall_for_turn(self, claim: Claim, view: View, *, window: int) -> Recalled:
        """Return the passages that fit the person's message in the open turn, as text for the request.

        Empty if there are none, the agent recalls none, or the database does not answer (which is logged). A
        repeated attempt gets the same passages while the log is unchanged. `window` is the model's window in
        tokens.
        """
        if not (claim.recallable or claim.view.notes):
            return NOTHING_RECALLED
        limit = self._requests.recall_limit(claim.agent_config, window)
        zone = resolve_zone(claim.timezone, self._requests.timezone)
        known = self._requests.known_notes(claim.view, zone).shown
        others = any(note.id not in known and note.authority != "tool" for note in claim.view.notes)
        others = others or len(claim.view.notes) >= CORE_CANDIDATES
        if limit == 0 or not (claim.recallable or others):
            return NOTHING_RECALLED
        question = read_question(_newest_words(view))
        if not question.words:
            return NOTHING_RECALLED
        today = view.entries[-1].at.astimezone(zone).date()
        spans = spoken_spans(question.text, today)
        cited = find_cited(view.head.ledger, question) if view.head is not None else {}
        encoder, vector = await encode_question(self._encoder, question.text, session=claim.session_id)
        query = RecallQuery(
            session_id=claim.session_id,
            base_turn=view.base_turn,
            words=question.words,
            asked=question.asked,
            asks=question.asks,
            dictionary=question.dictionary,
            turn=claim.turn,
            known_notes=known,
            spoken_of=_bounds(spans, zone),
            cited=tuple(cited),
            encoder=encoder,
            vector=vector,
            zone=zone,
        )
        try:
            search = await self._store.search(query)
        except StorageUnavailable as error:
            log.warning("turn_recall_failed", session_id=claim.session_id, reason=str(error))
            return NOTHING_RECALLED
        ranked = rank_passages(search, question, spans, cited=cited, session_id=claim.session_id)
        items = await rerank(self._reranker, ranked, question.text, session=claim.session_id)
        return self._render_recalled(items, limit, claim.session_id, today)

    def _render_recalled(self, items: Sequence[Ranked], limit: int, session_id: int, today: date) -> Recalled:
        count = self._requests.counter.count_tokens

        def text(tokens: int) -> str:
            chosen = pack_passages(
                items, limit_tokens=tokens, count=count, session_id=session_id, today=today
            )
            return render_passages(chosen, session_id=session_id, today=today)

        short = text(min(limit, SHORT_TOKENS))
        return Recalled(text=text(limit) if limit > SHORT_TOKENS else short, short=short)


def _bounds(spans: Sequence[Span], zone: tzinfo) -> tuple[datetime, datetime] | None:
    """Return the beginning of the first day and the end of the last one in `zone`; None without days."""
    if not spans:
        return None
    first, last = min(span.first for span in spans), max(span.last for span in spans)
    begin = datetime.combine(first, time.min, zone)
    return begin, datetime.combine(last + timedelta(days=1), time.min, zone)


def _newest_words(view: View) -> str:
    mine = [entry for entry in view.entries if entry.turn == view.open_turn and entry.author == "person"]
    return "\n".join(text_of(entry.blocks) for entry in mine)


async def encode_question(
    encoder: Encoder | None, question: str, *, session: int | None = None
) -> tuple[str, bytes]:
    """Return the encoder's name and the vector of the question's last 1,000 characters, without personal
    codes.

    Both are empty without an encoder or if it fails. Failures count for `session`, unless None.
    """
    if encoder is None:
        return "", b""
    try:
        encoded = await encoder.encode((redact(question[-QUESTION_CHARS:]),), question=True, session=session)
    except ModelError:
        return "", b""
    return encoded.encoder, encoded.vectors[0]


async def rerank(
    reranker: Reranker | None, items: Sequence[Ranked], question: str, *, session: int | None = None
) -> Sequence[Ranked]:
    """Return the passages, of which the best `RERANKED` are put in the reranker's order.

    The order stays unchanged without a reranker, with fewer than 2 passages, or without an answer in time.
    Failures of the reranker are counted for `session`, unless None.
    """
    if reranker is None or len(items) < 2:
        return items
    passages = [redact(item.passage.text) for item in items[:RERANKED]]
    places = await reranker.rank(redact(question[-QUESTION_CHARS:]), passages, session=session)
    return items if places is None else reorder(items, places)
