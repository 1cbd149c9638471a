"""One web process and one worker for a whole module, that live through whatever is done to the servers."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from tests.kit.deployment.breakable_servers import Case
from tests.kit.deployment.person import PATIENCE_SECONDS, Person
from tests.kit.deployment.processes import Process


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    case: Case
    web: Process
    worker: Process

    def person(self, name: str) -> Person:
        return Person(self.case.port, name=name)

    async def until(self, sql: str, what: str, *, seconds: float = PATIENCE_SECONDS) -> None:
        end = time.monotonic() + seconds
        while not await self.case.value(sql):
            assert time.monotonic() < end, f"{what}\n{self.worker.words()}"
            await asyncio.sleep(0.05)


async def told(person: Person, words: str) -> None:
    """Something is said that cannot be stored now: it is not acknowledged, and the person hears why."""
    before, acks = len(person.errors), len(person.acks)
    await person.say(words)
    await person.until(lambda: len(person.errors) > before, "a word about the outage")
    assert person.errors[-1]["code"] == "storage_unavailable"
    assert person.errors[-1]["advice"]
    assert len(person.acks) == acks
