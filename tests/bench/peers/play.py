"""Plays a talk through the real session service and the worker's jobs, on real servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shared.adapters.models.routing import DEFAULT_CHAT_MODEL
from shared.bootstrap.app import App
from shared.config.settings import Settings
from shared.core.presets.catalog import preset
from shared.core.session.budget import budget_for
from shared.core.session.policy import ContextPolicy, ContradictoryPolicy
from shared.core.session.turns import Stored
from shared.core.values.errors import MessageTooLong
from tests.bench.peers.ideal_mind import IdealMind
from tests.bench.peers.provider import Provider, serving
from tests.bench.peers.talks import Exchange, Planted, Talk
from tests.kit.app_driver import Visit, running_app, visit

LARGEST_WINDOW = 1_000_000
MAX_OUTPUT = 128_000
FIXED = 2_000
"""About what system and tools take; only for the choice of a window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How a talk is played. The model's window is chosen for the limit `trigger`, None takes the largest."""

    preset: str
    trigger: int | None
    halved_at: int | None = None
    """The turn before which the window becomes half as large."""
    one_model: bool = False
    """Whether the model that answers writes summaries and notes, too, in place of the shipped cheap one."""


def window_for(policy: ContextPolicy, trigger: int) -> int:
    """The smallest window with such a limit by the policy's own formula, its soft budget aside."""
    free = replace(policy, soft_budget=None)

    def limit(window: int) -> int:
        try:
            return budget_for(free, window, MAX_OUTPUT, FIXED).limit
        except ContradictoryPolicy:
            return 0

    low, high = 1, LARGEST_WINDOW
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if limit(middle) >= trigger else (middle + 1, high)
    return low


async def play(course: Course, talk: Talk, *, settings_with: Callable[..., Settings]) -> dict[str, Any]:
    """The talk, then a turn for each fact; only the talk is in the cost."""
    policy = preset(course.preset)
    window = LARGEST_WINDOW if course.trigger is None else window_for(policy, course.trigger)
    async with serving(IdealMind(talk.facts)) as provider:
        provider.set_window(window)
        settings = settings_with(
            preset=course.preset,
            anthropic_api_key="bench",
            anthropic_base_url=provider.url,
            **({"summary_model": DEFAULT_CHAT_MODEL} if course.one_model else {}),
        )
        player = _Player(provider=provider)
        half = course.halved_at or 0
        if half:
            async with running_app(settings) as app:
                await player.tell(app, talk.exchanges[:half])
            provider.set_window(window // 2)
        async with running_app(settings) as app:
            await player.tell(app, talk.exchanges[half:])
            bill = provider.begin_bill()
            await player.ask(talk.facts)
            jobs = await player.jobs()
    mind = provider.mind
    return {
        **bill.as_json(),
        "facts": len(mind.in_prompt),
        "facts_found_by_tool": len(mind.found),
        "asked": len(talk.facts),
        "window": window,
        "turns": len(talk.exchanges),
        "unanswered": player.unanswered,
        "not_taken": player.not_taken,
        "invalid": len(provider.refused),
        "refusals": dict(Counter(provider.refused)),
        "too_long": provider.too_long,
        "jobs": jobs,
        "questions_cost_tokens": provider.bill.as_json()["cost_tokens"],
    }


@dataclass(slots=True)
class _Player:
    provider: Provider
    guest: Visit | None = None
    unanswered: int = 0
    not_taken: int = 0
    """Messages that are longer than a message may be."""

    async def tell(self, app: App, exchanges: Sequence[Exchange]) -> None:
        """In the session of this talk, whichever process it is in by now."""
        self.guest = await visit(app) if self.guest is None else replace(self.guest, app=app)
        for exchange in exchanges:
            self.provider.mind.next_answer = exchange.answer
            await self.turn(exchange.person)

    async def ask(self, facts: Sequence[Planted]) -> None:
        for fact in facts:
            self.provider.mind.asked = fact
            await self.turn(fact.question)

    async def turn(self, words: str) -> None:
        """One message and its answer; then whatever is due in the background, before the next is said."""
        assert self.guest is not None
        heard = self._stored()
        try:
            await self.guest.ask(words)
        except MessageTooLong:
            self.not_taken += 1
            return
        self.unanswered += self._stored() == heard
        await self.guest.run_due_jobs()
        self.provider.settle()

    async def jobs(self) -> dict[str, int]:
        assert self.guest is not None
        rows = await self.guest.app.pool.fetch(
            "SELECT kind, count(*) AS jobs FROM jobs WHERE session_id = $1 GROUP BY kind",
            self.guest.session_id,
        )
        return {row["kind"]: row["jobs"] for row in rows}

    def _stored(self) -> int:
        return sum(isinstance(event, Stored) for event in self.guest.heard) if self.guest else 0
