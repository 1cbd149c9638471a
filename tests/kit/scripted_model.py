"""A model that answers as a test tells it, and keeps the requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from shared.core.compaction.plan import CompactionPlan, chunk_limit, find_oversized, portions, readable
from shared.core.session.ledger import Ledger
from shared.core.session.session import Entry
from shared.core.session.turns import Caps
from shared.core.values.messages import Text, text_of
from shared.core.values.money import Prices
from shared.core.verdicts.unable_models import UnableModels
from shared.ports import ModelCard, ModelReply, ModelRequest, OnText, Usage
from shared.services.compaction.silent_requests import CompletionTimeouts
from shared.services.compaction.summarizer import Summariser, SummaryResult
from shared.services.turns.spend_tracker import SpendTracker
from tests.kit.builders import words

CHEAP, MAIN = "cheap", "main"
Say = Callable[[ModelRequest], Any]


class Words:
    def count_tokens(self, text: str) -> int:
        return words(text)


class NoMoney:
    """A store of reservations in which nothing has a price."""

    async def reserve(self, *_: Any, **__: Any) -> int | None:
        return None

    async def release_reservation(self, *_: Any, **__: Any) -> None:
        pass


@dataclass(slots=True)
class ScriptedModel:
    """A model whose answer to a request is what `say` returns: a text, a reply or an error.

    A text is streamed in two pieces.
    """

    say: Say
    window: int = 200_000
    max_output: int = 8_192
    asked: list[ModelRequest] = field(default_factory=list)
    prices: Prices | None = None

    async def load_card(self, model: str) -> ModelCard:
        return ModelCard(
            name=model,
            window=self.window,
            max_output=self.max_output,
            window_known=True,
            prices=self.prices,
            token_factor=1.0,
        )

    async def reply(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        self.asked.append(request)
        said = self.say(request)
        if isinstance(said, Exception):
            raise said
        if isinstance(said, ModelReply):
            return said
        if said is Silence:
            assert on_text is not None
            await on_text(1, "{")
            await asyncio.sleep(30)
        if said is Endless:
            assert on_text is not None
            while True:
                await on_text(1, "and so on " * 100)
                await asyncio.sleep(0)
        return replied(said)

    async def count_tokens(self, request: ModelRequest) -> int | None:
        return None

    async def close(self) -> None:
        pass

    @property
    def models(self) -> list[str]:
        return [request.model for request in self.asked]

    @property
    def words(self) -> list[str]:
        """The text of the last message of each request."""
        return [text_of(request.messages[-1].blocks) for request in self.asked]


class Silence:
    """Stands for an answer that begins and then stops without an end."""


class Endless:
    """Stands for an answer that never ends."""


def replied(text: str, **more: Any) -> ModelReply:
    reply = ModelReply(
        blocks=(Text(text=text),) if text else (),
        usage=Usage(input_tokens=1, output_tokens=1),
        stop_reason="end_turn",
        model="scripted",
    )
    return replace(reply, **more)


def summariser(model: ScriptedModel) -> Summariser:
    return Summariser(
        model=model,
        counter=Words(),
        crash_point=lambda _: None,
        unable=UnableModels(clock=time.monotonic),
        bounds=CompletionTimeouts(silence_seconds=0.02),
    )


def plan_of(entries: Sequence[Entry], *, window: int = 200_000, **more: Any) -> CompactionPlan:
    named = find_oversized(entries, window)
    values: dict[str, Any] = {
        "from_turn": entries[0].turn,
        "through_turn": entries[-1].turn,
        "through_seq": entries[-1].seq,
        "entries": tuple(entries),
        "former": Ledger(),
        "tokens_before": 10_000,
        "expected_after": 2_000,
        "summary_limit": 2_000,
        "named": named,
        "chunks": portions(
            entries,
            whole=readable(window),
            limit=chunk_limit(window),
            named=named,
            even=bool(more.get("merged")),
        ),
    }
    return CompactionPlan(**{**values, **more})


async def write(model: ScriptedModel, plan: CompactionPlan, **more: Any) -> SummaryResult:
    models = (CHEAP, MAIN) if more.pop("fall_back", True) else (CHEAP,)
    tracker = SpendTracker(
        NoMoney(), session_id=1, job_id=1, caps=Caps(total=None, person=None, visitor=None, session=None)
    )
    told: list[tuple[int, str]] = more.pop("told", [])

    async def hear(percent: int, stage: str) -> None:
        told.append((percent, stage))

    values: dict[str, Any] = {
        "tracker": tracker,
        "focus": None,
        "on_progress": hear,
        "models": models,
        **more,
    }
    by = values.pop("by", None) or summariser(model)
    return await by.write(plan, **values)


def split_in(plan: CompactionPlan, *places: int) -> CompactionPlan:
    """Return the plan with its entries split into chunks at these indices."""
    bounds = (0, *places, len(plan.entries))
    chunks = tuple(plan.entries[a:b] for a, b in pairwise(bounds))
    return replace(plan, chunks=chunks)
