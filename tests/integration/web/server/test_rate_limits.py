"""Limits that grow, are shared, and lock nobody out for what others do."""

from __future__ import annotations

import pytest

from tests.kit.web.callers import bearer, make_key, make_visitor
from tests.kit.web.fixtures import Starter
from tests.kit.web.rest_calls import call, opened
from web.server.rate_limits import ClientLimits, Tries


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_each_further_try_waits_twice_as_long_up_to_an_hour() -> None:
    clock = Clock()
    tries = Tries(clock=clock)
    assert [tries.take("a", 3) for _ in range(3)] == [0.0, 0.0, 0.0]
    waits = []
    for _ in range(9):
        waits.append(wait := tries.take("a", 3))
        clock.now += wait
        assert tries.take("a", 3) == 0.0
    assert waits == [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0, 3600.0]
    assert tries.take("b", 3) == 0.0
    clock.now += 2 * 3600.0 + 1
    assert [tries.take("a", 3) for _ in range(3)] == [0.0, 0.0, 0.0]


def test_refused_attempt_does_not_extend_the_wait_and_success_resets() -> None:
    clock = Clock()
    tries = Tries(clock=clock)
    tries.take("a", 1)
    assert [tries.take("a", 1) for _ in range(5)] == [60.0] * 5
    for _ in range(20):
        assert tries.take("b", 2) == 0.0
        tries.mark_passed("b")


@pytest.mark.control("S29")
async def test_visitor_reads_are_rate_limited_and_api_keys_are_not(
    starter: Starter,
) -> None:
    server = await starter.start(limits=ClientLimits(reads=3))
    row, token = await make_visitor(server.services.pool)
    mine = f"/sessions/{row.session_public_id}"
    paths = [f"{mine}/messages", f"{mine}/events", f"{mine}/messages", f"{mine}/events", f"{mine}/messages"]
    told = [(await call(server, "GET", path, bearer(token)))[0] for path in paths]
    assert told == [200, 200, 200, 429, 429]
    status, answer = await call(server, "POST", f"{mine}/messages", bearer(token), json={"text": "Hi"})
    assert status == 202, answer
    key = await make_key(server.services.pool, "messages:write", "sessions:read")
    theirs = f"/sessions/{await opened(server, key)}/messages"
    assert [(await call(server, "GET", theirs, key))[0] for _ in range(5)] == [200] * 5
