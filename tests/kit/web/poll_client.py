"""A browser behind a proxy that holds back unfinished responses: each request waits for the next frames."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientResponse

from tests.kit.web.event_stream_client import URL, post, ticket
from tests.kit.web.fixtures import WAIT_SECONDS, Frame, Server


@dataclass(kw_only=True)
class PollScreen:
    """What a polling browser has received.

    `frames` keeps all frames; `after` and `batch` are what the next request names.
    """

    server: Server
    token: str | None
    name: str
    frames: list[Frame] = field(default_factory=list)
    after: int = 0
    batch: str = ""
    close: Frame | None = None
    unread: list[Frame] = field(default_factory=list)

    def request(self, *, through: Server | None = None, **query: Any) -> Any:
        server = through or self.server
        asked: dict[str, Any] = {
            "site": "default",
            "stream": self.name,
            "after": self.after,
            "batch": self.batch,
            "wait": 5,
        }
        headers = {"Origin": server.url} | ({"Authorization": f"Bearer {self.token}"} if self.token else {})
        url = f"{server.url}{URL}/events"
        return server.client.get(url, params={**asked, **query}, headers=headers)

    async def poll(self, *, through: Server | None = None, **query: Any) -> list[Frame]:
        """Poll once, and return the frames that arrived; the next poll asks only for later ones."""
        async with self.request(through=through, **query) as response:
            if response.status == 204:
                return []
            assert response.status == 200, await response.text()
            return self.read(await response.json())

    def read(self, answer: Frame) -> list[Frame]:
        self.batch, self.close = answer["batch"], answer.get("close")
        found: list[Frame] = answer["frames"]
        for frame in found:
            number = frame.get("head") if frame["t"] == "welcome" else frame.get("event_seq")
            self.after = max(self.after, number or 0)
        self.frames += found
        self.unread += found
        return found

    async def until(self, kind: str, **values: Any) -> Frame:
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                while self.unread:
                    frame = self.unread.pop(0)
                    if frame["t"] == kind and all(frame.get(name) == one for name, one in values.items()):
                        return frame
                await self.poll()

    async def say(self, text: str, cid: str = "c1", *, through: Server | None = None) -> Frame:
        frame = {"t": "msg", "cid": cid, "text": text}
        return await post(through or self.server, self.token, frame, stream=self.name)

    @property
    def numbers(self) -> list[int]:
        return [frame["event_seq"] for frame in self.frames if "event_seq" in frame]


async def open_poll(server: Server, *, by: Server | None = None, **values: Any) -> tuple[PollScreen, Frame]:
    """Start polling, and return the screen and the answer of the first process.

    `by` is that process, if not the one that is polled.
    """
    given = await ticket(by or server, **values)
    assert given["status"] == 200, given
    token = given.get("token") or values.get("token")
    screen = PollScreen(server=server, token=token, name=given["stream"])
    screen.after = values.get("last_seq", 0)
    return screen, await screen.until("welcome")


async def status_of(response: ClientResponse) -> tuple[int, str]:
    """Return the status of a refused request, and the error code in its body."""
    return response.status, (await response.json()).get("code", "")
