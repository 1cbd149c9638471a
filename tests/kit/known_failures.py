"""Helpers of the tests of known failures: a scripted model, ready plans, requests, and visits to a
deployment.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from shared.adapters.postgres.operations.invariants import check_invariants
from shared.core.compaction.plan import CompactionPlan, plan_compaction
from shared.core.context.build_context import BuiltContext, build_context
from shared.core.context.prompts import SystemLayers, default_layers
from shared.core.presets.catalog import preset
from shared.core.session.policy import ContextPolicy
from shared.core.session.session import Entry, View
from shared.core.session.turns import Caps
from shared.core.values.messages import Message, text_message, text_of
from shared.core.verdicts.unable_models import UnableModels
from shared.ports import ModelCard, ModelReply, ModelRequest, OnText, Usage
from shared.runtime import ignore_crash_point
from shared.services.compaction.summarizer import Summariser, SummaryResult
from shared.services.turns.spend_tracker import SpendTracker
from tests.kit.app_driver import Visit
from tests.kit.builders import budget, view, words

STEADY: ContextPolicy = preset("steady")
CHEAP, MAIN = "cheap-model", "main-model"
NO_CAPS = Caps(total=None, person=None, visitor=None, session=None)

Answer = str | Exception


class Words:
    """A token counter that counts words."""

    def count_tokens(self, text: str) -> int:
        return words(text)


@dataclass(slots=True)
class ScriptedModel:
    """A model that answers each request as its script says, and keeps all requests."""

    script: Callable[[ModelRequest], Answer]
    window: int = 200_000
    requests: list[ModelRequest] = field(default_factory=list)

    async def load_card(self, model: str) -> ModelCard:
        return ModelCard(
            name=model, window=self.window, max_output=8_192, window_known=True, prices=None, token_factor=1.0
        )

    async def reply(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        self.requests.append(request)
        said = self.script(request)
        if isinstance(said, Exception):
            raise said
        blocks = text_message("assistant", said).blocks
        return ModelReply(blocks=blocks, usage=Usage(), stop_reason="end_turn", model=request.model)

    async def count_tokens(self, request: ModelRequest) -> int | None:
        return None

    async def close(self) -> None:
        return None

    def asked(self) -> str:
        """Return all messages that were sent, of all requests together, as one text."""
        return "\n".join(text_of(m.blocks) for request in self.requests for m in request.messages)


class NoMoney:
    """A store of reservations that has no caps and keeps nothing."""

    async def reserve(
        self, session_id: int, micro: int, *, caps: Caps, turn: int | None = None, job_id: int | None = None
    ) -> int | None:
        return None

    async def release_reservation(self, reservation_id: int, *, spent_micro: int = 0) -> None:
        return None


def patch(*texts: str, narrative: str = "They talk about a journey.", **more: Any) -> str:
    """Return a summary in the JSON that a well-behaved model writes."""
    add = [{"kind": "fact", "text": text, "sources": [], "author": "person"} for text in texts]
    return json.dumps({"narrative": narrative, "add": add, "replace": {}, "close": {}, **more})


async def written(model: ScriptedModel, plan: CompactionPlan, *, focus: str | None = None) -> SummaryResult:
    """Return the summary of a plan; the main model is the fallback for the same scripted one."""
    summariser = Summariser(
        model=model,
        counter=Words(),
        crash_point=ignore_crash_point,
        unable=UnableModels(clock=time.monotonic),
    )
    tracker = SpendTracker(NoMoney(), session_id=7, job_id=1, caps=NO_CAPS)
    return await summariser.write(
        plan, tracker=tracker, focus=focus, on_progress=_unheard, models=(CHEAP, MAIN)
    )


async def _unheard(_percent: int, _stage: str) -> None:
    return None


def planned(
    entries: Sequence[Entry], *, now: int = 8_500, window: int = 200_000, **more: Any
) -> CompactionPlan:
    made = plan_compaction(
        view(entries, **more), budget=budget(), policy=STEADY, now_tokens=now, force=True, keep_turns=2,
        summariser_window=window,
    )  # fmt: skip
    assert isinstance(made, CompactionPlan), made
    return made


def built(state: View, *, layers: SystemLayers | None = None, **more: Any) -> BuiltContext:
    return build_context(state, policy=STEADY, system=layers or default_layers(), count=words, **more)


def sent(messages: Sequence[Message]) -> str:
    return "\n".join(text_of(message.blocks) for message in messages)


# ---- houses


async def invariants_hold(guest: Visit) -> None:
    url = guest.app.settings.database_url
    assert url is not None
    connection = await asyncpg.connect(url.get_secret_value(), timeout=60)
    try:
        assert await check_invariants(connection) == []
    finally:
        await connection.close(timeout=30)


async def meanwhile(guest: Visit, command: Awaitable[Any]) -> Any:
    """Run due jobs until the command has its result, and return the result."""
    waiting = asyncio.ensure_future(command)
    while not waiting.done():
        await guest.run_due_jobs()
        await asyncio.sleep(0.02)
    return await waiting


async def command(guest: Visit, name: str, args: str = "") -> Any:
    return await meanwhile(
        guest,
        guest.app.commands.run(session_id=guest.session_id, address_id=None, name=name, args=args),
    )
