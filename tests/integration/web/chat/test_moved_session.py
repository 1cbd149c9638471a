"""A screen whose person goes on in another session is sent there, and nothing it says is lost on the way."""

from __future__ import annotations

import pytest

from shared.adapters.postgres.people.account_links import PostgresAccountLinks
from shared.core.identity.people import LinkedContacts
from tests.kit.web.fixtures import Frame, Server, Starter, hello


async def address_of(server: Server, welcome: Frame) -> tuple[int, int]:
    row = await server.services.pool.fetchrow(
        """SELECT a.id, s.id AS session_id FROM addresses a JOIN sessions s ON s.id = a.session_id
            WHERE s.public_id = $1""",
        welcome["session"],
    )
    assert row is not None
    return row["session_id"], row["id"]


async def join(server: Server, kept: Frame, other: Frame) -> None:
    people = PostgresAccountLinks(server.services.pool)
    code = await people.issue_code(*await address_of(server, other))
    assert isinstance(await people.link_account(*await address_of(server, kept), code), LinkedContacts)


@pytest.mark.parametrize("redis", [True, False])
async def test_screen_moves_to_the_merged_session_without_an_announcement(
    starter: Starter, *, redis: bool
) -> None:
    server = await starter.start(redis=redis)
    screen, mine = await server.greet()
    _, other = await server.greet()
    await join(server, other, mine)
    goodbye = await screen.until("bye")
    assert (goodbye["code"], goodbye["reason"]) == (1012, "moved")
    _, back = await server.greet(token=mine["token"], session=mine["session"], last_seq=0)
    assert back["session"] == other["session"]


async def test_numbers_of_another_session_are_not_resumed_by(server: Server) -> None:
    """Else the screen would take the other conversation for the rest of its own."""
    screen, mine = await server.greet()
    await screen.say("Mine")
    await screen.until("run", state="done")
    there, other = await server.greet()
    for number in range(3):
        await there.say(f"There {number}", cid=f"t{number}")
        await there.until("run", state="done")
    await join(server, other, mine)
    _, back = await server.greet(token=mine["token"], session=mine["session"], last_seq=2)
    assert back["resumed"] is False
    assert [event["text"] for event in back["events"] if event.get("role") == "person"] == [
        "There 0", "There 1", "There 2",
    ]  # fmt: skip
    _, again = await server.greet(token=mine["token"], session=other["session"], last_seq=4)
    assert again["resumed"] is True


async def test_message_to_a_left_session_is_stored_in_its_successor(server: Server) -> None:
    """No ack and no error: the browser keeps it and sends it again under its id."""
    screen, mine = await server.greet()
    there, other = await server.greet()
    await join(server, other, mine)
    await screen.say("Where am I?", cid="same")
    assert (await screen.until("bye"))["reason"] == "moved"
    assert not [frame for frame in screen.frames if frame["t"] in ("ack", "error")]
    back = await server.connect()
    await back.send(hello(token=mine["token"], session=mine["session"]))
    await back.until("welcome")
    await back.say("Where am I?", cid="same")
    assert (await back.until("ack"))["mid"] == "m1"
    assert (await there.until("msg", role="person"))["text"] == "Where am I?"


async def test_invalid_session_id_is_no_hello(server: Server) -> None:
    screen = await server.connect()
    await screen.send(hello(session=["x"], last_seq=0))
    assert (await screen.until("welcome"))["resumed"] is False
