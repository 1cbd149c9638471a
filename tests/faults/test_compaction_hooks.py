"""A worker dies around the compaction hook: both messages arrive, repeated ones under the same key."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from tests.faults.conftest import TEMPLATE
from tests.faults.crash_points import HOOK_POINTS
from tests.faults.scenes import Played, case_of_its_own, play
from tests.kit.deployment.breakable_servers import Case, Plant
from tests.kit.deployment.person import WALK, Person
from tests.kit.deployment.processes import CRASHED
from tests.kit.fakes.hook_receiver import hook_process

SECRET = "s" * 32
SECONDS = 60
PHASES = ("before", "after")
DONE = "SELECT count(*) = 2 AND bool_and(state = 'sent' AND NOT awaits_end) FROM compaction_hooks"
LEASE_OVER = "UPDATE compaction_hooks SET due_at = now() WHERE state = 'due' AND attempts > 0 RETURNING id"
POSTS = {
    "before_hook_send": (1, 1),
    "before_hook_send:2": (1, 1),
    "after_hook_send": (2, 1),
    "after_hook_send:2": (1, 2),
}
"""Posts before and after the summary, by the point of the crash."""


@pytest.fixture(scope="module")
async def hooked(request: pytest.FixtureRequest, plant: Plant) -> Played:
    """Each at one point, with a database of its own."""

    async def falls(point: str) -> None:
        async with case_of_its_own(plant, TEMPLATE) as case:
            await _worker_falls(case, point)

    return await play(request, {point: partial(falls, point) for point in HOOK_POINTS})


@pytest.mark.parametrize("point", HOOK_POINTS)
async def test_worker_that_dies_at_a_hook_repeats_its_message_under_one_key(
    hooked: Played, point: str
) -> None:
    hooked.went_well(point)


async def _worker_falls(case: Case, point: str) -> None:
    async with hook_process(SECRET) as receiver, case.web(), Person(case.port) as person:
        hook = {"EVERTALK_COMPACTION_HOOK_URL": receiver.url, "EVERTALK_COMPACTION_HOOK_SECRET": SECRET}
        for number in range(8):
            await person.ask(f"Number {number}: {WALK}")
        async with case.worker(crash_point=point, **hook) as worker:
            asked = await person.command("compact", "--force")
            await worker.crashed()
            await person.until(lambda: asked in person.commands, "the summary")
            async with asyncio.timeout(SECONDS):
                while not await case.value(DONE):
                    await case.run(LEASE_OVER)
                    await asyncio.sleep(0.2)
            assert worker.exits == [CRASHED], worker.words()
            messages, faults = await receiver.list_told()
            assert person.commands[asked]["success"], person.commands[asked]
            await case.promises_hold(person)
    assert faults == []
    keys = [[one["id"] for one in messages if one["type"] == f"compaction.{phase}"] for phase in PHASES]
    assert [len(set(found)) for found in keys] == [1, 1]
    assert tuple(map(len, keys)) == POSTS[point]
