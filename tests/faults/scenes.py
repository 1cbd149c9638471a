"""Scenes that mostly wait for leases, played some at a time; each test then asks how its own ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.kit.deployment.breakable_servers import Case, Plant

Scene = Callable[[], Awaitable[None]]
SCENE_SECONDS = 150.0
"""Some at a time on a machine that has other things to do, starts and leases included."""
AT_ONCE = 6
"""Few enough that nobody's heart stops for want of a core."""


@dataclass(frozen=True, slots=True)
class Played:
    """How each ended, by its name."""

    errors: Mapping[Any, BaseException | None]

    def went_well(self, name: Hashable) -> None:
        if (error := self.errors[name]) is not None:
            raise error


async def play(request: pytest.FixtureRequest, scenes: Mapping[Any, Scene]) -> Played:
    """Those whose names a test of the asking file has: nobody plays what nobody asked for."""
    here = [item for item in request.session.items if item.path == request.path]
    wanted = {value for item in here for value in _values(item)}
    chosen = {name: scene for name, scene in scenes.items() if name in wanted}
    gate = asyncio.Semaphore(AT_ONCE)
    ends = await asyncio.gather(*(_end_of(scene, gate) for scene in chosen.values()))
    return Played(dict(zip(chosen, ends, strict=True)))


@asynccontextmanager
async def case_of_its_own(plant: Plant, template: str) -> AsyncIterator[Case]:
    case = await plant.case(template)
    try:
        yield case
    finally:
        await plant.drop(case.database)


async def _end_of(scene: Scene, gate: asyncio.Semaphore) -> BaseException | None:
    async with gate:
        try:
            async with asyncio.timeout(SCENE_SECONDS):
                await scene()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return error
    return None


def _values(item: pytest.Item) -> list[Hashable]:
    """Of the parameters of a test."""
    return list(item.callspec.params.values()) if hasattr(item, "callspec") else []
