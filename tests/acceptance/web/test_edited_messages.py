"""A message edited on the web: each open screen shows it in place, and each request reads the newest text."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.acceptance.web.conftest import Visitor, promises_hold
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.web.fixtures import Frame, Screen, hello

FLIGHT = "My flight leaves on the {}."
OLD, NEW, NEWEST = "12th", "13th", "14th"


def edit(cid: str, mid: str, text: str) -> Frame:
    return {"t": "edit", "cid": cid, "mid": mid, "text": text}


async def open_tab(visitor: Visitor, **more: Any) -> tuple[Screen, Frame]:
    socket = await visitor.client.ws_connect(f"{visitor.url}/ws", headers={"Origin": visitor.url})
    screen = Screen(socket=socket)
    await screen.send(hello(token=visitor.token, **more))
    return screen, await screen.until("welcome")


async def chats(provider: RunningFake) -> list[str]:
    asked = [one for one in await provider.requests() if one["kind"] == "chat" and one["status"] == 200]
    return [json.dumps(one["body"]) for one in asked]


async def say_flight(visitor: Visitor, provider: RunningFake) -> None:
    await provider.script(
        [{"match": {"kind": "chat", "contains": OLD}, "times": 1, "action": {"text": "Have a good trip."}}]
    )
    await visitor.ask(FLIGHT.format(OLD), cid="c1")


async def test_edit_of_an_older_message_is_seen_at_once_in_each_tab(
    web_guest: Visitor, fake: RunningFake
) -> None:
    await say_flight(web_guest, fake)
    await web_guest.ask("How are you?", cid="c2")
    tab, welcome = await open_tab(web_guest)
    await web_guest.screen.send(edit("e1", "m1", FLIGHT.format(NEW)))
    ack = await web_guest.screen.until("ack", cid="e1")
    for screen in (web_guest.screen, tab):
        seen = await screen.until("edited", replaces="m1")
        assert (seen["mid"], seen["text"], seen["turn"]) == (ack["mid"], FLIGHT.format(NEW), 1)
        assert seen["event_seq"] == welcome["head"] + 1
    await tab.send(edit("e2", "m1", FLIGHT.format(NEWEST)))
    seen = await web_guest.screen.until("edited", replaces=ack["mid"])
    assert seen["text"] == FLIGHT.format(NEWEST)
    for number in range(10):
        await web_guest.ask(f"Question {number}?", cid=f"q{number}")
    for body in (await chats(fake))[-10:]:
        assert NEWEST in body
        assert OLD not in body
        assert NEW not in body
    _, fresh = await open_tab(web_guest)
    shown = next(one for one in fresh["events"] if one["mid"] == seen["mid"])
    assert (shown["text"], shown["edited"], shown["turn"]) == (FLIGHT.format(NEWEST), True, 1)
    assert "edited" not in {one["t"] for one in fresh["events"]}
    _, back = await open_tab(web_guest, last_seq=welcome["head"], session=welcome["session"])
    assert [one["t"] for one in back["events"][:2]] == ["edited", "edited"]
    await promises_hold(web_guest.app)


async def test_edit_sent_again_is_stored_once(web_guest: Visitor, fake: RunningFake) -> None:
    await web_guest.ask(FLIGHT.format(OLD), cid="c1")
    await web_guest.ask("How are you?", cid="c2")
    for text, mid in ((NEW, "m5"), (NEWEST, "m6")):
        await web_guest.screen.send(edit(f"e{mid}", "m1", FLIGHT.format(text)))
        assert (await web_guest.screen.until("ack", cid=f"e{mid}"))["mid"] == mid
    await web_guest.screen.send(edit("em5", "m1", FLIGHT.format(NEW)))
    assert await web_guest.screen.until("ack", cid="em5", dup=True)
    await web_guest.screen.send(edit("em5", "m1", "Something else."))
    assert (await web_guest.screen.until("error", cid="em5"))["code"] == "cid_used"
    await web_guest.screen.send({"t": "msg", "cid": "c1", "text": FLIGHT.format(OLD)})
    assert await web_guest.screen.until("ack", cid="c1", dup=True)
    assert (
        await web_guest.app.pool.fetchval("SELECT count(*) FROM entries WHERE replaces_seq IS NOT NULL") == 2
    )


async def test_answer_restarts_when_no_part_was_shown(web_guest: Visitor, fake: RunningFake) -> None:
    await fake.script(
        [
            {"match": {"contains": OLD}, "action": {"latency": 20.0, "text": "Too late."}},
            {"match": {"contains": NEW}, "action": {"text": "On the thirteenth."}},
        ]
    )
    await web_guest.screen.send({"t": "msg", "cid": "c1", "text": FLIGHT.format(OLD)})
    await web_guest.screen.until("run", state="started")
    async with asyncio.timeout(20):
        while not await fake.requests():
            await asyncio.sleep(0.02)
    await web_guest.screen.send(edit("e1", "m1", FLIGHT.format(NEW)))
    await web_guest.screen.until("edited", replaces="m1")
    answer = await web_guest.screen.until("msg", role="assistant")
    assert (answer["text"], answer["turn"]) == ("On the thirteenth.", 1)
    assert OLD not in (await chats(fake))[-1]
    assert await web_guest.app.pool.fetchval("SELECT count(*) FROM turns") == 1
    await promises_hold(web_guest.app)


async def test_shown_answer_goes_on_and_the_next_reads_the_edit(
    web_guest: Visitor, fake: RunningFake
) -> None:
    await fake.script(
        [{"match": {"contains": OLD}, "times": 1, "action": {"text": "word " * 60, "pace_ms": 100}}]
    )
    await web_guest.screen.send({"t": "msg", "cid": "c1", "text": FLIGHT.format(OLD)})
    await web_guest.screen.until("delta")
    await web_guest.screen.send(edit("e1", "m1", FLIGHT.format(NEW)))
    seen = await web_guest.screen.until("edited", replaces="m1")
    answer = await web_guest.screen.until("msg", role="assistant")
    assert answer["text"].startswith("word word")
    assert seen["outdated"] == answer["turn"] == 1
    await web_guest.screen.until("run", state="done")
    _, fresh = await open_tab(web_guest)
    assert fresh["events"][0]["outdated"] == 1
    await fake.script([{"match": {"contains": NEW}, "action": {"text": "On the thirteenth."}}])
    await web_guest.command("retry", "")
    assert (await web_guest.screen.until("msg", role="assistant", turn=2))["text"] == "On the thirteenth."
    body = (await chats(fake))[-1]
    assert NEW in body
    assert OLD not in body
    await promises_hold(web_guest.app)


async def test_queued_message_is_edited_before_it_is_answered(web_guest: Visitor, fake: RunningFake) -> None:
    await fake.script(
        [{"match": {"contains": "slowly"}, "times": 1, "action": {"latency": 1.0, "text": "So."}}]
    )
    await web_guest.screen.send({"t": "msg", "cid": "c1", "text": "Tell me slowly."})
    await web_guest.screen.until("run", state="started")
    await web_guest.screen.send({"t": "msg", "cid": "c2", "text": FLIGHT.format(OLD)})
    mid = (await web_guest.screen.until("ack", cid="c2"))["mid"]
    await web_guest.screen.send(edit("e1", mid, FLIGHT.format(NEW)))
    await web_guest.screen.until("edited", replaces=mid)
    await web_guest.screen.until("msg", role="assistant", turn=2)
    bodies = await chats(fake)
    assert NEW in bodies[-1]
    assert not [body for body in bodies if OLD in body]


async def test_edit_over_rest_reaches_an_event_stream(web_guest: Visitor, fake: RunningFake) -> None:
    await web_guest.ask(FLIGHT.format(OLD), cid="c1")
    await web_guest.ask("How are you?", cid="c2")
    session = await web_guest.app.pool.fetchval("SELECT public_id FROM sessions")
    path = f"{web_guest.url}/api/v1/sessions/{session}/messages/m1"
    body = {"text": FLIGHT.format(NEW), "cid": "e1"}
    async with web_guest.client.post(f"{path}/edit", json=body, headers=web_guest.bearer) as response:
        told = await response.json()
        assert (response.status, told["mid"]) == (202, "m5")
    assert (await web_guest.screen.until("edited", replaces="m1"))["mid"] == "m5"
    url = f"{web_guest.url}/api/v1/sessions/{session}/events?after=4"
    async with web_guest.client.get(url, headers=web_guest.bearer) as response:
        [event] = (await response.json())["events"]
        assert (event["t"], event["mid"], event["text"]) == ("edited", "m5", FLIGHT.format(NEW))
    url = f"{web_guest.url}/api/v1/sessions/{session}/messages/m5/former"
    async with web_guest.client.get(url, headers=web_guest.bearer) as response:
        [version] = (await response.json())["versions"]
        assert version["text"] == FLIGHT.format(OLD)
    url = f"{web_guest.url}/api/v1/sessions/{session}/history?around=m5"
    async with web_guest.client.get(url, headers=web_guest.bearer) as response:
        assert (await response.json())["events"][0]["mid"] == "m5"


async def test_deleted_message_is_read_nowhere_and_erased_on_each_screen(
    web_guest: Visitor, fake: RunningFake
) -> None:
    await say_flight(web_guest, fake)
    await web_guest.ask("How are you?", cid="c2")
    await web_guest.screen.send(edit("e1", "m1", FLIGHT.format(NEW)))
    mid = (await web_guest.screen.until("edited", replaces="m1"))["mid"]
    tab, _ = await open_tab(web_guest)
    for _ in range(2):
        await web_guest.screen.send({"t": "delete", "cid": "d1", "mid": mid})
        assert (await web_guest.screen.until("ack", cid="d1"))["mid"] == mid
    for screen in (web_guest.screen, tab):
        assert mid in (await screen.ever("erased"))["mids"]
    for number in range(10):
        await web_guest.ask(f"Question {number}?", cid=f"q{number}")
    for body in (await chats(fake))[-10:]:
        assert OLD not in body
        assert NEW not in body
    async with web_guest.client.get(f"{web_guest.url}/api/v1/export", headers=web_guest.bearer) as response:
        assert OLD not in await response.text()
    await promises_hold(web_guest.app)


async def test_deleted_question_is_not_answered(web_guest: Visitor, fake: RunningFake) -> None:
    await fake.script([{"match": {"contains": OLD}, "action": {"latency": 20.0, "text": "Too late."}}])
    await web_guest.screen.send({"t": "msg", "cid": "c1", "text": FLIGHT.format(OLD)})
    await web_guest.screen.until("run", state="started")
    async with asyncio.timeout(20):
        while not await fake.requests():
            await asyncio.sleep(0.02)
    asked = len(await fake.requests())
    await web_guest.screen.send({"t": "delete", "cid": "d1", "mid": "m1"})
    ended = await web_guest.screen.until("msg", stop="cancelled")
    assert ended["turn"] == 1
    assert len(await fake.requests()) == asked
    await web_guest.ask("How are you?", cid="c2")
    assert OLD not in (await chats(fake))[-1]
    await promises_hold(web_guest.app)


async def test_message_is_deleted_over_rest(web_guest: Visitor, fake: RunningFake) -> None:
    await say_flight(web_guest, fake)
    session = await web_guest.app.pool.fetchval("SELECT public_id FROM sessions")
    path = f"{web_guest.url}/api/v1/sessions/{session}/messages"
    for mid, status in (("m1", 200), ("m1", 200), ("m2", 404), ("m9", 404)):
        async with web_guest.client.delete(f"{path}/{mid}", headers=web_guest.bearer) as response:
            assert response.status == status, mid
    assert "m1" in (await web_guest.screen.ever("erased"))["mids"]
