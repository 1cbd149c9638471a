"""Many waits, one timer: what takes too long is given up, what is slow in between is nobody's fault."""

from __future__ import annotations

import asyncio

import pytest

from shared.adapters.models.timeouts import Watch
from shared.core.values.errors import ModelUnavailable

NEVER = "the stream stalled"


def soon(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def word(after: float = 0.0) -> str:
    await asyncio.sleep(after)
    return "word"


async def test_what_comes_in_time_is_handed_on() -> None:
    watch = Watch()
    assert [await watch.wait(soon(30), NEVER, word()) for _ in range(3)] == ["word"] * 3
    watch.close()


async def test_what_does_not_come_is_given_up() -> None:
    watch = Watch()
    with pytest.raises(ModelUnavailable, match=NEVER):
        await watch.wait(soon(0.02), NEVER, asyncio.Event().wait())
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_each_wait_has_its_own_deadline() -> None:
    watch = Watch()
    began = soon(0)
    for _ in range(4):
        assert await watch.wait(soon(1.0), NEVER, word(0.3)) == "word"
    assert soon(0) - began > 1.0, "longer than any one of them"
    with pytest.raises(ModelUnavailable):
        await watch.wait(soon(0.05), NEVER, asyncio.Event().wait())


async def test_a_nearer_deadline_is_kept_though_a_farther_one_came_before() -> None:
    watch = Watch()
    await watch.wait(soon(60), NEVER, word())
    async with asyncio.timeout(30):
        with pytest.raises(ModelUnavailable):
            await watch.wait(soon(0.02), NEVER, asyncio.Event().wait())


async def test_what_happens_between_two_waits_may_take_its_time() -> None:
    watch = Watch()
    assert await watch.wait(soon(0.5), NEVER, word()) == "word"
    await asyncio.sleep(0.6)
    assert await watch.wait(soon(30), NEVER, word()) == "word"
    watch.close()


async def test_externally_cancelled_request_stays_cancelled() -> None:
    async def listen() -> None:
        watch = Watch()
        try:
            await watch.wait(soon(60), NEVER, asyncio.Event().wait())
        finally:
            watch.close()

    task = asyncio.create_task(listen())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_a_timeout_around_it_is_that_timeout() -> None:
    watch = Watch()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await watch.wait(soon(60), NEVER, asyncio.Event().wait())
    watch.close()
