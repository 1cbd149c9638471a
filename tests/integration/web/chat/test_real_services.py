"""The whole way on the real services: accept, the offline model's stream, commands, and back again."""

from __future__ import annotations

from shared.bootstrap.app import App
from tests.integration.web.chat.real_server import real
from tests.kit.web.fixtures import Screen, hello
from tests.kit.web.http_client import browsing

__all__ = ["real"]


async def test_a_conversation_survives_leaving_the_page(real: tuple[str, App]) -> None:
    url, _ = real
    async with browsing() as client:
        screen = Screen(socket=await client.ws_connect(f"{url}/ws", headers={"Origin": url}))
        await screen.send(hello())
        welcome = await screen.until("welcome")
        await screen.say("Hello there", cid="a")
        answer = await screen.until("msg", role="assistant")
        await screen.until("run", state="done")
        assert any(frame["t"] == "delta" for frame in screen.frames)
        await screen.send({"t": "command", "cid": "k1", "command": "status", "args": ""})
        assert (await screen.until("command.result"))["success"] is True
        await screen.send({"t": "command", "cid": "k2", "command": "new", "args": ""})
        assert (await screen.until("compaction"))["kind"] == "new"
        assert (await screen.until("command.result"))["success"] is True
        assert screen.numbers == [1, 2, 3, 4, 5]
        await screen.socket.close()
        again = Screen(socket=await client.ws_connect(f"{url}/ws", headers={"Origin": url}))
        await again.send(hello(token=welcome["token"]))
        back = await again.until("welcome")
        assert [event["event_seq"] for event in back["events"]] == [1, 2, 3, 4, 5]
        assert back["events"][1]["text"] == answer["text"]
        assert back["events"][1]["mid"] == answer["mid"]
        live = {
            frame["event_seq"]: frame["t"]
            for frame in screen.frames
            if "event_seq" in frame and frame["t"] != "ack"
        }
        assert live == {event["event_seq"]: event["t"] for event in back["events"]}


async def test_each_live_event_looks_as_it_does_when_it_is_read_later(real: tuple[str, App]) -> None:
    url, _ = real
    async with browsing() as client:
        screen = Screen(socket=await client.ws_connect(f"{url}/ws", headers={"Origin": url}))
        await screen.send(hello())
        welcome = await screen.until("welcome")
        await screen.say("  Grüße 😀\n", cid="a")
        await screen.until("run", state="done")
        live = [frame for frame in screen.frames if frame["t"] == "msg"]
        again = Screen(socket=await client.ws_connect(f"{url}/ws", headers={"Origin": url}))
        await again.send(hello(token=welcome["token"]))
        assert (await again.until("welcome"))["events"] == live


async def test_the_last_question_is_answered_again_by_rest_too(real: tuple[str, App]) -> None:
    url, _ = real
    async with browsing() as client:
        screen = Screen(socket=await client.ws_connect(f"{url}/ws", headers={"Origin": url}))
        await screen.send(hello())
        welcome = await screen.until("welcome")
        await screen.say("Hello there", cid="a")
        first = await screen.until("msg", role="assistant")
        await screen.until("run", state="done")
        headers = {"Authorization": f"Bearer {welcome['token']}"}
        path, body = f"{url}/api/v1/commands/retry", {"session_id": welcome["session"]}
        async with client.post(path, json=body, headers=headers) as response:
            assert (await response.json())["success"] is True
        second = await screen.until("msg", replaces=first["mid"])
        assert second["mid"] != first["mid"]
        assert second["event_seq"] == first["event_seq"] + 1, "the question is not told twice"
