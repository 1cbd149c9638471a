"""Whose token, key or login has ended is sent away from open screens, too, with or without Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from pydantic import SecretStr

from shared.adapters.postgres.people.api_key_admin import ApiKeyAdmin
from shared.core.values.errors import StorageUnavailable
from tests.integration.web.auth.signed_people import KEY, signed, with_people
from tests.kit.web.callers import make_key
from tests.kit.web.event_stream_client import open_stream
from tests.kit.web.fixtures import Server, Starter
from tests.kit.web.rest_calls import events_of, opened
from web.auth.token_revocation import TokenRevocation


async def looked_twice(server: Server) -> None:
    for _ in range(2):
        await server.process.revocation.check()


async def end_all(server: Server) -> None:
    await server.services.pool.execute("UPDATE visitors SET expires_at = now() - interval '1 s'")


async def test_a_sign_out_reaches_screens_of_other_processes_without_redis(starter: Starter) -> None:
    one = await with_people(starter)
    two = await starter.start(redis=False, secret_key=SecretStr(KEY))
    here, mine = await one.greet(identity=signed())
    there, same = await two.greet(token=mine["token"])
    other, _ = await two.greet()
    assert same["session"] == mine["session"]
    await here.send({"t": "identify", "identity": None})
    await here.until("welcome")
    await looked_twice(two)
    assert (await there.until("error"))["code"] == "unknown_token"
    assert await there.closed() == 4401
    await other.say("Still here")
    await other.until("ack")


@pytest.mark.control("S05", "S11")
async def test_no_socket_and_no_stream_outlives_its_token(server: Server) -> None:
    socket, _ = await server.greet()
    stream, _ = await open_stream(server)
    await looked_twice(server)
    assert server.process.hub.screens == 2
    await end_all(server)
    await looked_twice(server)
    assert await socket.closed() == 4401
    assert await stream.closed() == 4401


async def test_answer_is_never_sent_to_a_revoked_key(server: Server) -> None:
    pool = server.services.pool
    key = await make_key(pool, "messages:write", name="shop")
    path = f"{server.url}/api/v1/sessions/{await opened(server, key)}/messages"
    server.conversation.hold.clear()
    events = {**key, "Accept": "text/event-stream"}
    async with server.client.post(path, json={"text": "Hi"}, headers=events) as answer:
        async with asyncio.timeout(30):
            while server.process.hub.screens == 0:
                await asyncio.sleep(0.01)
        await ApiKeyAdmin(pool).revoke("shop", by="test")
        await looked_twice(server)
        told = await events_of(answer)
    assert told[-1] == ("done", {"turn": 1, "state": "waiting"})
    assert "message" not in [name for name, _ in told]


async def test_sign_in_during_token_check_keeps_the_connection(starter: Starter) -> None:
    """Found without a token once may be a look in the middle of a change."""
    server = await with_people(starter)
    screen, _ = await server.greet()
    subscriber = server.process.hub.list_subscribers()[0]
    await end_all(server)
    await server.process.revocation.check()
    await server.services.pool.execute("UPDATE visitors SET expires_at = now() + interval '1 day'")
    await server.process.revocation.check()
    await end_all(server)
    await server.process.revocation.check()
    assert not subscriber.send_queue.closing
    await server.services.pool.execute("UPDATE visitors SET expires_at = now() + interval '1 day'")
    await screen.send({"t": "identify", "identity": signed()})
    assert (await screen.until("welcome"))["identified"]
    await looked_twice(server)
    assert not server.process.hub.list_subscribers()[0].send_queue.closing


async def test_tokens_are_checked_together_after_a_postgres_outage(
    server: Server,
) -> None:
    class Away:
        asked = 0

        async def find_ended(
            self, token_hashes: Iterable[bytes], key_ids: Iterable[int]
        ) -> tuple[frozenset[bytes], frozenset[int]]:
            self.asked += len(set(token_hashes))
            raise StorageUnavailable("away")

    tokens = Away()
    admissions = TokenRevocation(server.process.hub, tokens)
    for _ in range(3):
        await server.greet()
    for _ in range(3):
        await admissions.check()
    assert tokens.asked == 9
    assert not any(subscriber.send_queue.closing for subscriber in server.process.hub.list_subscribers())
