"""A visitor without a browser: sends messages, reconnects after a break, and records what a screen would
show.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientError, ClientSession, ClientWebSocketResponse, WSMsgType

CONNECT_SECONDS = 15.0
QUIET_SECONDS = 60.0
"""Seconds of silence after which a connection counts as dead; the server pings every 25."""
ACK_SECONDS = 20.0
FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 5.0
_DOOR_CLOSED = {4400: "the protocols differ", 4401: "the visitor is unknown", 4403: "the site is closed"}


class VisitorRejected(Exception):
    """The server refuses this visitor, now and later."""


class AnswerTimeout(Exception):
    """A message got no answer in time."""


@dataclass(slots=True, kw_only=True)
class VisitorScreen:
    """What one screen was shown, as counts and orders."""

    sent: list[str] = field(default_factory=list)
    """Client ids in the order of sending."""
    acknowledged: dict[str, int] = field(default_factory=dict)
    """Event number of each acknowledged message, by client id."""
    turns: dict[str, int] = field(default_factory=dict)
    """Turn that took the message, by client id."""
    finals: Counter[int] = field(default_factory=Counter)
    """Number of different final answers, by turn."""
    refused: dict[str, str] = field(default_factory=dict)
    notices: int = 0
    gaps: int = 0
    """Number of durable events that came before their predecessor."""
    reconnects: int = 0
    last_seq: int = 0
    head: int = 0

    @property
    def open(self) -> list[str]:
        """Client ids of the messages whose answer has not been shown."""
        return [cid for cid in self.sent if cid not in self.refused and not self._is_answered(cid)]

    @property
    def answered(self) -> int:
        return sum(self._is_answered(cid) for cid in self.acknowledged)

    def _is_answered(self, cid: str) -> bool:
        return cid in self.acknowledged and self.finals[self.turns.get(cid, -1)] > 0


class SimulatedVisitor:
    """A simulated visitor.

    `run` keeps a connection open until it is cancelled; `say` and `settled` are for the test or replay.
    """

    def __init__(self, http: ClientSession, url: str) -> None:
        self._http = http
        self._url = url
        self._socket: ClientWebSocketResponse | None = None
        self._waiting: dict[str, str] = {}
        """Text of each message that was sent but not acknowledged, by client id in order."""
        self._changed = asyncio.Event()
        self._mids: set[str] = set()
        self._token: str | None = None
        self.session = ""
        self.model = ""
        self.seen = VisitorScreen()

    async def run(self) -> None:
        """Keep a connection open, reconnecting after breaks.

        Raises VisitorRejected if the server refuses the visitor for good.
        """
        failures = 0
        while True:
            try:
                heard = await self._visit()
            except (ClientError, OSError, TimeoutError):
                heard = False
            failures = 1 if heard else failures + 1
            self.seen.reconnects += 1
            await asyncio.sleep(min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(failures, 6)))

    async def say(self, text: str) -> str:
        """Send a message, and return its client id.

        Without a connection, the message is sent with the next one.
        """
        cid = f"replay-{secrets.token_hex(8)}"
        self.seen.sent.append(cid)
        self._waiting[cid] = text
        await self._send_message(cid, text)
        return cid

    async def settled(self, *, timeout_seconds: float) -> None:
        """Wait until every message so far has its answer on the screen.

        Raises AnswerTimeout after `timeout_seconds`.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                while self.seen.open:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AnswerTimeout(f"{len(self.seen.open)} messages without an answer") from None

    # One socket.

    async def _visit(self) -> bool:
        """Open one connection and listen until it ends; return True if the server greeted the visitor."""
        async with asyncio.timeout(CONNECT_SECONDS):
            socket = await self._http.ws_connect(
                f"{self._url}/ws", origin=self._url, max_msg_size=0, autoping=True
            )
        try:
            await self._greet(socket)
            self._socket = socket
            for cid, text in list(self._waiting.items()):
                await self._send_message(cid, text)
            await self._listen(socket)
        finally:
            self._socket = None
            with contextlib.suppress(ClientError, OSError, TimeoutError):
                async with asyncio.timeout(2):
                    await socket.close()
        return True

    async def _greet(self, socket: ClientWebSocketResponse) -> None:
        hello = {"t": "hello", "v": 1, "site": "default", "last_seq": self.seen.last_seq, "locale": "en"}
        if self._token:
            hello["token"] = self._token
        await socket.send_json({**hello, "tz": "UTC"})
        frame = await self._next(socket, CONNECT_SECONDS)
        if frame is None or frame.get("t") != "welcome":
            self._check_door(socket, frame)
            raise ClientError("no welcome")
        self._token = frame.get("token", self._token)
        self.session = str(frame["session"])
        self.model = str(frame.get("model", {}).get("name", ""))
        if not frame["resumed"]:
            # The backlog begins in the middle; earlier events never belonged to this visitor.
            self.seen.last_seq = min((event["event_seq"] for event in frame["events"]), default=1) - 1
        for event in frame["events"]:
            self._hear(event)
        self.seen.last_seq = max(self.seen.last_seq, int(frame["head"]))

    async def _listen(self, socket: ClientWebSocketResponse) -> None:
        while True:
            frame = await self._next(socket, ACK_SECONDS if self._waiting else QUIET_SECONDS)
            if frame is None:
                self._check_door(socket, None)
                return
            self._hear(frame)
            if frame.get("t") == "error" and frame.get("code") == "rate_limited":
                await asyncio.sleep(float(frame.get("retry_after", 1.0)))
                if (cid := frame.get("cid")) in self._waiting:
                    await self._send_message(cid, self._waiting[cid])

    async def _next(self, socket: ClientWebSocketResponse, seconds: float) -> dict[str, Any] | None:
        """None when the socket has ended; a silence is answered with a ping first."""
        try:
            message = await socket.receive(timeout=seconds)
        except TimeoutError:
            await socket.send_json({"t": "ping", "n": 1})
            message = await socket.receive(timeout=CONNECT_SECONDS)
        if message.type is not WSMsgType.TEXT:
            return None
        frame = json.loads(message.data)
        return frame if isinstance(frame, dict) else {}

    async def _send_message(self, cid: str, text: str) -> None:
        if self._socket is None:
            return
        with contextlib.suppress(ClientError, OSError):
            await self._socket.send_json({"t": "msg", "cid": cid, "text": text})

    def _check_door(self, socket: ClientWebSocketResponse, frame: Mapping[str, Any] | None) -> None:
        if frame and frame.get("code") in ("unknown_token", "unknown_site"):
            raise VisitorRejected(str(frame.get("message")))
        if reason := _DOOR_CLOSED.get(socket.close_code or 0):
            raise VisitorRejected(reason)

    # What is heard.

    def _hear(self, frame: Mapping[str, Any]) -> None:
        match frame.get("t"):
            case "ack":
                self.seen.acknowledged.setdefault(frame["cid"], frame["event_seq"])
                self._waiting.pop(frame["cid"], None)
            case "error" if "cid" in frame and frame.get("code") != "rate_limited":
                self.seen.refused[frame["cid"]] = str(frame.get("code"))
                self._waiting.pop(frame["cid"], None)
            case _ if "event_seq" in frame:
                self._durable(frame)
        self._changed.set()

    def _durable(self, frame: Mapping[str, Any]) -> None:
        number = int(frame["event_seq"])
        if number <= self.seen.last_seq:
            return
        self.seen.gaps += number != self.seen.last_seq + 1
        self.seen.last_seq = number
        if frame["t"] == "msg":
            self._message(frame)

    def _message(self, frame: Mapping[str, Any]) -> None:
        mid, turn = str(frame.get("mid")), frame.get("turn")
        if mid in self._mids or not isinstance(turn, int):
            return
        self._mids.add(mid)
        if frame.get("role") == "person":
            if cid := frame.get("cid"):
                self.seen.turns[cid] = turn
        elif frame.get("waiting"):
            self.seen.notices += 1
        else:
            self.seen.finals[turn] += 1
