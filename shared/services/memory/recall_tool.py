"""Tool `recall`, with which a model searches hidden messages, notes and files, and reads artifacts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, tzinfo
from typing import Any, Protocol

from shared.core.context.question import Question, read_question
from shared.core.context.recall_query import (
    RECALL,
    RECALLS_PER_TURN,
    RESULT_TOKENS,
    RecallQuery,
)
from shared.core.memory.recall import FoundPassage, Search, pack_passages, rank_passages, render_passages
from shared.core.values.local_time import resolve_zone
from shared.ports import Encoder, Reranker, TokenCounter, ToolContext, ToolFailed, ToolSpec
from shared.services.turns.artifacts import ArtifactReader
from shared.services.turns.retrieval import encode_question, rerank

QUERY_CHARS = 500
"""Most characters of a query; the rest is ignored."""


class RecallToolStore(Protocol):
    """Store that searches hidden messages, notes and files.

    `load_range` returns the passages of a period or of numbered messages, in their order.
    `count_earlier_calls` returns the newest message's number, and how often this turn used `recall` before.
    """

    async def search(self, query: RecallQuery) -> Search: ...
    async def load_range(self, query: RecallQuery) -> Sequence[FoundPassage]: ...
    async def count_earlier_calls(self, session_id: int, turn: int, call_id: str) -> tuple[int, int]: ...


class RecallTool:
    """Tool `recall`: searches messages, notes and files of the call's contact only, and reads long texts in
    portions.

    A turn may use it `RECALLS_PER_TURN` times.
    """

    spec: ToolSpec = RECALL
    idempotent = True
    timeout_seconds = 10.0

    def __init__(
        self, store: RecallToolStore, artifacts: ArtifactReader, counter: TokenCounter, *, home: str,
        reranker: Reranker | None = None, encoder: Encoder | None = None,
    ) -> None:  # fmt: skip
        """Set up the tool; `home` is the deployment's time zone, for people whose time zone is unknown."""
        self._store = store
        self._artifacts = artifacts
        self._counter = counter
        self._home = home
        self._reranker = reranker
        self._encoder = encoder

    async def run(self, arguments: Mapping[str, Any], *, context: ToolContext) -> str:
        last_seq, asked = await self._store.count_earlier_calls(
            context.session_id, context.turn, context.call_id
        )
        if context.flush_id is None and asked >= RECALLS_PER_TURN:
            raise ToolFailed(
                f"recall was used {RECALLS_PER_TURN} times for this message, which is the most. "
                "Answer with what you have, or say what you could not find."
            )
        asked_for = str(arguments.get("query") or "").strip()[:QUERY_CHARS]
        if artifact := str(arguments.get("artifact") or "").strip():
            return await self._artifacts.read(
                artifact, offset=arguments.get("offset"), find=asked_for, session_id=context.session_id
            )
        if arguments.get("offset") is not None:
            raise ToolFailed("`offset` is a place in a long text: give its id as `artifact`.")
        question = replace(read_question(asked_for), asks=True)
        query = _query(arguments, question, context, last_seq, resolve_zone(context.timezone, self._home))
        found = await self._find(query, question, context)
        if not found:
            return "Nothing was found. Try other words, names or dates."
        return render_passages(found, session_id=context.session_id)

    async def _find(
        self, query: RecallQuery, question: Question, context: ToolContext
    ) -> tuple[FoundPassage, ...]:
        count = self._counter.count_tokens
        if query.words:
            encoder, vector = await encode_question(self._encoder, question.text, session=context.session_id)
            query = replace(query, encoder=encoder, vector=vector)
            found = rank_passages(await self._store.search(query), question)
            items = await rerank(self._reranker, found, question.text, session=context.session_id)
            return pack_passages(
                items, limit_tokens=RESULT_TOKENS, count=count, session_id=context.session_id
            )
        taken: list[FoundPassage] = []
        left = RESULT_TOKENS
        for passage in await self._store.load_range(query):
            cost = count(render_passages((passage,), session_id=context.session_id)) + 1
            if cost > left:
                break
            taken.append(passage)
            left -= cost
        return tuple(taken)


def _query(
    arguments: Mapping[str, Any], question: Question, context: ToolContext, last_seq: int, zone: tzinfo
) -> RecallQuery:
    after, before = _day(arguments, "after", zone), _day(arguments, "before", zone)
    if after and before and after >= before:
        raise ToolFailed("`after` must be an earlier day than `before`.")
    first, last = _range(arguments.get("seq_range"), last_seq)
    if not question.words and not (after or before or first):
        raise ToolFailed(
            "`query` is empty: give words to look for, a day, a range of messages, or the id of an artifact."
        )
    return RecallQuery(
        session_id=context.session_id,
        base_turn=None if context.flush_id is not None else context.base_turn,
        words=question.words,
        asked=question.asked,
        asks=question.asks,
        dictionary=question.dictionary,
        automatic=False,
        after=after,
        before=before,
        from_seq=first,
        through_seq=last,
        zone=zone,
    )


def _day(arguments: Mapping[str, Any], name: str, zone: tzinfo) -> datetime | None:
    """Return an argument's time: the beginning of a day, or the moment itself; None if it is missing.

    Raises ToolFailed for a text that is no day.
    """
    given = arguments.get(name)
    if given in (None, ""):
        return None
    text = str(given).strip()
    try:
        if len(text) <= len("YYYY-MM-DD"):
            text = f"{date.fromisoformat(text)}T00:00"  # a day, which may also be written as 20260215
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo else moment.replace(tzinfo=zone)
    except (ValueError, OverflowError):
        raise ToolFailed(f"`{name}` is {text[:40]!r}; write a day as YYYY-MM-DD.") from None


def _range(given: Any, last_seq: int) -> tuple[int | None, int | None]:
    if given in (None, [], ""):
        return None, None
    if not (
        isinstance(given, Sequence)
        and len(given) == 2
        and all(isinstance(seq, int) and not isinstance(seq, bool) for seq in given)
    ):
        raise ToolFailed("`seq_range` must be two numbers of messages, such as [12, 40].")
    first, last = given
    if not 1 <= first <= last:
        raise ToolFailed(f"`seq_range` is [{first}, {last}]; it begins with 1 at least and must not shrink.")
    if first > last_seq:
        raise ToolFailed(f"`seq_range` begins at {first}, but the newest message is #{last_seq}.")
    return first, min(last, last_seq)
