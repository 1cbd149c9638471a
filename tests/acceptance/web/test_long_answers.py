"""Answers of 300,000 characters over REST: `?wait=` returns them whole, and they can be read afterwards."""

from __future__ import annotations

import asyncio

import pytest

from tests.acceptance.web.conftest import Visitor
from tests.kit.fakes.messages_api.harness import RunningFake

ANSWER = "All of it. " + "A line of the river's long story.\n" * 9_000 + "The end."


@pytest.mark.parametrize("wait", [60, 0])
async def test_long_answer_is_returned_whole_or_can_be_read(
    web_guest: Visitor, fake: RunningFake, wait: int
) -> None:
    assert len(ANSWER) > 300_000
    await fake.script([{"match": {"contains": "everything"}, "times": -1, "action": {"text": ANSWER}}])
    await web_guest.app.pool.execute(
        "UPDATE agents SET config = $1", {"context": {"max_output": 100_000, "context_window": 1_000_000}}
    )
    session = await web_guest.app.pool.fetchval("SELECT public_id FROM sessions")
    place = f"{web_guest.url}/api/v1/sessions/{session}/messages"
    body = {"text": "Tell me everything."}
    async with web_guest.client.post(f"{place}?wait={wait}", json=body, headers=web_guest.bearer) as response:
        told = await response.json()
        assert response.status == (200 if wait else 202), told
    if wait:
        assert told["answer"]["text"] == ANSWER
        return
    async with asyncio.timeout(60):
        while True:
            async with web_guest.client.get(place, headers=web_guest.bearer) as response:
                newest = (await response.json())["messages"][-1]
            if newest["text"] != "Tell me everything.":
                break
            await asyncio.sleep(0.1)
    assert newest["text"] == ANSWER
