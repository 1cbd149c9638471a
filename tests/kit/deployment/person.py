"""Person with a browser that sends unacknowledged messages again, resumes after each break, and checks every
event.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import aiohttp

PATIENCE_SECONDS = 60.0
"""Seconds that anything may take if no time is promised, since machines may be busy."""
AGAIN_SECONDS = 0.1
UNKNOWN_TOKEN = 4401
_cids = count(1)

Frame = dict[str, Any]
WALK = "We walked along the river and talked of this and that. " * 12
"""Text that is longer than its summary."""


@dataclass(slots=True)
class Person:
    """Person with an open WebSocket, as `async with Person(port)`; reconnects until the context ends."""

    port: int
    token: str | None = None
    name: str = "p"
    tls: ssl.SSLContext | None = None
    """TLS context for a server with a certificate."""
    said: dict[str, str] = field(default_factory=dict)
    """Texts of the sent messages by cid, in order."""
    acks: dict[str, Frame] = field(default_factory=dict)
    seen: dict[int, Frame] = field(default_factory=dict)
    """Stored events by number, as the client has them."""
    contradictions: list[str] = field(default_factory=list)
    deltas: list[Frame] = field(default_factory=list)
    commands: dict[str, Frame] = field(default_factory=dict)
    errors: list[Frame] = field(default_factory=list)
    connections: int = 0
    read_so_far: int = 0
    """Number of the last read event according to the last welcome."""
    again: int = 0
    """Number of messages that were sent again because the server had lost an acknowledged one."""
    _waiting: dict[str, Frame] = field(default_factory=dict)
    _epoch: int = 0
    _socket: aiohttp.ClientWebSocketResponse | None = None
    _living: asyncio.Task[None] | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aenter__(self) -> Person:
        self._living = asyncio.create_task(self._live())
        await self.until(lambda: self._socket is not None, "a welcome")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._living is not None
        self._living.cancel()
        await asyncio.wait([self._living])

    async def say(self, words: str, *, files: Sequence[str] = ()) -> str:
        """Send a message; without acknowledgement it is sent again after the next connection.

        Return its cid.
        """
        cid = f"{self.name}{next(_cids)}"
        self.said[cid] = words
        attached = {"attachments": list(files)} if files else {}
        await self._send(cid, {"t": "msg", "cid": cid, "text": words, **attached})
        return cid

    async def command(self, name: str, args: str = "") -> str:
        cid = f"{self.name}{next(_cids)}"
        await self._send(cid, {"t": "command", "cid": cid, "command": name, "args": args})
        return cid

    async def result_of(self, cid: str, what: str = "the end of a command") -> Frame:
        await self.until(lambda: cid in self.commands, what)
        return self.commands[cid]

    async def judge(self, mid: str, value: int, words: str = "") -> str:
        cid = f"{self.name}{next(_cids)}"
        await self._send(
            cid,
            {"t": "feedback", "cid": cid, "mid": mid, "value": value, **({"text": words} if words else {})},
        )
        return cid

    async def edit(self, mid: str, words: str) -> str:
        cid = f"{self.name}{next(_cids)}"
        await self._send(cid, {"t": "edit", "cid": cid, "mid": mid, "text": words})
        return cid

    async def read(self, number: int) -> None:
        """Mark as read up to this event; the next welcome shows it, since there is no acknowledgement."""
        assert self._socket is not None
        await self._socket.send_json({"t": "read", "seq": number})

    async def ask(self, words: str) -> Frame:
        """Send a message and return the frame of its answer."""
        cid = await self.say(words)
        await self.answered()
        answer = self.answer_to(cid)
        assert answer is not None
        return answer

    async def acknowledged(self) -> None:
        await self.until(lambda: set(self.said) <= set(self.acks), "every acknowledgement")

    async def answered(self, *, within_seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until every message is acknowledged and answered on this screen."""
        await self.until(
            lambda: all(self.answer_to(cid) is not None for cid in self.said),
            "every answer", within_seconds=within_seconds,
        )  # fmt: skip

    def answer_to(self, cid: str) -> Frame | None:
        ack = self.acks.get(cid)
        asked = self.seen.get(ack["event_seq"]) if ack else None
        if asked is None:
            return None
        return next((frame for frame in self.finals if frame["turn"] == asked["turn"]), None)

    @property
    def messages(self) -> list[Frame]:
        return [self.seen[number] for number in sorted(self.seen) if self.seen[number]["t"] == "msg"]

    @property
    def finals(self) -> list[Frame]:
        """Messages that end a turn: answers, and notices that say why there is none."""
        ends = ("assistant", "notice")
        return [frame for frame in self.messages if frame["role"] in ends and not frame.get("waiting")]

    @property
    def last_seq(self) -> int:
        """Number of the last event before the first missing one."""
        number = 0
        while number + 1 in self.seen:
            number += 1
        return number

    async def until(
        self, true: Callable[[], bool], what: str, *, within_seconds: float = PATIENCE_SECONDS
    ) -> None:
        end = time.monotonic() + within_seconds
        while not true():
            self._changed.clear()
            left = end - time.monotonic()
            if left <= 0:
                raise AssertionError(f"{self.name} waited for {what} in vain; {self._story()}")
            try:
                await asyncio.wait_for(self._changed.wait(), min(left, 0.5))
            except TimeoutError:
                continue

    def _story(self) -> str:
        unanswered = [cid for cid in self.said if self.answer_to(cid) is None]
        return (
            f"said {len(self.said)}, acknowledged {len(self.acks)}, unanswered {unanswered}, "
            f"connections {self.connections}, errors {self.errors[-3:]}, last {self.messages[-3:]}"
        )

    # Connection.

    async def _live(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, connect=5)) as browser:
            while True:
                try:
                    await self._talk(browser)
                except (aiohttp.ClientError, OSError, TimeoutError):
                    pass
                finally:
                    self._socket = None
                await asyncio.sleep(AGAIN_SECONDS)

    async def _talk(self, browser: aiohttp.ClientSession) -> None:
        here, secure = f"127.0.0.1:{self.port}", "s" if self.tls else ""
        async with browser.ws_connect(
            f"ws{secure}://{here}/ws", origin=f"http{secure}://{here}", ssl=self.tls or True,
            timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
        ) as socket:  # fmt: skip
            hello: Frame = {"t": "hello", "v": 1, "site": "default", "last_seq": self.last_seq}
            await socket.send_json({**hello, "token": self.token} if self.token else hello)
            async for message in socket:
                if message.type is not aiohttp.WSMsgType.TEXT:
                    return
                frame = json.loads(message.data)
                if frame["t"] == "welcome":
                    if frame["resumed"] and self._epoch not in (0, frame["log_epoch"]):
                        self.seen.clear()
                        return
                    await self._welcomed(socket, frame)
                else:
                    self._heard(frame)
                self._changed.set()
            if socket.close_code == UNKNOWN_TOKEN:
                self.token = None
                self.seen.clear()

    async def _welcomed(self, socket: aiohttp.ClientWebSocketResponse, frame: Frame) -> None:
        self.connections += 1
        self.token = frame.get("token", self.token)
        self.read_so_far = frame["read"]
        if self._epoch not in (0, frame["log_epoch"]):
            self._begin_anew({event.get("cid") for event in frame["events"]})
        self._epoch = frame["log_epoch"]
        for event in frame["events"]:
            self._heard(event)
        self._socket = socket
        for waiting in list(self._waiting.values()):
            await socket.send_json(waiting)

    def _begin_anew(self, stored: set[Any]) -> None:
        """Forget the events after a change of the log epoch, and send messages that are no longer stored
        again, in order.
        """
        self.seen.clear()
        self.contradictions.clear()
        lost = {cid: words for cid, words in self.said.items() if cid not in stored}
        self.again += len(lost.keys() & self.acks.keys())
        for cid in lost:
            self.acks.pop(cid, None)
        commands = {cid: one for cid, one in self._waiting.items() if cid not in self.said}
        self._waiting = {
            **{cid: {"t": "msg", "cid": cid, "text": words} for cid, words in lost.items()}, **commands,
        }  # fmt: skip

    async def _send(self, cid: str, frame: Frame) -> None:
        self._waiting[cid] = frame
        socket = self._socket
        if socket is not None:
            try:
                await socket.send_json(frame)
            except (aiohttp.ClientError, OSError):
                return

    def _heard(self, frame: Frame) -> None:
        match frame["t"]:
            case "ack":
                self.acks[frame["cid"]] = frame
                self._waiting.pop(frame["cid"], None)
            case "delta":
                self.deltas.append(frame)
            case "error":
                self.errors.append(frame)
            case "command.result" if frame.get("cid"):
                self.commands[frame["cid"]] = frame
                self._waiting.pop(frame["cid"], None)
        if isinstance(frame.get("event_seq"), int) and frame["t"] != "ack":
            self._keep(frame)

    def _keep(self, frame: Frame) -> None:
        """Keep an event; the same number must always bring the same event."""
        number = frame["event_seq"]
        before = self.seen.setdefault(number, frame)
        if (before["t"], before.get("mid"), before.get("text")) != (
            frame["t"], frame.get("mid"), frame.get("text"),
        ):  # fmt: skip
            self.contradictions.append(f"event {number}: {before} then {frame}")
