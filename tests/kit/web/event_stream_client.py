"""A browser behind a proxy that blocks WebSocket: it reads an event stream, and sends by requests."""

from __future__ import annotations

import asyncio
import codecs
import io
import json
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientResponse

from tests.kit.web.fixtures import WAIT_SECONDS, Frame, Server, hello

URL = "/api/v1/stream"


@dataclass(kw_only=True)
class StreamScreen:
    """What a browser has received: `frames` from the event stream, `answers` as the answers to its
    requests.
    """

    server: Server
    response: ClientResponse
    token: str | None
    name: str
    frames: list[Frame] = field(default_factory=list)
    answers: list[Frame] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    comments: int = 0
    close: Frame | None = None
    unread: str = ""
    decode: Any = field(default_factory=lambda: codecs.getincrementaldecoder("utf-8")().decode)

    async def next(self) -> Frame | None:
        """None when the server has closed."""
        async with asyncio.timeout(WAIT_SECONDS):
            while (block := await self._block()) is not None:
                self.comments += ":" in block
                if "id" in block:
                    self.ids.append(int(block["id"]))
                if block.get("event") == "close":
                    self.close = json.loads(block["data"])
                    return None
                if "data" in block and block["data"] != '{"t":"pong","n":0}':
                    frame: Frame = json.loads(block["data"])
                    self.frames.append(frame)
                    return frame
            return None

    async def _block(self) -> dict[str, str] | None:
        while "\n\n" not in self.unread:
            piece = await self.response.content.readany()
            if not piece:
                return None
            self.unread += self.decode(piece)
        block, _, self.unread = self.unread.partition("\n\n")
        lines = (line.partition(": ") for line in block.split("\n"))
        return {name or ":": value for name, _, value in lines}

    async def until(self, kind: str, **values: Any) -> Frame:
        while True:
            frame = await self.next()
            assert frame is not None, f"closed with {self.close} before {kind}"
            if frame["t"] == kind and all(frame.get(name) == value for name, value in values.items()):
                return frame

    async def closed(self) -> int | None:
        while await self.next() is not None:
            pass
        return None if self.close is None else self.close["code"]

    async def send(self, *frames: Frame, through: Server | None = None) -> Frame:
        """Send frames by one request, and return its answer.

        `through` names another web process than the stream's.
        """
        answer = await post(through or self.server, self.token, *frames, stream=self.name)
        assert "frames" in answer, answer
        self.answers += answer["frames"]
        return answer

    async def say(self, text: str, cid: str = "c1") -> Frame:
        return await self.send({"t": "msg", "cid": cid, "text": text})

    @property
    def numbers(self) -> list[int]:
        return [frame["event_seq"] for frame in self.frames if "event_seq" in frame]


async def post(server: Server, token: str | None, *frames: Any, **body: Any) -> Frame:
    headers = {"Origin": server.url, "Content-Type": "application/json"}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    said = json.dumps({"site": "default", "frames": list(frames), **body}).encode()
    async with server.client.post(
        f"{server.url}{URL}/send", data=io.BytesIO(said), headers=headers
    ) as response:
        answer: Frame = await response.json()
        return {"status": response.status, **answer}


async def ticket(server: Server, **values: Any) -> Frame:
    async with server.client.post(
        f"{server.url}{URL}", json=hello(**values), headers={"Origin": server.url}
    ) as response:
        answer: Frame = await response.json()
        return {"status": response.status, **answer}


async def open_stream(
    server: Server, *, last_event_id: int | None = None, by: Server | None = None, **values: Any
) -> tuple[StreamScreen, Frame]:
    """Open a stream, and return its screen and the ticket's answer.

    `by` is the process that issues the ticket, if not the stream's.
    """
    given = await ticket(by or server, **values)
    assert given["status"] == 200, given
    headers = {} if last_event_id is None else {"Last-Event-ID": str(last_event_id)}
    response = await server.client.get(
        f"{server.url}{URL}", params={"ticket": given["ticket"]}, headers=headers
    )
    assert response.status == 200, await response.text()
    token = given.get("token") or values.get("token")
    screen = StreamScreen(server=server, response=response, token=token, name=given["stream"])
    return screen, await screen.until("welcome")
