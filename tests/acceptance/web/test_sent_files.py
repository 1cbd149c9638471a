"""Files that the assistant makes: announced with the answer, for their owner only, exported and forgotten."""

from __future__ import annotations

import io
import json
from typing import Any

from PIL import Image

from tests.acceptance.web.conftest import Visitor, promises_hold
from tests.kit.canaries import dumped
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.web.fixtures import Frame, Screen, hello

CANARY = "Zweitaktgemisch"
CHART = {"kind": "line", "title": "Größe", "labels": ["a", "b"], "series": [{"name": "x", "values": [1, -2]}]}


def sends(*files: dict[str, Any]) -> list[Frame]:
    """A model that makes these files when it is asked, and then says so."""
    calls = [{"name": "send_file", "input": file} for file in files]
    return [
        {"match": {"kind": "chat", "contains": "Make them"}, "times": 1, "action": {"tool_use": calls}},
        {"match": {"kind": "chat", "contains": "goes to the person"}, "action": {"text": "There they are."}},
    ]


async def asked(visitor: Visitor) -> Frame:
    """The answer's event."""
    await visitor.screen.send({"t": "msg", "cid": "c1", "text": "Make them"})
    answer = await visitor.screen.until("msg", role="assistant")
    await visitor.screen.until("run", state="done")
    return answer


async def fetched(visitor: Visitor, file: Frame, token: str) -> tuple[int, bytes, str]:
    headers = {"Authorization": f"Bearer {token}"}
    async with visitor.client.get(f"{visitor.url}{file['url']}", headers=headers) as response:
        return response.status, await response.read(), response.headers.get("Content-Type", "")


async def stranger(visitor: Visitor) -> tuple[Screen, str]:
    socket = await visitor.client.ws_connect(f"{visitor.url}/ws", headers={"Origin": visitor.url})
    screen = Screen(socket=socket)
    await screen.send(hello())
    return screen, (await screen.until("welcome"))["token"]


async def test_an_answer_brings_its_files_to_their_owner_only(web_guest: Visitor, fake: RunningFake) -> None:
    page = "<script>alert(1)</script>"
    await fake.script(sends({"name": "../plan.html", "content": page}, {"name": "chart.png", "chart": CHART}))
    answer = await asked(web_guest)
    assert answer["text"] == "There they are."
    told, drawn = answer["attachments"]
    assert (told["name"], told["mime"], told["size"]) == ("plan.html", "text/html", len(page))
    assert (drawn["name"], drawn["width"], drawn["height"]) == ("chart.png", 1200, 720)
    assert await fetched(web_guest, told, web_guest.token) == (
        200,
        page.encode(),
        "text/plain; charset=utf-8",
    )
    status, body, mime = await fetched(web_guest, drawn, web_guest.token)
    assert (status, mime) == (200, "image/png")
    with Image.open(io.BytesIO(body)) as shown:
        assert shown.size == (1200, 720)
    other, token = await stranger(web_guest)
    assert (await fetched(web_guest, told, token))[0] in (401, 404)
    await other.socket.close()
    socket = await web_guest.client.ws_connect(f"{web_guest.url}/ws", headers={"Origin": web_guest.url})
    again = Screen(socket=socket)
    await again.send(hello(token=web_guest.token))
    events = (await again.until("welcome"))["events"]
    assert [event["attachments"] for event in events if event.get("role") == "assistant"] == [[told, drawn]]
    await again.socket.close()
    await promises_hold(web_guest.app)


async def test_too_many_or_invalid_files_are_refused_to_the_model(
    web_guest: Visitor, fake: RunningFake
) -> None:
    many = [{"name": f"{number}.txt", "content": f"text {number}"} for number in range(6)]
    odd = {"name": "odd.png", "chart": {**CHART, "series": [{"values": [1, 2, 3]}]}}
    both = {"name": "both.txt", "content": "x", "chart": CHART}
    huge = {"name": "huge.png", "chart": {**CHART, "series": [{"values": [1e300, 1]}]}}
    await fake.script(sends(*many, odd, both, huge))
    answer = await asked(web_guest)
    assert [one["name"] for one in answer["attachments"]] == [f"{number}.txt" for number in range(5)]
    words = json.dumps((await fake.requests())[-1]["body"]["messages"][-1])
    assert words.count("Not sent: 5 files are the most for one answer.") == 1
    assert "There are 2 labels, but a series has 3 values." in words
    assert "Give either `content` for a text, or `chart` for a picture." in words
    assert "Values must be numbers of at most 1e+15." in words


async def test_an_export_names_them_and_forgetting_takes_them_along(
    web_guest: Visitor, fake: RunningFake
) -> None:
    await fake.script(sends({"name": "plan.txt", "content": f"My {CANARY}"}))
    (file,) = (await asked(web_guest))["attachments"]
    address = f"{web_guest.url}/api/v1/export?format=json"
    async with web_guest.client.get(address, headers=web_guest.bearer) as response:
        (talk,) = (await response.json())["conversations"]
    assert [one["name"] for one in talk["attachments"]] == ["plan.txt"]
    await web_guest.command("forget", "everything")
    await web_guest.command("forget", "everything yes")
    assert await web_guest.status_of(file) in (401, 404)
    assert CANARY not in await dumped(web_guest.app.settings)
    await promises_hold(web_guest.app)


async def test_forgetting_the_answer_takes_its_file_along(web_guest: Visitor, fake: RunningFake) -> None:
    await fake.script(sends({"name": "plan.txt", "content": "My plan"}))
    answer = await asked(web_guest)
    session_id = await web_guest.app.pool.fetchval("SELECT id FROM sessions")
    await web_guest.app.erasure.erase_messages(session_id, [int(answer["mid"].removeprefix("m"))], "person")
    assert await web_guest.app.pool.fetchval("SELECT count(*) FROM attachments") == 0
    await promises_hold(web_guest.app)


async def test_forgetting_its_messages_takes_a_file_along(web_guest: Visitor, fake: RunningFake) -> None:
    await fake.script(sends({"name": "plan.txt", "content": f"My {CANARY}"}))
    (file,) = (await asked(web_guest))["attachments"]
    session_id = await web_guest.app.pool.fetchval("SELECT id FROM sessions")
    seqs = [row["seq"] for row in await web_guest.app.pool.fetch("SELECT seq FROM entries")]
    await web_guest.app.erasure.erase_messages(session_id, seqs, "person")
    assert await web_guest.status_of(file) in (401, 404)
    assert CANARY not in await dumped(web_guest.app.settings)
    await promises_hold(web_guest.app)
