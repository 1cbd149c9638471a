"""When another server is the primary, whoever holds what it may have lost brings it until it is there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from shared.core.values.errors import StorageUnavailable
from shared.services.turns import database_promotion as module
from shared.services.turns.database_promotion import PromotionWatcher


@dataclass
class Pulse:
    timeline: str = ""


class Deployment:
    def __init__(self) -> None:
        self.noted, self.is_another = 0, False

    async def record_timeline(self) -> bool:
        self.noted += 1
        return self.is_another


class House:
    def __init__(self) -> None:
        self.pulse, self.deployment = Pulse(), Deployment()
        self.promotion = PromotionWatcher(self.pulse, self.deployment)
        self.promotion.on_promotion(self.act)
        self.acts = self.away = 0

    async def act(self) -> None:
        self.acts += 1
        if self.away:
            self.away -= 1
            raise StorageUnavailable("away")

    async def finds(self, timeline: str) -> int:
        """How often was acted."""
        self.pulse.timeline, before = timeline, self.acts
        await asyncio.sleep(0.05)
        return self.acts - before


async def test_what_is_lost_is_brought_again_behind_another_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.001)
    house = House()
    watching = asyncio.create_task(house.promotion.watch())
    assert await house.finds("00000001") == 0, "that is where this process began"
    assert await house.finds("00000001") == 0
    assert house.deployment.noted == 1
    house.away = 2
    assert await house.finds("00000002") == 3, "again, until it went well"
    assert await house.finds("00000002") == 0
    watching.cancel()
    await asyncio.wait([watching])


async def test_first_observer_of_a_promotion_at_start_acts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.001)
    house = House()
    house.deployment.is_another = True
    watching = asyncio.create_task(house.promotion.watch())
    assert await house.finds("00000002") == 1
    watching.cancel()
    await asyncio.wait([watching])
